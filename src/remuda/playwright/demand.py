"""Whether somebody waits for a browser that nobody serves yet: then is the time to start its worker."""

import asyncio

from remuda.base.errors import Unavailable
from remuda.keyspace.fleet import LINES
from remuda.playwright.model import Browser
from remuda.store import Store

# Nobody rings when a client joins a line. This is much less than what a browser takes to start.
LOOK_EVERY = 0.25


async def until_wanted(store: Store, browser: Browser) -> None:
    """Returns as soon as a client waits for this browser."""
    while True:
        if await _is_wanted(store, browser):
            return
        await asyncio.sleep(LOOK_EVERY)


async def _is_wanted(store: Store, browser: Browser) -> bool:
    try:
        lines = await store.zrange(LINES())
    except Unavailable:
        return False
    return any(line.startswith(f"playwright:{browser}:") for line in lines)
