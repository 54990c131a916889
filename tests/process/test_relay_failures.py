"""What a relay does when one of its sides misbehaves or goes away."""

import asyncio
import socket

import pytest

from relaying import GET, OK, Line, relaying
from remuda.base.errors import SessionLost
from remuda.fleet.relay import Address, Answer, Forward, Handle, Plan, Request, Router
from unit.test_relay_head import HOSTILE
from waiting import eventually

POST = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi"


HELD: list[socket.socket] = []
"""Bound, so that no other process gets their ports, but not listening."""


def nobody() -> Address:
    """An address that refuses connections."""
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    HELD.append(sock)
    return Address(*sock.getsockname())


@pytest.mark.parametrize("raw", HOSTILE.values(), ids=HOSTILE.keys())
async def test_a_hostile_request_gets_400_and_never_reaches_the_upstream(raw: bytes) -> None:
    async with relaying() as kit:
        answer = await (await kit.send(raw + b"abc")).receive_all()

        assert answer.startswith(b"HTTP/1.1 400 ")
        assert answer.endswith(b"MalformedRequest")
        assert kit.witness.refused == [400]
        assert kit.upstream.lines == []


@pytest.mark.parametrize("raw", [b"GET / HTTP/1.1\nHost: a\n\n", b"\x16\x03\x01\x02\x00", b"\0", b"hello"])
async def test_what_cannot_become_a_request_is_refused_at_once(raw: bytes) -> None:
    async with relaying() as kit:
        assert (await (await kit.send(raw)).receive_all()).startswith(b"HTTP/1.1 400 ")


async def test_a_head_that_is_too_large_gets_431() -> None:
    async with relaying() as kit:
        client = await kit.send(b"GET / HTTP/1.1\r\nHost: a\r\nA: " + b"b" * 70_000)

        assert (await client.receive_all()).startswith(b"HTTP/1.1 431 ")
        assert kit.upstream.lines == []


