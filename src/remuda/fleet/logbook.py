"""Numbered events in the order in which they happened: a stream that can be read later and followed live."""

from collections.abc import AsyncIterator, Mapping

from remuda.base.errors import Unavailable
from remuda.base.log import get_logger
from remuda.fleet.bell import LOOK_EVERY, bell_of
from remuda.keyspace.key import StreamName
from remuda.store import Store
from remuda.store.commands import StreamEntry, stream_entries

log = get_logger(__name__)

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
        """Every event after a number, as it comes, for ever: also when Redis was away in between."""
        with self._store.subscribe(bell_of(self._key)) as rings:
            while True:
                events = await self._read_if_possible(after)
                for number, event in events:
                    after = number
                    yield number, event
                if len(events) < KEEP:
                    await rings.wait(look_every)

    async def _read_if_possible(self, after: str) -> list[StreamEntry]:
        try:
            return await self.read(after=after)
        except Unavailable as error:  # Reading again does no harm, and a reconnect rings.
            log.warning("log not read", key=self._key, reason=error.message)
            return []
