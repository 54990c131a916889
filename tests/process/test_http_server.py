"""The internal HTTP server: bodies, streams and WebSockets, for those that show the herd's secret."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket as ServerSocket

from remuda.base.errors import InvalidArgument, Lost, RemudaError, Unavailable, UpstreamUnavailable
from remuda.base.hosts import InternalHosts
from remuda.fleet import http_server
from remuda.fleet.http_client import ask
from remuda.fleet.http_server import HttpServer, Talk, websocket_endpoint
from remuda.fleet.relay import Address
from remuda.fleet.websocket import WebSocket, WebSocketClosed
from waiting import eventually

SECRET = b"X-Remuda-Secret: ours\r\n"


class KnowsOurs:
    """A guard that admits one credential."""

    def admits(self, credential: bytes | None) -> bool:
        return credential == b"ours"

    def look_again(self, then: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_soon(then)


async def length(request: Request) -> Response:
    return Response(str(len(await request.body())))


async def count(_request: Request) -> Response:
    async def numbers() -> AsyncIterator[str]:
        for number in range(3):
            yield f"{number} "

    return StreamingResponse(numbers())


async def echo(socket: ServerSocket) -> None:
    assert "x-remuda-secret" not in socket.headers
    await socket.accept()
    while True:
        await socket.send_text(await socket.receive_text())


@asynccontextmanager
async def serving(talk: Talk = echo, *, websockets: bool = True) -> AsyncIterator[tuple[HttpServer, Address]]:
    """A server with a route of each kind."""
    routes = [Route("/length", length, methods=["POST"]), Route("/count", count)]
    app = Starlette(routes=[*routes, WebSocketRoute("/talk", websocket_endpoint(talk))])
    server = HttpServer(app, hosts=InternalHosts(), guard=KnowsOurs(), websockets=websockets)
    host, port = (await server.start()).split(":")
    try:
        yield server, Address(host, int(port))
    finally:
        await server.stop()


def dial(address: Address, *, credential: bytes = SECRET) -> Awaitable[WebSocket]:
    return WebSocket.open(address, "/talk", credential=credential, timeout=10)


async def test_bodies_streams_and_websockets_share_a_port() -> None:
    async with serving() as (_, address):
        body = b"x" * 300_000
        assert await ask(address, "POST", "/length", body, credential=SECRET, timeout=10) == (200, b"300000")
        assert await ask(address, "GET", "/count", credential=SECRET, timeout=10) == (200, b"0 1 2 ")
        with closing(await dial(address)) as socket:
            for message in ("hello", "y" * 100_000):
                socket.send(message)
                assert await socket.receive() == message


@pytest.mark.parametrize("credential", [b"", b"X-Remuda-Secret: theirs\r\n"])
async def test_a_websocket_without_the_secret_is_refused(credential: bytes) -> None:
    async with serving() as (_, address):
        with pytest.raises(UpstreamUnavailable, match="answered 403"):
            await dial(address, credential=credential)


async def test_where_none_are_served_a_handshake_is_a_get() -> None:
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    upgrade["Sec-WebSocket-Key"] = "dGhlIHNhbXBsZSBub25jZQ=="
    async with serving(websockets=False) as (_, address):
        answer = await ask(address, "GET", "/count", credential=SECRET, headers=upgrade, timeout=10)

        assert answer == (200, b"0 1 2 ")


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (InvalidArgument("there is no such job"), 400, http_server.POLICY),
        (Unavailable("the queue is full"), 503, http_server.TRY_LATER),
        (Lost("the job is gone"), 404, http_server.FAILED),
        (ValueError("a bug"), 500, http_server.FAILED),
    ],
)
async def test_an_error_refuses_the_handshake_or_closes_the_websocket(
    error: Exception, status: int, code: int
) -> None:
    async def refuse(socket: ServerSocket) -> None:
        if "late" in socket.headers:
            await socket.accept()
        raise error

    async with serving(refuse) as (_, address):
        with pytest.raises(UpstreamUnavailable, match=f"answered {status}"):
            await dial(address)

        late = {"Late": "yes"}
        socket = await WebSocket.open(address, "/talk", credential=SECRET, headers=late, timeout=10)
        with closing(socket), pytest.raises(WebSocketClosed) as caught:
            await socket.receive()

    assert caught.value.code == code
    expected = error.message if isinstance(error, RemudaError) else "bug"
    assert expected in caught.value.message


async def test_a_talk_that_ends_closes_the_websocket_and_a_client_that_leaves_ends_the_talk() -> None:
    ended = asyncio.Event()

    async def once(socket: ServerSocket) -> None:
        await socket.accept()
        try:
            await socket.send_text(await socket.receive_text())
        finally:
            ended.set()

    async with serving(once) as (_, address):
        with closing(await dial(address)) as socket:
            socket.send("hello")
            assert [message async for message in socket] == ["hello"]
        ended.clear()

        (await dial(address)).close()

        await eventually(ended.is_set)


async def test_a_message_that_is_too_large_closes_the_websocket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "MAX_MESSAGE", 1000)
    async with serving() as (_, address):
        with closing(await dial(address)) as socket:
            socket.send("x" * 1001)

            with pytest.raises(WebSocketClosed) as caught:
                await socket.receive()

    assert caught.value.code == 1009


async def test_a_server_that_stops_says_so_to_its_websockets() -> None:
    async with serving() as (server, address):
        with closing(await dial(address)) as socket:
            stopping = asyncio.create_task(server.stop())

            with pytest.raises(WebSocketClosed) as caught:
                await socket.receive()
            await stopping

    assert caught.value.code == 1012
