"""A ranch for the tests of a module, its Redis, and a client at its front door.

Whoever wants other roles has a fixture `ranch` of its own.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import suppress

import pytest

from grids import check_counters, check_slots
from processes import name_of
from ranches import DEADLINE, SLOTS, Client, Ranch, is_open, open_client, working_ranch
from remuda.keyspace import grid
from remuda.store import Store
from remuda.store.census import take_census
from waiting import eventually


@pytest.fixture(scope="module")
def ranch() -> Iterator[Ranch]:
    """A gateway and a manager in one process and an orchestrator in another."""
    with working_ranch(["gateway", "manager"], ["orchestrator"]) as ranch:
        yield ranch


@pytest.fixture
async def store(ranch: Ranch) -> AsyncIterator[Store]:
    """The ranch's Redis, once everybody is there; in the end it holds only what is declared."""
    async with Store(ranch.redis_url) as store:
        await eventually(lambda: is_open(store), DEADLINE)
        yield store
        assert await take_census(store) == []


@pytest.fixture
async def client(store: Store) -> AsyncIterator[Client]:
    async with open_client(store) as client:
        yield client


@pytest.fixture
async def calm_after(store: Store, ranch: Ranch) -> AsyncIterator[None]:
    """At the end of the test all is as it was before."""
    yield
    await eventually(lambda: _is_calm(store, ranch), DEADLINE)
    await check_counters(store)


async def _is_calm(store: Store, ranch: Ranch) -> bool:
    """Whether all slots are free, and only nodes that are kept warm are left."""
    if await store.llen(grid.ORCHESTRATOR_SLOTS_AVAILABLE(ranch.orchestrator)) != SLOTS:
        return False
    await check_slots(store, [ranch.orchestrator])
    names = [name_of(process) for process in ranch.processes()]
    drivers = names.count("chromedriver")
    return drivers <= 1 and _count_directories(ranch) == drivers and "chromium" not in names


def _count_directories(ranch: Ranch) -> int:
    """How many nodes have files. What is open to all are copies of drivers in a closed installation."""
    modes = []
    for each in ranch.temporary.iterdir():
        with suppress(FileNotFoundError):
            modes.append(each.stat().st_mode)
    return sum(not mode & 0o077 for mode in modes)
