"""Bodies that a relay holds whole: together they take no more memory than is set aside for them."""

import asyncio
from collections.abc import Callable

import pytest

from relaying import FAST, relaying
from remuda.fleet.relay import Address, Answer, Handle, Request, Router
from waiting import eventually

BIG = 1_000_000
ROOM = 2 * BIG


class Holding:
    """A router whose handler keeps each body until it is told to go on."""

    def __init__(self) -> None:
        self.entered = 0
        self.go_on = asyncio.Event()

    def __call__(self, _address: Address) -> Router:
        async def handle(_request: Request, body: bytes) -> Answer:
            self.entered += 1
            await self.go_on.wait()
            return Answer(200, b"got %d" % len(body))

        return lambda request: Handle(handle, 10 * BIG)


def posting(size: int) -> bytes:
    return b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % size + bytes(size)


def posting_in_chunks(size: int) -> bytes:
    head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"%x\r\n%b\r\n0\r\n\r\n" % (size, bytes(size))


async def test_bodies_together_take_no_more_memory_than_is_set_aside() -> None:
    holding = Holding()
    async with relaying(holding, limits=FAST._replace(bodies=ROOM)) as kit:
        clients = [await kit.send(posting(BIG)) for _ in range(8)]
        await eventually(lambda: holding.entered == 1)
        most = kit.relay.bodies.held

        # Small ones do not wait for large ones.
        small = await kit.send(posting(10))
        await eventually(lambda: holding.entered == 2)
        holding.go_on.set()
        for client in clients:
            assert b"200 OK" in await client.receive(b"got %d" % BIG)
            most = max(most, kit.relay.bodies.held)
        await small.receive(b"got 10")

        assert most <= ROOM
        assert kit.relay.bodies.held == 0


@pytest.mark.parametrize("post", [posting, posting_in_chunks])
async def test_who_waits_too_long_for_memory_hears_so(post: Callable[[int], bytes]) -> None:
    holding = Holding()
    async with relaying(holding, limits=FAST._replace(bodies=ROOM, body_wait=0.05)) as kit:
        first = await kit.send(post(BIG))
        await eventually(lambda: holding.entered == 1)

        refused = await kit.send(post(BIG))

        answer = await refused.receive(b"Overloaded")
        assert answer.startswith(b"HTTP/1.1 503")
        assert kit.relay.bodies.held <= ROOM
        holding.go_on.set()
        await first.receive(b"got %d" % BIG)
        await eventually(lambda: kit.relay.bodies.held == 0)


async def test_a_body_larger_than_all_memory_for_bodies_has_its_turn() -> None:
    holding = Holding()
    holding.go_on.set()
    async with relaying(holding, limits=FAST._replace(bodies=BIG // 2)) as kit:
        for post in (posting, posting_in_chunks):
            await (await kit.send(post(3 * BIG))).receive(b"got %d" % (3 * BIG))

        assert kit.relay.bodies.held == 0


async def test_clients_that_leave_give_their_memory_back() -> None:
    holding = Holding()
    async with relaying(holding, limits=FAST._replace(bodies=ROOM)) as kit:
        clients = [await kit.send(posting(BIG)) for _ in range(3)]
        half = await kit.send(posting(BIG)[: BIG // 2])
        await eventually(lambda: holding.entered == 1)

        for client in (*clients, half):
            client.leave()

        await eventually(lambda: kit.relay.bodies.held == 0)


async def test_whole_bodies_of_one_account_wait_for_room_and_keep_no_other_waiting() -> None:
    """Small ones come with their head: they are here already, and wait all the same."""
    holding = Holding()
    size, room = 1000, 40_000
    async with relaying(holding, limits=FAST._replace(bodies=room)) as kit:
        kit.relay.account_of = lambda request: request.header("x-account") or ""
        for _ in range(20):
            await kit.send(of_account("flood", posting(size)))
        await eventually(lambda: holding.entered == 5)

        other = await kit.send(of_account("other", posting(size)))

        await eventually(lambda: holding.entered == 6)
        assert kit.relay.bodies.held == 6 * size
        holding.go_on.set()
        await other.receive(b"got %d" % size)
        await eventually(lambda: kit.relay.bodies.held == 0)


def of_account(account: str, request: bytes) -> bytes:
    return request.replace(b"Host: a", b"Host: a\r\nX-Account: " + account.encode())


async def test_a_small_body_in_chunks_holds_only_what_it_takes_once_it_is_whole() -> None:
    holding = Holding()
    request = posting_in_chunks(1000)
    async with relaying(holding, limits=FAST._replace(bodies=ROOM)) as kit:
        client = await kit.send(request[:-20])
        await eventually(lambda: kit.relay.bodies.held == 1 << 20)

        client.send(request[-20:])

        await eventually(lambda: holding.entered == 1)
        assert kit.relay.bodies.held == len(request) - len(request.partition(b"\r\n\r\n")[0]) - 4
        holding.go_on.set()
        await client.receive(b"got 1000")
        await eventually(lambda: kit.relay.bodies.held == 0)
