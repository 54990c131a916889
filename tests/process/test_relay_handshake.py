"""A WebSocket that is offered to one upstream after the other, until one of them takes it."""

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from process.test_relay_failures import nobody
from process.test_relay_websocket import SWITCHING, UPGRADE
from relaying import DEADLINE, FAST, Client, Line, Upstream, Witness, render_error
from remuda.base.errors import Unavailable
from remuda.fleet.relay import Address, Answer, Dial, Forward, Plan, Relay, Request
from remuda.fleet.relay.handshake import MAX_QUOTE
from waiting import eventually

Reply = Callable[[Line], None]

MISMATCH = b"HTTP/1.1 428 Precondition Required\r\n\r\nspeak 1.62"


def take(line: Line) -> None:
    if line.received.endswith(b"\r\n\r\n"):
        line.transport.write(SWITCHING)


def say_nothing(line: Line) -> None: ...


def hang_up(line: Line) -> None:
    line.transport.close()


def refuse(line: Line) -> None:
    line.transport.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 4\r\n\r\npath")


def explain(line: Line) -> None:
    line.transport.write(MISMATCH)
    line.transport.close()


def explain_at_length(line: Line) -> None:
    line.transport.write(MISMATCH + b"!" * 3 * MAX_QUOTE)
    line.transport.close()


class Asking:
    """A caller that has a list of upstreams to ask, and keeps what it is told."""

    def __init__(self, addresses: Sequence[Address], *, timeout: float) -> None:
        self._addresses = iter(addresses)
        self._timeout = timeout
        self.reasons: list[str] = []
        self.takes: list[int] = []
        self.ends = 0
        self.is_cancelled = False
        self.before_next = asyncio.Event()
        self.before_next.set()
        self.quoted = 0
        self.quotes: list[Answer] = []

    def route(self, request: Request) -> Plan:
        return self._dial()

    def _dial(self) -> Dial:
        address = next(self._addresses, None)
        if address is None:
            raise Unavailable
        forward = Forward(address, "/worker", host=str(address))
        return Dial(forward, self, self._timeout, quoted=self.quoted, on_quote=self.quotes.append)

    def is_answer(self, status: int) -> bool:
        return status == 428 != self.quoted

    def taken(self, status: int) -> None:
        self.takes.append(status)

    async def refused(self, reason: str) -> Dial | Answer:
        self.reasons.append(reason)
        try:
            await self.before_next.wait()
        except asyncio.CancelledError:
            self.is_cancelled = True
            raise
        return self._dial()

    def ended(self) -> None:
        self.ends += 1


class Kit:
    """A relay in front of several upstreams."""

    def __init__(self, relay: Relay, port: int, upstreams: list[Upstream], asking: Asking) -> None:
        self.relay = relay
        self.upstreams = upstreams
        self.asking = asking
        self.witness = relay.observer
        self.port = port

    async def send(self, data: bytes) -> Client:
        client = Client(*await asyncio.open_connection("127.0.0.1", self.port))
        client.send(data)
        return client


@asynccontextmanager
async def dialling(
    *replies: Reply, timeout: float = DEADLINE, first: Sequence[Address] = ()
) -> AsyncIterator[Kit]:
    """A relay that asks upstreams which reply so, in this order, after those at `first`."""
    upstreams = [Upstream() for _ in replies]
    async with AsyncExitStack() as stack:
        addresses = list(first)
        for upstream, reply in zip(upstreams, replies, strict=True):
            upstream.reply = reply
            addresses.append(await stack.enter_async_context(upstream.listening()))
        asking = Asking(addresses, timeout=timeout)
        relay = Relay(asking.route, render_error, guard=None, observer=Witness(), limits=FAST)
        server = await asyncio.get_running_loop().create_server(relay.protocol, "127.0.0.1", 0)
        yield Kit(relay, server.sockets[0].getsockname()[1], upstreams, asking)
        server.close()
        relay.close()


def statuses(kit: Kit) -> list[int]:
    assert isinstance(kit.witness, Witness)
    return [status for _, status, _, _ in kit.witness.finished]


async def test_the_upstream_sees_the_new_target_and_host() -> None:
    async with dialling(take) as kit:
        await (await kit.send(UPGRADE)).receive(SWITCHING)

        head = kit.upstreams[0].received
        assert head.startswith(b"GET /worker HTTP/1.1\r\n")
        assert b"\r\nHost: 127.0.0.1:" in head
        assert head.lower().count(b"\r\nhost:") == 1
        assert b"\r\nUpgrade: websocket\r\n" in head


@pytest.mark.parametrize("reply", [hang_up, refuse])
async def test_who_refuses_is_not_heard_of_by_the_client(reply: Reply) -> None:
    async with dialling(reply, reply, take) as kit:
        client = await kit.send(UPGRADE)

        assert await client.receive(b"\r\n\r\n") == SWITCHING
        assert len(kit.asking.reasons) == 2
        assert kit.asking.ends == 0


async def test_an_address_where_nobody_listens_has_refused() -> None:
    async with dialling(take, first=[nobody(), nobody()]) as kit:
        assert await (await kit.send(UPGRADE)).receive(b"\r\n\r\n") == SWITCHING
        assert all("cannot be reached" in reason for reason in kit.asking.reasons)


