"""Two relays with TLS between them, as a gateway and a node of another machine are."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from certificates import CertificateAuthority
from configs import make_config
from relaying import DEADLINE, FAST, GET, Client, Line, Upstream, render_error
from remuda.base.hosts import InternalHosts
from remuda.fleet.internal import InternalTls, serve_internally
from remuda.fleet.relay import Address, Forward, Relay
from waiting import eventually

BODY = b"x" * 3_000_000
UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
SWITCHING = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> InternalTls:
    authority = CertificateAuthority(tmp_path_factory.mktemp("authority"))
    return InternalTls.of(make_config(**authority.issue("127.0.0.1")))


@pytest.fixture
async def upstream() -> Upstream:
    return Upstream()


@pytest.fixture
async def client(tls: InternalTls, upstream: Upstream) -> AsyncIterator[Client]:
    async with (
        upstream.listening() as behind,
        serving(Relay(lambda _: Forward(behind), render_error, guard=None, limits=FAST), tls) as far,
        serving(
            Relay(
                lambda _: Forward(Address(*far, is_tls=True)),
                render_error,
                guard=None,
                limits=FAST,
                tls_for=tls.context_for,
            ),
            InternalTls(),
        ) as near,
    ):
        reader, writer = await asyncio.open_connection(*near)
        yield Client(reader, writer)
        writer.close()


@asynccontextmanager
async def serving(relay: Relay, tls: InternalTls) -> AsyncIterator[tuple[str, int]]:
    server, port = await serve_internally(relay, InternalHosts(certificate=tls.certificate))
    try:
        yield "127.0.0.1", port
    finally:
        server.close()
        relay.close()
        await relay.emptied(DEADLINE)


async def test_requests_and_large_bodies_go_through_on_one_connection(
    client: Client, upstream: Upstream
) -> None:
    for _ in range(3):
        client.send(GET)
        assert (await client.receive(b"ok")).endswith(b"ok")
    assert len(upstream.lines) == 1

    def echo(line: Line) -> None:
        if line.received.endswith(BODY):
            line.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY)

    upstream.reply = echo
    client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY)
    await client.receive(b"\r\n\r\n")
    async with asyncio.timeout(DEADLINE):
        assert await client.reader.readexactly(len(BODY)) == BODY


async def test_a_websocket_is_a_pipe_and_ends_with_its_client(client: Client, upstream: Upstream) -> None:
    await open_websocket(client, upstream)
    client.send(b"to the browser")
    line = upstream.lines[-1]
    await eventually(lambda: line.received.endswith(b"to the browser"))
    line.transport.write(b"from the browser")
    assert (await client.receive(b"browser")).endswith(b"from the browser")

    client.leave()

    await eventually(lambda: line.is_closed)


async def test_a_client_that_says_no_more_ends_its_websocket(client: Client, upstream: Upstream) -> None:
    await open_websocket(client, upstream)

    client.writer.write_eof()

    await eventually(lambda: upstream.lines[-1].is_closed)
    assert await client.receive_all() == b""


async def test_a_websocket_ends_with_its_browser(client: Client, upstream: Upstream) -> None:
    await open_websocket(client, upstream)

    upstream.lines[-1].transport.write(b"last words")
    upstream.lines[-1].transport.close()

    assert await client.receive_all() == b"last words"


async def open_websocket(client: Client, upstream: Upstream) -> None:
    upstream.reply = switch_once
    client.send(UPGRADE)
    assert (await client.receive(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")


def switch_once(line: Line) -> None:
    if not line.answered:
        line.answered = 1
        line.transport.write(SWITCHING)
