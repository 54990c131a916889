"""What lives only as long as its owner renews it: beats, which say that a process is alive, and leases, which
one owner holds at a time.

A heart keeps all beats of a process going. A beat on a key of its own ends by expiring within a second, never
by deletion: those that watch for a death see one kind of event.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from remuda.base import clock
from remuda.base.errors import LeaseLost, StoreFull, Unavailable
from remuda.base.log import get_logger
from remuda.fleet.tasks import repeat
from remuda.keyspace.key import HashName, StringName
from remuda.store import Store, any_key, load_script
from remuda.store.commands import Commands, Value

log = get_logger(__name__)

_ACQUIRE = load_script(__file__, "acquire.lua", keys=[any_key("lease")], args=["owner", "seconds"])
_RELEASE = load_script(__file__, "release.lua", keys=[any_key("lease")], args=["owner"])

# At a third of the TTL: two lost packets must not look like a death.
RENEWALS_PER_TTL = 3


def unix_seconds() -> str:
    """The value of a beat that the documents call a number."""
    return str(int(clock.now()))


@dataclass(frozen=True)
class Beat:
    """A key to keep alive."""

    key: StringName
    ttl: int
    value: Callable[[], str] = clock.rfc3339

    @property
    def every(self) -> float:
        return self.ttl / RENEWALS_PER_TTL

    def write(self, commands: Commands) -> None:
        """Beats once, as part of a transaction if that is given: so a state and its beat appear together."""
        commands.set(self.key, self.value(), ex=self.ttl)


@dataclass(frozen=True)
class FieldBeat:
    """Fields of a hash to write again and again, such as when its owner was last there."""

    key: HashName
    fields: Callable[[], Mapping[str, Value]]
    every: float
    ttl: int | None = None
    """Seconds that the hash lives without a beat. None: it stays, and readers look how old the beat is."""

    def write(self, commands: Commands) -> None:
        """Beats once, as part of a transaction if that is given."""
        commands.hset(self.key, self.fields())
        if self.ttl is not None:
            commands.expire(self.key, self.ttl)


class Heart:
    """Keeps beats going until they are stopped. Run `run()` as a task of the owner's."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._due: dict[Beat | FieldBeat, float] = {}
        self._changed = asyncio.Event()

    def keep(self, *beats: Beat | FieldBeat) -> None:
        """Keeps these beats alive from now on; their first beat was written with the state they protect."""
        for beat in beats:
            self._due[beat] = clock.monotonic() + beat.every
        self._changed.set()

    async def start(self, *beats: Beat | FieldBeat) -> None:
        """Beats once, now, and keeps going."""
        await self._write(beats)
        self.keep(*beats)

    def forget(self, *beats: Beat | FieldBeat) -> None:
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
        await repeat(self._beat_when_due, every=0.0, failure="beat missed")

    async def _beat_when_due(self) -> None:
        """Waits until a beat is due, and writes all that are: with one write, however many they are."""
        self._changed.clear()
        wait = max(0.0, min(self._due.values()) - clock.monotonic()) if self._due else None
        with suppress(TimeoutError):
            async with asyncio.timeout(wait):
                await self._changed.wait()
        due = [beat for beat, at in self._due.items() if at <= clock.monotonic()]
        if not due:
            return
        try:
            await self._write(due)
        except StoreFull:
            # A beat that is there can live on without taking memory: what lives must not seem dead. Not
            # together: a Redis that is full queues nothing between MULTI and EXEC.
            lasting = [(beat.key, beat.ttl) for beat in due if beat.ttl is not None]
            await asyncio.gather(*(self._store.expire(key, ttl) for key, ttl in lasting))
        for beat in due:
            if beat in self._due:  # What was forgotten while the beat was under way stays forgotten.
                self._due[beat] = clock.monotonic() + beat.every

    async def _write(self, beats: Sequence[Beat | FieldBeat]) -> None:
        async with self._store.transaction() as transaction:
            for beat in beats:
                beat.write(transaction)


class Lease:
    """The right of one owner to what a key stands for, for `ttl` seconds after each `acquire`."""

    def __init__(self, store: Store, key: StringName, *, owner: str, ttl: int = 15) -> None:
        self._store = store
        self._key = key
        self._owner = owner
        self._ttl = ttl

    async def acquire(self) -> bool:
        """Takes or prolongs the lease; False if another owner holds it."""
        return bool(await self._store.run(_ACQUIRE, keys=[self._key], args=[self._owner, self._ttl]))

    async def release(self) -> bool:
        """Gives the lease back; False if it was not ours any more."""
        return bool(await self._store.run(_RELEASE, keys=[self._key], args=[self._owner]))

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Holds the lease for a block; LeaseLost if it cannot be had, or is lost (the block is cancelled)."""
        now = asyncio.get_running_loop().time
        asked_at = now()
        if not await self.acquire():
            raise LeaseLost(f"{self._key} is held by another owner")
        # Counted from the question, not the answer: Redis counts from somewhere between them.
        limit = asyncio.timeout_at(asked_at + self._ttl)

        async def prolong() -> None:
            asked_at = now()
            is_held = await self.acquire()
            if not limit.expired():
                limit.reschedule(asked_at + self._ttl if is_held else now())

        every = self._ttl / RENEWALS_PER_TTL
        try:
            async with limit:
                renewing = asyncio.create_task(
                    repeat(prolong, every=every, failure="lease not prolonged", lease=self._key),
                    name=f"renew {self._key}",
                )
                try:
                    yield
                finally:
                    renewing.cancel()
                    if not limit.expired():
                        limit.reschedule(None)
                    await self._give_back()
        except TimeoutError:
            if limit.expired():
                raise LeaseLost(f"{self._key} was lost") from None
            raise

    async def _give_back(self) -> None:
        try:
            await self.release()
        except Unavailable as error:  # It runs out by itself; what the block ended with matters more.
            log.warning("lease not given back", lease=self._key, reason=error.message)
