"""Orchestrators and managers that are gone for good are forgotten, and nothing that runs is."""

from collections import Counter

import pytest

from grids import advertise, check_counters, check_slots, log_of, own_slots
from remuda.base.ids import OrchestratorId, SessionId
from remuda.fleet.sweep import BATCH
from remuda.grid.manager import Manager
from remuda.grid.model import State
from remuda.grid.orchestrator.role import Orchestrator
from remuda.grid.sessions import Sessions, node_beat
from remuda.grid.slots import Slots
from remuda.grid.sweeps import OrchestratorSweep, grid_sweeps
from remuda.keyspace import grid
from remuda.keyspace.key import Key, StringName
from remuda.store import Store
from remuda.store.census import take_census
from sweeping import (
    O1,
    WEEK,
    NoNodes,
    alive,
    ended,
    forsake,
    keys_with,
    pending,
    placed,
    queued,
    retain,
    silence,
    sweep_all,
)

GONE = {"message": "Its orchestrator has been gone for too long"}


async def traces(store: Store) -> list[str]:
    """The keys of all orchestrators, and the set of them."""
    return await keys_with(store, "orchestrator:") + await keys_with(store, "orchestrators")


async def test_an_orchestrator_that_nobody_retains_is_purged(store: Store) -> None:
    await retain(store)
    await advertise(store, O1)
    session = await ended(store)
    await store.delete(grid.SESSION_ORCHESTRATOR(session))
    await forsake(store)

    assert await sweep_all(store) == Counter(orchestrators_purged=1)

    assert await keys_with(store, O1) == []
    assert await traces(store) == []
    assert await take_census(store) == []


async def test_an_orchestrator_that_left_properly_is_found_all_the_same(store: Store) -> None:
    orchestrator = Orchestrator(store, NoNodes(), orchestrator_id=O1, slots=3)
    await orchestrator.start()
    await orchestrator.drain()
    await orchestrator.stop()
    assert not await store.exists(grid.ORCHESTRATORS())

    assert await sweep_all(store) == Counter()
    assert await keys_with(store, O1) != []

    await forsake(store)
    assert await sweep_all(store) == Counter(orchestrators_purged=1)
    assert await keys_with(store, O1) == []


@pytest.mark.parametrize("sign", [grid.ORCHESTRATOR_RETAIN, grid.ORCHESTRATOR_HEARTBEAT])
async def test_an_orchestrator_stays_as_long_as_there_is_a_sign_of_it(
    store: Store, sign: Key[StringName]
) -> None:
    await retain(store)
    session = await placed(store)
    await forsake(store)
    await store.set(sign(O1), "1", ex=60)

    assert await sweep_all(store) == Counter()

    assert await Sessions(store).state(session) is State.QUEUED
    await check_slots(store, [O1])


async def test_a_silence_that_passes_is_no_farewell(store: Store) -> None:
    sweep = OrchestratorSweep(store, patience=60)
    await retain(store)
    await forsake(store)

    for _ in range(3):
        assert (await sweep.sweep())["orchestrators_purged"] == 0

    assert await store.scard(grid.ORCHESTRATOR_SLOTS(O1)) == 4


async def test_sessions_that_wait_for_it_fail(store: Store) -> None:
    await retain(store)
    waiting, taken, started = await placed(store), await placed(store), await pending(store)
    await store.lrem(grid.ORCHESTRATOR_BACKLOG(O1), taken)
    await store.lpush(grid.ORCHESTRATOR_PENDING(O1), taken)
    slotless = await slotless_in_backlog(store)
    await forsake(store)

    assert await sweep_all(store) == Counter(orchestrators_purged=1)

    for session in (waiting, taken, started, slotless):
        assert await Sessions(store).state(session) is State.TERMINATED
        assert (await log_of(store, session))[-1] == ("STARTFAIL", GONE)
        assert not await store.exists(grid.SESSION_SLOT(session))
    assert await traces(store) == []
    await check_counters(store)
    assert await take_census(store) == []


async def slotless_in_backlog(store: Store) -> SessionId:
    """A session that somebody put into the backlog although it has no slot."""
    session = await queued(store)
    await store.lpush(grid.ORCHESTRATOR_BACKLOG(O1), session)
    return session


