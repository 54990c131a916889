"""Waiting for what a test expects: for a condition with a deadline, never for a fixed time."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

T = TypeVar("T")

DEADLINE = 10.0
LOOK_EVERY = 0.005
RESPITE = 4.0
"""How many times as long as a look took of the processor passes before the next: who looks must not slow down
what it waits for."""
PATIENCE = 0.05
"""The part of the time waited so far that passes before the next look: most looks would be in vain, and take
time of a Redis or a role, too."""
LOOK_AT_LEAST_EVERY = 0.1


@overload
async def eventually(condition: Callable[[], Awaitable[T]], deadline: float = ...) -> T: ...


@overload
async def eventually(condition: Callable[[], T], deadline: float = ...) -> T: ...


async def eventually(condition: Callable[[], Any], deadline: float = DEADLINE) -> Any:
    """What the condition gives, as soon as it is true; AssertionError after the deadline."""
    loop = asyncio.get_running_loop()
    begins_at = loop.time()
    ends_at = begins_at + deadline
    while True:
        began = time.thread_time()
        found = condition()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return found
        if loop.time() > ends_at:
            raise AssertionError(f"not so after {deadline:g} s: {inspect.getsource(condition).strip()}")
        patience = min(PATIENCE * (loop.time() - begins_at), LOOK_AT_LEAST_EVERY)
        await asyncio.sleep(max(LOOK_EVERY, patience, RESPITE * (time.thread_time() - began)))
