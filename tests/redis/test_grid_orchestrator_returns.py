"""Orchestrators that come back: what an earlier life has left is finished, adopted or settled."""

from functools import partial

import pytest

import servers
from grids import check_slots, codes_of, own_slots, set_timeouts
from provisioners import O1, FakeProvisioner, is_empty, is_settled, orchestrating, placed
from remuda.base.ids import SessionId
from remuda.grid.model import State
from remuda.grid.orchestrator import role
from remuda.grid.registry import Offers, live_offers
from remuda.grid.sessions import Sessions, node_beat
from remuda.grid.slots import OwnSlots
from remuda.keyspace import grid
from remuda.store import Store
from waiting import eventually


@pytest.fixture
def provisioner() -> FakeProvisioner:
    return FakeProvisioner()


async def scheduled(store: Store) -> SessionId:
    """A session whose node an orchestrator has scheduled and finished with."""
    session = await placed(store)
    await store.delete(grid.ORCHESTRATOR_BACKLOG(O1))
    await Sessions(store).move(session, State.PENDING, code="SCHED", orchestrator=O1)
    return session


async def test_what_an_earlier_life_had_taken_up_is_finished(
    store: Store, provisioner: FakeProvisioner
) -> None:
    await own_slots(store, O1, 2)
    queued = await placed(store)
    await store.rpoplpush(grid.ORCHESTRATOR_BACKLOG(O1), grid.ORCHESTRATOR_PENDING(O1))

    async with orchestrating(store, provisioner):
        await eventually(lambda: provisioner.provisioned == [queued])
        await eventually(lambda: is_empty(store))

    await check_slots(store, [O1])


async def test_a_node_that_an_earlier_life_had_scheduled_and_not_started_is_started(
    store: Store, provisioner: FakeProvisioner
) -> None:
    await own_slots(store, O1, 2)
    session = await scheduled(store)
    await store.lpush(grid.ORCHESTRATOR_PENDING(O1), session)

    async with orchestrating(store, provisioner):
        await eventually(lambda: provisioner.provisioned == [session])
        await eventually(lambda: is_empty(store))

    assert await codes_of(store, session) == ["NALLOC", "SCHED"]
    await check_slots(store, [O1])


async def note(store: Store, session: SessionId) -> None:
    await store.hset(grid.ORCHESTRATOR_NODES(O1), {session: f"the node of {session}"})


@pytest.mark.parametrize("state", [State.PENDING, State.ALIVE])
async def test_a_node_that_an_earlier_life_had_started_is_adopted(
    store: Store, provisioner: FakeProvisioner, state: State
) -> None:
    await own_slots(store, O1, 2)
    session = await scheduled(store)
    node_beat(session).write(store)
    await Sessions(store).open(session, upstream={"host": "127.0.0.1", "port": 1}, actual={})
    if state is State.ALIVE:
        await Sessions(store).move(session, State.ALIVE, code="NALIVE")
    await note(store, session)
    await store.lpush(grid.ORCHESTRATOR_PENDING(O1), session)

    async with orchestrating(store, provisioner):
        await eventually(lambda: is_empty(store))
        assert (provisioner.provisioned, provisioner.adopted) == ([], [session])
        assert await Sessions(store).state(session) is state
        await check_slots(store, [O1])

        provisioner.on_gone(session)
        await eventually(lambda: is_settled(store, session))

    assert await store.exists(grid.ORCHESTRATOR_NODES(O1)) == 0


async def test_a_session_whose_node_never_got_it_gets_another(
    store: Store, provisioner: FakeProvisioner
) -> None:
    await own_slots(store, O1, 2)
    early, late = await scheduled(store), await scheduled(store)
    for session in (early, late):
        await note(store, session)
    provisioner.dead = {early}

    async with orchestrating(store, provisioner):
        assert provisioner.provisioned == [early]
        provisioner.on_gone(late)
        await eventually(lambda: provisioner.provisioned == [early, late])
        provisioner.on_gone(late)  # Once is enough: a node that cannot start must not be started for ever.
        await eventually(lambda: has_ended(store, late))

    assert await Sessions(store).state(early) is State.PENDING


async def has_ended(store: Store, session: SessionId) -> bool:
    return await Sessions(store).state(session) is State.TERMINATED


async def test_an_adopted_node_ends_when_its_session_is_reclaimed(
    store: Store, provisioner: FakeProvisioner
) -> None:
    await own_slots(store, O1, 2)
    session = await scheduled(store)
    await note(store, session)
    await store.delete(grid.SESSION_HEARTBEAT_MANAGER(session))
    await set_timeouts(store, slotReclaimInterval=0.01)

    async with orchestrating(store, provisioner):
        await eventually(lambda: is_settled(store, session))

    assert provisioner.asked_to_end == [session]


