"""Requests and WebSockets of our own: what is sent, what comes back, and every way in which that can fail."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
from aiohttp import WSCloseCode, WSMsgType, web

from process.test_relay_failures import nobody
from relaying import OK, Line, Upstream
from remuda.base.errors import UpstreamUnavailable
from remuda.fleet.http_client import accept_key, ask
from remuda.fleet.relay import Address
from remuda.fleet.websocket import WebSocket, WebSocketClosed
from waiting import eventually


async def test_the_answer_comes_back() -> None:
    upstream = Upstream()
    async with upstream.listening() as address:
        found = await ask(
            address,
            "POST",
            "/session",
            b"{}",
            credential=b"X-Remuda-Secret: ours\r\n",
            headers={"User-Agent": "me"},
            timeout=10,
        )

        assert found == (200, b"ok")
        head, body = upstream.received.split(b"\r\n\r\n")
        assert head.startswith(f"POST /session HTTP/1.1\r\nHost: {address}\r\n".encode())
        assert b"\r\nUser-Agent: me" in head
        assert head.endswith(b"\r\nX-Remuda-Secret: ours")
        assert body == b"{}"


@pytest.mark.parametrize(
    "answer", [b"", OK[:-1], b"SSH-2.0\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\nendless", b"x" * 100_000]
)
async def test_an_answer_that_is_none_is_an_unavailable_upstream(answer: bytes) -> None:
    def reply(line: Line) -> None:
        line.transport.write(answer)
        line.transport.close()

    upstream = Upstream()
    upstream.reply = reply
    async with upstream.listening() as address:
        with pytest.raises(UpstreamUnavailable):
            await ask(address, "GET", "/", credential=b"", timeout=10)


async def test_nobody_there_is_an_unavailable_upstream() -> None:
    with pytest.raises(UpstreamUnavailable):
        await ask(nobody(), "GET", "/", credential=b"", timeout=10)


async def test_silence_is_an_unavailable_upstream_after_a_while() -> None:
    upstream = Upstream()
    upstream.reply = lambda line: None
    async with upstream.listening() as address:
        with pytest.raises(UpstreamUnavailable):
            await ask(address, "GET", "/", credential=b"", timeout=0.05)


async def test_the_other_side_sees_that_nobody_waits_any_more() -> None:
    upstream = Upstream()
    upstream.reply = lambda line: None
    async with upstream.listening() as address:
        asking = asyncio.create_task(ask(address, "GET", "/", credential=b"", timeout=10))
        await eventually(lambda: upstream.received)

        asking.cancel()

        await eventually(lambda: upstream.lines[0].is_closed)


def answering(answer: bytes) -> Upstream:
    """An upstream that says this, and leaves the connection open."""
    upstream = Upstream()
    upstream.reply = lambda line: line.transport.write(answer)
    return upstream


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("method", "answer", "found"),
    [
        ("GET", CHUNKED + b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nX-Sum: 5\r\n\r\n", (200, b"abcde")),
        ("GET", CHUNKED + b"0\r\n\r\n", (200, b"")),
        ("GET", b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n" + OK, (200, b"ok")),
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n", (200, b"")),
        ("HEAD", b"HTTP/1.1 200 OK\r\n\r\n", (200, b"")),
        ("DELETE", b"HTTP/1.1 204 No Content\r\n\r\n", (204, b"")),
        ("GET", b"HTTP/1.0 404 Not Found\r\nContent-Length: 4\r\n\r\ngone", (404, b"gone")),
    ],
)
async def test_an_answer_ends_where_it_says(method: str, answer: bytes, found: tuple[int, bytes]) -> None:
    async with answering(answer).listening() as address:
        # Never closed by the other side: only the framing tells the end.
        assert await ask(address, method, "/", timeout=10) == found


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n",
        CHUNKED + b"1f4\r\n" + b"x" * 500 + b"\r\n1f4\r\n" + b"x" * 500,
    ],
)
async def test_an_answer_that_is_too_large_is_given_up_before_it_has_come(answer: bytes) -> None:
    async with answering(answer).listening() as address:
        with pytest.raises(UpstreamUnavailable, match="more than 1000 bytes"):
            await ask(address, "GET", "/", timeout=10, max_answer=1000)


async def test_an_upstream_that_refuses_connections_is_named() -> None:
    address = nobody()

    with pytest.raises(UpstreamUnavailable, match=f"^{address} does not answer: "):
        await ask(address, "GET", "/", timeout=10)


async def test_an_upstream_that_hangs_up_is_said_to() -> None:
    upstream = Upstream()
    upstream.reply = lambda line: line.transport.close()
    async with upstream.listening() as address:
        with pytest.raises(UpstreamUnavailable, match="it closed the connection before its answer was"):
            await ask(address, "GET", "/", timeout=10)


async def test_the_error_says_how_long_it_waited() -> None:
    async with answering(b"").listening() as address:
        with pytest.raises(UpstreamUnavailable, match=r"nothing within 0\.05 s"):
            await ask(address, "GET", "/", timeout=0.05)


# WebSockets

Talk = Callable[[web.WebSocketResponse], Awaitable[None]]


@asynccontextmanager
async def serving(talk: Talk, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[Address]:
    """A server of another make that talks to each WebSocket at `/` in this way."""

    async def serve(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(autoping=False)
        await socket.prepare(request)
        await talk(socket)
        return socket

    app = web.Application()
    app.router.add_get("/", serve)
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    try:
        yield Address(*runner.addresses[0][:2])
    finally:
        await runner.cleanup()


async def echo(socket: web.WebSocketResponse) -> None:
    async for message in socket:
        if message.type is WSMsgType.TEXT:
            await socket.send_str(message.data)
        elif message.type is WSMsgType.BINARY:
            await socket.send_bytes(message.data)


async def test_messages_go_and_come_whatever_their_size() -> None:
    async with serving(echo) as address:
        with closing(await WebSocket.open(address, "/", timeout=10)) as socket:
            for message in ("ä", "x" * 200, "y" * 100_000, b"", b"\x00\xff" * 100_000):
                socket.send(message)
                await socket.drain()
                assert await socket.receive() == message


async def test_both_clients_speak_tls(certificates: Path) -> None:
    theirs = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    theirs.load_cert_chain(certificates / "cert.pem", certificates / "key.pem")
    ours = ssl.create_default_context(cafile=certificates / "cert.pem")

    async with serving(echo, tls=theirs) as address:
        assert (await ask(address, "GET", "/nothing", timeout=10, tls=ours)).status == 404
        with closing(await WebSocket.open(address, "/", timeout=10, tls=ours)) as socket:
            socket.send("secret")
            assert await socket.receive() == "secret"
        with pytest.raises(
            UpstreamUnavailable, match="the certificate is not trusted: self-signed certificate"
        ):
            await ask(address, "GET", "/", timeout=10, tls=ssl.create_default_context())


async def test_a_ping_is_answered() -> None:
    pongs: list[bytes] = []

    async def talk(socket: web.WebSocketResponse) -> None:
        await socket.ping(b"are you there")
        await socket.send_str("hello")
        pongs.append((await socket.receive()).data)

    async with serving(talk) as address, asyncio.timeout(10):
        with closing(await WebSocket.open(address, "/", timeout=10)) as socket:
            assert [message async for message in socket] == ["hello"]

    assert pongs == [b"are you there"]


FRAGMENTS = b"\x01\x03abc" + b"\x89\x01!" + b"\x00\x03def" + b"\x80\x00"


SWITCHING = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"


def accepting(frames: bytes, *, extra: bytes = b"") -> Upstream:
    """An upstream that accepts a WebSocket, then says these frames."""

    def reply(line: Line) -> None:
        if line.answered == 0:
            line.answered = 1
            key = line.received.split(b"Sec-WebSocket-Key: ")[1].partition(b"\r\n")[0]
            head = SWITCHING + extra + b"Sec-WebSocket-Accept: %b\r\n\r\n" % accept_key(key)
            line.transport.write(head + frames)

    upstream = Upstream()
    upstream.reply = reply
    return upstream


async def test_a_message_in_fragments_comes_whole_though_a_ping_stands_between_them() -> None:
    upstream = accepting(FRAGMENTS)
    async with upstream.listening() as address:
        with closing(await WebSocket.open(address, "/", timeout=10)) as socket:
            assert await socket.receive() == "abcdef"
            # RFC 6455 5.5.3: a pong, masked, with the ping's payload.
            await eventually(lambda: b"\x8a\x81" in upstream.received)


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        (b"\x88\x02\x03\xe9", WSCloseCode.GOING_AWAY),
        (b"\x88\x00", 1005),
        (b"\x81\x7e\x03\xe9" + b"x" * 1001, WSCloseCode.MESSAGE_TOO_BIG),
        (b"\x02\x7e\x01\xf4" + b"x" * 500 + b"\x80\x7e\x01\xf5" + b"x" * 501, WSCloseCode.MESSAGE_TOO_BIG),
        (b"\x83\x00", WSCloseCode.PROTOCOL_ERROR),
        (b"\x81\x81\x00\x00\x00\x00x", WSCloseCode.PROTOCOL_ERROR),
        (b"\x81\x01\xff", WSCloseCode.INVALID_TEXT),
    ],
)
async def test_the_end_of_a_websocket_is_told_by_its_code(frames: bytes, code: int) -> None:
    upstream = accepting(b"\x81\x02hi" + frames)
    async with upstream.listening() as address:
        with closing(await WebSocket.open(address, "/", timeout=10, max_message=1000)) as socket:
            assert await socket.receive() == "hi"
            with pytest.raises(WebSocketClosed) as caught:
                await socket.receive()
            assert caught.value.code == code
            with pytest.raises(WebSocketClosed):
                socket.send("too late")

        # RFC 6455 5.5.1: a close is answered with a close.
        await eventually(lambda: b"\x88" in upstream.received.partition(b"\r\n\r\n")[2])
        await eventually(lambda: upstream.lines[0].is_closed)


async def test_a_connection_that_breaks_is_a_closed_websocket() -> None:
    upstream = accepting(b"")
    async with upstream.listening() as address:
        with closing(await WebSocket.open(address, "/", timeout=10)) as socket:
            upstream.lines[0].transport.abort()

            with pytest.raises(WebSocketClosed) as caught:
                await socket.receive()

    assert caught.value.code == 1006


async def test_closing_says_goodbye() -> None:
    codes: list[int | None] = []

    async def talk(socket: web.WebSocketResponse) -> None:
        await socket.receive()
        codes.append(socket.close_code)

    async with serving(talk) as address:
        (await WebSocket.open(address, "/", timeout=10)).close(WSCloseCode.GOING_AWAY, "done")

        await eventually(lambda: codes == [WSCloseCode.GOING_AWAY])


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (OK, "answered 200 OK, not 101"),
        (SWITCHING + b"\r\n", "wrong Sec-WebSocket-Accept"),
        (SWITCHING + b"Sec-WebSocket-Accept: abc\r\n\r\n", "wrong Sec-WebSocket-Accept"),
        (b"", "nothing within"),
        (b"SSH-2.0\r\n\r\n", "did not answer in HTTP"),
    ],
)
async def test_a_websocket_that_is_refused_says_how(answer: bytes, problem: str) -> None:
    upstream = answering(answer)
    async with upstream.listening() as address:
        with pytest.raises(UpstreamUnavailable, match=problem):
            await WebSocket.open(address, "/", timeout=10 if answer else 0.05)

        await eventually(lambda: upstream.lines[0].is_closed)


async def test_an_extension_that_was_not_asked_for_is_refused() -> None:
    upstream = accepting(b"", extra=b"Sec-WebSocket-Extensions: permessage-deflate\r\n")
    async with upstream.listening() as address:
        with pytest.raises(UpstreamUnavailable, match="not asked for"):
            await WebSocket.open(address, "/", timeout=10)
