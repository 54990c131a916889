"""The orchestrator's role, with nodes that exist only as names: what it takes up, and what it gives back."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from grids import (
    advertise,
    check_counters,
    check_slots,
    codes_of,
    log_of,
    new_session,
    own_slots,
    set_timeouts,
)
from provisioners import (
    CHROME,
    O1,
    FakeProvisioner,
    has_reclaimed,
    is_empty,
    is_settled,
    orchestrating,
    placed,
)
from remuda.base.errors import DriverUnavailable
from remuda.base.ids import OrchestratorId, SessionId, new_id
from remuda.grid.capabilities import Offer
from remuda.grid.model import State
from remuda.grid.orchestrator.placing import NODE_HANGS
from remuda.grid.orchestrator.role import Orchestrator, keep_id
from remuda.grid.registry import live_offers
from remuda.grid.sessions import Sessions
from remuda.grid.slots import OwnSlots, Slots
from remuda.keyspace import grid, metrics
from remuda.store import Store
from remuda.store.census import take_census
from waiting import eventually


@pytest.fixture
def provisioner() -> FakeProvisioner:
    return FakeProvisioner()


@pytest.fixture
async def orchestrator(store: Store, provisioner: FakeProvisioner) -> AsyncIterator[Orchestrator]:
    async with orchestrating(store, provisioner) as orchestrator:
        yield orchestrator


# Who it is


@pytest.mark.usefixtures("orchestrator")
async def test_an_orchestrator_says_who_it_is_and_what_it_has(store: Store) -> None:
    assert await store.hgetall(grid.ORCHESTRATOR(O1)) == {"type": "local"}
    assert await live_offers(store) == {O1: [CHROME]}
    assert await store.smembers(grid.ORCHESTRATOR_BROWSERS(O1)) == ["chrome::81.0"]
    assert await store.ttl_ms(grid.ORCHESTRATOR_HEARTBEAT(O1)) > 59_000
    assert await store.ttl_ms(grid.ORCHESTRATOR_RETAIN(O1)) > 604_700_000
    assert await store.llen(grid.ORCHESTRATOR_SLOTS_AVAILABLE(O1)) == 2
    assert await take_census(store) == []


async def test_a_browser_that_was_removed_is_no_longer_offered(store: Store) -> None:
    async with orchestrating(store, FakeProvisioner(CHROME, Offer("firefox", "74.0.1", "linux"))):
        assert await store.scard(grid.ORCHESTRATOR_BROWSERS(O1)) == 2

    async with orchestrating(store, FakeProvisioner(CHROME)):
        assert await live_offers(store) == {O1: [CHROME]}


def test_an_orchestrator_keeps_its_id(tmp_path: Path) -> None:
    file = tmp_path / "data" / "orchestrator-id"

    assert keep_id(file) == keep_id(file)


def test_an_id_that_was_never_written_down_is_made_up_again(tmp_path: Path) -> None:
    file = tmp_path / "orchestrator-id"
    file.write_text("\n")

    assert keep_id(file)
    assert keep_id(file) == keep_id(file)


# Sessions


@pytest.mark.usefixtures("orchestrator")
async def test_a_session_with_a_slot_gets_a_node(store: Store, provisioner: FakeProvisioner) -> None:
    session = await placed(store)

    await eventually(lambda: provisioner.provisioned == [session])

    await eventually(lambda: is_empty(store))
    assert await Sessions(store).state(session) is State.PENDING
    assert await store.lrange(grid.SESSION_ORCHESTRATOR(session)) == [O1]
    assert await codes_of(store, session) == ["NALLOC", "SCHED"]
    await check_counters(store)


@pytest.mark.usefixtures("orchestrator")
async def test_an_entry_that_comes_twice_starts_one_node(store: Store, provisioner: FakeProvisioner) -> None:
    session = await placed(store)
    await store.lpush(grid.ORCHESTRATOR_BACKLOG(O1), session, session)
    await eventually(lambda: provisioner.provisioned == [session])
    await store.lpush(grid.ORCHESTRATOR_BACKLOG(O1), session)
    last = await placed(store)

    await eventually(lambda: last in provisioner.provisioned)

    await eventually(lambda: is_empty(store))
    assert provisioner.provisioned == [session, last]
    held = await store.hgetall(grid.ORCHESTRATOR_HOLDERS(O1))
    assert sorted(held.values()) == sorted([session, last]), "who has a node keeps its slot"
    await check_slots(store, [O1])


async def test_a_session_that_ended_in_the_backlog_starts_no_node(
    store: Store, provisioner: FakeProvisioner
) -> None:
    await own_slots(store, O1, 2)
    session = await placed(store)
    await Sessions(store).move(session, State.TERMINATED, code="CLEFT")

    async with orchestrating(store, provisioner):
        await eventually(lambda: is_settled(store, session))

    assert provisioner.provisioned == []
    await check_slots(store, [O1])


@pytest.mark.usefixtures("orchestrator")
async def test_a_node_that_cannot_be_started_is_a_failure_with_its_cause(
    store: Store, provisioner: FakeProvisioner
) -> None:
    provisioner.failure = DriverUnavailable("The disk is full")
    session = await placed(store)

    await eventually(lambda: is_settled(store, session))

    assert (await log_of(store, session))[-1] == ("STARTFAIL", {"message": "The disk is full"})
    await check_slots(store, [O1])


@pytest.mark.usefixtures("orchestrator")
async def test_an_entry_that_nobody_can_work_on_is_set_aside(
    store: Store, provisioner: FakeProvisioner
) -> None:
    poisoned = await new_session(store)
    await store.hset(grid.SESSION_CAPABILITIES(poisoned), {"requested": "{"})
    await Slots(store).claim(poisoned, [O1])
    await store.lpush(grid.ORCHESTRATOR_BACKLOG(O1), "no session at all")

    await eventually(lambda: is_settled(store, poisoned))

    assert (await codes_of(store, poisoned))[-1] == "STARTFAIL"
    session = await placed(store)
    await eventually(lambda: provisioner.provisioned == [session])


@pytest.mark.usefixtures("orchestrator")
async def test_a_session_whose_node_dies_before_it_has_a_browser_gets_one_other(
    store: Store, provisioner: FakeProvisioner
) -> None:
    session = await placed(store)
    await eventually(lambda: provisioner.provisioned == [session])
    await Sessions(store).boot(session, is_warm=False)

    provisioner.on_gone(session)
    await eventually(lambda: provisioner.provisioned == [session, session])
    assert await Sessions(store).state(session) is State.PENDING
    assert (await log_of(store, session))[-1] == ("RESCHED", {"message": "The node died"})
    await check_slots(store, [O1])
    provisioner.on_gone(session)  # Once is enough: what kills every node must not have them started for ever.

    await eventually(lambda: is_settled(store, session))
    assert (await log_of(store, session))[-1] == ("TERM", {"message": "The node died"})
    assert provisioner.provisioned == [session, session]


@pytest.mark.usefixtures("orchestrator")
async def test_a_session_whose_node_dies_with_its_browser_has_ended(
    store: Store, provisioner: FakeProvisioner
) -> None:
    session = await placed(store)
    await eventually(lambda: provisioner.provisioned == [session])
    await Sessions(store).open(session, upstream={"host": "127.0.0.1", "port": 1}, actual={})

    provisioner.on_gone(session)

    await eventually(lambda: is_settled(store, session))
    assert (await log_of(store, session))[-1] == ("TERM", {"message": "The node died"})
    assert provisioner.provisioned == [session]


@pytest.mark.usefixtures("orchestrator")
async def test_a_session_that_had_a_browser_gets_no_other_node_though_redis_has_lost_it(
    store: Store, provisioner: FakeProvisioner
) -> None:
    session = await placed(store)
    await eventually(lambda: provisioner.provisioned == [session])
    # A fail-over: all that its node and its manager have written since then is gone.
    await Sessions(store).boot(session, is_warm=False)

    provisioner.on_gone(session, had_browser=True)

    await eventually(lambda: is_settled(store, session))
    assert provisioner.provisioned == [session]


@pytest.mark.usefixtures("orchestrator")
async def test_a_session_that_nobody_waits_for_gets_no_other_node(
    store: Store, provisioner: FakeProvisioner
) -> None:
    session = await placed(store)
    await eventually(lambda: provisioner.provisioned == [session])
    await store.delete(grid.SESSION_HEARTBEAT_MANAGER(session))

    provisioner.on_gone(session)

    await eventually(lambda: is_settled(store, session))
    assert provisioner.provisioned == [session]


async def test_a_node_that_hangs_is_ended_with_its_session(
    store: Store, provisioner: FakeProvisioner
) -> None:
    async with orchestrating(store, provisioner, node_patience=1.0):
        hung, healthy = await placed(store), await placed(store)
        await eventually(lambda: len(provisioner.provisioned) == 2)
        for session in (hung, healthy):
            await Sessions(store).boot(session, is_warm=True)
            await Sessions(store).move(session, State.ALIVE, code="NALIVE")

        await store.delete(grid.SESSION_HEARTBEAT_NODE(hung))

        await eventually(lambda: is_settled(store, hung, slots=1))
        assert provisioner.asked_to_end == [hung]
        assert (await log_of(store, hung))[-1] == ("TERM", {"message": NODE_HANGS})
        assert await Sessions(store).state(healthy) is State.ALIVE


async def test_a_node_that_is_stopped_is_ended_though_its_last_beat_lives(
    store: Store, provisioner: FakeProvisioner
) -> None:
    async with orchestrating(store, provisioner, node_patience=1.0):
        session = await placed(store)
        await eventually(lambda: provisioner.provisioned == [session])
        await Sessions(store).boot(session, is_warm=True)
        await Sessions(store).move(session, State.ALIVE, code="NALIVE")

        provisioner.stopped = [session]

        await eventually(lambda: is_settled(store, session))
        assert provisioner.asked_to_end[0] == session
        assert (await log_of(store, session))[-1] == ("TERM", {"message": NODE_HANGS})


async def test_a_node_that_goes_on_in_time_keeps_its_session(
    store: Store, provisioner: FakeProvisioner
) -> None:
    async with orchestrating(store, provisioner):
        session = await placed(store)
        await eventually(lambda: provisioner.provisioned == [session])
        await Sessions(store).boot(session, is_warm=True)
        await Sessions(store).move(session, State.ALIVE, code="NALIVE")

        provisioner.stopped = [session]

        await eventually(lambda: provisioner.looked_for_stopped >= 3)
        assert provisioner.asked_to_end == []
        assert await Sessions(store).state(session) is State.ALIVE


async def test_a_node_that_is_stopped_before_it_has_a_browser_is_ended_alone(
    store: Store, provisioner: FakeProvisioner
) -> None:
    async with orchestrating(store, provisioner, node_patience=1.0):
        session = await placed(store)
        await eventually(lambda: provisioner.provisioned == [session])
        await Sessions(store).boot(session, is_warm=True)

        provisioner.stopped = [session]
        await eventually(lambda: provisioner.asked_to_end[:1] == [session])
        provisioner.stopped = []
        provisioner.on_gone(session)

        await eventually(lambda: provisioner.provisioned == [session, session])
        assert await Sessions(store).state(session) is State.PENDING


# Lost slots


@pytest.mark.usefixtures("orchestrator")
async def test_a_dead_sessions_slot_is_free_only_when_its_node_is_gone(
    store: Store, provisioner: FakeProvisioner
) -> None:
    await set_timeouts(store, slotReclaimInterval=0.01)
    provisioner.ending.clear()
    session = await placed(store)
    await eventually(lambda: provisioner.provisioned == [session])

    await store.delete(grid.SESSION_HEARTBEAT_MANAGER(session))
    await eventually(lambda: provisioner.asked_to_end == [session])
    assert await store.exists(grid.SESSION_SLOT(session))
    provisioner.ending.set()

    await eventually(lambda: is_settled(store, session))
    await eventually(lambda: has_reclaimed(store, "dead", 1))
    assert (await log_of(store, session))[-1][0] == "TERM"
    await check_slots(store, [O1])


@pytest.mark.usefixtures("orchestrator")
async def test_a_slot_that_came_back_by_itself_was_not_dead(
    store: Store, provisioner: FakeProvisioner
) -> None:
    await set_timeouts(store, slotReclaimInterval=0.01)
    provisioner.ending.clear()
    session = await placed(store)
    await eventually(lambda: provisioner.provisioned == [session])
    await store.delete(grid.SESSION_HEARTBEAT_MANAGER(session))
    await eventually(lambda: provisioner.asked_to_end == [session])

    await Slots(store).release(session)  # As a node does that was just leaving.
    provisioner.ending.set()

    await eventually(lambda: is_settled(store, session))
    assert not await store.exists(metrics.METRICS_SLOTS_RECLAIMED())


@pytest.mark.usefixtures("orchestrator")
async def test_a_shorter_interval_between_sweeps_is_in_force_at_once(store: Store) -> None:
    await store.send("LPOP", grid.ORCHESTRATOR_SLOTS_AVAILABLE(O1))

    await set_timeouts(store, slotReclaimInterval=0.01)

    await eventually(lambda: has_reclaimed(store, "orphaned", 1))


# Leaving


async def test_an_orchestrator_that_leaves_tells_those_who_wait_there(
    store: Store, provisioner: FakeProvisioner
) -> None:
    async with orchestrating(store, provisioner) as orchestrator:
        await orchestrator.drain()
        assert await live_offers(store) == {}
    session = await placed(store)

    await orchestrator.stop()

    assert await is_settled(store, session)
    assert (await log_of(store, session))[-1] == (
        "STARTFAIL",
        {"message": "The orchestrator is shutting down"},
    )
    assert await store.ttl_ms(grid.ORCHESTRATOR_HEARTBEAT(O1)) <= 1000
    await check_slots(store, [O1])


async def test_two_orchestrators_do_not_touch_each_others_sessions(
    store: Store, provisioner: FakeProvisioner
) -> None:
    other = OrchestratorId(new_id())
    await advertise(store, other)
    await own_slots(store, other, 1)
    theirs = await new_session(store)
    await Slots(store).claim(theirs, [other])
    await store.delete(grid.SESSION_HEARTBEAT_MANAGER(theirs))
    await set_timeouts(store, slotReclaimInterval=0.01)

    async with orchestrating(store, provisioner):
        ours = await placed(store)
        await eventually(lambda: provisioner.provisioned == [ours])
        await store.delete(grid.SESSION_HEARTBEAT_MANAGER(ours))
        await eventually(partial(has_reclaimed, store, "dead", 1))

    assert await Sessions(store).state(theirs) is State.QUEUED
    await check_slots(store, [O1, other])


async def test_a_session_of_webgrids_own_manager_gets_a_node_and_keeps_its_slot(
    store: Store, provisioner: FakeProvisioner
) -> None:
    session = SessionId(new_id())
    async with orchestrating(store, provisioner, slots=1):
        # As its manager writes it, step by step.
        await store.hset(grid.SESSION_STATUS(session), {"queuedAt": "2021-05-15T10:00:00.123456789+00:00"})
        await store.hset(grid.SESSION_CAPABILITIES(session), {"requested": '{"firstMatch":[{}]}'})
        await store.sadd(grid.SESSIONS_ACTIVE(), session)
        await store.set(grid.SESSION_HEARTBEAT_MANAGER(session), "42", ex=30)
        _, slot = await store.send("BLPOP", grid.ORCHESTRATOR_SLOTS_AVAILABLE(O1), 5)
        await store.set(grid.SESSION_SLOT(session), slot)
        await store.lpush(grid.ORCHESTRATOR_BACKLOG(O1), session)

        await eventually(lambda: provisioner.provisioned == [session])

    assert await store.lrange(grid.SESSION_ORCHESTRATOR(session)) == [O1]
    assert await OwnSlots(store, O1, count=1).reclaim() == ([], [])
    await check_slots(store, [O1])
