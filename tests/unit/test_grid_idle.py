"""Idleness: what counts as a sign of life, and what does not."""

import asyncio

import pytest

from remuda.base import clock
from remuda.fleet.relay import Request
from remuda.fleet.relay.head import read_head
from remuda.grid.node.idle import Idleness


class Clock:
    """A clock that stands still until it is told the time."""

    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Clock:
    fake = Clock()
    monkeypatch.setattr(clock, "monotonic", fake)
    monkeypatch.setattr(clock, "now", fake)
    return fake


def request(*, upgrade: bool = False) -> Request:
    handshake = "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    headers = f"Connection: Upgrade\r\nUpgrade: websocket\r\n{handshake}" if upgrade else ""
    head = read_head(f"GET /session/1 HTTP/1.1\r\nHost: h\r\n{headers}\r\n".encode())
    return Request(head, head.method, head.target, "127.0.0.1")


def test_a_session_without_commands_is_idle_for_as_long_as_that_lasts(time: Clock) -> None:
    idleness = Idleness()

    time.time += 5

    assert idleness.seconds() == 5


def test_a_command_that_is_under_way_is_not_idleness(time: Clock) -> None:
    idleness, command = Idleness(), request()
    idleness.request_started(command)

    time.time += 3600

    assert idleness.seconds() == 0


def test_idleness_begins_when_the_last_of_several_commands_has_ended(time: Clock) -> None:
    idleness, slow, quick = Idleness(), request(), request()
    idleness.request_started(slow)
    idleness.request_started(quick)

    time.time += 10
    idleness.request_finished(quick, 200, 0, 0)
    assert idleness.seconds() == 0
    time.time += 10
    idleness.request_finished(slow, 200, 0, 0)
    time.time += 7

    assert idleness.seconds() == 7


def test_a_client_that_left_in_the_middle_of_a_command_leaves_the_session_idle(time: Clock) -> None:
    idleness, command = Idleness(), request()
    idleness.request_started(command)
    idleness.request_finished(command, 499, 0, 0)

    time.time += 3

    assert idleness.seconds() == 3


def test_opening_a_websocket_is_a_sign_of_life(time: Clock) -> None:
    idleness = Idleness()
    time.time += 100

    idleness.request_started(request(upgrade=True))

    assert idleness.seconds() == 0


def test_a_silent_websocket_does_not_keep_a_session_alive(time: Clock) -> None:
    idleness = Idleness()
    idleness.request_started(request(upgrade=True))

    time.time += 60

    assert idleness.seconds() == 60


def test_what_flows_through_a_websocket_keeps_a_session_alive(time: Clock) -> None:
    idleness, socket = Idleness(), request(upgrade=True)
    idleness.request_started(socket)

    time.time += 60
    idleness.bytes_flowed(socket, 64, 0)
    time.time += 2

    assert idleness.seconds() == 2
    assert idleness.seen_at == time.time - 2


def test_a_websocket_that_closes_does_not_take_a_command_with_it(time: Clock) -> None:
    idleness, socket, command = Idleness(), request(upgrade=True), request()
    idleness.request_started(socket)
    idleness.request_started(command)

    idleness.request_finished(socket, 101, 0, 0)
    time.time += 60

    assert idleness.seconds() == 0


def test_bytes_that_were_no_request_are_no_sign_of_life(time: Clock) -> None:
    idleness = Idleness()
    time.time += 60

    idleness.request_refused(400, 10, 100)

    assert idleness.seconds() == 60


def test_the_time_before_a_session_does_not_count(time: Clock) -> None:
    idleness = Idleness()  # As a warm node has one, hours before it gets a session.
    time.time += 36_000

    idleness.restart()
    time.time += 1

    assert idleness.seconds() == 1
    assert idleness.seen_at == time.time - 1


def test_the_client_was_last_seen_when_its_command_came(time: Clock) -> None:
    idleness = Idleness()

    time.time += 5
    idleness.request_started(request())
    time.time += 5

    assert idleness.seen_at == 1005


def test_a_session_that_is_tied_to_its_websocket_is_not_idle_while_that_is_open(time: Clock) -> None:
    idleness, socket, ends = Idleness(), request(upgrade=True), list[float]()
    idleness.tie_to_websocket(lambda: ends.append(time.time))
    idleness.request_started(socket)

    time.time += 3600

    assert idleness.seconds() == 0
    assert ends == []


def test_a_session_that_is_tied_to_its_websocket_ends_with_it(time: Clock) -> None:
    idleness, socket, ends = Idleness(), request(upgrade=True), list[float]()
    idleness.tie_to_websocket(lambda: ends.append(time.time))

    idleness.request_started(request())
    idleness.request_finished(request(), 200, 0, 0)
    idleness.request_started(socket)
    assert ends == []
    idleness.request_finished(socket, 101, 0, 0)

    assert ends == [time.time]


def test_a_session_with_several_websockets_ends_with_the_last(time: Clock) -> None:
    idleness, ends = Idleness(), list[float]()
    first, second = request(upgrade=True), request(upgrade=True)
    idleness.tie_to_websocket(lambda: ends.append(time.time))
    idleness.request_started(first)
    idleness.request_started(second)

    idleness.request_finished(first, 101, 0, 0)
    assert ends == []
    idleness.request_finished(second, 101, 0, 0)

    assert ends == [time.time]


async def test_a_session_waits_for_its_client_to_come_back() -> None:
    idleness, socket, over = Idleness(), request(upgrade=True), asyncio.Event()
    idleness.tie_to_websocket(over.set, keep=0.05)
    idleness.request_started(socket)
    idleness.request_finished(socket, 101, 0, 0)
    assert idleness.seconds() == 0

    idleness.request_started(socket)
    later: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(0.06, later.set_result, None)
    await later
    assert not over.is_set()
    idleness.request_finished(socket, 101, 0, 0)

    await asyncio.wait_for(over.wait(), 10)


async def test_a_websocket_that_was_refused_does_not_keep_a_session() -> None:
    idleness, socket, over = Idleness(), request(upgrade=True), asyncio.Event()
    idleness.tie_to_websocket(over.set, keep=0.01)
    idleness.request_started(socket)
    idleness.request_finished(socket, 404, 0, 0)
    assert idleness.seconds() > 0

    idleness.request_started(socket)
    idleness.request_finished(socket, 101, 0, 0)
    idleness.request_started(socket)
    idleness.request_finished(socket, 404, 0, 0)

    await asyncio.wait_for(over.wait(), 10)


async def test_a_session_is_done_when_its_last_command_and_websocket_are(time: Clock) -> None:
    idleness, command, websocket = Idleness(), request(), request(upgrade=True)
    await idleness.until_done(60)
    idleness.request_started(command)
    idleness.request_started(websocket)

    waiting = asyncio.create_task(idleness.until_done(60))
    await asyncio.sleep(0)
    idleness.request_finished(command, 200, 0, 0)
    await asyncio.sleep(0)
    was_done = waiting.done()
    idleness.request_finished(websocket, 101, 0, 0)
    await waiting

    assert not was_done


async def test_what_is_never_done_is_waited_for_only_so_long(time: Clock) -> None:
    idleness = Idleness()
    idleness.request_started(request(upgrade=True))

    await idleness.until_done(0.01)
