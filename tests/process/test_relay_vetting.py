"""Answers that the relay's owner looks at before the client gets them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from relaying import GET, OK, Kit, Line, relaying
from remuda.base.errors import SessionNotCreated
from remuda.fleet.relay import Forward
from waiting import eventually

SPLIT = OK[:-1], OK[-1:]


class Look:
    """A look at answers that takes as long as a test wants."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []
        self.go_on = asyncio.Event()
        self.is_good = True
        self.was_cancelled = False

    async def __call__(self, body: bytes) -> None:
        self.seen.append(body)
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        if not self.is_good:
            raise SessionNotCreated


@asynccontextmanager
async def vetting() -> AsyncIterator[tuple[Kit, Look]]:
    look = Look()
    async with relaying(lambda address: lambda request: Forward(address, vet=look)) as kit:
        yield kit, look


async def test_a_client_gets_its_answer_after_the_look() -> None:
    async with vetting() as (kit, look):
        client = await kit.send(GET)
        await eventually(lambda: look.seen == [b"ok"])
        assert not kit.witness.finished

        look.go_on.set()

        assert await client.receive(b"ok") == OK
        assert [status for _, status, _, _ in kit.witness.finished] == [200]


async def test_an_answer_in_pieces_is_looked_at_as_a_whole_and_the_connection_is_used_again() -> None:
    async with vetting() as (kit, look):
        look.go_on.set()

        def reply(line: Line) -> None:
            for piece in SPLIT:
                line.transport.write(piece)

        kit.upstream.reply = reply
        client = await kit.send(GET)
        assert await client.receive(b"ok") == OK

        client.send(GET)

        assert await client.receive(b"ok") == OK
        assert look.seen == [b"ok", b"ok"]
        assert len(kit.upstream.lines) == 1


async def test_what_the_look_raises_is_the_answer() -> None:
    async with vetting() as (kit, look):
        look.is_good = False
        look.go_on.set()

        client = await kit.send(GET)

        assert b"500" in await client.receive(b"SessionNotCreated")


async def test_other_answers_pass_without_a_look() -> None:
    async with vetting() as (kit, look):
        refusal = OK.replace(b"200 OK", b"503 Later")
        kit.upstream.reply = lambda line: line.transport.write(refusal)

        client = await kit.send(GET)

        assert await client.receive(b"ok") == refusal
        assert look.seen == []


async def test_a_client_that_leaves_ends_the_look() -> None:
    async with vetting() as (kit, look):
        client = await kit.send(GET)
        await eventually(lambda: look.seen)

        client.leave()

        await eventually(lambda: look.was_cancelled)
        await eventually(lambda: [status for _, status, _, _ in kit.witness.finished] == [499])
