"""A deployment for the tests of a module, its Redis, and a client at its front door.

Whoever wants other roles has a fixture `deployment` of its own.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import suppress

import pytest

from browser_directories import directories_in
from deployments import DEADLINE, SLOTS, Client, Deployment, is_open, open_client, working_deployment
from grids import check_counters, check_slots
from processes import name_of
from remuda.fleet.origin import DEFAULT_ACCOUNT
from remuda.keyspace import grid
from remuda.keyspace.fleet import HELD, USES
from remuda.store import Store
from remuda.store.census import take_census
from waiting import eventually


@pytest.fixture(scope="module")
def deployment() -> Iterator[Deployment]:
    """A gateway and a manager in one process and an orchestrator in another."""
    with working_deployment(["gateway", "manager"], ["orchestrator"]) as deployment:
        yield deployment


@pytest.fixture
async def store(deployment: Deployment) -> AsyncIterator[Store]:
    """The deployment's Redis, once everybody is there; in the end it holds only what is declared."""
    async with Store(deployment.redis_url) as store:
        await eventually(lambda: is_open(store), DEADLINE)
        yield store
        assert await take_census(store) == []


@pytest.fixture
async def client(store: Store) -> AsyncIterator[Client]:
    async with open_client(store) as client:
        yield client


@pytest.fixture
async def calm_after(store: Store, deployment: Deployment) -> AsyncIterator[None]:
    """At the end of the test all is as it was before."""
    yield
    await eventually(lambda: _is_calm(store, deployment), DEADLINE)
    # Given back, not run out: that would take longer.
    await eventually(lambda: _is_nothing_used(store))
    await check_counters(store)


async def _is_nothing_used(store: Store) -> bool:
    return not await store.exists(USES(DEFAULT_ACCOUNT), HELD(DEFAULT_ACCOUNT))


async def _is_calm(store: Store, deployment: Deployment) -> bool:
    """Whether all slots are free, and only nodes that are kept warm are left."""
    if await store.llen(grid.ORCHESTRATOR_SLOTS_AVAILABLE(deployment.orchestrator)) != SLOTS:
        return False
    await check_slots(store, [deployment.orchestrator])
    names = [name_of(process) for process in deployment.processes()]
    drivers = names.count("chromedriver")
    return (
        drivers <= 1
        and _count_directories(deployment) == drivers
        and not any(name.startswith("chromium") for name in names)
    )


def _count_directories(deployment: Deployment) -> int:
    """How many nodes have files. What is open to all are copies of drivers in a closed installation."""
    modes = []
    for each in directories_in(deployment.temporary):
        with suppress(FileNotFoundError):
            modes.append(each.stat().st_mode)
    return sum(not mode & 0o077 for mode in modes)
