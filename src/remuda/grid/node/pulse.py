"""Whether a driver and its browser still answer, also while a command is under way.

A command may take minutes and be all right: a slow page, a long script. So nothing is concluded from
commands. The processes are asked something that they answer while they work, even if a page is in an endless
loop:

| asked | how |
|---|---|
| ChromeDriver | `GET /status`, which it answers beside its sessions |
| Chromium | `GET /json/version` at its DevTools, which its main thread answers |
| Firefox | a connection to the port of its Marionette, which it refuses at once, having a client |
| any other | whether the kernel has stopped it |

geckodriver does one thing at a time, `/status` included, so it cannot be asked.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from remuda.base.errors import Unavailable
from remuda.base.filters import connect_to_child
from remuda.base.processes import is_stopped
from remuda.fleet.http_client import ask
from remuda.fleet.relay import Address

Question = Callable[[], Awaitable[None]]
"""Returns when there is an answer. An error is one: a death shows elsewhere."""

ASK_EVERY = 10.0
LAST_CHANCE = 5.0
"""Seconds for a second answer: where this process itself stood still, the first one was not waited for."""
LOOK_EVERY = 1.0


def ask_http(address: Address, path: str) -> Question:
    """Waits for an answer of a child."""

    async def question() -> None:
        with suppress(Unavailable):
            await ask(address, "GET", path, to_child=True, timeout=None)

    return question


def ask_connection(address: Address) -> Question:
    """Waits until the child says something to a new connection, or closes it."""

    async def question() -> None:
        with suppress(OSError):
            connection = await connect_to_child(address.host, address.port)
            reader, writer = await asyncio.open_connection(sock=connection)
            try:
                await reader.read(1)
            finally:
                writer.close()

    return question


def ask_kernel(pid: int) -> Question:
    """Waits until the process is not stopped."""

    async def question() -> None:
        while is_stopped(pid):  # noqa: ASYNC110  # The kernel does not tell when that changes.
            await asyncio.sleep(LOOK_EVERY)

    return question


async def until_silent(question: Question, *, limit: float) -> None:
    """Returns once the question has had no answer for `limit` seconds."""
    while True:
        await asyncio.sleep(min(ASK_EVERY, limit / 2))
        if not await is_answered(question, limit) and not await is_answered(question, LAST_CHANCE):
            return


async def is_answered(question: Question, timeout: float) -> bool:
    """Whether there is an answer within so many seconds."""
    try:
        async with asyncio.timeout(timeout):
            await question()
    except TimeoutError:
        return False
    return True
