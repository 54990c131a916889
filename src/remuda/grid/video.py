"""Whether a session is to be recorded, and how: what its client says of it, and what the herd does unasked.
Pure.

Selenium writes `se:recordVideo`, Selenoid and Moon `enableVideo` among their options, WebGrid
`disableRecording`. The words of all of them are understood wherever one of them may stand; `remuda:options`
has the last word.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from remuda.base.errors import InvalidArgument
from remuda.grid.capabilities import Capabilities

MIN_SIDE = 64
MAX_WIDTH, MAX_HEIGHT = 3840, 2160
MAX_RATE = 30
LONGEST_NAME = 120
FILE = "video.mp4"

WORDS = frozenset(
    (
        *("enableVideo", "recordVideo", "disableRecording"),
        *("screenResolution", "videoScreenSize", "videoFrameRate", "videoName"),
    )
)
"""All that is read here."""

# Selenoid writes the depth of the screen behind its size.
_SIZE = re.compile(r"(\d{1,5})x(\d{1,5})(?:x\d{1,2})?")
# What a playlist, a URL and ffmpeg's own patterns all take as it is.
_UNSAFE = re.compile(r"[^A-Za-z0-9_.=@+-]")


class Size(NamedTuple):
    """Pixels; both even, since H.264 halves the colours."""

    width: int
    height: int

    def __str__(self) -> str:
        return f"{self.width}x{self.height}"


@dataclass(frozen=True)
class Video:
    """How a session is recorded."""

    size: Size
    rate: int
    """Frames a second."""
    file: str = FILE


@dataclass(frozen=True)
class VideoWish:
    """What a client says of its video; None where it leaves that to the herd."""

    record: bool | None = None
    size: Size | None = None
    rate: int | None = None
    file: str | None = None

    def settle(self, *, record: bool, size: str, rate: int) -> Video | None:
        """The video to make, with the herd's own choice where the client has none; None for no video."""
        if not (record if self.record is None else self.record):
            return None
        return Video(self.size or read_size(size, "record_size"), self.rate or rate, self.file or FILE)


def read_video(wanted: Capabilities) -> VideoWish:
    """What a capability set says of its video; InvalidArgument names what cannot be used."""
    found: dict[str, Any] = {}
    for where, given in _places(wanted):
        found |= {name: value for name, value in _read(given, where) if value is not None}
    return VideoWish(**found)


def _places(wanted: Capabilities) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Where the words may stand; the last word comes last."""
    yield "se:...", {name[3:]: value for name, value in wanted.items() if name.startswith("se:")}
    for capability in ("moon:options", "selenoid:options", "webgrid:options", "remuda:options"):
        given = wanted.get(capability)
        if isinstance(given, dict):
            yield capability, given


def _read(given: Mapping[str, Any], where: str) -> Iterator[tuple[str, Any]]:
    for word in ("enableVideo", "recordVideo"):
        yield "record", _flag(given.get(word), f"{word!r} in {where}")
    is_disabled = _flag(given.get("disableRecording"), f"'disableRecording' in {where}")
    yield "record", None if is_disabled is None else not is_disabled
    # The size of the screen is more than a video's, so one that no video can have is not refused.
    yield "size", _parse_size(given.get("screenResolution"))
    if given.get("videoScreenSize") is not None:
        yield "size", read_size(given["videoScreenSize"], f"'videoScreenSize' in {where}")
    if given.get("videoFrameRate") is not None:
        yield "rate", _rate(given["videoFrameRate"], f"'videoFrameRate' in {where}")
    if given.get("videoName") is not None:
        yield "file", _file(given["videoName"], f"'videoName' in {where}")


def _flag(value: Any, where: str) -> bool | None:
    # Selenium takes the word for it, too.
    flags = {None: None, True: True, False: False, "true": True, "false": False}
    if not isinstance(value, bool | str | None) or value not in flags:
        raise InvalidArgument(f"{where} is {str(value)[:50]!r}; it must be true or false")
    return flags[value]


def read_size(value: Any, where: str) -> Size:
    """The size that a text such as `1280x720` names; InvalidArgument when no video can have it."""
    size = _parse_size(value)
    if size is None:
        raise InvalidArgument(
            f"{where} is {str(value)[:50]!r}; it must be a size such as '1280x720', "
            f"from {MIN_SIDE}x{MIN_SIDE} to {MAX_WIDTH}x{MAX_HEIGHT}"
        )
    return size


def _parse_size(value: Any) -> Size | None:
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return None
    width, height = int(match[1]), int(match[2])
    if not (MIN_SIDE <= width <= MAX_WIDTH and MIN_SIDE <= height <= MAX_HEIGHT):
        return None
    return Size(width // 2 * 2, height // 2 * 2)


def _rate(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_RATE:
        raise InvalidArgument(f"{where} is {str(value)[:50]!r}; it must be from 1 to {MAX_RATE}")
    return value


def _file(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidArgument(f"{where} is {str(value)[:50]!r}; it must be the name of a file")
    name = _UNSAFE.sub("_", value.removesuffix(".mp4"))[:LONGEST_NAME]
    # Neither hidden nor, for ffmpeg, an option.
    return f"{'_' if name[:1] in ('', '.', '-') else ''}{name}.mp4"
