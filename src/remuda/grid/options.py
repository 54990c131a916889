"""What a client says of its session besides the browser: its labels, its patience, its downloads, its video.
Pure.

Clients of other grids keep their own words: `se:name` is Selenium's, `webgrid:options` WebGrid's,
`selenoid:options` and `moon:options` Aerokube's. Where several say the same, `remuda:options` has the last
word.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from remuda.base.errors import InvalidArgument
from remuda.grid.capabilities import Capabilities, kind_of, wants_downloads
from remuda.grid.video import WORDS as VIDEO_WORDS
from remuda.grid.video import VideoWish, read_video

MAX_LABELS = 50
MAX_KEY = 64
MAX_VALUE = 1024
"""Characters of a label's value; the names of parametrised tests are long."""
MIN_IDLE = 1.0
MAX_IDLE = 24 * 3600.0

Labels = dict[str, str]

_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/@+-]*")
# Selenium's own `se:` capabilities: settings, and what clients add by themselves, such as their URL with the
# password in it. Every other one is a label.
_SELENIUM_OWN = frozenset(
    (
        *("downloadsEnabled", "forwardCdp", "recordVideo", "screenResolution", "timeZone", "videoName"),
        *("bidiEnabled", "cdpEnabled", "deleteSessionOnUi", "remoteUrl", "vncEnabled"),
    )
)
_COOKIE = "webgrid:metadata.session:"
# Zalenium's, whose way it was first.
_MESSAGE_COOKIES = ("remuda:message", "webgrid:message", "zaleniumMessage")

# Go's time.ParseDuration, which Selenoid takes: "30m", "1h15m30.5s".
_DURATION = re.compile(r"(?:\d+(?:\.\d*)?(?:ns|us|µs|μs|ms|s|m|h))+")
_DURATION_PART = re.compile(r"(\d+(?:\.\d*)?)(ns|us|µs|μs|ms|s|m|h)")
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True)
class Dialect:
    """How one kind of client writes its options: the capability, and its words for labels and patience."""

    capability: str
    words: Sequence[str]
    labels: str
    idle: str


_OWN = "remuda:options"
# The last word comes last.
_DIALECTS = (
    Dialect("moon:options", ("name",), labels="labels", idle="sessionTimeout"),
    Dialect("selenoid:options", ("name",), labels="labels", idle="sessionTimeout"),
    Dialect("webgrid:options", (), labels="metadata", idle="idleTimeout"),
    Dialect(_OWN, ("name", "build"), labels="metadata", idle="idleTimeout"),
)


_OWN_WORDS = frozenset(
    ("name", "build", "metadata", "idleTimeout", "endsWithWebSocket", "keep", *VIDEO_WORDS)
)


@dataclass(frozen=True)
class Options:
    """What one capability set says; `idle` is None where it leaves that to the herd."""

    labels: Labels = field(default_factory=dict)
    idle: float | None = None
    downloads: bool = False
    ends_with_websocket: bool = False
    """Whether the session is there for its WebSockets only, and ends with the last of them."""
    keep: float = 0.0
    """For how long after that its client may come back."""
    video: VideoWish = VideoWish()


def read_options(wanted: Capabilities) -> Options:
    """The options of a capability set; InvalidArgument says which of them cannot be used."""
    plain = {name.removeprefix("se:"): value for name, value in selenium_labels(wanted).items()}
    labels = read_labels(plain, "the 'se:' capabilities")
    idle = None
    for dialect in _DIALECTS:
        where = dialect.capability
        given = wanted.get(where, {})
        if not isinstance(given, dict):
            raise InvalidArgument(f"{where!r} must be an object, not {kind_of(given)}")
        words = {word: given[word] for word in dialect.words if given.get(word) is not None}
        labels |= read_labels(given.get(dialect.labels) or {}, f"{dialect.labels!r} in {where}")
        labels |= read_labels(words, where)
        if given.get(dialect.idle) is not None:
            idle = read_idle(given[dialect.idle], f"{dialect.idle!r} in {where}")
    check_count(labels)
    own = wanted.get(_OWN, {})
    # Of the words of other grids some mean nothing here. Remuda's own are all known, so others are mistakes.
    if unknown := sorted(own.keys() - _OWN_WORDS):
        known = ", ".join(sorted(_OWN_WORDS))
        raise InvalidArgument(f"{_OWN} has {unknown[0][:50]!r}, which is not an option; these are: {known}")
    return Options(
        labels,
        idle,
        downloads=wants_downloads(wanted),
        ends_with_websocket=own.get("endsWithWebSocket") is True,
        keep=read_keep(own.get("keep", 0), "'keep' in remuda:options"),
        video=read_video(wanted),
    )