async def test_who_does_not_answer_in_time_has_refused_and_is_hung_up_on() -> None:
    async with dialling(say_nothing, take, timeout=0.1) as kit:
        assert await (await kit.send(UPGRADE)).receive(b"\r\n\r\n") == SWITCHING

        assert ["did not answer within 0.1 s" in reason for reason in kit.asking.reasons] == [True]
        await eventually(lambda: kit.upstreams[0].lines[0].is_closed)


async def test_an_open_tunnel_has_no_deadline() -> None:
    async with dialling(take, timeout=0.05) as kit:
        client = await kit.send(UPGRADE)
        await client.receive(SWITCHING)
        rung = asyncio.Event()
        asyncio.get_running_loop().call_later(0.1, rung.set)
        await rung.wait()

        kit.upstreams[0].lines[0].transport.write(b"still here")

        await client.receive(b"still here")


async def test_an_answer_that_is_the_clients_reaches_it() -> None:
    async with dialling(explain, take) as kit:
        client = await kit.send(UPGRADE)

        answer = await client.receive_all()

        assert answer.startswith(b"HTTP/1.1 428 Precondition Required\r\n")
        assert answer.endswith(b"\r\n\r\nspeak 1.62")
        assert kit.asking.reasons == []
        await eventually(lambda: kit.asking.ends == 1)
        assert kit.asking.takes == [428]
        assert statuses(kit) == [428]


@pytest.mark.parametrize("reply", [explain, explain_at_length])
async def test_what_is_quoted_is_kept_and_the_next_is_asked(reply: Reply) -> None:
    async with dialling(reply, take) as kit:
        kit.asking.quoted = 428
        await (await kit.send(UPGRADE)).receive(SWITCHING)

        (quote,) = kit.asking.quotes
        assert quote.status == 428
        assert quote.body.startswith(b"speak 1.62")
        assert len(quote.body) <= MAX_QUOTE
        assert [reason.rpartition(" answered ")[2] for reason in kit.asking.reasons] == ["428, not 101."]


async def test_when_there_is_nobody_left_to_ask_the_client_hears_so() -> None:
    async with dialling(refuse, hang_up) as kit:
        answer = await (await kit.send(UPGRADE)).receive(b"Unavailable")

        assert answer.startswith(b"HTTP/1.1 503 ")
        assert kit.asking.ends == 1
        assert statuses(kit) == [503]


@pytest.mark.parametrize("side", ["client", "upstream"])
async def test_the_end_of_a_tunnel_is_told_once(side: str) -> None:
    async with dialling(take) as kit:
        client = await kit.send(UPGRADE)
        await client.receive(SWITCHING)
        assert (kit.asking.takes, kit.asking.ends) == ([101], 0)

        if side == "client":
            client.leave()
        else:
            kit.upstreams[0].lines[0].transport.abort()
            assert await client.receive_all() == b""
            client.leave()

        await eventually(lambda: kit.asking.ends == 1)
        await eventually(lambda: kit.upstreams[0].lines[0].is_closed and not kit.relay.connections)
        assert kit.asking.ends == 1
        assert statuses(kit) == [101]


async def test_a_client_that_leaves_before_the_answer_ends_the_call_at_once() -> None:
    async with dialling(say_nothing, take) as kit:
        client = await kit.send(UPGRADE)
        await eventually(lambda: kit.upstreams[0].received)

        client.leave()

        await eventually(lambda: kit.asking.ends == 1)
        assert kit.asking.takes == []
        await eventually(lambda: kit.upstreams[0].lines[0].is_closed)
        assert kit.asking.reasons == []
        assert kit.upstreams[1].lines == []


async def test_a_client_that_leaves_while_another_is_looked_for_cancels_that() -> None:
    async with dialling(refuse, take) as kit:
        kit.asking.before_next.clear()
        client = await kit.send(UPGRADE)
        await eventually(lambda: kit.asking.reasons)

        client.leave()

        await eventually(lambda: kit.asking.is_cancelled)
        assert kit.asking.ends == 1
        assert kit.upstreams[1].lines == []


async def test_closing_the_relay_ends_every_call_once() -> None:
    async with dialling(take) as kit:
        client = await kit.send(UPGRADE)
        await client.receive(SWITCHING)

        kit.relay.close()

        await eventually(lambda: kit.asking.ends == 1)


async def test_an_upstream_that_answers_just_as_the_client_leaves_is_hung_up_on() -> None:
    async with dialling(say_nothing) as kit:
        with socket.create_connection(("127.0.0.1", kit.port)) as client:
            client.sendall(UPGRADE)
            await eventually(lambda: kit.upstreams[0].received)
        # Without a turn of the loop in between: the relay hears of both in one, in this order.
        kit.upstreams[0].lines[0].transport.write(SWITCHING)

        await eventually(lambda: kit.upstreams[0].lines[0].is_closed and not kit.relay.connections)
        assert (kit.asking.takes, kit.asking.ends, statuses(kit)) == ([], 1, [499])


async def test_an_upstream_is_not_blamed_for_our_own_lack_of_descriptors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fail(*_: Any, **__: Any) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    async with dialling(take, take) as kit:
        client = await kit.send(b"")
        with monkeypatch.context() as patch:
            patch.setattr(asyncio.get_running_loop(), "create_connection", fail)
            client.send(UPGRADE)
            answer = await client.receive(b"Overloaded")

        assert answer.startswith(b"HTTP/1.1 503")
        assert (kit.asking.reasons, kit.asking.takes, kit.asking.ends) == ([], [], 1)
