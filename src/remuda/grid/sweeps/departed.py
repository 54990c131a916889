"""The frame of a sweep that forgets who is gone for good: whom it looks at, how often, and until when."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable

from remuda.base import clock
from remuda.fleet.scan import Scan, work_on
from remuda.grid.sweeps.model import Patience
from remuda.keyspace.key import SetName
from remuda.store import Store


class DepartedSweep(ABC):
    """Looks at everybody whom a set names or somebody has found, and purges who stays without a beat.

    Who seems dead is remembered until it beats or is purged: it may be in no set any more.
    """

    def __init__(self, store: Store, listed: SetName, *, counted_as: str, patience: float) -> None:
        self._store = store
        self._listed = Scan(store, listed)
        self._counted_as = counted_as
        self._patience = Patience(patience)
        self._found: set[str] = set()

    @abstractmethod
    async def _is_alive(self, entry: str) -> bool:
        """Whether anything says that it is not gone."""

    @abstractmethod
    async def _purge(self, entry: str) -> bool:
        """Forgets it; False when it has to wait for the next time."""

    def find(self, ids: Iterable[str]) -> None:
        """Has those looked at, too, who are in no set."""
        self._found.update(ids)

    async def sweep(self) -> Counter[str]:
        """Purges everybody who is gone for good."""
        async for batch in self._listed.batches():
            self._found.update(batch)
        purged = await work_on(sorted(self._found), self._purge_if_gone)
        self._patience.end_round()
        return Counter({self._counted_as: purged})

    async def _purge_if_gone(self, entry: str) -> bool:
        if await self._is_alive(entry):
            self._found.discard(entry)
            return False
        if not self._patience.is_over(entry, now=clock.monotonic()) or not await self._purge(entry):
            return False
        self._found.discard(entry)
        return True
