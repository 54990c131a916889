"""Numbered events in the order in which they happened: a stream that can be read later and followed live."""

from collections.abc import AsyncIterator, Mapping

from remuda.fleet.bell import LOOK_EVERY, bell_of
from remuda.keyspace.key import StreamName
from remuda.store import Store
from remuda.store.commands import StreamEntry, stream_entries

KEEP = 1000
"""About how many events a book keeps: the latest."""


class Logbook:
    """One stream of events."""

    def __init__(self, store: Store, key: StreamName, *, keep: int = KEEP) -> None:
        self._store = store
        self._key = key
        self._keep = keep

    async def append(self, event: Mapping[str, str]) -> str:
        """Writes an event and wakes those who follow; its number."""
        async with self._store.transaction() as transaction:
            number = transaction.xadd(self._key, event, about=self._keep)
            transaction.publish(bell_of(self._key))
        return await number

    async def read(self, *, after: str = "", limit: int = KEEP) -> list[StreamEntry]:
        """Events after a number, oldest first."""
        return stream_entries(await self._store.xrange(self._key, after=after, limit=limit))

    async def follow(self, *, after: str = "", look_every: float = LOOK_EVERY) -> AsyncIterator[StreamEntry]:
        """Every event after a number, as it comes, for ever."""
        with self._store.subscribe(bell_of(self._key)) as rings:
            while True:
                for number, event in await self.read(after=after):
                    after = number
                    yield number, event
                if not await self.read(after=after, limit=1):
                    await rings.wait(look_every)
