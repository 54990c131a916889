"""The grid as a test sees it: sessions to play with, and everything that Redis knows about a slot."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec

from remuda.base import clock
from remuda.base.ids import OrchestratorId, SessionId, SlotId, new_id
from remuda.fleet.origin import Origin
from remuda.grid.omission import encode_request
from remuda.grid.sessions import Sessions
from remuda.grid.slots import OwnSlots, Slots
from remuda.keyspace import grid, metrics
from remuda.keyspace.log_codes import LEVELS
from remuda.store import Store
from remuda.store.commands import stream_entries

CHROME = "chrome::81.0.4044.113"
HEARTBEAT_TTL = 60


async def new_session(store: Store, requested: Any = ({},)) -> SessionId:
    """A session that has just been asked for."""
    session = SessionId(new_id())
    origin = Origin(address="127.0.0.1")
    await Sessions(store).create(
        session, requested=encode_request(requested), origin=origin, user_agent="test"
    )
    return session


async def own_slots(store: Store, orchestrator: str, count: int) -> OwnSlots:
    """An orchestrator's slots, all of them available."""
    own = OwnSlots(store, OrchestratorId(orchestrator), count=count)
    await own.adjust()
    await own.recycle()
    return own


async def claim(store: Store, *candidates: OrchestratorId) -> tuple[SessionId, SlotId | None]:
    """A new session, and the slot that it got from one of these."""
    session = await new_session(store)
    return session, await Slots(store).claim(session, candidates)


async def terminate_as_original(store: Store, session: SessionId) -> None:
    """What the script writes by which WebGrid's node, garbage collector and slot reclaim end a session."""
    slot = await store.send("GETDEL", grid.SESSION_SLOT(session))
    for orchestrator in await store.lrange(grid.SESSION_ORCHESTRATOR(session)) if slot else ():
        await store.rpush(grid.ORCHESTRATOR_SLOTS_RECLAIMED(orchestrator), slot)
    await store.send("SMOVE", grid.SESSIONS_ACTIVE(), grid.SESSIONS_TERMINATED(), session)
    now = clock.rfc3339().replace("Z", "456789+00:00")
    await store.hset(grid.SESSION_STATUS(session), {"terminatedAt": now})
    await store.expire(grid.SESSION_HEARTBEAT_NODE(session), 1)


async def advertise(store: Store, orchestrator: str, *browsers: str, platform: str = "linux") -> None:
    """Registers an orchestrator that beats, as its role does."""
    async with store.transaction() as transaction:
        transaction.set(grid.ORCHESTRATOR_HEARTBEAT(orchestrator), int(clock.now()), ex=HEARTBEAT_TTL)
        transaction.set(grid.ORCHESTRATOR_PLATFORM_NAME(orchestrator), platform)
        transaction.sadd(grid.ORCHESTRATOR_BROWSERS(orchestrator), *(browsers or (CHROME,)))
        transaction.sadd(grid.ORCHESTRATORS(), orchestrator)


async def set_timeouts(store: Store, **seconds: float) -> None:
    """What an operator does who changes time-outs."""
    await store.hset(grid.TIMEOUTS(), {name: str(value) for name, value in seconds.items()})


async def log_of(store: Store, session: SessionId) -> list[tuple[str, dict[str, Any]]]:
    """Code and meta of every entry of the session's log."""
    entries = stream_entries(await store.xrange(grid.SESSION_LOG(session)))
    return [(entry["code"], msgspec.json.decode(entry["meta"])) for _, entry in entries]


async def codes_of(store: Store, session: SessionId) -> list[str]:
    """The codes of the session's log, in order."""
    return [code for code, _ in await log_of(store, session)]


async def all_sessions(store: Store) -> list[SessionId]:
    """Every session, active or terminated."""
    active, terminated = store.smembers(grid.SESSIONS_ACTIVE()), store.smembers(grid.SESSIONS_TERMINATED())
    return [SessionId(session) for session in (*await active, *await terminated)]


async def places(store: Store, orchestrator: str) -> dict[SlotId, list[str]]:
    """Where each slot of the orchestrator is: exactly one place, if all is well."""
    slots = {
        SlotId(slot): list[str]() for slot in await store.smembers(grid.ORCHESTRATOR_SLOTS(orchestrator))
    }
    for slot in await store.lrange(grid.ORCHESTRATOR_SLOTS_AVAILABLE(orchestrator)):
        slots.setdefault(SlotId(slot), []).append("available")
    for slot in await store.lrange(grid.ORCHESTRATOR_SLOTS_RECLAIMED(orchestrator)):
        slots.setdefault(SlotId(slot), []).append("reclaimed")
    for session in await all_sessions(store):
        held = await store.get(grid.SESSION_SLOT(session))
        if held is not None and held.startswith(f"{orchestrator}/"):
            slots.setdefault(SlotId(held), []).append(session)
    return slots


async def check_slots(store: Store, orchestrators: Iterable[str]) -> None:
    """Every slot is in exactly one place, and the holders say which session has it."""
    for orchestrator in orchestrators:
        where = await places(store, orchestrator)
        assert all(len(place) == 1 for place in where.values()), where
        held = {slot: place[0] for slot, place in where.items() if place[0] not in ("available", "reclaimed")}
        assert await store.hgetall(grid.ORCHESTRATOR_HOLDERS(orchestrator)) == held


async def check_counters(store: Store) -> None:
    """The counters of log entries say what the logs of all sessions say."""
    logged: dict[str, Counter[str]] = {level: Counter() for level in LEVELS}
    for session in await all_sessions(store):
        for _, entry in stream_entries(await store.xrange(grid.SESSION_LOG(session))):
            logged[entry["level"]][entry["code"]] += 1
    for level in LEVELS:
        counted = await store.hgetall(metrics.METRICS_SESSIONS_LOG(level))
        assert {code: int(count) for code, count in counted.items()} == logged[level]
