"""Who offers what, and the live time-outs."""

import msgspec
import pytest

from grids import CHROME, advertise
from remuda.base.ids import OrchestratorId
from remuda.grid.capabilities import Offer
from remuda.grid.registry import describe, live_offers
from remuda.grid.timeouts import Timeouts, timeouts
from remuda.keyspace import grid
from remuda.store import Store
from remuda.store.census import take_census

FIREFOX = "firefox::74.0.1"
O1, O2 = OrchestratorId("o1"), OrchestratorId("o2")


async def test_without_orchestrators_there_is_nothing(store: Store) -> None:
    assert await live_offers(store) == {}
    assert describe({}) == "none, because no orchestrator is in service"


async def test_every_live_orchestrator_offers_its_browsers(store: Store) -> None:
    await advertise(store, O1, CHROME, FIREFOX)
    await advertise(store, O2, FIREFOX, platform="mac")

    offers = await live_offers(store)

    assert offers == {
        O1: [Offer("chrome", "81.0.4044.113", "linux"), Offer("firefox", "74.0.1", "linux")],
        O2: [Offer("firefox", "74.0.1", "mac")],
    }
    assert describe(offers) == "chrome 81.0.4044.113 on linux, firefox 74.0.1 on linux, firefox 74.0.1 on mac"


async def test_a_dead_orchestrator_offers_nothing(store: Store) -> None:
    await advertise(store, O1)
    await advertise(store, O2)

    await store.delete(grid.ORCHESTRATOR_HEARTBEAT(O1))

    assert list(await live_offers(store)) == [O2]


async def test_an_orchestrator_that_left_offers_nothing(store: Store) -> None:
    await advertise(store, O1)

    await store.srem(grid.ORCHESTRATORS(), O1)

    assert await live_offers(store) == {}


async def test_every_time_out_is_there_for_an_operator_to_change(store: Store) -> None:
    await timeouts(store).write_defaults()

    defaults = msgspec.to_builtins(Timeouts())
    assert await store.hgetall(grid.TIMEOUTS()) == {name: f"{value:g}" for name, value in defaults.items()}
    assert grid.TIMEOUTS.fields.keys() == defaults.keys()
    assert await take_census(store) == []


async def test_a_changed_time_out_is_in_force_at_once_and_stays(store: Store) -> None:
    await timeouts(store).write_defaults()

    await store.hset(grid.TIMEOUTS(), {"queue": "2.5"})
    await timeouts(store).write_defaults()

    assert await timeouts(store).read() == Timeouts(queue=2.5)


@pytest.mark.parametrize("text", ["soon", "-1", "inf", "nan", ""])
async def test_a_time_out_that_is_no_number_is_its_default(store: Store, text: str) -> None:
    await store.hset(grid.TIMEOUTS(), {"queue": text})

    assert await timeouts(store).read() == Timeouts()
