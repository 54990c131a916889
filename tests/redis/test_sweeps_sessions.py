"""Sessions that nobody speaks for are ended, misplaced ones put right, old ones purged without a trace."""

from collections import Counter
from collections.abc import Callable

import pytest

from grids import (
    all_sessions,
    check_counters,
    check_slots,
    codes_of,
    log_of,
    own_slots,
    terminate_as_original,
)
from remuda.base.ids import SessionId, new_id
from remuda.fleet.liveness import Beat
from remuda.grid.model import State
from remuda.grid.sessions import Sessions, manager_beat, node_beat
from remuda.grid.slots import Slots
from remuda.grid.sweeps import SessionSweeps
from remuda.keyspace import grid
from remuda.keyspace.key import Key, SetName
from remuda.keyspace.metering import TIMER
from remuda.store import Store
from remuda.store.census import take_census
from sweeping import (
    O1,
    Make,
    alive,
    backdate,
    ended,
    keys_with,
    pending,
    placed,
    queued,
    retain,
    silence,
    sweep_all,
)


@pytest.fixture(autouse=True)
async def orchestrator(store: Store) -> None:
    await retain(store)


# The dead


async def test_the_time_of_a_session_that_other_software_has_ended_is_not_counted_on(store: Store) -> None:
    session = await alive(store)
    await terminate_as_original(store, session)

    await sweep_all(store)

    assert "ended" in await store.hgetall(TIMER(session))
    assert await codes_of(store, session) == ["NALLOC", "SCHED", "NALIVE"]


@pytest.mark.parametrize(
    ("make", "code", "who"),
    [
        (queued, "QTIMEOUT", "manager"),
        (placed, "OTIMEOUT", "manager"),
        (pending, "NTIMEOUT", "manager"),
        (alive, "TERM", "node"),
    ],
)
async def test_a_session_that_nobody_speaks_for_has_ended(
    store: Store, make: Make, code: str, who: str
) -> None:
    session = await make(store)
    await silence(store, session)

    done = await sweep_all(store)

    assert done == Counter(sessions_ended=1)
    assert await Sessions(store).state(session) is State.TERMINATED
    assert (await log_of(store, session))[-1] == (code, {"message": f"Its {who} stopped beating"})
    assert await store.smembers(grid.SESSIONS_TERMINATED()) == [session]
    await check_counters(store)
    assert await take_census(store) == []


@pytest.mark.parametrize("make", [queued, placed, pending, alive])
async def test_a_session_that_somebody_speaks_for_goes_on(store: Store, make: Make) -> None:
    session = await make(store)
    before = await codes_of(store, session)

    assert await sweep_all(store) == Counter()

    assert await codes_of(store, session) == before
    assert await store.smembers(grid.SESSIONS_ACTIVE()) == [session]


async def test_a_node_alone_does_not_keep_a_session_whose_manager_is_gone(store: Store) -> None:
    session = await pending(store)
    node_beat(session).write(store)
    await store.delete(manager_beat(session).key)

    assert (await sweep_all(store))["sessions_ended"] == 1


async def test_a_silence_that_passes_is_no_death(store: Store) -> None:
    sweeps = SessionSweeps(store, retention=60, patience=60)
    session = await alive(store)
    await silence(store, session)

    for _ in range(3):
        assert await sweeps.end_silent() == Counter()

    node_beat(session).write(store)
    assert await sweep_all(store) == Counter()
    assert await Sessions(store).state(session) is State.ALIVE


async def test_a_dead_sessions_slot_is_left_to_its_orchestrator(store: Store) -> None:
    session = await alive(store)
    await silence(store, session)

    await sweep_all(store)

    assert await store.exists(grid.SESSION_SLOT(session))
    await check_slots(store, [O1])
    dead, orphaned = await (await own_slots(store, O1, 4)).reclaim()
    assert (dead, orphaned) == ([session], [])


# Misplaced ones


async def test_a_session_that_has_ended_is_not_active(store: Store) -> None:
    session = await ended(store)
    await store.send("SMOVE", grid.SESSIONS_TERMINATED(), grid.SESSIONS_ACTIVE(), session)

    assert await sweep_all(store) == Counter(sessions_mended=1)

    assert await store.smembers(grid.SESSIONS_TERMINATED()) == [session]
    assert await store.smembers(grid.SESSIONS_ACTIVE()) == []


@pytest.mark.parametrize(
    ("make", "home", "other"),
    [
        (ended, grid.SESSIONS_TERMINATED, grid.SESSIONS_ACTIVE),
        (alive, grid.SESSIONS_ACTIVE, grid.SESSIONS_TERMINATED),
    ],
)
async def test_a_session_in_both_sets_stays_where_it_belongs(
    store: Store, make: Make, home: Key[SetName], other: Key[SetName]
) -> None:
    session = await make(store)
    await store.sadd(other(), session)

    assert await sweep_all(store) == Counter(sessions_mended=1)

    assert await store.smembers(home()) == [session]
    assert await store.smembers(other()) == []


