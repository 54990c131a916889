"""A guarded relay on a real port: what it lets in, what it waits for, and what it passes on."""

from collections.abc import Callable

import pytest

from relaying import GET, OK, Kit, relaying
from remuda.fleet.relay import Address, Forward, Request, Router
from waiting import eventually

OURS = b"X-Remuda-Secret: ours\r\n"
WEBSOCKET = (
    b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


class Watchman:
    """A guard that looks again when the test says so."""

    def __init__(self, right: bytes = b"ours") -> None:
        self.right = right
        self.looks: list[Callable[[], None]] = []

    def admits(self, credential: bytes | None) -> bool:
        return credential == self.right

    def look_again(self, then: Callable[[], None]) -> None:
        self.looks.append(then)


def showing(line: bytes, *, more: bytes = b"") -> bytes:
    return GET[:-2] + more + line + b"\r\n"


async def looked(watchman: Watchman, kit: Kit) -> None:
    await eventually(lambda: watchman.looks)
    watchman.looks.pop()()


def forwarding(credential: bytes, *, target: str | None = None) -> Callable[[Address], Router]:
    def make(address: Address) -> Router:
        return lambda request: Forward(address, target, credential=credential)

    return make


@pytest.mark.parametrize("name", [b"X-Remuda-Secret", b"x-remuda-secret", b"X-REMUDA-SECRET"])
async def test_what_shows_the_credential_is_let_in_and_nothing_behind_sees_it(name: bytes) -> None:
    async with relaying(guard=Watchman()) as kit:
        client = await kit.send(showing(name + b": ours\r\n"))

        assert await client.receive(b"ok") == OK
        assert kit.upstream.received == GET


@pytest.mark.parametrize("more", [b"", WEBSOCKET])
@pytest.mark.parametrize("line", [b"", b"X-Remuda-Secret: theirs\r\n", OURS + OURS])
async def test_what_does_not_is_refused_without_a_word_to_anybody(line: bytes, more: bytes) -> None:
    watchman = Watchman()
    async with relaying(guard=watchman) as kit:
        client = await kit.send(showing(line, more=more))
        await looked(watchman, kit)

        assert (await client.receive_all()).startswith(b"HTTP/1.1 403")
        assert kit.upstream.lines == []
        assert kit.witness.finished == []
        assert kit.witness.refused == [403]


async def test_a_credential_that_has_changed_is_found_out_before_the_request_is_refused() -> None:
    watchman = Watchman(b"old")
    async with relaying(guard=watchman) as kit:
        post = b"POST / HTTP/1.1\r\nHost: a\r\n%bContent-Length: 4\r\n\r\n" % OURS
        client = await kit.send(post + b"bo")
        await eventually(lambda: watchman.looks)
        client.send(b"dy")

        watchman.right = b"ours"
        await looked(watchman, kit)

        assert await client.receive(b"ok") == OK
        assert kit.upstream.received.endswith(b"\r\n\r\nbody")


async def test_a_client_that_leaves_meanwhile_is_forgotten() -> None:
    watchman = Watchman()
    async with relaying(guard=watchman) as kit:
        client = await kit.send(GET)
        await eventually(lambda: watchman.looks)

        client.leave()
        await looked(watchman, kit)

        await eventually(lambda: not kit.relay.connections)
        assert kit.upstream.lines == []


@pytest.mark.parametrize("target", [None, "/other"])
@pytest.mark.parametrize("more", [b"", WEBSOCKET])
async def test_a_credential_goes_to_who_asks_for_it_in_place_of_the_clients_own(
    target: str | None, more: bytes
) -> None:
    async with relaying(forwarding(OURS, target=target)) as kit:
        client = await kit.send(showing(b"X-Remuda-Secret: theirs\r\n", more=more))

        await eventually(lambda: kit.upstream.received.endswith(b"\r\n\r\n"))
        client.leave()
        assert kit.upstream.received.count(b"X-Remuda-Secret") == 1
        assert b"\r\n" + OURS in kit.upstream.received


async def test_naming_it_in_connection_does_not_make_it_disappear() -> None:
    def refuse(request: Request) -> Forward:
        raise AssertionError

    watchman = Watchman()
    async with relaying(lambda _: refuse, guard=watchman) as kit:
        client = await kit.send(showing(b"X-Remuda-Secret: theirs\r\nConnection: X-Remuda-Secret\r\n"))
        await looked(watchman, kit)

        assert (await client.receive_all()).startswith(b"HTTP/1.1 403")
