"""Who still answers, and who only seems to; the processes are of the test's own."""

import asyncio
import signal
import subprocess
from collections.abc import Iterator

import pytest

from remuda.fleet.relay import Address
from remuda.grid.node.pulse import Question, ask_connection, ask_http, ask_kernel, until_silent
from waiting import eventually

LIMIT = 0.2


async def is_silent(question: Question) -> bool:
    """Whether the question stays without an answer for as long as it takes."""
    task = asyncio.create_task(until_silent(question, limit=LIMIT))
    try:
        await asyncio.wait_for(asyncio.shield(task), 20)
    finally:
        task.cancel()
    return True


async def answers(question: Question) -> bool:
    await asyncio.wait_for(question(), 20)
    return True


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


async def test_a_stopped_process_is_silent_until_it_goes_on(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remuda.grid.node.pulse.LAST_CHANCE", LIMIT)
    question = ask_kernel(sleeper.pid)
    assert await answers(question)

    sleeper.send_signal(signal.SIGSTOP)
    assert await is_silent(question)

    sleeper.send_signal(signal.SIGCONT)
    assert await answers(question)


async def test_a_server_that_takes_connections_and_says_nothing_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("remuda.grid.node.pulse.LAST_CHANCE", LIMIT)
    over = asyncio.Event()

    async def say_nothing(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await over.wait()
        writer.close()

    async with await asyncio.start_server(say_nothing, "127.0.0.1", 0) as server:
        address = Address("127.0.0.1", server.sockets[0].getsockname()[1])
        assert await is_silent(ask_http(address, "/status"))
        assert await is_silent(ask_connection(address))

        over.set()  # One that hangs up lives.
        assert await answers(ask_connection(address))


async def test_who_is_gone_is_not_silent() -> None:
    async with await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0) as server:
        address = Address("127.0.0.1", server.sockets[0].getsockname()[1])

    # Its end shows elsewhere, and with a better reason.
    assert await answers(ask_http(address, "/status"))
    assert await answers(ask_kernel(2**22 + 1))


async def test_one_late_answer_is_enough() -> None:
    asked = 0

    async def late() -> None:
        nonlocal asked
        asked += 1
        if asked % 2:  # As where this process itself was stopped meanwhile.
            await asyncio.Event().wait()

    watching = asyncio.create_task(until_silent(late, limit=LIMIT))
    await eventually(lambda: asked >= 4)

    assert not watching.done()
    watching.cancel()
