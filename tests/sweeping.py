"""What the tests of the sweeps share: sessions in every state, orchestrators, and a gc that can be killed."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from grids import new_session, own_slots
from remuda.base import clock
from remuda.base.ids import OrchestratorId, SessionId
from remuda.fleet.liveness import Beat, unix_seconds
from remuda.grid.capabilities import Offer
from remuda.grid.model import State
from remuda.grid.orchestrator.provisioner import Note, OnGone
from remuda.grid.sessions import Sessions, manager_beat, node_beat
from remuda.grid.slots import Slots
from remuda.grid.sweeps import grid_sweeps
from remuda.keyspace import grid
from remuda.keyspace.metering import TIMER
from remuda.store import Store
from remuda.store.commands import Value

O1 = OrchestratorId("o1")
WEEK = 604800.0

Make = Callable[[Store], Awaitable[SessionId]]


async def sweep_all(store: Store, *, retention: float = WEEK, patience: float = 0.0) -> Counter[str]:
    """What one run of all sweeps does."""
    done = Counter[str]()
    for sweep in grid_sweeps(store, retention=retention, patience=patience).values():
        done += await sweep()
    return done


TIMERS_BEGIN = TIMER.pattern.partition("{")[0]


async def keys_with(store: Store, text: str) -> list[str]:
    """Every key of the whole Redis whose name has this in it, but for timers: metering counts a session after
    its end, and then removes its timer."""
    cursor, found = "0", []
    while True:
        cursor, names = await store.send("SCAN", cursor, "COUNT", 1000)
        found += [name for name in names if text in name and TIMERS_BEGIN not in name]
        if cursor == "0":
            return sorted(found)


# Sessions


async def queued(store: Store) -> SessionId:
    """A session that waits for a slot."""
    return await new_session(store)


async def placed(store: Store) -> SessionId:
    """A session with a slot, in the backlog of the slot's owner."""
    session = await new_session(store)
    assert await Slots(store).claim(session, [O1]) is not None
    return session


async def pending(store: Store) -> SessionId:
    """A session whose node is being started."""
    session = await placed(store)
    await store.lrem(grid.ORCHESTRATOR_BACKLOG(O1), session)
    await Sessions(store).move(session, State.PENDING, code="SCHED", orchestrator=O1)
    return session


async def alive(store: Store) -> SessionId:
    """A session that its client uses."""
    session = await pending(store)
    node_beat(session).write(store)
    upstream = {"host": "127.0.0.1", "port": "1", "driverSessionID": "x"}
    await store.hset(grid.SESSION_UPSTREAM(session), upstream)
    await Sessions(store).move(session, State.ALIVE, code="NALIVE")
    return session


async def silence(store: Store, *sessions: SessionId) -> None:
    """Ends the beats of these sessions, as if their manager and node had been killed long ago."""
    for session in sessions:
        await store.delete(manager_beat(session).key, node_beat(session).key)


async def ended(store: Store) -> SessionId:
    """A session that ended properly: its slot is back, and all else that there can be is still there."""
    session = await alive(store)
    await store.hset(grid.SESSION_METADATA(session), {"name": "checkout", "build": "7"})
    await store.set(grid.SESSION_STORAGE(session), "storage")
    await store.hset(grid.SESSION_TELEMETRY_CREATION(session), {"traceID": "1", "context": "{}"})
    await store.set(grid.SESSION_SCHEME(session), "https")
    await Sessions(store).move(session, State.TERMINATED, code="CLOSED")
    await Slots(store).release(session)
    await silence(store, session)
    return session


async def backdate(store: Store, session: SessionId, seconds: float) -> None:
    """Lets the session have ended so long ago."""
    stamp = clock.rfc3339(clock.now() - seconds)
    await store.hset(grid.SESSION_STATUS(session), {State.TERMINATED.stamp: stamp})


# Orchestrators


async def retain(store: Store, orchestrator: OrchestratorId = O1, slots: int = 4) -> None:
    """Slots of an orchestrator that is known, though not alive."""
    await own_slots(store, orchestrator, slots)
    Beat(grid.ORCHESTRATOR_RETAIN(orchestrator), 604800, unix_seconds).write(store)
    await store.hset(grid.ORCHESTRATOR(orchestrator), {"type": "local"})
    await store.sadd(grid.ORCHESTRATORS(), orchestrator)


async def forsake(store: Store, orchestrator: OrchestratorId = O1) -> None:
    """Lets a week without the orchestrator pass."""
    await store.delete(grid.ORCHESTRATOR_RETAIN(orchestrator), grid.ORCHESTRATOR_HEARTBEAT(orchestrator))


class NoNodes:
    """A provisioner for an orchestrator that never gets to start one."""

    kind = "local"

    async def start(self, on_gone: OnGone) -> list[Offer]:
        return [Offer("chrome", "81.0", "linux")]

    async def provision(self, session: SessionId, wanted: list[dict[str, Any]], note: Note) -> None:
        raise AssertionError("nobody asked for a session")

    async def adopt(self, session: SessionId, noted: str) -> bool:
        return False

    def has_node(self, session: SessionId) -> bool:
        return True

    def find_stopped(self) -> list[SessionId]:
        return []

    async def end(self, session: SessionId) -> None:
        return

    async def stop(self) -> None:
        return


# Watching, and death


class Watched(Store):
    """A connection that notes the length of every command, by its name."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.lengths: dict[str, list[int]] = {}

    def send(self, *args: Value) -> Awaitable[Any]:
        self.lengths.setdefault(str(args[0]), []).append(len(args))
        return super().send(*args)


class Killed(BaseException):
    """The process is gone."""


class Mortal(Store):
    """A connection whose process is killed before its n-th command reaches Redis."""

    lives = 0

    def _step(self) -> None:
        self.lives -= 1
        if self.lives < 0:
            raise Killed

    def send(self, *args: Value) -> Awaitable[Any]:
        self._step()
        return super().send(*args)

    async def send_together(self, packed: Sequence[bytes], *, then: Mapping[Any, bytes]) -> list[Any]:
        self._step()
        return await super().send_together(packed, then=then)
