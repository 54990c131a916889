"""A manager that is killed while it creates a session, wherever that session is on its way: all of it is free
again long before its beats have run out."""

import asyncio
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import aiohttp
import psutil
import pytest

from grids import all_sessions, codes_of
from installed import needs_browser
from processes import name_of
from ranches import DEADLINE, Client, Ranch, has_ended, ports_of, working_ranch
from remuda.base.ids import SessionId
from remuda.fleet.role import running_roles
from remuda.keyspace import grid
from remuda.keyspace.fleet import ROLE, ROLES
from remuda.keyspace.key import ListName
from remuda.store import Store
from waiting import eventually

pytestmark = [
    pytest.mark.xdist_group("grid killed managers"),
    pytest.mark.usefixtures("calm_after"),
    needs_browser,
]

ALONE, SHARED = ["manager"], ["manager", "orchestrator"]
SOON = grid.SESSION_HEARTBEAT_MANAGER.lifetime.expires or 0.0
"""Seconds after which the documented beats would tell at the earliest."""


@pytest.fixture(scope="module", params=[ALONE, SHARED], ids="+".join)
def roles(request: pytest.FixtureRequest) -> list[str]:
    """The roles of the process that is killed."""
    found: list[str] = request.param
    return found


@pytest.fixture(scope="module")
def ranch(roles: list[str]) -> Iterator[Ranch]:
    others = ["gateway"], *([] if roles == SHARED else [["orchestrator"]])
    with working_ranch(*others, roles) as ranch:
        yield ranch


def victim(ranch: Ranch) -> subprocess.Popen[bytes]:
    """The process with the manager: the last one that was started."""
    return ranch.running[-1]


def revive(ranch: Ranch, roles: list[str]) -> None:
    """Starts a killed process again, as a herd does."""
    ranch.running.pop().wait()
    ranch.run(*roles)


def driver_of(ranch: Ranch) -> psutil.Process | None:
    """The driver of the node that waits for a session, once it listens."""
    drivers = [each for each in ranch.processes() if name_of(each) == "chromedriver"]
    return next((each for each in drivers if ports_of(each)), None)


async def is_ready(store: Store, pid: int) -> bool:
    return str(pid) in {role["pid"] for role in await running_roles(store)}


@asynccontextmanager
async def asked(store: Store, client: Client) -> AsyncIterator[SessionId]:
    """A session that a client waits for."""
    before = set(await all_sessions(store))
    asking = asyncio.create_task(client.ask(browserName="chrome"))

    async def new() -> set[SessionId]:
        return set(await all_sessions(store)) - before

    try:
        (session,) = await eventually(new)
        yield session
    finally:
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


async def has_logged(store: Store, session: SessionId, code: str) -> bool:
    return code in await codes_of(store, session)


async def test_a_session_in_the_queue_ends_with_its_manager(
    store: Store, client: Client, ranch: Ranch, roles: list[str]
) -> None:
    available = grid.ORCHESTRATOR_SLOTS_AVAILABLE(ranch.orchestrator)
    hidden = ListName("hidden")
    await eventually(lambda: store.exists(available))
    await store.send("RENAME", available, hidden)
    async with asked(store, client) as session:
        await eventually(lambda: has_logged(store, session, "QUEUED"))

        victim(ranch).kill()

        # The gateway sees to that, also where nobody else is left.
        await eventually(lambda: has_ended(store, session), SOON)
    assert (await codes_of(store, session))[-1] == "QTIMEOUT"
    await store.send("RENAME", hidden, available)
    revive(ranch, roles)


async def test_a_session_in_the_backlog_ends_with_its_manager(
    store: Store, client: Client, ranch: Ranch, roles: list[str]
) -> None:
    if roles == SHARED:
        pytest.skip("they are in one process")
    orchestrator = ranch.running[-2]
    orchestrator.send_signal(signal.SIGSTOP)
    async with asked(store, client) as session:
        await eventually(lambda: has_logged(store, session, "NALLOC"))

        victim(ranch).kill()
        revive(ranch, roles)

        # The next manager ends it, and its orchestrator, once it is back, frees the slot.
        await eventually(lambda: has_logged(store, session, "OTIMEOUT"), SOON)
        orchestrator.send_signal(signal.SIGCONT)
        await eventually(lambda: has_ended(store, session), SOON)
    assert not await has_logged(store, session, "BOOT")


async def test_a_session_whose_browser_starts_ends_with_its_manager(
    store: Store, client: Client, ranch: Ranch, roles: list[str]
) -> None:
    driver = await eventually(lambda: driver_of(ranch), DEADLINE)
    assert driver is not None
    driver.suspend()
    async with asked(store, client) as session:
        await eventually(lambda: has_logged(store, session, "DALIVE"))

        victim(ranch).kill()
        if roles == SHARED:  # An orchestrator that is left frees the slot by itself.
            revive(ranch, roles)

        await eventually(lambda: has_ended(store, session), SOON)
    assert await has_logged(store, session, "NTIMEOUT")
    if roles == ALONE:
        revive(ranch, roles)


async def test_a_session_whose_browser_is_ready_ends_with_its_manager(
    store: Store, client: Client, ranch: Ranch, roles: list[str]
) -> None:
    await eventually(lambda: is_ready(store, victim(ranch).pid), DEADLINE)
    driver = await eventually(lambda: driver_of(ranch), DEADLINE)
    assert driver is not None
    driver.suspend()
    async with asked(store, client) as session:
        await eventually(lambda: has_logged(store, session, "DALIVE"))
        victim(ranch).send_signal(signal.SIGSTOP)
        driver.resume()
        await eventually(lambda: store.exists(grid.SESSION_UPSTREAM(session)), DEADLINE)

        victim(ranch).kill()

        await eventually(lambda: has_ended(store, session), SOON)
    assert await has_logged(store, session, "NTIMEOUT")
    revive(ranch, roles)


async def test_a_session_whose_browser_starts_ends_with_its_gateway(
    store: Store, ranch: Ranch, roles: list[str]
) -> None:
    gateway = ranch.run("gateway")
    await eventually(lambda: is_ready(store, gateway.pid), DEADLINE)
    (role,) = [each for each in await running_roles(store) if each["pid"] == str(gateway.pid)]
    driver = await eventually(lambda: driver_of(ranch), DEADLINE)
    assert driver is not None
    driver.suspend()
    before = set(await all_sessions(store))
    async with aiohttp.ClientSession(f"http://{role['address']}") as http:
        asking = asyncio.create_task(Client(http).ask(browserName="chrome"))

        async def starting() -> list[SessionId]:
            new = set(await all_sessions(store)) - before
            return [each for each in new if await has_logged(store, each, "DALIVE")]

        (session,) = await eventually(starting)
        gateway.kill()
        ranch.running.remove(gateway)
        gateway.wait()
        with pytest.raises(aiohttp.ClientError):
            await asking

    await eventually(lambda: has_ended(store, session), SOON)
    assert await has_logged(store, session, "CLEFT")
    # Else its record would be taken for a second front door until it runs out.
    await store.delete(ROLE(role["id"]))
    await store.zrem(ROLES(), role["id"])
