"""What a room says about its kind of owner of artifacts: a session, a job. The storage names no key of a
room, but asks this.

A room subclasses `OwnerKind` for each kind that it has and declares it in its `room.py`. Writers of artifacts
use it too, and requests to delete them.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from remuda.fleet.origin import Scope


@dataclass(frozen=True, kw_only=True)
class Retention:
    """How long the artifacts of one kind of owner are kept."""

    seconds: float | None = None
    """After the owner's last write; None: for ever."""
    eviction_rank: int | None = 0
    """On a full disk, lower ranks are deleted first; None: never."""


class OwnerKind(ABC):
    """One kind of owner: which of them are active, where their artifacts are, how long these are kept."""

    name: ClassVar[str]
    scope: ClassVar[Scope] = Scope.USE
    """What a token must be good for to read artifacts of its account."""

    def __init__(self, retention: Retention) -> None:
        self.retention = retention

    @abstractmethod
    async def active(self, ids: Collection[str]) -> set[str]:
        """Those that may still write artifacts. Nothing of theirs is removed."""

    @abstractmethod
    async def account_of(self, owner_id: str) -> str | None:
        """The account that the owner belongs to; None when its room does not know, for instance any more."""

    @abstractmethod
    async def link(self, owner_id: str, storage: str) -> bool:
        """Notes that this storage holds the owner's artifacts; False when there is no such owner any more."""

    @abstractmethod
    async def find_storage(self, owner_id: str) -> str | None:
        """The id of the storage that holds the owner's artifacts, if any."""

    @abstractmethod
    async def unlink(self, owner_id: str, storage: str) -> None:
        """Forgets that this storage holds the owner's artifacts. A link to another storage stays."""

    def finish(self, directory: Path) -> bool:
        """Completes what an owner that is not active any more has left half-written; whether that was needed.

        It blocks, and runs in a thread. By default nothing is ever half-written.
        """
        return False