@pytest.mark.parametrize("is_noted", [True, False])
async def test_a_session_whose_node_did_not_survive_is_ended(
    store: Store, provisioner: FakeProvisioner, is_noted: bool
) -> None:
    await own_slots(store, O1, 2)
    session = await scheduled(store)
    await Sessions(store).move(session, State.ALIVE, code="NALIVE")
    provisioner.dead = {session}
    if is_noted:
        await note(store, session)

    async with orchestrating(store, provisioner):
        assert await is_settled(store, session)

    assert (await codes_of(store, session))[-1] == "TERM"
    assert await store.exists(grid.ORCHESTRATOR_NODES(O1)) == 0


async def test_what_an_earlier_life_had_taken_and_is_no_session_is_set_aside(
    store: Store, provisioner: FakeProvisioner
) -> None:
    await store.lpush(grid.ORCHESTRATOR_PENDING(O1), "poison")

    async with orchestrating(store, provisioner):
        await eventually(lambda: is_empty(store))

    assert provisioner.provisioned == []


async def test_sessions_in_the_backlog_outlive_a_restart(store: Store, provisioner: FakeProvisioner) -> None:
    await own_slots(store, O1, 2)
    sessions = [await placed(store), await placed(store)]

    async with orchestrating(store, provisioner):
        await eventually(lambda: provisioner.provisioned == sessions)


async def test_nobody_purges_what_a_returning_orchestrator_needs(
    store: Store, provisioner: FakeProvisioner, monkeypatch: pytest.MonkeyPatch
) -> None:
    retained: list[int] = []

    async def look(own: OwnSlots) -> None:
        retained.append(await store.exists(grid.ORCHESTRATOR_RETAIN(O1)))

    monkeypatch.setattr(OwnSlots, "adjust", look)

    async with orchestrating(store, provisioner):
        assert retained == [1]


# Redis that comes back


async def test_an_orchestrator_outlives_an_absence_of_redis(
    server: servers.Server, provisioner: FakeProvisioner
) -> None:
    async with (
        Store(server.url, timeout=servers.PATIENCE) as store,
        orchestrating(store, provisioner) as orchestrator,
    ):
        await store.send("SAVE")

        server.kill()
        await eventually(lambda: not store.is_connected)
        server.start()
        await eventually(lambda: store.is_connected)

        session = await placed(store)
        await eventually(lambda: provisioner.provisioned == [session])
        await orchestrator.stop()


async def test_after_an_absence_of_redis_the_beats_may_come_back_first(
    server: servers.Server,
    provisioner: FakeProvisioner,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(role, "PATIENCE", 3600.0)
    async with Store(server.url, timeout=servers.PATIENCE) as store, orchestrating(store, provisioner):
        session = await placed(store)
        await eventually(lambda: provisioner.provisioned == [session])
        await set_timeouts(store, slotReclaimInterval=0.01)
        await store.send("SAVE")

        server.kill()
        await eventually(lambda: "slots not reclaimed" in caplog.text)
        server.start()
        await eventually(lambda: store.is_connected)
        await store.delete(grid.SESSION_HEARTBEAT_MANAGER(session))

        looks = await reads_of_settings(store)
        await eventually(partial(has_read_settings, store, looks + 20))
        assert provisioner.asked_to_end == []


async def reads_of_settings(store: Store) -> int:
    """How often the orchestrator has looked whether it is time for a sweep."""
    stats = str(await store.send("INFO", "commandstats"))
    calls = (line.split("calls=")[1].split(",")[0] for line in stats.split() if "_hgetall:" in line)
    return int(next(calls, 0))


async def has_read_settings(store: Store, times: int) -> bool:
    return await reads_of_settings(store) >= times


async def test_an_orchestrator_is_in_service_again_after_redis_has_lost_its_data(
    store: Store, provisioner: FakeProvisioner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(role, "FORGOTTEN_PATIENCE", 0.5)
    async with orchestrating(store, provisioner):
        offered = await live_offers(store)

        await store.send("FLUSHALL")

        await eventually(lambda: is_offered(store, offered))
        await eventually(lambda: has_free_slots(store, 2))
        session = await placed(store)
        await eventually(lambda: provisioner.provisioned == [session])
        await check_slots(store, [O1])


async def is_offered(store: Store, offers: Offers) -> bool:
    return await live_offers(store) == offers


async def has_free_slots(store: Store, count: int) -> bool:
    return await store.llen(grid.ORCHESTRATOR_SLOTS_AVAILABLE(O1)) == count


async def test_slots_that_redis_has_lost_return_once_the_nodes_have_ended(
    store: Store, provisioner: FakeProvisioner
) -> None:
    async with orchestrating(store, provisioner) as orchestrator:
        await store.send("FLUSHALL")

        await orchestrator.keep_books()

        assert not await store.exists(grid.ORCHESTRATOR_SLOTS(O1))
