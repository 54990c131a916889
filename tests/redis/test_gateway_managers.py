"""What a client hears when the manager that creates its session is killed."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import aiohttp
import pytest

from managers import CHROME
from relaying import Line, Upstream
from remuda.gateway.faces import MANAGER_LOST
from remuda.keyspace import grid
from remuda.store import Store
from scripted_workers import DEADLINE, Door, front_door


def hang_up(line: Line) -> None:
    if b"\r\n\r\n{" in line.received:  # Not before all of the request is here.
        line.transport.close()


@pytest.fixture
async def door(store: Store) -> AsyncIterator[Door]:
    """A front door before managers that are killed as soon as they have a request."""
    async with AsyncExitStack() as stack:
        # There is another one each time, so that none is waited for.
        for name in ("a", "b", "c"):
            manager = Upstream()
            manager.reply = hang_up
            address = await stack.enter_async_context(manager.listening())
            await store.sadd(grid.MANAGERS(), name)
            await store.hset(grid.MANAGER(name), {"host": address.host, "port": address.port})
            await store.set(grid.MANAGER_HEARTBEAT(name), "1")
        yield await stack.enter_async_context(front_door(store))


async def test_a_webdriver_client_is_told_to_ask_again(door: Door) -> None:
    url = f"http://127.0.0.1:{door.port}/session"

    async with aiohttp.ClientSession() as http, http.post(url, json=CHROME) as response:
        told = (await response.json())["value"]

    assert response.status == 500
    assert (told["error"], told["message"]) == ("session not created", MANAGER_LOST)


async def test_a_bidi_client_is_told_to_ask_again(door: Door) -> None:
    socket = await door.connect("/session")

    await socket.send_json({"id": 1, "method": "session.new", "params": CHROME})
    told = await socket.receive_json(timeout=DEADLINE)

    assert (told["error"], told["message"]) == ("session not created", MANAGER_LOST)
    await socket.close()


async def test_a_cdp_client_is_told_to_ask_again(door: Door) -> None:
    status, told, headers = await door.refusal("/cdp")

    assert (status, told["message"]) == (503, MANAGER_LOST)
    assert headers["Retry-After"]
