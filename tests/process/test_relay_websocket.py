"""WebSocket through a relay: a real client and a real server, and the bytes between them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import aiohttp
import pytest
from aiohttp import web

from relaying import DEADLINE, FAST, Client, Kit, Line, Witness, relaying, render_error
from remuda.fleet.relay import Address, Forward, Relay
from remuda.fleet.relay.farewell import going_away
from waiting import eventually

UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
CODES = web.AppKey("codes", list[int | None])
SWITCHING = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"


async def shout(request: web.Request) -> web.WebSocketResponse:
    """Sends everything back in capitals; hangs up on `bye`."""
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    async for message in socket:
        if message.data == "bye":
            await socket.close(code=4321, message=b"so long")
        elif message.type is aiohttp.WSMsgType.BINARY:
            await socket.send_bytes(message.data)
        else:
            await socket.send_str(message.data.upper())
    request.app[CODES].append(socket.close_code)
    return socket


@asynccontextmanager
async def shouting() -> AsyncIterator[tuple[str, web.Application, Witness]]:
    """A relay in front of a real WebSocket server."""
    app = web.Application()
    app[CODES] = []
    app.router.add_get("/ws", shout)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    address = Address(*runner.addresses[0][:2])
    witness = Witness()
    relay = Relay(lambda request: Forward(address), render_error, guard=None, observer=witness, limits=FAST)
    server = await asyncio.get_running_loop().create_server(relay.protocol, "127.0.0.1", 0)
    yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/ws", app, witness
    server.close()
    relay.close()
    await runner.cleanup()


async def test_messages_of_any_size_come_back() -> None:
    async with (
        shouting() as (url, _, _),
        aiohttp.ClientSession() as session,
        session.ws_connect(url, max_msg_size=0) as ws,
    ):
        await ws.send_str("hello")
        await ws.send_bytes(b"x" * 3_000_000)

        assert await ws.receive_str(timeout=DEADLINE) == "HELLO"
        assert len(await ws.receive_bytes(timeout=DEADLINE)) == 3_000_000


async def test_the_servers_close_code_survives() -> None:
    async with shouting() as (url, _, _), aiohttp.ClientSession() as session:
        async with session.ws_connect(url) as ws:
            await ws.send_str("bye")
            message = await ws.receive(timeout=DEADLINE)

        assert (message.data, message.extra) == (4321, "so long")


async def test_the_clients_close_code_survives_and_the_request_is_finished() -> None:
    async with shouting() as (url, app, witness), aiohttp.ClientSession() as session:
        ws = await session.ws_connect(url)

        await ws.close(code=4000)

        await eventually(lambda: app[CODES] == [4000])
        await eventually(lambda: [each[1] for each in witness.finished] == [101])
        assert witness.flowed[0] > 0
        assert witness.flowed[1] > 0


async def upgraded(kit: Kit) -> tuple[Client, Line]:
    kit.upstream.reply = lambda line: None
    client = await kit.send(UPGRADE)
    await eventually(lambda: kit.upstream.received.endswith(b"\r\n\r\n"))
    line = kit.upstream.lines[-1]
    line.transport.write(SWITCHING)
    assert await client.receive(b"\r\n\r\n") == SWITCHING
    line.received = b""
    return client, line


async def test_bytes_flow_unchanged_and_are_counted() -> None:
    async with relaying() as kit:
        client, line = await upgraded(kit)
        client.send(garbage := bytes(range(256)))
        line.transport.write(b"back")

        await client.receive(b"back")
        await eventually(lambda: line.received == garbage)
        await eventually(lambda: kit.witness.flowed == [256, 4])


async def test_bytes_sent_ahead_of_the_101_go_into_the_tunnel_only() -> None:
    async with relaying() as kit:
        kit.upstream.reply = lambda line: None
        client = await kit.send(UPGRADE + b"early")
        await eventually(lambda: kit.upstream.lines and kit.upstream.received.endswith(b"\r\n\r\n"))
        assert b"early" not in kit.upstream.received

        kit.upstream.lines[0].transport.write(SWITCHING + b"rest")

        await client.receive(b"rest")
        await eventually(lambda: kit.upstream.received.endswith(b"early"))


async def test_a_refused_upgrade_is_an_ordinary_answer() -> None:
    async with relaying() as kit:
        kit.upstream.reply = lambda line: line.transport.write(
            b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno"
        )
        client = await kit.send(UPGRADE)
        await client.receive(b"no")

        client.send(b"GET /next HTTP/1.1\r\nHost: a\r\n\r\n")

        await client.receive(b"no")
        assert [each[0] for each in kit.witness.finished] == ["/ws", "/next"]


async def test_half_a_close_reaches_the_other_side_which_may_still_speak() -> None:
    async with relaying() as kit:
        client, line = await upgraded(kit)
        line.stays_open = True
        client.writer.write_eof()
        await eventually(lambda: line.is_ended)

        line.transport.write(b"last words")
        line.transport.close()

        assert await client.receive_all() == b"last words"


@pytest.mark.parametrize("side", ["client", "upstream"])
async def test_when_one_side_goes_so_does_the_other(side: str) -> None:
    async with relaying() as kit:
        client, line = await upgraded(kit)

        if side == "client":
            client.writer.transport.abort()
            await eventually(lambda: line.is_closed)
        else:
            line.transport.abort()
            assert await client.receive_all() == b""

        client.leave()
        await eventually(lambda: [each[1] for each in kit.witness.finished] == [101])
        assert not kit.relay.connections


async def test_a_slow_reader_slows_the_tunnel_down() -> None:
    async with relaying() as kit:
        client, line = await upgraded(kit)
        line.transport.pause_reading()
        transport = client.writer.transport
        sent = 0

        while sent < 1000 and transport.get_write_buffer_size() < 1_000_000:
            client.send(b"x" * 65536)
            sent += 1
            await asyncio.sleep(0.001)

        assert sent < 1000, "the sender was never slowed down"
        assert kit.witness.flowed[0] < sent * 65536
        line.transport.resume_reading()
        await eventually(lambda: len(line.received) == sent * 65536)


async def test_an_open_tunnel_is_closed_when_the_relay_has_drained() -> None:
    async with relaying() as kit:
        client, line = await upgraded(kit)

        await kit.relay.drain(0.01)

        await eventually(lambda: line.is_closed)
        assert await client.receive_all() == going_away()


async def test_who_is_told_that_it_ends_may_answer() -> None:
    async with relaying() as kit:
        client, line = await upgraded(kit)

        draining = asyncio.create_task(kit.relay.drain(0.01))
        await client.receive(going_away())
        client.send(b"so be it")
        await eventually(lambda: line.received.endswith(b"so be it"))
        line.transport.close()

        assert await client.receive_all() == b""
        await draining


async def test_nothing_is_said_in_the_middle_of_a_frame() -> None:
    async with relaying() as kit:
        client, line = await upgraded(kit)
        draining = asyncio.create_task(kit.relay.drain(0.01))

        while not draining.done():
            line.transport.write(b"more ")
            await asyncio.sleep(0.01)

        assert set((await client.receive_all()).split()) == {b"more"}


async def test_nothing_is_said_to_a_client_that_has_not_taken_what_was_sent_before() -> None:
    async with relaying() as kit:
        client, line = await upgraded(kit)
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        while line.transport.get_write_buffer_size() < 1 << 20:
            line.transport.write(b"more" * 65536)
            await asyncio.sleep(0)

        await kit.relay.drain(0.01)

        client.writer.transport.resume_reading()  # type: ignore[attr-defined]
        with suppress(ConnectionError):
            assert going_away() not in await client.receive_all()
