"""Whose turn it is for a slot: that of the account with the fewest browsers among all that it can serve,
whatever words they have used, and whichever manager they have asked."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from itertools import cycle
from typing import Any

import pytest

from grids import CHROME, advertise, own_slots
from managers import O1, O2, Client, ScriptedOrchestrator, has_logged, running
from remuda.fleet.line import who_waits
from remuda.fleet.origin import DEFAULT_ACCOUNT
from remuda.grid.sessions import Sessions
from remuda.keyspace.fleet import LINES
from remuda.store import Store
from waiting import eventually

FIREFOX = "firefox::74.0.1"
NEWER = "chrome::82.0.1"
# All of them are served by the same browser.
WORDINGS: list[dict[str, Any]] = [
    {"browserName": "chrome"},
    {"browserName": "chrome", "browserVersion": "81"},
    {"browserName": "chrome", "browserVersion": "81.0"},
    {"browserName": "CHROMIUM", "browserVersion": "81.0.4044"},
    {"browserName": "chrome", "browserVersion": "81.0.4044.113"},
    {"platformName": "linux"},
    {"platformName": "unix", "se:downloadsEnabled": True},
    {"browserVersion": "81.0.4044.113", "platformName": "any"},
    {"browserName": "chrome", "se:name": "a label"},
    {},
]


class Crowd:
    """Clients that wait, of several accounts, asked of one manager after the other."""

    def __init__(self, store: Store, *managers: Client) -> None:
        self._store = store
        self._managers = cycle(managers)
        self._asked = 0
        self._tasks: list[asyncio.Task[Any]] = []

    async def ask(self, account: str, *wishes: dict[str, Any]) -> None:
        """Has these wait, each having come after the one before."""
        for wanted in wishes:
            body = {"capabilities": {"alwaysMatch": {"se:number": self._asked, **wanted}}}
            self._tasks.append(next(self._managers).asking(body, **{"X-Remuda-Account": account}))
            self._asked += 1
            await eventually(partial(has_logged, self._store, "QUEUED", self._asked))

    def leave(self) -> None:
        for task in self._tasks:
            task.cancel()


@asynccontextmanager
async def two_managers(store: Store, url: str) -> AsyncIterator[Crowd]:
    async with Store(url) as other, running(store) as (_, one), running(other) as (_, two):
        crowd = Crowd(store, one, two)
        yield crowd
        crowd.leave()


@pytest.fixture
async def crowd(store: Store, redis_url: str) -> AsyncIterator[Crowd]:
    async with two_managers(store, redis_url) as crowd:
        yield crowd


async def open_herd(store: Store, *browsers: str, slots: int = 0, name: Any = O1) -> ScriptedOrchestrator:
    await advertise(store, name, *browsers)
    return ScriptedOrchestrator(store, await own_slots(store, name, slots), name)


async def serve(store: Store, orchestrator: ScriptedOrchestrator, times: int) -> list[str]:
    """The accounts whose sessions get the slot one after the other; none gives its browser back."""
    return [account for account, _ in await serve_in_turn(store, orchestrator, times)]


async def serve_in_turn(
    store: Store, orchestrator: ScriptedOrchestrator, times: int
) -> list[tuple[str, int]]:
    """The same, each with the number of its request."""
    served = []
    for _ in range(times):
        session = await orchestrator.take()
        number = int((await Sessions(store).labels(session))["number"])
        served.append((await Sessions(store).account(session) or DEFAULT_ACCOUNT, number))
    return served


async def test_many_wordings_of_one_wish_give_an_account_one_turn(store: Store, crowd: Crowd) -> None:
    await open_herd(store, CHROME, FIREFOX)
    await crowd.ask("greedy", *WORDINGS)
    await crowd.ask("modest", {"browserName": "chrome"})
    await crowd.ask("other", {"browserName": "firefox"})

    orchestrator = await open_herd(store, CHROME, FIREFOX, slots=6)

    assert await serve(store, orchestrator, 6) == ["greedy", "modest", "other", "greedy", "greedy", "greedy"]


async def test_an_account_is_served_in_the_order_in_which_it_asked_whatever_the_words(
    store: Store, crowd: Crowd
) -> None:
    await open_herd(store, CHROME, FIREFOX)
    await crowd.ask("qa", *WORDINGS)

    orchestrator = await open_herd(store, CHROME, FIREFOX, slots=len(WORDINGS))

    served = await serve_in_turn(store, orchestrator, len(WORDINGS))
    assert [number for _, number in served] == list(range(len(WORDINGS)))


async def test_what_clients_write_makes_no_lines(store: Store, crowd: Crowd) -> None:
    await open_herd(store, CHROME, FIREFOX)
    await open_herd(store, FIREFOX, name=O2)

    await crowd.ask("qa", *WORDINGS, {"browserName": "firefox"})

    assert await store.zcard(LINES()) == 2


async def test_a_slot_goes_to_the_account_with_the_fewest_of_all_that_it_can_serve(
    store: Store, crowd: Crowd
) -> None:
    await open_herd(store, CHROME, FIREFOX)
    await open_herd(store, CHROME, name=O2)
    # Each wish is served by another set of orchestrators.
    await crowd.ask("greedy", {"browserName": "chrome"}, {"browserName": "firefox"}, {}, {})
    await crowd.ask("modest", {"browserName": "firefox"})

    orchestrator = await open_herd(store, CHROME, FIREFOX, slots=3)

    assert await serve_in_turn(store, orchestrator, 3) == [("greedy", 0), ("modest", 4), ("greedy", 1)]


async def test_a_slot_goes_to_the_first_of_an_account_that_it_can_serve(store: Store, crowd: Crowd) -> None:
    both = await open_herd(store, CHROME, FIREFOX)
    await open_herd(store, CHROME, name=O2)
    await crowd.ask("qa", {"browserName": "firefox"}, {}, {"browserName": "chrome"})

    one = await open_herd(store, CHROME, slots=1, name=O2)
    assert await serve_in_turn(store, one, 1) == [("qa", 1)]
    both = await open_herd(store, CHROME, FIREFOX, slots=2)
    assert await serve_in_turn(store, both, 2) == [("qa", 0), ("qa", 2)]


async def test_a_new_kind_of_orchestrator_serves_those_who_wait_in_their_order(
    store: Store, crowd: Crowd
) -> None:
    await open_herd(store, CHROME)
    await crowd.ask("greedy", {"browserName": "chrome"}, {}, {"browserVersion": "81"})
    await crowd.ask("modest", {"browserName": "chrome"})
    # First without slots: a manager whose clients are all behind in the queue takes a second to see it.
    await open_herd(store, NEWER, name=O2)
    await eventually(lambda: waits_in_lines(store, 4 + 3))

    newer = await open_herd(store, NEWER, slots=3, name=O2)

    assert await serve_in_turn(store, newer, 3) == [("greedy", 0), ("modest", 3), ("greedy", 1)]


async def test_those_whose_orchestrator_is_gone_wait_for_the_others(store: Store, crowd: Crowd) -> None:
    await open_herd(store, CHROME)
    await open_herd(store, NEWER, name=O2)
    await crowd.ask("qa", {}, {"browserName": "chrome"})
    await eventually(lambda: waits_in_lines(store, 4))

    await store.send("DEL", f"orchestrator:{O1}:heartbeat")

    await eventually(lambda: waits_in_lines(store, 2))
    newer = await open_herd(store, NEWER, slots=2, name=O2)
    assert await serve_in_turn(store, newer, 2) == [("qa", 0), ("qa", 1)]


async def waits_in_lines(store: Store, count: int) -> bool:
    """Whether so many tickets stand in all lines together."""
    return len(await who_waits(store, "grid:")) == count
