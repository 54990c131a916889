"""Answers that are made piece by piece: how they are framed, who waits for whom, and how they end."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import pytest

from relaying import GET, Kit, relaying
from remuda.base.errors import Unavailable, UpstreamUnavailable
from remuda.fleet.http_client import ask
from remuda.fleet.relay import CLIENT_LEFT, Address, Answer, Handle, Plan, Request, Stream
from waiting import eventually

PIECE = b"x" * 65536
PIECES = 1024


class Source:
    """Makes the pieces that a test wants, and knows how often it was closed."""

    def __init__(self, *pieces: bytes | Exception, length: int | None = None) -> None:
        self._pieces = pieces
        self._length = length
        self.made = 0
        self.closed = 0
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def _make(self) -> AsyncGenerator[bytes, None]:
        for piece in self._pieces:
            await self.go_on.wait()
            if isinstance(piece, Exception):
                raise piece
            self.made += len(piece)
            yield piece

    def close(self) -> None:
        self.closed += 1

    def answer(self, status: int = 200) -> Answer:
        return Answer(status, stream=Stream(self._make(), self._length, self.close))


@asynccontextmanager
async def serving(source: Source, *, status: int = 200) -> AsyncIterator[Kit]:
    """A relay that answers every request with what the source makes."""
    async with relaying(lambda _: lambda request: source.answer(status)) as kit:
        yield kit
    # Whatever happened, it was closed once.
    assert source.closed == len(kit.witness.finished)


async def test_a_stream_of_known_length_keeps_the_connection() -> None:
    source = Source(b"one ", b"", b"two", length=7)
    async with serving(source) as kit:
        client = await kit.send(GET)
        head = await client.receive(b"\r\n\r\n")
        assert b"\r\nContent-Length: 7\r\n" in head
        assert b"chunked" not in head
        assert await client.receive(b"two") == b"one two"

        client.send(GET)
        assert (await client.receive(b"one two")).startswith(b"HTTP/1.1 200 OK\r\n")
        assert [status for _, status, _, _ in kit.witness.finished] == [200, 200]


async def test_a_stream_of_unknown_length_comes_in_chunks() -> None:
    async with serving(Source(b"one ", b"", b"x" * 20)) as kit:
        client = await kit.send(GET)

        head = await client.receive(b"\r\n\r\n")
        assert b"\r\nTransfer-Encoding: chunked\r\n" in head
        assert b"Content-Length" not in head
        assert await client.receive(b"0\r\n\r\n") == b"4\r\none \r\n14\r\n" + b"x" * 20 + b"\r\n0\r\n\r\n"
        client.send(GET)
        assert await client.receive(b"\r\n\r\n") == head
        assert await ask(Address("127.0.0.1", kit.port), "GET", "/", timeout=10) == (200, b"one " + b"x" * 20)


async def test_a_client_of_http_10_gets_the_end_of_the_connection_instead_of_chunks() -> None:
    async with serving(Source(b"one ", b"two")) as kit:
        client = await kit.send(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")

        head, _, body = (await client.receive_all()).partition(b"\r\n\r\n")

        assert b"chunked" not in head
        assert b"Connection: close" in head
        assert body == b"one two"


@pytest.mark.parametrize(
    ("method", "status", "length"),
    [("HEAD", 200, 7), ("HEAD", 200, None), ("GET", 304, 7), ("GET", 204, None)],
)
async def test_an_answer_without_a_body_makes_no_piece(method: str, status: int, length: int | None) -> None:
    source = Source(b"one two", length=length)
    async with serving(source, status=status) as kit:
        client = await kit.send(f"{method} / HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        head = await client.receive(b"\r\n\r\n")
        assert (b"Content-Length: 7" in head) == (method == "HEAD" and length == 7)

        client.send(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        await client.receive(b"HTTP/1.1 %d" % status)

        assert source.closed >= 1


async def test_a_slow_client_slows_the_stream_down() -> None:
    source = Source(*[PIECE] * PIECES, length=len(PIECE) * PIECES)
    async with serving(source) as kit:
        client = await kit.send(GET)
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]

        # Until nothing moves any more: the kernel's own buffers take some MB.
        made = quiet = 0
        while quiet < 50:
            quiet = quiet + 1 if 0 < source.made == made else 0
            made = source.made
            await asyncio.sleep(0.001)
        assert 0 < made < len(PIECE) * PIECES / 2

        client.writer.transport.resume_reading()  # type: ignore[attr-defined]
        await client.receive(b"\r\n\r\n")
        async with asyncio.timeout(30):
            assert len(await client.reader.readexactly(len(PIECE) * PIECES)) == source.made


@pytest.mark.parametrize(
    "source",
    [
        (b"abc", OSError("the disk is gone")),
        (b"abc", Unavailable("not now")),
        (b"abc", b"de"),
        (b"abc", b"defghijk"),
    ],
)
async def test_a_stream_that_fails_breaks_the_connection_off(source: tuple[bytes | Exception, ...]) -> None:
    made = Source(*source, length=10)
    async with serving(made) as kit:
        with pytest.raises(UpstreamUnavailable):
            await ask(Address("127.0.0.1", kit.port), "GET", "/", timeout=10)

        assert [status for _, status, _, _ in kit.witness.finished] == [UpstreamUnavailable.status]


async def test_chunks_that_fail_have_no_end() -> None:
    async with serving(Source(b"abc", OSError("the disk is gone"))) as kit:
        client = await kit.send(GET)
        await client.receive(b"abc")

        with pytest.raises(ConnectionResetError):
            await client.receive_all()


async def test_a_client_that_leaves_ends_the_stream() -> None:
    source = Source(b"abc", b"def", length=6)
    source.go_on.clear()
    async with serving(source) as kit:
        client = await kit.send(GET)
        await client.receive(b"\r\n\r\n")

        client.leave()

        await eventually(lambda: kit.witness.finished and kit.witness.finished[0][1] == CLIENT_LEFT)


async def test_a_client_that_leaves_before_the_answer_began_ends_it_too() -> None:
    source = Source(b"abc", length=3)
    async with serving(source) as kit:
        # The answer waits for the rest of the body.
        client = await kit.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc")
        await eventually(lambda: kit.witness.started)

        client.leave()

        await eventually(lambda: source.closed)


async def test_a_handler_may_answer_with_a_stream() -> None:
    source = Source(b"one ", b"two", length=7)

    async def handle(request: Request, body: bytes) -> Answer:
        assert body == b"{}"
        return source.answer(201)

    def route(request: Request) -> Plan:
        return Handle(handle)

    async with relaying(lambda _: route) as kit:
        assert await ask(Address("127.0.0.1", kit.port), "POST", "/", b"{}", timeout=10) == (201, b"one two")
    assert source.closed == 1


async def test_a_relay_that_drains_lets_a_stream_finish() -> None:
    source = Source(b"one ", b"two", length=7)
    source.go_on.clear()
    async with serving(source) as kit:
        client = await kit.send(GET)
        await client.receive(b"\r\n\r\n")

        draining = asyncio.create_task(kit.relay.drain(10))
        await eventually(lambda: kit.relay.is_draining)
        source.go_on.set()

        assert (await client.receive_all()).endswith(b"two")
        client.leave()
        await draining
