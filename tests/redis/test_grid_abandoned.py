"""Sessions whose manager was killed while it created them: they end, and whatever they held is free."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from credentials import herd_headers
from grids import check_counters, codes_of, own_slots
from managers import Client, has_logged, only_session, open_orchestrator, running
from remuda.base.ids import ManagerId, SessionId
from remuda.fleet.origin import DEFAULT_ACCOUNT
from remuda.grid.abandoned import LOOKS, MESSAGE, Abandoned, present
from remuda.grid.manager import Manager
from remuda.grid.model import State
from remuda.grid.sessions import Sessions
from remuda.keyspace import grid
from remuda.keyspace.key import Name
from remuda.store import Store
from sweeping import O1, Make, alive, pending, placed, queued
from waiting import eventually

KILLED = ManagerId("killed")


async def created(store: Store, make: Make, manager: ManagerId = KILLED) -> SessionId:
    """A session that the manager creates."""
    await own_slots(store, O1, 1)
    session = await make(store)
    await store.hset(grid.MANAGER_SESSIONS(manager), {session: DEFAULT_ACCOUNT})
    await store.sadd(grid.MANAGERS_CREATING(), manager)
    return session


async def look(store: Store, times: int = LOOKS) -> None:
    abandoned = Abandoned(store)
    for _ in range(times):
        await abandoned.look()


@pytest.mark.parametrize(
    ("make", "code"), [(queued, "QTIMEOUT"), (placed, "OTIMEOUT"), (pending, "NTIMEOUT")]
)
async def test_what_a_killed_manager_was_creating_ends(store: Store, make: Make, code: str) -> None:
    session = await created(store, make)

    await look(store)

    assert await Sessions(store).state(session) is State.TERMINATED
    assert await Sessions(store).last_words(session) == (code, {"message": MESSAGE})
    assert not await store.exists(grid.MANAGER_SESSIONS(KILLED), grid.MANAGERS_CREATING())
    await check_counters(store)


async def test_a_session_that_its_client_has_outlives_its_manager(store: Store) -> None:
    session = await created(store, alive)

    await look(store)

    assert await Sessions(store).state(session) is State.ALIVE
    assert not await store.exists(grid.MANAGER_SESSIONS(KILLED), grid.MANAGERS_CREATING())


async def test_a_manager_that_is_busy_is_not_gone(store: Store, redis_url: str) -> None:
    session = await created(store, pending)

    # It has a connection, and says nothing on it.
    async with Store(redis_url) as busy:
        with present(busy, KILLED):
            await busy.send("PING")
            await look(store, 3 * LOOKS)

    assert await Sessions(store).state(session) is State.PENDING


@asynccontextmanager
async def killed_manager(url: str) -> AsyncIterator[tuple[Client, asyncio.Event]]:
    """A client of a manager that is killed, with its connections, once the event is set."""
    kill = asyncio.Event()
    async with Store(url) as store, aiohttp.ClientSession(headers=await herd_headers(store)) as http:
        manager = Manager(store)
        await manager.start()
        serving = asyncio.create_task(manager.serve(), name="serve")

        async def die() -> None:
            await kill.wait()
            await store.__aexit__(None, None, None)
            serving.cancel()

        dying = asyncio.create_task(die(), name="die")
        try:
            yield Client(manager, http), kill
        finally:
            kill.set()
            await dying
            manager._relay.close()
            assert manager._server is not None
            manager._server.close()


async def test_a_dead_place_in_the_queue_holds_nobody_up(store: Store, redis_url: str) -> None:
    orchestrator = await open_orchestrator(store, 0)
    async with killed_manager(redis_url) as (doomed, kill), running(store) as (_, client):
        first = doomed.asking()
        await eventually(lambda: has_logged(store, "QUEUED"))
        dead = await only_session(store)
        second = client.asking()
        await eventually(lambda: has_logged(store, "QUEUED", 2))

        kill.set()
        orchestrator = await open_orchestrator(store, 1)
        session = await orchestrator.take()

        await orchestrator.bring(session)
        assert (await second).status == 200
        assert session != dead
        await eventually(lambda: has_logged(store, "QTIMEOUT"))
        assert (await codes_of(store, dead))[-1] == "QTIMEOUT"
        first.cancel()


async def test_what_a_manager_has_created_does_not_end_with_it(store: Store, client: Client) -> None:
    orchestrator = await open_orchestrator(store, 1)
    asking = client.asking()
    session = await orchestrator.take()
    assert await store.scard(grid.MANAGERS_CREATING()) == 1
    await orchestrator.bring(session)

    assert (await asking).status == 200

    (manager,) = await store.smembers(grid.MANAGERS_CREATING())
    await eventually(lambda: is_gone(store, grid.MANAGER_SESSIONS(manager)))


async def is_gone(store: Store, key: Name) -> bool:
    return not await store.exists(key)


async def test_nobody_asks_a_killed_manager_for_sessions(store: Store, redis_url: str) -> None:
    async with killed_manager(redis_url) as (_, kill):
        assert await store.scard(grid.MANAGERS()) == 1

        kill.set()

        async def is_forgotten() -> bool:
            await abandoned.look()
            return await is_gone(store, grid.MANAGERS())

        abandoned = Abandoned(store)
        await eventually(is_forgotten)


async def test_a_manager_that_was_thought_gone_comes_back(store: Store) -> None:
    async with running(store) as (manager, _):
        own = manager.manager_id

        await Abandoned(store)._end_all(own)

        await eventually(lambda: store.sismember(grid.MANAGERS(), own))
        assert await store.exists(grid.MANAGER(own), grid.MANAGERS_CREATING()) == 2


async def test_a_manager_that_leaves_in_order_is_not_looked_for(store: Store) -> None:
    async with running(store) as (_, client):
        assert (await client.ask()).error == "500 session not created"

    assert not await store.exists(grid.MANAGERS_CREATING())
