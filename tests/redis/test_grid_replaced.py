"""Orchestrators that were killed and came back under another id."""

from contextlib import ExitStack

import pytest

from grids import CHROME, advertise, own_slots
from provisioners import O1, FakeProvisioner, orchestrating
from remuda.base.ids import OrchestratorId
from remuda.grid.abandoned import LOOKS, present
from remuda.grid.registry import live_offers
from remuda.grid.replaced import Replaced
from remuda.grid.view.overview import read_overview
from remuda.keyspace import grid
from remuda.store import Store
from waiting import eventually

KILLED, NEW = OrchestratorId("killed"), OrchestratorId("new")


async def start(store: Store, orchestrator: OrchestratorId, browser: str = CHROME) -> None:
    """An orchestrator that would be noticed if it were gone."""
    await advertise(store, orchestrator, browser)
    await store.sadd(grid.ORCHESTRATORS_PRESENT(), orchestrator)
    await own_slots(store, orchestrator, 2)


async def look(store: Store, times: int = LOOKS) -> None:
    replaced = Replaced(store)
    for _ in range(times):
        await replaced.look()


async def slots_shown(store: Store) -> int:
    return (await read_overview(store, None)).slots.total


async def test_slots_of_a_killed_orchestrator_are_not_counted_once_it_is_replaced(store: Store) -> None:
    await start(store, KILLED)
    await start(store, NEW)
    assert await slots_shown(store) == 4

    with present(store, NEW, kind="orchestrator"):
        await look(store)

        # A beat ends by expiring.
        await eventually(lambda: is_alone(store, NEW))
    assert await slots_shown(store) == 2
    assert await store.smembers(grid.ORCHESTRATORS_PRESENT()) == [NEW]


async def is_alone(store: Store, orchestrator: OrchestratorId) -> bool:
    return [*await live_offers(store)] == [orchestrator]


@pytest.mark.parametrize("browser", ["firefox::128.0", None])
async def test_sessions_wait_for_a_killed_orchestrator_that_is_not_replaced(
    store: Store, browser: str | None
) -> None:
    await start(store, KILLED)
    with ExitStack() as stack:
        if browser is not None:
            await start(store, NEW, browser)
            stack.enter_context(present(store, NEW, kind="orchestrator"))

        await look(store, 2 * LOOKS)

    assert KILLED in await live_offers(store)
    assert await store.ttl_ms(grid.ORCHESTRATOR_HEARTBEAT(KILLED)) > 10_000


async def test_two_killed_orchestrators_do_not_replace_each_other(store: Store) -> None:
    await start(store, KILLED)
    await start(store, NEW)

    await look(store, 2 * LOOKS)

    assert set(await live_offers(store)) == {KILLED, NEW}


async def test_an_orchestrator_that_does_not_say_that_it_is_present_is_left_alone(store: Store) -> None:
    await advertise(store, KILLED)
    await start(store, NEW)

    with present(store, NEW, kind="orchestrator"):
        await look(store, 2 * LOOKS)

    assert await store.ttl_ms(grid.ORCHESTRATOR_HEARTBEAT(KILLED)) > 10_000


async def test_an_orchestrator_that_was_thought_gone_is_back_at_once(store: Store) -> None:
    async with orchestrating(store, FakeProvisioner()):
        offered = await live_offers(store)
        await store.srem(grid.ORCHESTRATORS_PRESENT(), O1)
        await store.delete(grid.ORCHESTRATOR_HEARTBEAT(O1))

        await eventually(lambda: is_alone(store, O1))

        assert await live_offers(store) == offered
        await eventually(lambda: store.sismember(grid.ORCHESTRATORS_PRESENT(), O1))


async def test_an_orchestrator_that_leaves_is_not_looked_for(store: Store) -> None:
    async with orchestrating(store, FakeProvisioner()) as orchestrator:
        assert await store.smembers(grid.ORCHESTRATORS_PRESENT()) == [O1]
        assert await store.count_listeners([grid.PRESENCE(f"orchestrator:{O1}")]) == [1]

    await orchestrator.stop()

    assert not await store.exists(grid.ORCHESTRATORS_PRESENT())
    assert await store.count_listeners([grid.PRESENCE(f"orchestrator:{O1}")]) == [0]
