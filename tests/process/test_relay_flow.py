"""Large bodies stream: a slow reader on either side slows the sender down instead of filling the memory."""

import asyncio
import socket
from collections.abc import Iterator
from typing import cast

from relaying import GET, OK, Kit, Line, relaying
from remuda.fleet.relay.client import Client as Connection
from waiting import eventually

PIECE = b"x" * 65536
# Far more than all the buffers between two ends hold together.
PIECES = 1024
# Write buffers stop growing at 64 KiB; one read of the loop (256 KiB) may still come on top.
ROOM = 512 * 1024


def buffered(kit: Kit) -> Iterator[int]:
    """What waits in the relay to be written, in every direction."""
    for connection in kit.relay.connections:
        client = cast(Connection, connection)
        yield client.transport.get_write_buffer_size()
        if client.exchange is not None and client.exchange.upstream is not None:
            yield client.exchange.upstream.transport.get_write_buffer_size()


async def until_it_stalls(kit: Kit, writer: asyncio.StreamWriter | asyncio.Transport) -> int:
    """Write until nothing moves any more; returns the most that ever waited in the relay."""
    transport = writer.transport if isinstance(writer, asyncio.StreamWriter) else writer
    most = sent = quiet = 0
    while quiet < 50 and sent < PIECES:
        most = max([most, *buffered(kit)])
        if transport.get_write_buffer_size():
            quiet += 1
        else:
            writer.write(PIECE)
            sent += 1
            quiet = 0
        await asyncio.sleep(0.001)
    assert sent < PIECES, "the sender was never slowed down"
    return most


async def test_a_slow_upstream_slows_the_client_down() -> None:
    async with relaying() as kit:
        kit.upstream.reply = lambda line: line.transport.pause_reading()
        length = PIECES * len(PIECE)
        client = await kit.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % length)
        await eventually(lambda: kit.upstream.lines)

        assert await until_it_stalls(kit, client.writer) < ROOM


async def test_a_slow_client_slows_the_upstream_down() -> None:
    async with relaying() as kit:
        kit.upstream.reply = lambda line: line.transport.write(
            b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (PIECES * len(PIECE))
        )
        client = await kit.send(GET)
        await eventually(lambda: kit.upstream.lines)
        cast(asyncio.Transport, client.writer.transport).pause_reading()

        assert await until_it_stalls(kit, kit.upstream.lines[0].transport) < ROOM


async def test_a_large_body_arrives_whole_both_ways() -> None:
    body = bytes(range(256)) * 40_000

    def echo(line: Line) -> None:
        if line.received.endswith(b"0\r\n\r\n"):
            line.transport.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            line.transport.write(line.received.partition(b"\r\n\r\n")[2])

    async with relaying() as kit:
        kit.upstream.reply = echo
        chunks = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        client = await kit.send(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks)

        await client.receive(b"\r\n\r\n")
        async with asyncio.timeout(30):
            assert await client.reader.readexactly(len(chunks)) == chunks


async def test_a_client_that_sends_ahead_without_reading_is_not_read_for_ever() -> None:
    async with relaying() as kit:
        kit.upstream.reply = lambda line: None
        client = await kit.send(GET)
        await eventually(lambda: kit.upstream.received == GET)
        sock = client.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)

        await until_it_stalls(kit, client.writer)

        assert kit.upstream.received == GET


async def test_a_connection_held_for_a_slow_client_can_be_used_again() -> None:
    async with relaying() as kit:
        big = b"HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\n\r\n" + b"x" * 3_000_000
        kit.upstream.reply = lambda line: line.transport.write(big)
        slow = await kit.send(GET)
        await slow.receive(b"\r\n\r\n")
        async with asyncio.timeout(30):
            await slow.reader.readexactly(3_000_000)

        kit.upstream.reply = lambda line: line.transport.write(OK)
        other = await kit.send(GET)

        assert await other.receive(b"ok") == OK
        assert len(kit.upstream.lines) == 1
