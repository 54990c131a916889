"""Sessions that are asked for over WebDriver BiDi alone: by Puppeteer, and in the words of W3C."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from playwright._impl._driver import compute_driver_executable

from herds import DEADLINE, Herd
from programs import NODE, output_of
from remuda.base.ids import SessionId
from remuda.grid.model import State, state_of
from remuda.keyspace import grid
from remuda.store import Store
from waiting import eventually

BROWSERS = ["chrome", "firefox"]


class Socket:
    """A client that knows nothing but BiDi."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket
        self._count = 0

    async def call(self, method: str, **params: Any) -> Any:
        """The answer to a command; events are passed over."""
        self._count += 1
        await self.socket.send_json({"id": self._count, "method": method, "params": params})
        while True:
            said = await self.socket.receive_json(timeout=DEADLINE)
            if said.get("id") == self._count:
                return said


@pytest.fixture
async def client(herd: Herd) -> AsyncIterator[Socket]:
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(f"{herd.url}/session", max_msg_size=0) as socket,
    ):
        yield Socket(socket)


async def is_over(herd: Herd, session: str) -> bool:
    async with Store(herd.redis_url) as store:
        status = await store.hgetall(grid.SESSION_STATUS(SessionId(session)))
    return state_of(status) is State.TERMINATED


@pytest.mark.parametrize("browser", BROWSERS)
async def test_puppeteer_speaks_bidi_alone(herd: Herd, browser: str) -> None:
    node, _ = compute_driver_executable()

    printed = await asyncio.to_thread(
        output_of, [node, NODE / "bidi.mjs", browser, herd.url.replace("http", "ws")]
    )

    assert printed == "Hello over BiDi\n"


@pytest.mark.parametrize("browser", BROWSERS)
async def test_a_session_lives_from_session_new_to_session_end(
    herd: Herd, client: Socket, browser: str
) -> None:
    assert (await client.call("session.status"))["result"]["ready"] is True

    created = (await client.call("session.new", capabilities={"alwaysMatch": {"browserName": browser}}))[
        "result"
    ]
    assert created["capabilities"]["browserName"] == browser
    assert created["capabilities"]["webSocketUrl"].endswith(f"/session/{created['sessionId']}")
    assert (await client.call("session.status"))["result"]["ready"] is False
    assert (await client.call("session.new", capabilities={}))["error"] == "session not created"
    (context,) = (await client.call("browsingContext.getTree"))["result"]["contexts"]
    # Larger than what is looked at on its way, and than one chunk.
    large = f"'{'x' * 200_000}'.length"
    target = {"context": context["context"]}
    found = await client.call("script.evaluate", expression=large, target=target, awaitPromise=False)
    assert found["result"]["result"]["value"] == 200_000

    assert await client.call("session.end") == {"type": "success", "id": 7, "result": {}}
    assert (await client.socket.receive(timeout=DEADLINE)).type is aiohttp.WSMsgType.CLOSE
    assert client.socket.close_code == 1000
    await eventually(lambda: is_over(herd, created["sessionId"]), DEADLINE)


async def test_a_session_ends_with_its_websocket(herd: Herd, client: Socket) -> None:
    created = await client.call("session.new", capabilities={})

    await client.socket.close()

    await eventually(lambda: is_over(herd, created["result"]["sessionId"]), DEADLINE)