async def test_an_orchestrator_stays_as_long_as_a_browser_of_it_runs(store: Store) -> None:
    await retain(store)
    running, dead = await alive(store), await alive(store)
    await silence(store, dead)
    await forsake(store)

    done = await sweep_all(store)

    assert done["orchestrators_purged"] == 0
    assert await Sessions(store).state(running) is State.ALIVE
    assert await store.exists(grid.SESSION_SLOT(running))
    await check_slots(store, [O1])

    await Sessions(store).move(running, State.TERMINATED, code="CLOSED")
    await silence(store, running)
    assert (await sweep_all(store))["orchestrators_purged"] == 1
    assert not await store.exists(grid.SESSION_SLOT(running), grid.SESSION_SLOT(dead))


async def test_a_session_with_a_slot_elsewhere_keeps_it(store: Store) -> None:
    other = OrchestratorId("o2")
    await retain(store)
    await retain(store, other)
    session = await placed(store)
    await store.delete(grid.SESSION_SLOT(session))
    await store.delete(grid.ORCHESTRATOR_BACKLOG(O1))
    slot = await Slots(store).claim(session, [other])
    await forsake(store)

    assert await sweep_all(store) == Counter(orchestrators_purged=1)

    assert await store.get(grid.SESSION_SLOT(session)) == slot
    assert await Sessions(store).state(session) is State.QUEUED
    await check_slots(store, [other])


async def test_poison_does_not_keep_an_orchestrator(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    await retain(store)
    await store.lpush(grid.ORCHESTRATOR_BACKLOG(O1), "no session at all", "")
    await store.hset(grid.ORCHESTRATOR_HOLDERS(O1), {"o1/9": "no session at all"})
    await store.sadd(grid.ORCHESTRATORS(), "not an id: at all")
    await forsake(store)

    assert await sweep_all(store) == Counter(orchestrators_purged=1)

    assert await keys_with(store, "orchestrator:") == []
    assert await store.smembers(grid.ORCHESTRATORS()) == ["not an id: at all"]
    assert "entry not swept" in caplog.text


async def test_a_long_backlog_is_failed_in_several_runs(store: Store) -> None:
    await retain(store)
    sessions = [await slotless_in_backlog(store) for _ in range(BATCH + 1)]
    await forsake(store)

    assert (await sweep_all(store))["orchestrators_purged"] == 0
    assert (await sweep_all(store))["orchestrators_purged"] == 1

    for session in sessions:
        assert await Sessions(store).state(session) is State.TERMINATED


async def test_one_that_comes_back_in_time_has_all_its_slots(store: Store) -> None:
    await retain(store, slots=2)
    sessions = [await alive(store), await alive(store)]
    await silence(store, *sessions)
    node_beat(sessions[0]).write(store)
    await forsake(store)
    await sweep_all(store)  # Refuses half-way, since one of them lives.

    own = await own_slots(store, O1, 2)

    await check_slots(store, [O1])
    assert await own.reclaim() == ([sessions[1]], [])
    assert await Sessions(store).state(sessions[0]) is State.ALIVE


# Managers


async def test_a_manager_that_died_is_forgotten(store: Store) -> None:
    dead, living = Manager(store), Manager(store)
    for manager in (dead, living):
        await manager.start()
    await store.delete(grid.MANAGER_HEARTBEAT(dead.manager_id))

    assert await sweep_all(store) == Counter(managers_purged=1)

    assert await keys_with(store, dead.manager_id) == []
    assert await store.smembers(grid.MANAGERS()) == [living.manager_id]
    assert await store.exists(grid.MANAGER(living.manager_id))
    for manager in (dead, living):
        await manager.stop()


async def test_the_address_of_a_manager_in_no_set_is_forgotten(store: Store) -> None:
    await store.hset(grid.MANAGER("m1"), {"host": "127.0.0.1", "port": 1})

    assert await sweep_all(store) == Counter(managers_purged=1)

    assert await keys_with(store, "m1") == []


async def test_a_manager_that_only_paused_is_kept(store: Store) -> None:
    manager = Manager(store)
    await manager.start()
    await store.delete(grid.MANAGER_HEARTBEAT(manager.manager_id))
    sweep = grid_sweeps(store, retention=WEEK, patience=60)["managers"]

    assert (await sweep())["managers_purged"] == 0

    assert await store.smembers(grid.MANAGERS()) == [manager.manager_id]
    await manager.stop()
