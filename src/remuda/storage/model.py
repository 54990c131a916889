"""What an artifact is, where it lies, and which sessions must go when there is no room. Pure.

An artifact is a file `<session id>/<name>` below the storage's directory; that path names it in Redis, in the
index and in its URL alike. Nothing else is one: no deeper path, no hidden file, nothing beside a session.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NewType

import msgspec
from msgspec import Struct

from remuda.base import clock
from remuda.base.errors import InvalidArgument
from remuda.base.ids import SessionId, is_uuid

StorageId = NewType("StorageId", str)
"""One directory of artifacts, wherever it is mounted."""

LONGEST_NAME = 255
"""Bytes; what file systems take."""
LARGEST_SIZE = 1 << 50
TOLERATED_FUTURE = 24 * 3600.0
"""Clocks of two machines differ, but not by more than this."""


class Place(Struct, frozen=True, order=True):
    """Where an artifact lies below the storage's directory."""

    session: SessionId
    name: str

    def __str__(self) -> str:
        return f"{self.session}/{self.name}"


@dataclass(frozen=True)
class Artifact:
    """A file with what the index knows of it; times in Unix seconds."""

    place: Place
    size: int
    modified: float
    accessed: float


class FileMetadata(Struct):
    """News of a file, as `storage:{storage}:metadata.pending` carries it."""

    path: str
    # The original writes it as a float.
    size: float
    last_modified: str
    last_access: str


def is_name(text: str) -> bool:
    """Whether a file of this name can be an artifact."""
    if not text or text.startswith(".") or "/" in text or not text.isprintable():
        return False
    try:
        return len(text.encode()) <= LONGEST_NAME
    except UnicodeEncodeError:  # Half a surrogate pair: not a text at all.
        return False


def parse_place(path: str) -> Place:
    """The place that a relative path names; InvalidArgument when no artifact can lie there."""
    session, _, name = path.partition("/")
    if not is_uuid(session) or not is_name(name):
        raise InvalidArgument(f"{path[:LONGEST_NAME]!r} is no path of an artifact: <session id>/<name>")
    return Place(SessionId(session), name)


def write_news(artifact: Artifact) -> str:
    """The entry that tells a storage of this artifact."""
    news = FileMetadata(
        path=str(artifact.place),
        size=artifact.size,
        last_modified=clock.rfc3339(artifact.modified),
        last_access=clock.rfc3339(artifact.accessed),
    )
    return msgspec.json.encode(news).decode()


def read_news(entry: str, *, now: float) -> Artifact:
    """The artifact that an entry tells of; InvalidArgument when no honest writer can have written it."""
    try:
        news = msgspec.json.decode(entry, type=FileMetadata)
        modified, accessed = clock.parse_rfc3339(news.last_modified), clock.parse_rfc3339(news.last_access)
    except (ValueError, OverflowError) as error:  # msgspec's errors are ValueErrors.
        raise InvalidArgument(f"This is no metadata of a file: {error}") from error
    if not 0 <= news.size <= LARGEST_SIZE:
        raise InvalidArgument(f"No file has a size of {news.size:g} bytes")
    if not all(0 <= moment <= now + TOLERATED_FUTURE for moment in (modified, accessed)):
        raise InvalidArgument(f"No file is of {news.last_modified}, read at {news.last_access}")
    return Artifact(parse_place(news.path), int(news.size), modified, accessed)


# Eviction


@dataclass(frozen=True)
class Holding:
    """What a storage keeps of one session."""

    session: SessionId
    size: int
    modified: float
    accessed: float

    @property
    def last_use(self) -> float:
        return max(self.modified, self.accessed)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much a storage keeps, and for how long."""

    size: int | None = None
    """Bytes of artifacts; None: as many as the disk holds."""
    age: float | None = None
    """Seconds after its last write for which a session is kept; None: for ever."""
    reserve: int = 1 << 30
    """Bytes of the disk that are left free, whoever fills it."""
    low_water: float = 0.8
    """Once over the limit, it is cleared down to this share: not one session for each new one."""
    quiet: float = 300.0
    """Seconds since its last write before a session may go."""
    at_once: int = 200
    """Sessions that one run evicts at most."""


@dataclass(frozen=True)
class Fill:
    """How full a storage and its disk are, in bytes."""

    used: int
    disk_total: int
    disk_free: int

    def capacity(self, limits: Limits) -> int:
        """How much the storage may hold."""
        return self.disk_total if limits.size is None else min(limits.size, self.disk_total)

    def excess(self, limits: Limits) -> int:
        """Bytes that must go; 0 while everything fits."""
        # A reserve larger than the disk would clear everything, for ever.
        reserve = min(limits.reserve, self.disk_total // 10)
        over = 0
        if limits.size is not None and self.used > limits.size:
            over = self.used - int(limits.size * limits.low_water)
        return max(over, reserve - self.disk_free, 0)


def choose_evictions(
    holdings: Iterable[Holding], fill: Fill, limits: Limits, *, active: Collection[SessionId], now: float
) -> list[SessionId]:
    """The sessions to evict: those too old, then the least recently used until there is room."""
    movable = [
        each for each in holdings if each.session not in active and now - each.modified >= limits.quiet
    ]
    old = [] if limits.age is None else [each for each in movable if now - each.modified > limits.age]
    old.sort(key=lambda each: each.modified)
    gone = {each.session for each in old}
    rest = sorted((each for each in movable if each.session not in gone), key=lambda each: each.last_use)
    room = _make_room(rest, fill.excess(limits) - sum(each.size for each in old))
    return [each.session for each in (*old, *room)][: limits.at_once]


def _make_room(holdings: Sequence[Holding], excess: int) -> list[Holding]:
    """The first holdings that together are as large as the excess."""
    chosen: list[Holding] = []
    for holding in holdings:
        if excess <= 0:
            break
        # One without a byte would go for nothing.
        if holding.size:
            chosen.append(holding)
            excess -= holding.size
    return chosen
