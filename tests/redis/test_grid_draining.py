"""An orchestrator that is taken out of service: nobody new gets there, and who is there may stay."""

import asyncio
from contextlib import suppress

from remuda.base.ids import OrchestratorId
from remuda.fleet.role import Life
from remuda.grid.draining import ASKED, LEAVING, DrainOrders
from remuda.grid.orchestrator.role import Orchestrator
from remuda.grid.registry import live_offers
from remuda.keyspace import grid
from remuda.store import Store
from remuda.store.census import take_census
from waiting import eventually
from web_states import SessionWriter, orchestrator, running

ORCHESTRATOR = OrchestratorId("ranch")


async def test_it_offers_nothing_until_it_is_back_in_service(store: Store) -> None:
    async with running(orchestrator(store), orchestrator(store, "other")):
        await DrainOrders(store).begin(ORCHESTRATOR)
        assert list(await live_offers(store)) == ["other"]

        await DrainOrders(store).end(ORCHESTRATOR)
        assert set(await live_offers(store)) == {"ranch", "other"}


async def test_who_takes_it_out_again_changes_nothing(store: Store) -> None:
    await DrainOrders(store).begin(ORCHESTRATOR)

    await DrainOrders(store).begin(ORCHESTRATOR, LEAVING)

    assert await store.get(grid.ORCHESTRATOR_DRAIN(ORCHESTRATOR)) == ASKED


async def test_a_crash_does_not_put_it_back_in_service_but_its_end_does(store: Store) -> None:
    crashing = orchestrator(store)
    await crashing.start()
    await DrainOrders(store).begin(ORCHESTRATOR)

    async with running(orchestrator(store)):
        assert await live_offers(store) == {}
    assert not await store.exists(grid.ORCHESTRATOR_DRAIN(ORCHESTRATOR))

    async with running(orchestrator(store)):
        assert list(await live_offers(store)) == [ORCHESTRATOR]
        assert await take_census(store) == []


def life_of(store: Store, role: Orchestrator) -> tuple[Life, asyncio.Task[None]]:
    """The life of a process that has no other role."""
    life = Life(store, [role], drain_timeout=30)
    return life, asyncio.create_task(life.run(), name="life")


async def test_alone_in_its_process_it_leaves_after_its_last_session(store: Store) -> None:
    _, living = life_of(store, orchestrator(store))
    await eventually(lambda: live_offers(store))
    session = await SessionWriter(store).serve()

    await DrainOrders(store).begin(ORCHESTRATOR)
    with suppress(TimeoutError):
        await asyncio.wait_for(asyncio.shield(living), 1.5)
    assert not living.done()

    await SessionWriter(store).end(session)
    await asyncio.wait_for(living, 10)
    assert not await store.exists(grid.ORCHESTRATOR_DRAIN(ORCHESTRATOR))


async def test_alone_in_its_process_it_lets_its_sessions_end_when_it_is_told_to_leave(store: Store) -> None:
    life, living = life_of(store, orchestrator(store))
    await eventually(lambda: live_offers(store))
    session = await SessionWriter(store).serve()

    life.ask_stop()
    await eventually(lambda: DrainOrders(store).is_begun(ORCHESTRATOR))
    assert await store.get(grid.ORCHESTRATOR_DRAIN(ORCHESTRATOR)) == LEAVING
    assert await live_offers(store) == {}
    assert await store.exists(grid.ORCHESTRATOR_HEARTBEAT(ORCHESTRATOR)), "it still lives"
    assert not living.done()

    await SessionWriter(store).end(session)
    await asyncio.wait_for(living, 10)
    assert await take_census(store) == []


async def test_killed_while_it_leaves_it_is_in_service_when_it_comes_back(store: Store) -> None:
    crashing = orchestrator(store)
    await crashing.start()
    await DrainOrders(store).begin(ORCHESTRATOR, LEAVING)

    async with running(orchestrator(store)):
        assert list(await live_offers(store)) == [ORCHESTRATOR]


async def test_told_twice_it_waits_for_nobody(store: Store) -> None:
    life, living = life_of(store, orchestrator(store))
    await eventually(lambda: live_offers(store))
    await SessionWriter(store).serve()

    life.ask_stop()
    life.ask_stop()

    await asyncio.wait_for(living, 10)


async def test_in_company_it_stays_though_it_is_idle_and_does_not_keep_the_others(store: Store) -> None:
    role = orchestrator(store)
    other = orchestrator(store, "other")
    life = Life(store, [role, other])
    living = asyncio.create_task(life.run(), name="life")
    await eventually(lambda: live_offers(store))
    await DrainOrders(store).begin(ORCHESTRATOR)
    with suppress(TimeoutError):
        await asyncio.wait_for(asyncio.shield(living), 1.5)
    assert not living.done()
    await SessionWriter(store).serve("other")

    life.ask_stop()

    await asyncio.wait_for(living, 10)