def labels_of(sets: Sequence[Capabilities]) -> Labels:
    """The labels of a request. Which set will match is not known yet, so the client's first word counts."""
    labels: Labels = {}
    for each in reversed(sets):
        labels |= read_options(each).labels
    check_count(labels)
    return labels


def selenium_labels(wanted: Capabilities) -> Capabilities:
    """The `se:` capabilities that are labels, as they were written: Selenium Grid hands those back."""
    # Anything but a plain value was not meant to be read by people.
    return {
        name: value
        for name, value in wanted.items()
        if name.startswith("se:")
        and name.removeprefix("se:") not in _SELENIUM_OWN
        and isinstance(value, str | int | float)
    }


def read_labels(given: Any, where: str) -> Labels:
    """Keys and values as they are kept; InvalidArgument when they cannot be."""
    if not isinstance(given, dict):
        raise InvalidArgument(f"{where} must be an object of plain values, not {kind_of(given)}")
    labels = {}
    for key, value in given.items():
        if len(key) > MAX_KEY or not _KEY.fullmatch(key):
            raise InvalidArgument(
                f"{where} has the key {key[: MAX_KEY + 1]!r}; a key is at most {MAX_KEY} "
                "letters, digits and _ . : / @ + -, and begins with a letter, a digit or _"
            )
        labels[key] = _value(key, value, where)
    return labels


def check_count(labels: Mapping[str, str]) -> None:
    """InvalidArgument when a session would have more labels than it may."""
    if len(labels) > MAX_LABELS:
        raise InvalidArgument(f"A session has at most {MAX_LABELS} labels; these are {len(labels)}")


def _value(key: str, value: Any, where: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int | float):
        raise InvalidArgument(f"{key!r} of {where} must be a plain value, not {kind_of(value)}")
    text = str(value)
    if len(text) > MAX_VALUE:
        raise InvalidArgument(f"{key!r} of {where} has {len(text)} characters; it may have {MAX_VALUE}")
    return text


def cookie_label(body: Any) -> Labels | None:
    """The label that an Add Cookie request is meant for; None when it is about a cookie.

    WebGrid's way to label a session from any client: a cookie `webgrid:metadata.session:<key>`.
    """
    cookie = body.get("cookie") if isinstance(body, dict) else None
    name = cookie.get("name") if isinstance(cookie, dict) else None
    if not isinstance(cookie, dict) or not isinstance(name, str) or not name.startswith(_COOKIE):
        return None
    return read_labels({name.removeprefix(_COOKIE): cookie.get("value")}, f"The cookie {_COOKIE}<key>")


def cookie_message(body: Any) -> str | None:
    """The message that an Add Cookie request is meant for; None when it is about a cookie."""
    cookie = body.get("cookie") if isinstance(body, dict) else None
    if not isinstance(cookie, dict) or cookie.get("name") not in _MESSAGE_COOKIES:
        return None
    return read_message(cookie.get("value"), f"The cookie {cookie['name']}")


def read_message(value: Any, where: str) -> str:
    """A message for the viewers of a video; InvalidArgument if it is not a text."""
    if not isinstance(value, str):
        raise InvalidArgument(f"{where} must have a text as its value, not {kind_of(value)}")
    return value


def read_idle(value: Any, where: str) -> float:
    """How many seconds a session may be idle, from a number of them or a Go duration."""
    seconds = _seconds(value)
    if seconds is None or not MIN_IDLE <= seconds <= MAX_IDLE:
        raise InvalidArgument(
            f"{where} is {str(value)[:50]!r}; it must be seconds or a duration such as '5m' or '1h30m', "
            f"from {MIN_IDLE:g} s to {MAX_IDLE / 3600:g} h"
        )
    return seconds


def read_keep(value: Any, where: str) -> float:
    """For how many seconds a session waits for its client to come back, from the same words."""
    seconds = _seconds(value)
    if seconds is None or not 0 <= seconds <= MAX_IDLE:
        raise InvalidArgument(
            f"{where} is {str(value)[:50]!r}; it must be seconds or a duration such as '60s' or '5m', "
            f"at most {MAX_IDLE / 3600:g} h"
        )
    return seconds


def _seconds(value: Any) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    if not isinstance(value, str) or len(value) > 50:
        return None
    if value.isascii() and value.isdigit():
        return float(value)
    if not _DURATION.fullmatch(value):
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in _DURATION_PART.findall(value))
