"""Slots that got lost: their owner finds them, and takes none from a session that lives."""

import asyncio

import pytest

from grids import check_slots, claim, new_session, own_slots, places, terminate_as_original
from provisioners import FakeProvisioner
from remuda.base.ids import OrchestratorId, SessionId
from remuda.grid.model import State
from remuda.grid.orchestrator.placing import Placing
from remuda.grid.sessions import Sessions, node_beat
from remuda.grid.slots import RECLAIM_BATCH, OwnSlots, Slots
from remuda.keyspace import grid, metrics
from remuda.store import Store
from sweeping import Watched

O1, O2 = OrchestratorId("o1"), OrchestratorId("o2")


async def pending(store: Store, session: SessionId) -> None:
    await Sessions(store).move(session, State.PENDING, code="SCHED", orchestrator=O1)


async def alive(store: Store, session: SessionId) -> None:
    """The session's client has been served, and its node beats."""
    await pending(store, session)
    node_beat(session).write(store)
    await Sessions(store).move(session, State.ALIVE, code="NALIVE")


async def test_a_healthy_grid_has_nothing_to_reclaim(store: Store) -> None:
    own = await own_slots(store, O1, 4)
    await new_session(store)
    await claim(store, O1)
    await pending(store, (await claim(store, O1))[0])
    await alive(store, (await claim(store, O1))[0])

    assert await own.reclaim() == ([], [])
    await check_slots(store, [O1])
    assert await store.exists(metrics.METRICS_SLOTS_RECLAIMED()) == 0


@pytest.mark.parametrize("is_pending", [False, True])
async def test_a_session_is_dead_when_its_manager_dies_before_it_is_alive(
    store: Store, is_pending: bool
) -> None:
    own = await own_slots(store, O1, 1)
    session, _ = await claim(store, O1)
    if is_pending:
        await pending(store, session)
        node_beat(session).write(store)
    await store.delete(grid.SESSION_HEARTBEAT_MANAGER(session))

    assert await own.reclaim() == ([session], [])


async def test_a_session_is_dead_when_its_node_dies_after_that(store: Store) -> None:
    own = await own_slots(store, O1, 1)
    session, _ = await claim(store, O1)
    await alive(store, session)
    await store.delete(grid.SESSION_HEARTBEAT_NODE(session))

    assert await own.reclaim() == ([session], [])


async def test_an_alive_session_needs_no_manager(store: Store) -> None:
    own = await own_slots(store, O1, 1)
    session, _ = await claim(store, O1)
    await alive(store, session)
    await store.delete(grid.SESSION_HEARTBEAT_MANAGER(session))

    assert await own.reclaim() == ([], [])


async def test_a_dead_sessions_slot_stays_with_it_until_its_node_is_gone(store: Store) -> None:
    own = await own_slots(store, O1, 1)
    session, slot = await claim(store, O1)
    await store.delete(grid.SESSION_HEARTBEAT_MANAGER(session))

    await own.reclaim()

    assert slot is not None
    assert await places(store, O1) == {slot: [session]}
    assert await own.reclaim() == ([session], [])


async def test_a_session_that_ended_and_kept_its_slot_is_found(store: Store) -> None:
    own = await own_slots(store, O1, 1)
    session, _ = await claim(store, O1)
    await alive(store, session)
    await Sessions(store).move(session, State.TERMINATED, code="TERM")
    assert await own.reclaim() == ([], []), "its node still beats: it is closing"

    await store.delete(grid.SESSION_HEARTBEAT_NODE(session))

    assert await own.reclaim() == ([session], [])


async def test_a_slot_that_nobody_holds_is_back_at_once_and_counted(store: Store) -> None:
    own = await own_slots(store, O1, 3)
    session, slot = await claim(store, O1)
    await store.delete(grid.SESSION_SLOT(session))
    lost = await store.send("LPOP", grid.ORCHESTRATOR_SLOTS_AVAILABLE(O1))

    dead, orphaned = await own.reclaim()

    assert dead == []
    assert sorted(orphaned) == sorted([slot, lost])
    assert await store.hgetall(metrics.METRICS_SLOTS_RECLAIMED()) == {"orphaned": "2"}
    await check_slots(store, [O1])
    assert await own.reclaim() == ([], [])
    await own.recycle()
    assert await store.llen(grid.ORCHESTRATOR_SLOTS_AVAILABLE(O1)) == 3


async def test_dead_slots_are_counted_apart_from_orphaned_ones(store: Store) -> None:
    own = await own_slots(store, O1, 1)

    await own.count_dead()
    await own.count_dead()

    assert await store.hgetall(metrics.METRICS_SLOTS_RECLAIMED()) == {"dead": "2"}


async def test_each_orchestrator_looks_after_its_own(store: Store) -> None:
    own = await own_slots(store, O1, 1)
    await own_slots(store, O2, 1)
    session, _ = await claim(store, O2)
    await store.delete(grid.SESSION_HEARTBEAT_MANAGER(session))
    await store.send("LPOP", grid.ORCHESTRATOR_SLOTS_AVAILABLE(O2))

    assert await own.reclaim() == ([], [])


async def test_many_slots_are_looked_at_in_bounded_bites(store: Store, redis_url: str) -> None:
    await own_slots(store, O1, 2 * RECLAIM_BATCH + 1)
    lost = [await store.send("LPOP", grid.ORCHESTRATOR_SLOTS_AVAILABLE(O1)) for _ in range(3)]

    async with Watched(redis_url) as watched:
        own = OwnSlots(watched, O1, count=2 * RECLAIM_BATCH + 1)
        dead, orphaned = await own.reclaim()

    assert (dead, sorted(orphaned)) == ([], sorted(lost))
    assert len(watched.lengths["EVALSHA"]) == 3
    assert max(watched.lengths["EVALSHA"]) <= RECLAIM_BATCH + 11


async def test_reclaiming_amid_claims_and_releases_takes_nothing_from_anybody(
    store: Store, redis_url: str
) -> None:
    own = await own_slots(store, O1, 4)

    async def visit(own_store: Store) -> None:
        session = await new_session(own_store)
        while await Slots(own_store).claim(session, [O1]) is None:
            await own.recycle()
        await Slots(own_store).release(session)

    async def reclaim() -> None:
        for _ in range(100):
            assert await own.reclaim() == ([], [])

    async with Store(redis_url) as other:
        await asyncio.gather(reclaim(), *(visit(each) for each in (store, other) for _ in range(25)))

    assert await store.exists(metrics.METRICS_SLOTS_RECLAIMED()) == 0
    await check_slots(store, [O1])


async def test_of_a_session_that_other_software_has_ended_only_a_note_is_left_and_that_goes(
    store: Store,
) -> None:
    own = await own_slots(store, O1, 1)
    session, _ = await claim(store, O1)
    await alive(store, session)
    provisioner = FakeProvisioner()
    provisioner.dead.add(session)

    await terminate_as_original(store, session)

    await store.delete(grid.ORCHESTRATOR_BACKLOG(O1))
    assert await Placing(store, provisioner, O1).find_lost() == []
    await own.recycle()
    assert await own.reclaim() == ([], [])
    await check_slots(store, [O1])
