"""Waiting without polling: a bell is rung when what is waited for may have come.

A bell carries no data. A waiter that hears it looks at the state in Redis; one that hears nothing looks all
the same every `LOOK_EVERY` seconds, since a ring can be lost and foreign writers ring none.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from remuda.keyspace.fleet import BELL
from remuda.keyspace.key import ChannelName
from remuda.store import Store, Subscription

T = TypeVar("T")

LOOK_EVERY = 1.0


def bell_of(topic: str) -> ChannelName:
    """The bell of a topic: a key's name, or an id with what is meant of it."""
    return BELL(topic)


async def wait_for(
    store: Store,
    bell: ChannelName,
    look: Callable[[], Awaitable[T | None]],
    *,
    timeout: float | None,
    look_every: float = LOOK_EVERY,
) -> T | None:
    """What `look` finds, as soon as it finds something; None after the time-out."""
    with store.subscribe(bell) as rings:
        return await look_at_rings(rings, look, timeout=timeout, look_every=look_every)


async def look_at_rings(
    rings: Subscription,
    look: Callable[[], Awaitable[T | None]],
    *,
    timeout: float | None,
    look_every: float | None = LOOK_EVERY,
) -> T | None:
    """The same with bells that are listened to already; with None for `look_every` it only looks when it
    is woken."""
    deadline = None if timeout is None else asyncio.get_running_loop().time() + timeout
    while True:
        found = await look()
        if found is not None:
            return found
        pause = look_every
        if deadline is not None:
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                return None
            pause = left if pause is None else min(pause, left)
        await rings.wait(pause)
