"""A WebSocket at /session, before there is a session."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from granted import give_token
from grids import all_sessions
from managers import Client, open_orchestrator
from remuda.fleet.relay.bodies import Bodies
from remuda.gateway import bidi
from remuda.gateway.frames import NORMAL, NOT_TEXT, POLICY, TOO_BIG
from remuda.grid.model import State
from remuda.grid.sessions import Sessions
from remuda.grid.wire import MAX_VALUES
from remuda.keyspace import grid
from remuda.store import Store
from scripted_workers import Door, front_door
from waiting import eventually

DEADLINE = 20.0
# A client that closes its WebSocket waits for the other side no longer than this.
SOON = aiohttp.ClientWSTimeout(ws_close=0.1)
NEW = {
    "id": 7,
    "method": "session.new",
    "params": {"capabilities": {"alwaysMatch": {"browserName": "chrome"}}},
}


@pytest.fixture
async def door(store: Store) -> AsyncIterator[Door]:
    async with front_door(store) as door:
        yield door


async def talk(socket: aiohttp.ClientWebSocketResponse, message: Any) -> Any:
    """The answer to a message."""
    await (socket.send_str(message) if isinstance(message, str) else socket.send_json(message))
    return await socket.receive_json(timeout=DEADLINE)


@pytest.mark.parametrize("path", ["/session", "/wd/hub/session"])
async def test_a_client_asks_whether_it_may_have_a_session(door: Door, path: str) -> None:
    socket = await door.connect(path)

    answer = await talk(socket, {"id": 1, "method": "session.status", "params": {}})

    assert (answer["type"], answer["id"], answer["result"]["ready"]) == ("success", 1, True)
    await socket.close()
    assert socket.close_code == 1000


@pytest.mark.parametrize(
    ("message", "number", "error"),
    [
        ("nonsense", None, "invalid argument"),
        ("[]", None, "invalid argument"),
        ({"id": 1}, 1, "invalid argument"),
        ({"id": -1, "method": "session.status", "params": {}}, None, "invalid argument"),
        ({"id": True, "method": "session.status", "params": {}}, None, "invalid argument"),
        ({"id": 1, "method": "session.status"}, 1, "invalid argument"),
        ({"id": 1, "method": "session.status", "params": []}, 1, "invalid argument"),
        pytest.param(
            {"id": 1, "method": "session.status", "params": {"x": [[]] * MAX_VALUES}},
            None,
            "invalid argument",
            id="many values",
        ),
        ({"id": 1, "method": "browsingContext.getTree", "params": {}}, 1, "invalid session id"),
        ({"id": 1, "method": "session.end", "params": {}}, 1, "invalid session id"),
        ({"id": 1, "method": "browser.close", "params": {}}, 1, "invalid session id"),
        ({"id": 1, "method": "no.such", "params": {}}, 1, "unknown command"),
    ],
)
async def test_what_needs_a_session_or_is_no_command_is_an_error(
    door: Door, message: Any, number: int | None, error: str
) -> None:
    socket = await door.connect("/session")

    answer = await talk(socket, message)

    assert (answer["type"], answer["id"], answer["error"]) == ("error", number, error)
    assert answer["message"]
    again = await talk(socket, {"id": 2, "method": "session.status", "params": {}})
    assert again["type"] == "success"
    await socket.close()


@pytest.mark.parametrize(
    ("capabilities", "error"),
    [
        ({"alwaysMatch": {"browserName": "chrome"}}, "session not created"),
        ({"alwaysMatch": {"nonsense": 1}}, "invalid argument"),
        ({"alwaysMatch": []}, "invalid argument"),
        ({"alwaysMatch": [1]}, "invalid argument"),
        ({"firstMatch": "x"}, "invalid argument"),
        ("x", "invalid argument"),
    ],
)
async def test_a_session_that_is_not_created_is_an_error_and_another_can_be_asked_for(
    door: Door, client: Client, capabilities: Any, error: str
) -> None:
    socket = await door.connect("/session")

    for _ in range(2):
        answer = await talk(socket, {**NEW, "params": {"capabilities": capabilities}})
        assert (answer["id"], answer["error"]) == (7, error)
    await socket.close()


async def test_session_new_needs_capabilities(door: Door, client: Client) -> None:
    socket = await door.connect("/session")

    # W3C WebDriver BiDi, session.NewParameters: they may be empty, but not missing.
    answer = await talk(socket, {**NEW, "params": {}})

    assert (answer["id"], answer["error"]) == (7, "invalid argument")
    await socket.close()


async def test_a_session_ends_whose_client_leaves_while_it_waits(
    store: Store, door: Door, client: Client
) -> None:
    await open_orchestrator(store, 0)
    socket = await door.connect("/session", timeout=SOON)
    await socket.send_json(NEW)
    await eventually(lambda: all_sessions(store), DEADLINE)
    (session,) = await all_sessions(store)

    await socket.close()

    async def is_over() -> bool:
        return await Sessions(store).state(session) is State.TERMINATED

    await eventually(is_over, DEADLINE)
    assert (await Sessions(store).last_words(session) or ("", {}))[0] == "CLEFT"


def is_passing_answers() -> bool:
    return any(task.get_name() == "pass BiDi answers" for task in asyncio.all_tasks())


async def test_session_end_is_answered_though_the_browser_hangs_up_first(
    store: Store, door: Door, client: Client
) -> None:
    to_browser: list[asyncio.Transport] = []

    async def connect(request: web.Request) -> web.WebSocketResponse:
        assert request.transport is not None
        to_browser.append(request.transport)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.receive()
        return socket

    async def end(_request: web.Request) -> web.Response:
        assert is_passing_answers()
        for each in to_browser:
            each.abort()
        await eventually(lambda: not is_passing_answers(), DEADLINE)
        # Whatever follows from that is to happen before this is answered.
        for _ in range(100):
            await asyncio.sleep(0)
        return web.json_response({"value": None})

    app = web.Application()
    app.router.add_get("/session/{session}", connect)
    app.router.add_delete("/session/{session}", end)
    async with TestServer(app) as node:
        orchestrator = await open_orchestrator(store, 1)
        socket = await door.connect("/session")
        await socket.send_json(NEW)
        session = await orchestrator.take()
        upstream = {"host": str(node.host), "port": str(node.port)}
        await Sessions(store).open(session, upstream=upstream, actual={"browserName": "chrome"})
        created = await socket.receive_json(timeout=DEADLINE)

        answer = await talk(socket, {"id": 8, "method": "session.end", "params": {}})

        assert created["result"]["sessionId"] == session
        assert answer == {"type": "success", "id": 8, "result": {}}
        assert (await socket.receive(timeout=DEADLINE)).data == NORMAL


async def test_what_cannot_be_read_closes_the_websocket(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bidi, "MAX_MESSAGE", 1000)
    binary, large = await door.connect("/session"), await door.connect("/session")

    await binary.send_bytes(b"a")
    await large.send_str("a" * 1001)

    assert (await binary.receive(timeout=DEADLINE)).data == NOT_TEXT
    assert (await large.receive(timeout=DEADLINE)).data == TOO_BIG


@pytest.mark.parametrize(("code", "answer"), [(1001, 1001), (4999, 4999), (1005, 1002), (5000, 1002)])
async def test_a_close_code_is_echoed_unless_no_endpoint_may_send_it(
    door: Door, code: int, answer: int
) -> None:
    # Sent by hand: no client library sends such codes.
    reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
    writer.write(
        b"GET /session HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n"
    )
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")

    writer.write(b"\x88\x82\0\0\0\0" + code.to_bytes(2, "big"))

    frame = await asyncio.wait_for(reader.read(), DEADLINE)
    writer.close()
    assert (frame[0], int.from_bytes(frame[2:4], "big")) == (0x88, answer)


async def test_large_messages_together_take_no_more_memory_than_is_set_aside(
    store: Store, door: Door, client: Client
) -> None:
    await open_orchestrator(store, 0)
    bodies = door.gateway.bidi.bodies = Bodies(1_000_000)
    large = {**NEW, "params": {"capabilities": {"alwaysMatch": {"test:padding": "x" * 400_000}}}}
    sockets = [await door.connect("/session", timeout=SOON) for _ in range(4)]
    for socket in sockets:
        await socket.send_json(large)
    await eventually(lambda: all_sessions(store), DEADLINE)

    # A small message does not wait for large ones.
    small = await door.connect("/session")
    assert (await talk(small, {"id": 1, "method": "session.status", "params": {}}))["type"] == "success"
    assert 400_000 < bodies.held < 800_000

    for socket in sockets:
        await socket.close()
    await eventually(lambda: bodies.held == 0, DEADLINE)
    await small.close()


async def test_large_messages_of_one_account_keep_no_other_waiting(
    store: Store, client: Client, tmp_path: Path
) -> None:
    await open_orchestrator(store, 0)
    large = {**NEW, "params": {"capabilities": {"alwaysMatch": {"test:padding": "x" * 400_000}}}}
    async with front_door(store, auth="on", data=tmp_path) as door:
        door.gateway.bidi.bodies = Bodies(1_600_000)
        sockets: list[aiohttp.ClientWebSocketResponse] = []
        for account in ("flood", "flood", "flood", "flood", "other"):
            bearer = {"Authorization": f"Bearer {await give_token(store, account, name=f't{len(sockets)}')}"}
            sockets.append(await door.connect("/session", headers=bearer, timeout=SOON))
            await sockets[-1].send_json(large)

        await eventually(lambda: store.smembers(grid.SESSIONS_OF("other")), DEADLINE)

        assert 400_000 < door.gateway.bidi.bodies.held < 1_200_000
        for socket in sockets:
            await socket.close()


async def test_a_client_that_says_nothing_is_not_kept(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bidi, "MESSAGE_TIMEOUT", 0.05)
    socket = await door.connect("/session")

    assert (await socket.receive(timeout=DEADLINE)).data == POLICY


async def test_the_port_behind_the_door_answers_only_the_door(door: Door) -> None:
    address = door.gateway.bidi.address
    reader, writer = await asyncio.open_connection(*address[:2])
    writer.write(
        b"GET /session HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )

    assert (await asyncio.wait_for(reader.readline(), DEADLINE)).split()[1] == b"403"
    writer.close()
