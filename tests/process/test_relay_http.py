"""Requests through a relay on a real port: what arrives, in which order, and what is kept open."""

import asyncio
from collections.abc import Callable

import pytest

from relaying import FAST, GET, OK, Kit, Line, relaying, say_ok
from remuda.fleet.relay import Address, Answer, Forward, Handle, Plan, Request, Router
from waiting import eventually

CLOSE = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


def saying(response: bytes) -> Callable[[Line], None]:
    def reply(line: Line) -> None:
        line.transport.write(response)

    return reply


async def test_an_answer_comes_back_as_it_was() -> None:
    async with relaying() as kit:
        client = await kit.send(GET)

        assert await client.receive(b"ok") == OK
        assert kit.upstream.received == GET
        assert kit.witness.finished == [("/", 200, len(GET), len(OK))]


async def test_a_connection_to_the_upstream_is_used_again() -> None:
    async with relaying() as kit:
        first, second = await kit.send(GET), await kit.connect()
        await first.receive(b"ok")

        for client in (second, first, second):
            client.send(GET)
            await client.receive(b"ok")

        assert len(kit.upstream.lines) == 1


async def test_an_idle_connection_to_the_upstream_is_closed() -> None:
    async with relaying(limits=FAST._replace(pool_idle=0.0)) as kit:
        await (await kit.send(GET)).receive(b"ok")

        await eventually(lambda: kit.upstream.lines[0].is_closed)


async def test_requests_sent_ahead_are_answered_in_order() -> None:
    async with relaying() as kit:
        paths = [b"/%d" % number for number in range(20)]
        requests = [b"GET %b HTTP/1.1\r\nHost: a\r\n\r\n" % path for path in paths]

        client = await kit.send(b"".join(requests) + CLOSE)

        assert (await client.receive_all()).count(b"200 OK") == 21
        assert kit.upstream.received.startswith(b"".join(requests))
        assert len(kit.upstream.lines) == 1


async def test_a_thousand_local_answers_do_not_fill_the_stack() -> None:
    async with relaying(lambda address: lambda request: Answer(200, b"here")) as kit:
        client = await kit.send(GET * 2000 + CLOSE)

        assert (await client.receive_all()).count(b"here") == 2001


async def test_a_client_that_asks_to_close_is_told_and_closed() -> None:
    async with relaying() as kit:
        answer = await (await kit.send(CLOSE)).receive_all()

        assert b"\r\nConnection: close\r\n" in answer
        assert b"connection" not in kit.upstream.received.lower()


async def test_http_10_is_closed_unless_it_asks_to_stay() -> None:
    async with relaying() as kit:
        assert b"Connection: close" in await (await kit.send(b"GET / HTTP/1.0\r\n\r\n")).receive_all()

        client = await kit.send(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        assert b"Connection: keep-alive" in await client.receive(b"ok")
        client.send(b"GET / HTTP/1.0\r\n\r\n")
        assert (await client.receive_all()).endswith(b"ok")


@pytest.mark.parametrize(
    "response",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n2;e\r\nok\r\n0\r\nX: y\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 304 Not Modified\r\nContent-Length: 10\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    ],
)
async def test_every_way_to_end_an_answer_keeps_the_connection(response: bytes) -> None:
    async with relaying() as kit:
        kit.upstream.reply = saying(response)
        client = await kit.connect()

        for _ in range(2):
            client.send(GET)
            assert await client.receive(response[-8:]) == response

        assert len(kit.upstream.lines) == 1


async def test_an_answer_in_single_bytes_arrives_whole() -> None:
    response = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"

    async def dribble(line: Line) -> None:
        for byte in response:
            line.transport.write(bytes([byte]))
            await asyncio.sleep(0)

    async with relaying() as kit:
        kit.upstream.reply = lambda line: None
        client = await kit.send(GET)
        await eventually(lambda: kit.upstream.received == GET)

        await dribble(kit.upstream.lines[0])

        assert await client.receive(b"0\r\n\r\n") == response


