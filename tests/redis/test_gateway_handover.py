"""A session is its client's only if the front door reaches its node."""

import asyncio
from typing import Any

import aiohttp
import pytest

from grids import all_sessions
from managers import CHROME, Client, open_orchestrator
from relaying import Upstream
from remuda.base.ids import SessionId
from remuda.grid.model import State
from remuda.grid.sessions import Sessions
from remuda.keyspace import grid
from remuda.store import Store
from scripted_workers import DEADLINE, front_door
from servers import free_port
from waiting import eventually

pytestmark = pytest.mark.usefixtures("client")


async def ask(port: int) -> tuple[int, Any]:
    url = f"http://127.0.0.1:{port}/session"
    async with aiohttp.ClientSession() as http, http.post(url, json=CHROME) as response:
        return response.status, (await response.json())["value"]


async def test_a_session_whose_node_cannot_be_reached_is_not_created_and_ends(store: Store) -> None:
    orchestrator, nowhere = await open_orchestrator(store, 1), free_port()
    async with front_door(store) as door:
        asking = asyncio.create_task(ask(door.port))
        session = await orchestrator.take()
        await store.hset(grid.SESSION_UPSTREAM(session), {"host": "127.0.0.1", "port": nowhere})
        await orchestrator.bring(session)

        status, told = await asking

    assert (status, told["error"]) == (500, "session not created")
    assert f"cannot reach its node at 127.0.0.1:{nowhere}" in told["message"]
    assert await Sessions(store).state(session) is State.TERMINATED
    code, meta = await Sessions(store).last_words(session) or ("", {})
    assert (code, meta["message"]) == ("TERM", told["message"].partition(" Check listen")[0])


async def test_the_connection_that_shows_a_node_is_used_for_the_first_command(store: Store) -> None:
    orchestrator, node = await open_orchestrator(store, 1), Upstream()
    async with front_door(store) as door, node.listening() as address:
        asking = asyncio.create_task(ask(door.port))
        session = await orchestrator.take()
        await store.hset(grid.SESSION_UPSTREAM(session), {"host": address.host, "port": address.port})
        await orchestrator.bring(session)

        status, told = await asking

        assert (status, told["sessionId"]) == (200, session)
        await eventually(lambda: len(node.lines) == 1)
        url = f"http://127.0.0.1:{door.port}/session/{session}/url"
        async with aiohttp.ClientSession() as http, http.get(url) as response:
            assert response.status == 200
        assert len(node.lines) == 1
        assert b"/url" in node.received


async def test_a_client_that_leaves_while_the_node_is_dialled_leaves_no_session(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    orchestrator = await open_orchestrator(store, 1)
    async with front_door(store) as door:
        dialled = asyncio.Event()

        async def connect(_address: object) -> None:
            dialled.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(door.gateway._door.relay.pool, "connect", _only_nodes(door.gateway, connect))
        asking = asyncio.create_task(ask(door.port))
        session = await orchestrator.take()
        await store.hset(grid.SESSION_UPSTREAM(session), {"host": "127.0.0.1", "port": 1})
        await orchestrator.bring(session)
        await asyncio.wait_for(dialled.wait(), DEADLINE)

        asking.cancel()

        await eventually(lambda: is_over(store, session), DEADLINE)
    assert await all_sessions(store) == [session]


def _only_nodes(gateway: Any, connect: Any) -> Any:
    """Connections as always, but for the nodes of this test, which have port 1."""
    real = gateway._door.relay.pool.connect

    async def dial(address: Any) -> Any:
        return await (connect(address) if address.port == 1 else real(address))

    return dial


async def is_over(store: Store, session: SessionId) -> bool:
    return await Sessions(store).state(session) is State.TERMINATED


async def test_a_client_hears_of_a_lost_session(store: Store, client: Client) -> None:
    """A session that ends between its creation and the look is not handed over either."""
    orchestrator = await open_orchestrator(store, 1)
    async with front_door(store) as door:
        asking = asyncio.create_task(ask(door.port))
        session = await orchestrator.take()
        await orchestrator.bring(session)  # Without an upstream: the node was gone before it was known.

        status, told = await asking

    assert (status, told["error"]) == (500, "session not created")
    assert await is_over(store, session)
