"""Walking through more than one wants to hold, and working on each of many."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import TypeVar

from remuda.base.errors import RemudaError, Unavailable
from remuda.base.log import get_logger
from remuda.keyspace.key import HashName, SetName
from remuda.store import Store

log = get_logger(__name__)

BATCH = 50
"""Entries worked on at a time: few, since Redis does nothing else for others meanwhile."""
PER_RUN = 5_000
"""Entries that one run looks at. More wait for the next run: a sweep is in no hurry."""

T = TypeVar("T")


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
    """How many of the items the act said yes to. One that it stumbles over is logged and passed by."""

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
