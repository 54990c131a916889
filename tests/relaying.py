"""A relay on a real port between a raw client and an upstream that a test scripts byte by byte."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import cast

from remuda.base.errors import RemudaError
from remuda.fleet.relay import Address, Answer, Forward, Guard, Limits, Relay, Request, Router

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
DEADLINE = 10.0
# Deadlines are looked at this often, so that a test need not wait for one.
FAST = Limits(tick=0.01)


class Line(asyncio.Protocol):
    """One connection to the upstream, and what came in on it."""

    def __init__(self, upstream: "Upstream") -> None:
        self.received = b""
        self.is_closed = False
        self.is_ended = False
        # After the end of what comes in, for a side that has more to say.
        self.stays_open = False
        self.answered = 0
        self._upstream = upstream

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._upstream.lines.append(self)

    def data_received(self, data: bytes) -> None:
        self.received += data
        self._upstream.reply(self)

    def eof_received(self) -> bool:
        self.is_ended = True
        return self.stays_open

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closed = True


def say_ok(line: Line) -> None:
    """Answer every head; for requests whose body holds no empty line."""
    heads = line.received.count(b"\r\n\r\n")
    line.transport.write(OK * (heads - line.answered))
    line.answered = heads


class Upstream:
    """Answers as `reply` says."""

    def __init__(self) -> None:
        self.reply: Callable[[Line], None] = say_ok
        self.lines: list[Line] = []

    @property
    def received(self) -> bytes:
        """Everything that came in, on whatever connection."""
        return b"".join(line.received for line in self.lines)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Address]:
        """Listen on a free port."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Line(self), "127.0.0.1", 0)
        yield Address(*server.sockets[0].getsockname()[:2])
        server.close()
        for line in self.lines:
            line.transport.abort()


class Witness:
    """An observer that keeps what it is told."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.finished: list[tuple[str, int, int, int]] = []
        self.refused: list[int] = []
        self.flowed = [0, 0]

    def request_started(self, request: Request) -> None:
        self.started.append(request.target)

    def request_finished(self, request: Request, status: int, bytes_in: int, bytes_out: int) -> None:
        self.finished.append((request.target, status, bytes_in, bytes_out))

    def request_refused(self, status: int, bytes_in: int, bytes_out: int) -> None:
        self.refused.append(status)

    def bytes_flowed(self, request: Request, bytes_in: int, bytes_out: int) -> None:
        self.flowed[0] += bytes_in
        self.flowed[1] += bytes_out


class Client:
    """A raw connection to the relay."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.writer.write(data)

    async def receive(self, end: bytes) -> bytes:
        """Everything up to and with `end`."""
        async with asyncio.timeout(DEADLINE):
            return await self.reader.readuntil(end)

    async def receive_all(self) -> bytes:
        """Everything until the relay closes."""
        async with asyncio.timeout(DEADLINE):
            return await self.reader.read()

    def leave(self) -> None:
        """Close without a word."""
        self.writer.close()


def render_error(request: Request | None, error: RemudaError) -> Answer:
    """The error's name, to look for in tests."""
    return Answer(error.status, type(error).__name__.encode(), content_type="text/plain")


class Kit:
    """A relay in front of a scripted upstream."""

    def __init__(self, relay: Relay, port: int, upstream: Upstream, witness: Witness) -> None:
        self.relay = relay
        self.port = port
        self.upstream = upstream
        self.witness = witness

    async def connect(self) -> Client:
        """A new client connection."""
        return Client(*await asyncio.open_connection("127.0.0.1", self.port))

    async def send(self, data: bytes) -> Client:
        """A new client connection that has sent something."""
        client = await self.connect()
        client.send(data)
        return client


@asynccontextmanager
async def relaying(
    make_router: Callable[[Address], Router] | None = None,
    *,
    limits: Limits = FAST,
    guard: Guard | None = None,
) -> AsyncIterator[Kit]:
    """Run a relay; by default everything is forwarded to its upstream."""
    upstream, witness = Upstream(), Witness()
    async with upstream.listening() as address:
        router = make_router(address) if make_router else lambda request: Forward(address)
        relay = Relay(router, render_error, guard=guard, observer=witness, limits=limits)
        server = await asyncio.get_running_loop().create_server(relay.protocol, "127.0.0.1", 0)
        try:
            yield Kit(relay, server.sockets[0].getsockname()[1], upstream, witness)
        finally:
            server.close()
            relay.close()
