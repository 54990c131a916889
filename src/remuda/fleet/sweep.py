"""Parts of sweeps: a walk through a large set in batches, work on many items at once, patience with silent
members, and a sweep that purges members of a set that are gone for good."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar

from remuda.base import clock
from remuda.base.errors import RemudaError, Unavailable
from remuda.base.log import get_logger
from remuda.keyspace.key import HashName, Key, SetName
from remuda.store import Store, any_key, load_script

log = get_logger(__name__)

_DEPART = load_script(
    __file__, "depart.lua", keys=[any_key("set"), any_key("own")], args=["member", "absent"]
)

BATCH = 50
"""Entries worked on at a time: few, since Redis does nothing else for others meanwhile."""
PER_RUN = 5_000
"""Entries that one run looks at. More wait for the next run: a sweep is in no hurry."""

T = TypeVar("T")

Sweep = Callable[[], Awaitable[Counter[str]]]
"""Does a bounded piece of work and counts what it did, by words for the log."""


class Scan:
    """A set, a hash (field and value in turn) or all keys, in batches. Takes up where it stopped."""

    def __init__(self, store: Store, key: SetName | HashName | None = None) -> None:
        self._store = store
        self._command: tuple[str, ...] = ("SCAN",)
        if key is not None:
            self._command = ("HSCAN" if isinstance(key, HashName) else "SSCAN", key)
        self._cursor = "0"

    @property
    def is_through(self) -> bool:
        """Whether it begins anew the next time."""
        return self._cursor == "0"

    async def batches(self, *, limit: int = PER_RUN) -> AsyncIterator[list[str]]:
        """The next entries, about as many as the limit says; some may come twice."""
        seen = 0
        while seen < limit:
            self._cursor, found = await self._store.send(*self._command, self._cursor, "COUNT", BATCH)
            # A small set comes whole, whatever the count; a big one with much deleted comes in empty batches.
            for start in range(0, len(found), BATCH):
                yield found[start : start + BATCH]
            seen += max(BATCH, len(found))
            if self.is_through:
                return


async def work_on(items: Iterable[T], act: Callable[[T], Awaitable[bool]]) -> int:
    """For how many of the items `act` returned True. An item for which it fails is logged and skipped."""

    async def attempt(item: T) -> bool:
        try:
            return await act(item)
        except Unavailable:
            raise
        except Exception as error:
            known = isinstance(error, RemudaError | ValueError)
            log.warning("entry not swept", entry=str(item), reason=str(error), exc_info=not known)
            return False

    return sum(await asyncio.gather(*(attempt(item) for item in items)))


class Patience:
    """Remembers which names are silent and since when that is known: only one that stays silent is dead."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._before: dict[str, float] = {}
        self._this_round: dict[str, float] = {}

    def is_over(self, name: str, *, now: float) -> bool:
        """Whether one that is silent now has been so for long enough."""
        since = self._before.get(name, now)
        since = self._this_round.setdefault(name, since)
        return now - since >= self._seconds

    def end_round(self) -> None:
        """All have been looked at: those that were not silent in this round begin anew."""
        self._before, self._this_round = self._this_round, {}


class DepartedSweep:
    """Takes members out of a set that are gone for good, with all their keys.

    It looks at the members of the set and at those that `find` was told of. One without a beat is remembered
    until it beats or is gone: it may be in no set any more.
    """

    def __init__(
        self,
        store: Store,
        members: SetName,
        *,
        keys: Sequence[Key[Any]],
        beats: Sequence[Key[Any]],
        pending: Sequence[Key[Any]] = (),
        counted_as: str,
        patience: float,
    ) -> None:
        """`keys` are all that a member has, by its id: while one of its `beats` is there it lives, and while
        one of the `pending` is there it stays nevertheless."""
        self.keys = keys
        self._store = store
        self._members = members
        self._listed = Scan(store, members)
        self._beats = beats
        self._absent = (*beats, *pending)
        self._deleted = [key for key in keys if key not in self._absent]
        self._counted_as = counted_as
        self._patience = Patience(patience)
        self._found: set[str] = set()

    async def settle(self, member: str) -> bool:
        """Ends what still depends on the member; False when that has to wait for the next time."""
        return True

    def find(self, members: Iterable[str]) -> None:
        """Has these looked at, too, which are in no set."""
        self._found.update(members)

    async def sweep(self) -> Counter[str]:
        """Takes out every member that is gone for good."""
        async for batch in self._listed.batches():
            self._found.update(batch)
        purged = await work_on(sorted(self._found), self._purge_if_gone)
        self._patience.end_round()
        return Counter({self._counted_as: purged})

    async def _purge_if_gone(self, member: str) -> bool:
        if await self._store.exists(*(key(member) for key in self._beats)):
            self._found.discard(member)
            return False
        if not self._patience.is_over(member, now=clock.monotonic()) or not await self.settle(member):
            return False
        own = [key(member) for key in (*self._absent, *self._deleted)]
        is_gone = await self._store.run(_DEPART, keys=[self._members, *own], args=[member, len(self._absent)])
        if not is_gone:
            return False
        self._found.discard(member)
        return True
