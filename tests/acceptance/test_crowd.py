"""A crowd at the front door: many more clients than slots, and everybody gets a turn."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from selenium import webdriver

from clients import options_for
from herds import Herd, new_herd
from processes import is_alive, name_of, parent_of
from remuda.keyspace import grid, metrics
from remuda.store import Store
from remuda.store.census import take_census
from waiting import eventually

CLIENTS = 50
SLOTS = 4
COUNT_EVERY = 0.05
PAGE = "data:text/html,<title>{}</title>"


@pytest.fixture
def herd() -> Iterator[Herd]:
    with new_herd("--slots", str(SLOTS)) as herd:
        yield herd


@pytest.fixture
async def store(herd: Herd) -> AsyncIterator[Store]:
    async with Store(herd.redis_url) as store:
        yield store


def use(url: str, number: int) -> str:
    driver = webdriver.Remote(url, options=options_for())
    try:
        driver.get(PAGE.format(number))
        return driver.title
    finally:
        driver.quit()


async def test_fifty_clients_share_four_slots(herd: Herd, store: Store) -> None:
    loop = asyncio.get_running_loop()
    counts: list[int] = []
    counting = asyncio.create_task(keep_counting(herd, counts), name="count browsers")
    with ThreadPoolExecutor(CLIENTS) as pool:
        turns = [loop.run_in_executor(pool, use, herd.url, number) for number in range(CLIENTS)]
        titles = await asyncio.gather(*turns)
    counting.cancel()

    assert titles == [str(number) for number in range(CLIENTS)]
    assert 1 <= max(counts) <= SLOTS
    await eventually(lambda: slots_are_back(store))
    assert await store.scard(grid.SESSIONS_ACTIVE()) == 0
    assert await store.scard(grid.SESSIONS_TERMINATED()) == CLIENTS
    totals = await store.hgetall(metrics.METRICS_SESSIONS_TOTAL())
    assert totals == dict.fromkeys(("queued", "pending", "alive", "terminated"), str(CLIENTS))
    assert await store.get(metrics.METRICS_STARTUP_COUNT()) == str(CLIENTS)
    assert await take_census(store) == []


async def keep_counting(herd: Herd, counts: list[int]) -> None:
    while True:
        counts.append(await asyncio.to_thread(count_browsers, herd))
        # Without a pause, the search would take a processor from the browsers.
        await asyncio.sleep(COUNT_EVERY)


def count_browsers(herd: Herd) -> int:
    """Browsers that were all there when the search ended: who was found before and still runs after it."""
    processes = herd.processes()
    drivers = {process.pid for process in processes if name_of(process) == "chromedriver"}
    # Those of its pages have other parents, and so has what it forks.
    found = [process for process in processes if parent_of(process) in drivers]
    return sum(map(is_alive, found))


async def slots_are_back(store: Store) -> bool:
    (orchestrator,) = await store.smembers(grid.ORCHESTRATORS())
    return await store.llen(grid.ORCHESTRATOR_SLOTS_AVAILABLE(orchestrator)) == SLOTS