@pytest.mark.parametrize("make", [ended, alive])
async def test_a_session_in_no_set_is_found_again(store: Store, make: Make) -> None:
    session = await make(store)
    await store.srem(grid.SESSIONS_ACTIVE(), session)
    await store.srem(grid.SESSIONS_TERMINATED(), session)

    assert await sweep_all(store) == Counter(sessions_mended=1)

    assert await all_sessions(store) == [session]


@pytest.mark.parametrize("home", [grid.SESSIONS_ACTIVE, grid.SESSIONS_TERMINATED])
async def test_a_session_without_any_keys_is_in_no_set(store: Store, home: Key[SetName]) -> None:
    session = SessionId(new_id())
    await store.sadd(home(), session)

    assert await sweep_all(store) == Counter(remains_purged=1)

    assert await all_sessions(store) == []


# The old


async def test_an_old_session_is_purged_without_a_trace(store: Store) -> None:
    old, recent = await ended(store), await ended(store)
    await backdate(store, old, 61)
    gone_by_itself = (
        grid.SESSION_HEARTBEAT_MANAGER,
        grid.SESSION_HEARTBEAT_NODE,
        grid.SESSION_SLOT,
        grid.SESSION_REQUESTED_SHORT,
    )
    everything = [key(old) for key in grid.SESSION_KEYS if key not in gone_by_itself]
    assert await keys_with(store, old) == sorted(everything)
    assert await take_census(store) == []
    kept = await keys_with(store, recent)

    done = await sweep_all(store, retention=60)

    assert done == Counter(sessions_purged=1)
    assert await keys_with(store, old) == []
    assert await all_sessions(store) == [recent]
    assert await keys_with(store, recent) == kept
    assert await take_census(store) == []


async def test_a_session_that_still_holds_a_slot_is_not_purged(store: Store) -> None:
    session = await alive(store)
    await Sessions(store).move(session, State.TERMINATED, code="CLOSED")
    await silence(store, session)

    assert await sweep_all(store, retention=0) == Counter()
    await check_slots(store, [O1])

    await Slots(store).release(session)
    assert await sweep_all(store, retention=0) == Counter(sessions_purged=1)
    assert await keys_with(store, session) == []
    await check_slots(store, [O1])


@pytest.mark.parametrize("beat", [manager_beat, node_beat])
async def test_a_session_is_not_purged_while_somebody_beats_for_it(
    store: Store, beat: Callable[[SessionId], Beat]
) -> None:
    session = await ended(store)
    beat(session).write(store)

    assert await sweep_all(store, retention=0) == Counter()

    assert await Sessions(store).state(session) is State.TERMINATED


async def test_a_slot_that_no_orchestrator_has_keeps_no_session(store: Store) -> None:
    sessions = [await ended(store), await ended(store)]
    for session, slot in zip(sessions, ("gone/1", new_id()), strict=True):
        await store.set(grid.SESSION_SLOT(session), slot)

    assert (await sweep_all(store, retention=0))["sessions_purged"] == 2

    assert await all_sessions(store) == []


async def test_what_a_foreign_writer_leaves_of_a_purged_session_is_purged_too(store: Store) -> None:
    session = await ended(store)
    await sweep_all(store, retention=0)

    await store.xadd(grid.SESSION_LOG(session), {"code": "HALT"}, about=10)
    await store.hset(grid.SESSION_DOWNSTREAM(session), {"lastSeen": "now"})

    assert await sweep_all(store) == Counter(remains_purged=1)
    assert await keys_with(store, session) == []


async def test_what_is_left_of_a_session_stays_while_somebody_beats_for_it(store: Store) -> None:
    session = SessionId(new_id())
    await store.xadd(grid.SESSION_LOG(session), {"code": "BOOT"}, about=10)
    node_beat(session).write(store)

    assert await sweep_all(store) == Counter()

    await silence(store, session)
    assert await sweep_all(store) == Counter(remains_purged=1)


# Poison


async def test_a_bad_entry_does_not_stop_the_rest(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    no_time, wrong_type, odd_slot = await ended(store), await ended(store), await ended(store)
    await store.hset(grid.SESSION_STATUS(no_time), {State.TERMINATED.stamp: "yesterday"})
    await store.delete(grid.SESSION_STATUS(wrong_type))
    await store.send("SET", grid.SESSION_STATUS(wrong_type), "dead")
    await store.send("RPUSH", grid.SESSION_SLOT(odd_slot), "x")
    await store.sadd(grid.SESSIONS_ACTIVE(), "no session at all", "")
    await store.sadd(grid.SESSIONS_TERMINATED(), "no session at all")
    old, dead = await ended(store), await queued(store)
    await silence(store, dead)

    done = await sweep_all(store, retention=0)

    # The one that has just been ended may be purged by the same run.
    assert done == Counter(sessions_ended=1, sessions_purged=2)
    assert await keys_with(store, old) == []
    for poison in (no_time, wrong_type, odd_slot):
        assert await keys_with(store, poison) != []
        assert any(poison in str(record.__dict__) for record in caplog.records)
