"""What an artifact is, who owns it, where it lies, and what is deleted if the disk is full. Pure.

An artifact is a file `<owner>/<name>` below the storage's directory; that path names it in Redis, in the
index and in its URL alike. Nothing else is one: no deeper path, no hidden file, nothing beside the owners.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NewType

import msgspec
from msgspec import Struct

from remuda.base import clock
from remuda.base.errors import InvalidArgument
from remuda.base.ids import is_uuid
from remuda.fleet.ownership import Retention

StorageId = NewType("StorageId", str)
"""One directory of artifacts, wherever it is mounted."""

LONGEST_NAME = 255
"""Bytes; what file systems take."""
LARGEST_SIZE = 1 << 50
TOLERATED_FUTURE = 24 * 3600.0
"""Clocks of two machines differ, but not by more than this."""

SESSION = "session"
"""The kind of owner whose directory is the bare id, as in WebGrid. Other kinds name themselves before it."""

_KIND = re.compile(r"[a-z]{1,20}").fullmatch
# Neither a separator nor a dot in front: an id is part of a directory's name and leads nowhere else.
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,127}").fullmatch


class Owner(Struct, frozen=True, order=True):
    """What artifacts belong to: a session, a job. Its text, such as `job_3kx0`, is its directory's name.

    It is checked when it is made, so that no text of a client's becomes a path unchecked.
    """

    kind: str
    id: str

    def __post_init__(self) -> None:
        is_valid = is_uuid(self.id) if self.kind == SESSION else _KIND(self.kind) and _ID(self.id)
        if not is_valid:
            shown = f"{self.kind} {self.id}"[:LONGEST_NAME]
            raise InvalidArgument(f"{shown!r} cannot own artifacts: this is not the id of an owner")

    def __str__(self) -> str:
        return self.id if self.kind == SESSION else f"{self.kind}_{self.id}"

    @classmethod
    def parse(cls, text: str) -> "Owner":
        """The owner that this text names; InvalidArgument when it names none."""
        if is_uuid(text):
            return cls(SESSION, text)
        kind, _, owner_id = text.partition("_")
        if kind == SESSION:  # It would be a second name of the same owner.
            raise InvalidArgument(f"{text[:LONGEST_NAME]!r} is not an owner: a session is its bare id")
        return cls(kind, owner_id)


class ArtifactPath(Struct, frozen=True, order=True):
    """Where an artifact lies below the storage's directory."""

    owner: Owner
    name: str

    def __str__(self) -> str:
        return f"{self.owner}/{self.name}"


@dataclass(frozen=True)
class Artifact:
    """A file with what the index knows of it; times in Unix seconds."""

    path: ArtifactPath
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


def parse_path(text: str) -> ArtifactPath:
    """The path of an artifact that this text is; InvalidArgument when no artifact can lie there."""
    owner, _, name = text.partition("/")
    if not is_name(name):
        raise InvalidArgument(f"{text[:LONGEST_NAME]!r} is not the path of an artifact: <owner>/<name>")
    return ArtifactPath(Owner.parse(owner), name)


def write_news(artifact: Artifact) -> str:
    """The entry that tells a storage of this artifact."""
    news = FileMetadata(
        path=str(artifact.path),
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
        raise InvalidArgument(f"This is not the metadata of a file: {error}") from error
    if not 0 <= news.size <= LARGEST_SIZE:
        raise InvalidArgument(f"No file has a size of {news.size:g} bytes")
    if not all(0 <= moment <= now + TOLERATED_FUTURE for moment in (modified, accessed)):
        raise InvalidArgument(f"No file is of {news.last_modified}, read at {news.last_access}")
    return Artifact(parse_path(news.path), int(news.size), modified, accessed)


# Eviction


@dataclass(frozen=True)
class Holding:
    """What a storage keeps of one owner."""

    owner: Owner
    size: int
    modified: float
    accessed: float

    @property
    def last_use(self) -> float:
        return max(self.modified, self.accessed)


@dataclass(frozen=True, kw_only=True)
class StorageLimits:
    """How much a storage keeps."""

    size: int | None = None
    """Bytes of artifacts; None: as many as the disk holds."""
    reserve: int = 1 << 30
    """Bytes of the disk that are left free, whatever fills it."""
    low_water: float = 0.8
    """Once over the limit, it is cleared down to this share: not one owner for each new one."""
    quiet: float = 300.0
    """Seconds since its last write before an owner's artifacts may go."""
    at_once: int = 200
    """Owners whose artifacts one run evicts at most."""


@dataclass(frozen=True)
class Fill:
    """How full a storage and its disk are, in bytes."""

    used: int
    disk_total: int
    disk_free: int

    def capacity(self, limits: StorageLimits) -> int:
        """How much the storage may hold."""
        return self.disk_total if limits.size is None else min(limits.size, self.disk_total)

    def excess(self, limits: StorageLimits) -> int:
        """Bytes that must go; 0 while everything fits."""
        # A reserve larger than the disk would clear everything, for ever.
        reserve = min(limits.reserve, self.disk_total // 10)
        over = 0
        if limits.size is not None and self.used > limits.size:
            over = self.used - int(limits.size * limits.low_water)
        return max(over, reserve - self.disk_free, 0)


def choose_evictions(
    holdings: Iterable[Holding],
    fill: Fill,
    limits: StorageLimits,
    *,
    retentions: Mapping[str, Retention],
    active: Collection[Owner],
    now: float,
) -> list[Owner]:
    """The owners whose artifacts go: those too old, then by rank the least recently used until there is room.

    `retentions` has a rule for each kind of owner. A kind without one is spared: no room could say whether
    its owners are active.
    """
    old: list[Holding] = []
    rest: list[tuple[int, float, Holding]] = []
    for each in holdings:
        rule = retentions.get(each.owner.kind)
        if rule is None or each.owner in active or now - each.modified < limits.quiet:
            continue
        if rule.seconds is not None and now - each.modified > rule.seconds:
            old.append(each)
        elif rule.eviction_rank is not None:
            rest.append((rule.eviction_rank, each.last_use, each))
    old.sort(key=lambda each: each.modified)
    rest.sort(key=lambda entry: entry[:2])
    excess = fill.excess(limits) - sum(each.size for each in old)
    chosen = [each.owner for each in old]
    for _, _, each in rest:
        if excess <= 0:
            break
        if each.size:  # One without a byte would go for nothing.
            chosen.append(each.owner)
            excess -= each.size
    return chosen[: limits.at_once]
