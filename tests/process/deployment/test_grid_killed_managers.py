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

from deployments import DEADLINE, SLOTS, Client, Deployment, has_ended, ports_of, working_deployment
from grids import all_sessions, codes_of, new_session
from installed import LIGHTEST, needs_browser
from processes import name_of
from remuda.base.ids import OrchestratorId, SessionId
from remuda.fleet.role import running_roles
from remuda.grid.model import State
from remuda.grid.sessions import Sessions, node_beat
from remuda.grid.slots import Slots
from remuda.keyspace import grid
from remuda.keyspace.fleet import ROLE, ROLES
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
def deployment(roles: list[str]) -> Iterator[Deployment]:
    others = ["gateway"], *([] if roles == SHARED else [["orchestrator"]])
    with working_deployment(*others, roles) as deployment:
        yield deployment


def victim(deployment: Deployment) -> subprocess.Popen[bytes]:
    """The process with the manager: the last one that was started."""
    return deployment.running[-1]


def revive(deployment: Deployment, roles: list[str]) -> None:
    """Starts a killed process again, as a herd does."""
    deployment.running.pop().wait()
    deployment.run(*roles)


def driver_of(deployment: Deployment) -> psutil.Process | None:
    """The driver of the node that waits for a session, once it listens."""
    drivers = [each for each in deployment.processes() if name_of(each) == "chromedriver"]
    return next((each for each in drivers if ports_of(each)), None)


async def is_ready(store: Store, pid: int) -> bool:
    return str(pid) in {role["pid"] for role in await running_roles(store)}


@asynccontextmanager
async def asked(store: Store, client: Client) -> AsyncIterator[SessionId]:
    """A session that a client waits for."""
    before = set(await all_sessions(store))
    asking = asyncio.create_task(client.ask(browserName=LIGHTEST))

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


async def take_all_slots(store: Store, orchestrator: str) -> list[SessionId]:
    """Sessions that hold every slot, and whose nodes beat."""
    available = grid.ORCHESTRATOR_SLOTS_AVAILABLE(orchestrator)

    async def all_available() -> list[str]:
        slots = await store.lrange(available)
        return slots if len(slots) == SLOTS else []

    holders = []
    for slot in await eventually(all_available, DEADLINE):
        session = await new_session(store)
        await Sessions(store).move(
            session, State.PENDING, code="SCHED", orchestrator=OrchestratorId(orchestrator)
        )
        await Sessions(store).move(session, State.ALIVE, code="NALIVE")
        # At once: a slot that is nowhere is taken for lost.
        async with store.transaction() as transaction:
            transaction.lrem(available, slot)
            transaction.set(grid.SESSION_SLOT(session), slot)
            transaction.hset(grid.ORCHESTRATOR_HOLDERS(orchestrator), {slot: session})
            node_beat(session).write(transaction)
        holders.append(session)
    return holders


async def test_a_session_in_the_queue_ends_with_its_manager(
    store: Store, client: Client, deployment: Deployment, roles: list[str]
) -> None:
    holders = await take_all_slots(store, deployment.orchestrator)
    async with asked(store, client) as session:
        await eventually(lambda: has_logged(store, session, "QUEUED"))

        victim(deployment).kill()

        # The gateway sees to that, also where nobody else is left.
        await eventually(lambda: has_ended(store, session), SOON)
    assert (await codes_of(store, session))[-1] == "QTIMEOUT"
    for holder in holders:
        await Sessions(store).move(holder, State.TERMINATED, code="TERM")
        await Slots(store).release(holder)
    revive(deployment, roles)


async def test_a_session_in_the_backlog_ends_with_its_manager(
    store: Store, client: Client, deployment: Deployment, roles: list[str]
) -> None:
    if roles == SHARED:
        pytest.skip("they are in one process")
    orchestrator = deployment.running[-2]
    orchestrator.send_signal(signal.SIGSTOP)
    async with asked(store, client) as session:
        await eventually(lambda: has_logged(store, session, "NALLOC"))

        victim(deployment).kill()
        revive(deployment, roles)

        # The next manager ends it, and its orchestrator, once it is back, frees the slot.
        await eventually(lambda: has_logged(store, session, "OTIMEOUT"), SOON)
        orchestrator.send_signal(signal.SIGCONT)
        await eventually(lambda: has_ended(store, session), SOON)
    assert not await has_logged(store, session, "BOOT")


async def test_a_session_whose_browser_starts_ends_with_its_manager(
    store: Store, client: Client, deployment: Deployment, roles: list[str]
) -> None:
    driver = await eventually(lambda: driver_of(deployment), DEADLINE)
    assert driver is not None
    driver.suspend()
    async with asked(store, client) as session:
        await eventually(lambda: has_logged(store, session, "DALIVE"))

        victim(deployment).kill()
        if roles == SHARED:  # An orchestrator that is left frees the slot by itself.
            revive(deployment, roles)

        await eventually(lambda: has_ended(store, session), SOON)
    assert await has_logged(store, session, "NTIMEOUT")
    if roles == ALONE:
        revive(deployment, roles)


async def test_a_session_whose_browser_is_ready_ends_with_its_manager(
    store: Store, client: Client, deployment: Deployment, roles: list[str]
) -> None:
    await eventually(lambda: is_ready(store, victim(deployment).pid), DEADLINE)
    driver = await eventually(lambda: driver_of(deployment), DEADLINE)
    assert driver is not None
    driver.suspend()
    async with asked(store, client) as session:
        await eventually(lambda: has_logged(store, session, "DALIVE"))
        victim(deployment).send_signal(signal.SIGSTOP)
        driver.resume()
        await eventually(lambda: store.exists(grid.SESSION_UPSTREAM(session)), DEADLINE)

        victim(deployment).kill()

        await eventually(lambda: has_ended(store, session), SOON)
    assert await has_logged(store, session, "NTIMEOUT")
    revive(deployment, roles)


async def test_a_session_whose_browser_starts_ends_with_its_gateway(
    store: Store, deployment: Deployment, roles: list[str]
) -> None:
    gateway = deployment.run("gateway")
    await eventually(lambda: is_ready(store, gateway.pid), DEADLINE)
    (role,) = [each for each in await running_roles(store) if each["pid"] == str(gateway.pid)]
    driver = await eventually(lambda: driver_of(deployment), DEADLINE)
    assert driver is not None
    driver.suspend()
    before = set(await all_sessions(store))
    async with aiohttp.ClientSession(f"http://{role['address']}") as http:
        asking = asyncio.create_task(Client(http).ask(browserName=LIGHTEST))

        async def starting() -> list[SessionId]:
            new = set(await all_sessions(store)) - before
            return [each for each in new if await has_logged(store, each, "DALIVE")]

        (session,) = await eventually(starting)
        gateway.kill()
        deployment.running.remove(gateway)
        gateway.wait()
        with pytest.raises(aiohttp.ClientError):
            await asking

    await eventually(lambda: has_ended(store, session), SOON)
    assert await has_logged(store, session, "CLEFT")
    # Else its record would be taken for a second front door until it runs out.
    await store.delete(ROLE(role["id"]))
    await store.zrem(ROLES(), role["id"])
