"""Who is alive: a key that expires unless its owner keeps beating.

One heart beats for everything that a process keeps alive, with one write a round. A beat ends by
expiring within a second, never by deletion: those who watch for a death see one kind of event.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from remuda.base import clock
from remuda.base.errors import StoreFull, Unavailable
from remuda.base.log import get_logger
from remuda.keyspace.key import StringName
from remuda.store import Store
from remuda.store.commands import Commands

log = get_logger(__name__)

# Beat at a third of the TTL: two lost packets must not look like a death.
BEATS_PER_TTL = 3
RETRY_AFTER = 1.0


def unix_seconds() -> str:
    """The value of a beat that the documents call a number."""
    return str(int(clock.now()))


@dataclass(frozen=True)
class Beat:
    """A key to keep alive."""

    key: StringName
    ttl: int
    value: Callable[[], str] = clock.rfc3339

    def write(self, commands: Commands) -> None:
        """Beats once, as part of a transaction if that is given: so a state and its beat appear together."""
        commands.set(self.key, self.value(), ex=self.ttl)


class Heart:
    """Keeps beats going until they are stopped. Run `run()` as a task of the owner's."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._due: dict[Beat, float] = {}
        self._changed = asyncio.Event()

    def keep(self, *beats: Beat) -> None:
        """Keeps these beats alive from now on; their first beat was written with the state they protect."""
        for beat in beats:
            self._due[beat] = clock.monotonic() + beat.ttl / BEATS_PER_TTL
        self._changed.set()

    async def start(self, *beats: Beat) -> None:
        """Beats once, now, and keeps going."""
        await self._write(beats)
        self.keep(*beats)

    async def _write(self, beats: Sequence[Beat]) -> None:
        async with self._store.transaction() as transaction:
            for beat in beats:
                beat.write(transaction)

    async def _prolong(self, beats: Sequence[Beat]) -> None:
        # Not together: a Redis that is full queues nothing between MULTI and EXEC.
        await asyncio.gather(*(self._store.expire(beat.key, beat.ttl) for beat in beats))

    def forget(self, *beats: Beat) -> None:
        """No longer beats for these; their keys run out by themselves."""
        for beat in beats:
            self._due.pop(beat, None)

    async def stop(self, *beats: Beat) -> None:
        """Ends these beats now: their keys expire within a second."""
        self.forget(*beats)
        async with self._store.transaction() as transaction:
            for beat in beats:
                transaction.expire(beat.key, 1)

    async def run(self) -> None:
        """Beats for ever. Outlives any absence of Redis."""
        while True:
            await self._pause()
            due = [beat for beat, at in self._due.items() if at <= clock.monotonic()]
            if not due:
                continue
            try:
                try:
                    await self._write(due)
                except StoreFull:
                    # A beat that is there can live on without taking memory: who lives must not seem dead.
                    await self._prolong(due)
            except Unavailable as error:
                log.warning("beat missed", beats=len(due), reason=error.message)
                self._put_off(dict.fromkeys(due, RETRY_AFTER))
            else:
                self._put_off({beat: beat.ttl / BEATS_PER_TTL for beat in due})

    def _put_off(self, pauses: Mapping[Beat, float]) -> None:
        for beat, pause in pauses.items():
            if beat in self._due:  # What was forgotten while the beat was under way stays forgotten.
                self._due[beat] = clock.monotonic() + pause

    async def _pause(self) -> None:
        self._changed.clear()
        wait = max(0.0, min(self._due.values()) - clock.monotonic()) if self._due else None
        try:
            async with asyncio.timeout(wait):
                await self._changed.wait()
        except TimeoutError:
            return


async def alive_among(store: Store, keys: list[StringName]) -> list[bool]:
    """For each heartbeat key, whether it exists."""
    replies = [store.exists(key) for key in keys]
    return [bool(await reply) for reply in replies]