async def test_a_malformed_chunk_gets_400_and_closes_the_upstream() -> None:
    async with relaying() as kit:
        kit.upstream.reply = lambda line: None
        client = await kit.send(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
        await eventually(lambda: kit.upstream.received.endswith(b"a\r\n"))

        client.send(b"zz\r\n")

        assert (await client.receive_all()).startswith(b"HTTP/1.1 400 ")
        await eventually(lambda: kit.upstream.lines[0].is_closed)
        assert b"zz" not in kit.upstream.received


async def test_a_client_that_leaves_closes_its_upstream_at_once() -> None:
    async with relaying() as kit:
        kit.upstream.reply = lambda line: None
        client = await kit.send(GET)
        await eventually(lambda: kit.upstream.received)

        client.leave()

        await eventually(lambda: kit.upstream.lines[0].is_closed)
        assert kit.witness.finished == [("/", 499, len(GET), 0)]


DELETE = b"DELETE /session HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.mark.parametrize("half", [True, False])
async def test_a_delete_is_passed_on_though_its_client_leaves_before_there_is_a_connection(
    half: bool,
) -> None:
    may_follow = asyncio.Event()

    def make(address: Address) -> Router:
        async def route() -> Plan:
            await may_follow.wait()
            return Forward(address)

        return lambda request: route()

    async with relaying(make) as kit:
        client = await kit.send(DELETE)
        await eventually(lambda: kit.witness.started)
        if half:
            client.writer.write_eof()
        else:
            client.leave()
        await eventually(lambda: not kit.relay.connections)

        may_follow.set()

        await eventually(lambda: kit.upstream.received == DELETE)
        await eventually(lambda: [each[1] for each in kit.witness.finished] == [200])
        assert not kit.upstream.lines[0].is_closed  # The next request can have the connection.


async def test_a_delete_is_handled_though_its_client_leaves() -> None:
    started, may_end, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def handle(request: Request, body: bytes) -> Answer:
        started.set()
        await may_end.wait()
        ended.set()
        return Answer(200)

    async with relaying(lambda address: lambda request: Handle(handle)) as kit:
        client = await kit.send(DELETE)
        await started.wait()
        client.leave()
        await eventually(lambda: not kit.relay.connections)

        may_end.set()

        async with asyncio.timeout(10):
            await ended.wait()


async def test_half_a_delete_ends_with_its_client() -> None:
    async with relaying() as kit:
        kit.upstream.reply = lambda line: None
        client = await kit.send(b"DELETE / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nh")
        await eventually(lambda: kit.upstream.received)

        client.leave()

        await eventually(lambda: kit.upstream.lines[0].is_closed)
        await eventually(lambda: [each[1] for each in kit.witness.finished] == [499])


async def test_a_client_that_leaves_cancels_its_handler() -> None:
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def handle(request: Request, body: bytes) -> Answer:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return Answer(200)

    async with relaying(lambda address: lambda request: Handle(handle)) as kit:
        client = await kit.send(GET)
        await started.wait()

        client.leave()

        async with asyncio.timeout(10):
            await cancelled.wait()
        await eventually(lambda: [each[1] for each in kit.witness.finished] == [499])


async def test_an_address_that_refuses_is_given_back_to_the_router() -> None:
    asked: list[Address | None] = []
    dead = nobody()

    def make(address: Address) -> Router:
        def route(request: Request) -> Plan:
            asked.append(request.refused)
            return Forward(dead if request.refused is None else address)

        return route

    async with relaying(make) as kit:
        assert await (await kit.send(POST)).receive(b"ok") == OK
        assert asked == [None, dead]
        assert kit.upstream.received == POST


async def test_every_address_that_the_router_knows_is_tried() -> None:
    dead = [nobody() for _ in range(4)]

    def make(address: Address) -> Router:
        known = [*dead, address]
        return lambda request: Forward(known.pop(0))

    async with relaying(make) as kit:
        assert await (await kit.send(POST)).receive(b"ok") == OK
        assert kit.upstream.received == POST


@pytest.mark.parametrize("is_always_the_same", [True, False])
async def test_a_router_that_knows_only_dead_addresses_is_a_502(is_always_the_same: bool) -> None:
    dead = nobody()

    def route(_request: Request) -> Plan:
        return Forward(dead if is_always_the_same else nobody())

    async with relaying(lambda address: route) as kit:
        client = await kit.send(GET)

        assert (await client.receive(b"UpstreamUnavailable")).startswith(b"HTTP/1.1 502 ")
        assert [each[1] for each in kit.witness.finished] == [502]


async def test_a_router_can_give_up_after_a_refusal() -> None:
    def route(request: Request) -> Plan:
        if request.refused is not None:
            raise SessionLost
        return Forward(nobody())

    async with relaying(lambda address: route) as kit:
        assert (await (await kit.send(GET)).receive(b"SessionLost")).startswith(b"HTTP/1.1 404 ")


async def test_a_router_with_a_bug_is_a_500_and_the_connection_goes_on() -> None:
    def route(request: Request) -> Plan:
        raise ZeroDivisionError

    async with relaying(lambda address: route) as kit:
        client = await kit.send(GET + GET)

        for _ in range(2):
            assert (await client.receive(b"Broken")).startswith(b"HTTP/1.1 500 ")


def hang_up(line: Line) -> None:
    line.transport.close()


async def test_an_upstream_that_hangs_up_without_an_answer_is_a_502() -> None:
    async with relaying() as kit:
        kit.upstream.reply = hang_up

        assert (await (await kit.send(POST)).receive(b"UpstreamLost")).startswith(b"HTTP/1.1 502 ")


async def test_a_router_may_know_why_an_upstream_hung_up() -> None:
    def make(address: Address) -> Router:
        async def give_up() -> Plan:
            raise SessionLost

        return lambda request: Forward(address) if request.refused is None else give_up()

    async with relaying(make) as kit:
        kit.upstream.reply = hang_up

        assert (await (await kit.send(POST)).receive(b"SessionLost")).startswith(b"HTTP/1.1 404 ")
        assert kit.upstream.received == POST


@pytest.mark.parametrize("hangs_up", [True, False])
async def test_a_router_is_told_whether_the_upstream_had_taken_the_connection(hangs_up: bool) -> None:
    told: list[bool] = []

    def make(address: Address) -> Router:
        def route(request: Request) -> Plan:
            if request.refused is not None:
                told.append(request.was_sent)
                raise SessionLost
            return Forward(address if hangs_up else nobody())

        return route

    async with relaying(make) as kit:
        kit.upstream.reply = hang_up
        await (await kit.send(POST)).receive(b"SessionLost")

        assert told == [hangs_up]


def once(line: Line) -> None:
    """Answer the first request, hang up on the second."""
    if line.received in (GET, POST):
        line.transport.write(OK)
    else:
        line.transport.close()


async def test_a_request_that_is_safe_to_repeat_survives_a_pooled_connection_that_died() -> None:
    async with relaying() as kit:
        kit.upstream.reply = once
        client = await kit.send(GET)
        await client.receive(b"ok")

        client.send(GET)

        assert await client.receive(b"ok") == OK
        assert [line.received for line in kit.upstream.lines] == [GET + GET, GET]


async def test_a_post_is_never_sent_twice() -> None:
    async with relaying() as kit:
        kit.upstream.reply = once
        client = await kit.send(POST)
        await client.receive(b"ok")

        client.send(POST)

        assert (await client.receive(b"UpstreamLost")).startswith(b"HTTP/1.1 502 ")
        assert kit.upstream.received == POST + POST


@pytest.mark.parametrize(
    "half", [b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", b"HTTP/1.1 200 OK\r\n\r\nhalf"]
)
async def test_an_answer_that_breaks_off_resets_the_client(half: bytes) -> None:
    async with relaying() as kit:
        kit.upstream.reply = lambda line: line.transport.write(half)
        client = await kit.send(GET)
        await client.receive(b"half")
        sock = kit.upstream.lines[0].transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

        kit.upstream.lines[0].transport.abort()

        with pytest.raises(ConnectionResetError):
            await client.receive_all()
        assert [each[1] for each in kit.witness.finished] == [502]


@pytest.mark.parametrize(
    "nonsense",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"x" * 70_000,
    ],
)
async def test_an_upstream_that_speaks_something_else_is_a_502(nonsense: bytes) -> None:
    async with relaying() as kit:
        kit.upstream.reply = lambda line: line.transport.write(nonsense)

        assert (await (await kit.send(GET)).receive(b"UpstreamLost")).startswith(b"HTTP/1.1 502 ")


async def test_bytes_after_an_answer_are_nobodys_answer() -> None:
    async with relaying() as kit:
        kit.upstream.reply = lambda line: line.transport.write(OK + b"HTTP/1.1 500 Poison\r\n\r\n")
        client = await kit.send(GET)
        await client.receive(b"ok")

        client.send(GET)

        assert await client.receive(b"ok") == OK
        assert len(kit.upstream.lines) == 2
