"""A request of our own: what is sent, and what becomes of every way in which an answer can fail."""

import asyncio

import pytest

from process.test_relay_failures import nobody
from relaying import OK, Line, Upstream
from remuda.base.errors import UpstreamUnavailable
from remuda.fleet.relay import ask
from waiting import eventually


async def test_the_answer_comes_back() -> None:
    upstream = Upstream()
    async with upstream.listening() as address:
        found = await ask(
            address,
            "POST",
            "/session",
            b"{}",
            credential=b"X-Remuda-Secret: ours\r\n",
            headers={"User-Agent": "me"},
            timeout=10,
        )

        assert found == (200, b"ok")
        head, body = upstream.received.split(b"\r\n\r\n")
        assert head.startswith(f"POST /session HTTP/1.1\r\nHost: {address}\r\n".encode())
        assert b"\r\nUser-Agent: me" in head
        assert head.endswith(b"\r\nX-Remuda-Secret: ours")
        assert body == b"{}"


@pytest.mark.parametrize(
    "answer", [b"", OK[:-1], b"SSH-2.0\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\nendless", b"x" * 100_000]
)
async def test_an_answer_that_is_none_is_an_unavailable_upstream(answer: bytes) -> None:
    def reply(line: Line) -> None:
        line.transport.write(answer)
        line.transport.close()

    upstream = Upstream()
    upstream.reply = reply
    async with upstream.listening() as address:
        with pytest.raises(UpstreamUnavailable):
            await ask(address, "GET", "/", credential=b"", timeout=10)


async def test_nobody_there_is_an_unavailable_upstream() -> None:
    with pytest.raises(UpstreamUnavailable):
        await ask(nobody(), "GET", "/", credential=b"", timeout=10)


async def test_silence_is_an_unavailable_upstream_after_a_while() -> None:
    upstream = Upstream()
    upstream.reply = lambda line: None
    async with upstream.listening() as address:
        with pytest.raises(UpstreamUnavailable):
            await ask(address, "GET", "/", credential=b"", timeout=0.05)


async def test_the_other_side_sees_that_nobody_waits_any_more() -> None:
    upstream = Upstream()
    upstream.reply = lambda line: None
    async with upstream.listening() as address:
        asking = asyncio.create_task(ask(address, "GET", "/", credential=b"", timeout=10))
        await eventually(lambda: upstream.received)

        asking.cancel()

        await eventually(lambda: upstream.lines[0].is_closed)