async def test_an_answer_to_head_has_no_body() -> None:
    async with relaying() as kit:
        kit.upstream.reply = saying(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n")
        client = await kit.connect()

        for _ in range(2):
            client.send(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n")
            await client.receive(b"\r\n\r\n")

        assert len(kit.upstream.lines) == 1


async def test_an_answer_until_close_closes_the_client() -> None:
    def reply(line: Line) -> None:
        line.transport.write(b"HTTP/1.1 200 OK\r\n\r\nall there is")
        line.transport.close()

    async with relaying() as kit:
        kit.upstream.reply = reply
        answer = await (await kit.send(GET)).receive_all()

        assert answer == b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nall there is"
        assert [status for _, status, _, _ in kit.witness.finished] == [200]


async def test_100_continue_is_passed_both_ways() -> None:
    def reply(line: Line) -> None:
        done = line.received.endswith(b"body")
        line.transport.write(OK if done else b"HTTP/1.1 100 Continue\r\n\r\n")

    async with relaying() as kit:
        kit.upstream.reply = reply
        client = await kit.send(
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n"
        )
        assert await client.receive(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"

        client.send(b"body")

        assert await client.receive(b"ok") == OK


async def test_an_answer_before_the_end_of_the_body_ends_the_connection() -> None:
    async with relaying() as kit:
        kit.upstream.reply = saying(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        client = await kit.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9000\r\n\r\nbody")

        assert b"Connection: close" in await client.receive_all()
        await eventually(lambda: kit.upstream.lines[0].is_closed)


def handling(max_body: int) -> Callable[[Address], Router]:
    async def echo(request: Request, body: bytes) -> Answer:
        return Answer(201, body, headers=[("X-Client", request.client)])

    return lambda address: lambda request: Handle(echo, max_body)


async def test_a_handler_gets_the_whole_body() -> None:
    async with relaying(handling(100)) as kit:
        client = await kit.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\nhalf")
        client.send(
            b"half" + b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nwhole"[:-1]
        )
        client.send(b"\r\n1\r\ne\r\n0\r\n\r\n")

        assert (await client.receive(b"halfhalf")).startswith(b"HTTP/1.1 201 Created\r\n")
        assert b"X-Client: 127.0.0.1" in await client.receive(b"whole"[:-1] + b"e")


@pytest.mark.parametrize(
    "framing",
    [b"Content-Length: 101\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n70\r\n" + b"x" * 0x70 + b"\r\n"],
)
async def test_a_handler_is_spared_a_body_that_is_too_large(framing: bytes) -> None:
    async with relaying(handling(100)) as kit:
        client = await kit.send(b"POST / HTTP/1.1\r\nHost: a\r\n" + framing)

        assert (await client.receive_all()).startswith(b"HTTP/1.1 413")


def to_a_simple_upstream(max_body: int) -> Callable[[Address], Router]:
    return lambda address: lambda request: Forward(address, "/inner", unchunk=max_body)


async def test_an_upstream_without_chunks_gets_the_body_with_its_length() -> None:
    async with relaying(to_a_simple_upstream(1000)) as kit:
        client = await kit.send(
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\nX-Own: 1\r\n\r\n"
        )
        client.send(b"4;e=1\r\nwhol\r\n1\r\ne\r\n0\r\nX: y\r\n\r\n" + GET)

        assert await client.receive(b"ok") == OK
        assert await client.receive(b"ok") == OK
        sent = b"POST /inner HTTP/1.1\r\nHost: a\r\nX-Own: 1\r\nContent-Length: 5\r\n\r\nwhole"
        assert kit.upstream.received == sent + GET.replace(b" / ", b" /inner ")


async def test_an_upstream_without_chunks_is_spared_a_body_without_end() -> None:
    async with relaying(to_a_simple_upstream(1000)) as kit:
        client = await kit.send(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        client.send(b"400\r\n" + b"x" * 0x400 + b"\r\n")

        assert (await client.receive_all()).startswith(b"HTTP/1.1 413")
        assert kit.upstream.lines == []


async def test_an_upstream_without_chunks_need_not_know_of_expectations() -> None:
    async with relaying(to_a_simple_upstream(1000)) as kit:
        client = await kit.send(
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n"
        )
        assert await client.receive(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"

        kit.upstream.reply = lambda line: say_ok(line) if line.received.endswith(b"body") else None
        client.send(b"body")

        assert await client.receive(b"ok") == OK
        assert b"xpect" not in kit.upstream.received


async def test_http_10_is_told_nothing_of_100() -> None:
    async with relaying(handling(100)) as kit:
        client = await kit.send(b"POST / HTTP/1.0\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n")
        client.send(b"body")

        assert (await client.receive_all()).startswith(b"HTTP/1.1 201")


async def test_an_early_answer_waits_for_a_small_body() -> None:
    async with relaying(lambda address: lambda request: Answer(404, b"gone")) as kit:
        client = await kit.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbo")
        client.send(b"dy" + GET)

        for _ in range(2):
            assert b"close" not in await client.receive(b"gone")


async def test_an_awaited_plan_is_followed() -> None:
    def make(address: Address) -> Router:
        async def find() -> Plan:
            return Forward(address, target="/found", headers=[("X-A", "b")])

        return lambda request: find()

    async with relaying(make) as kit:
        client = await kit.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n")
        client.send(b"hi")

        await client.receive(b"ok")
        await eventually(lambda: kit.upstream.received.endswith(b"\r\n\r\nhi"))
        assert kit.upstream.received.startswith(b"POST /found HTTP/1.1\r\n")


async def test_draining_lets_the_request_under_way_finish_and_closes_the_rest() -> None:
    async with relaying() as kit:
        kit.upstream.reply = lambda line: None
        idle, busy = await kit.connect(), await kit.send(GET)
        await eventually(lambda: len(kit.relay.connections) == 2 and kit.upstream.received)

        draining = asyncio.create_task(kit.relay.drain(10))
        assert await idle.receive_all() == b""
        say_ok(kit.upstream.lines[0])

        assert b"Connection: close" in await busy.receive_all()
        await draining


async def test_draining_tells_those_to_try_again_whose_answer_does_not_come() -> None:
    async with relaying() as kit:
        kit.upstream.reply = lambda line: None
        busy = await kit.send(GET)
        await eventually(lambda: kit.upstream.received)

        await kit.relay.drain(0.01)

        assert (await busy.receive(b"Draining")).startswith(b"HTTP/1.1 503 ")
        assert await busy.receive_all() == b""


async def run_out_of_time(kit: Kit, data: bytes) -> bytes:
    """What a client gets when its time is up after it has sent `data`."""
    client = await kit.send(data)
    await eventually(lambda: any(not each.is_idle() for each in kit.relay.connections))
    for connection in kit.relay.connections:
        connection.expires = 0.0
    return await client.receive_all()


async def test_half_a_head_gets_408_when_its_time_is_up() -> None:
    async with relaying() as kit:
        assert (await run_out_of_time(kit, GET[:-2])).startswith(b"HTTP/1.1 408")
        assert kit.witness.refused == [408]


async def test_half_a_body_gets_408_when_its_time_is_up() -> None:
    async with relaying() as kit:
        kit.upstream.reply = lambda line: None
        half = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf"

        assert (await run_out_of_time(kit, half)).startswith(b"HTTP/1.1 408")
        assert [status for _, status, _, _ in kit.witness.finished] == [408]


async def test_an_idle_client_is_closed_silently() -> None:
    async with relaying(limits=FAST._replace(idle_timeout=0.0)) as kit:
        assert await (await kit.send(GET)).receive_all() == OK
