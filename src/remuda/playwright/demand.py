"""Whether somebody waits for a browser that nobody serves yet: then is the time to start its worker."""

from remuda.base.errors import Unavailable
from remuda.fleet.bell import wait_for
from remuda.fleet.line import new_line_bell
from remuda.keyspace.fleet import LINES
from remuda.playwright.model import Browser
from remuda.store import Store

# For a ring that got lost. Most herds wait for some browser all their life, so it is not done more often.
LOOK_EVERY = 5.0


async def until_wanted(store: Store, browser: Browser, *, look_every: float = LOOK_EVERY) -> None:
    """Returns as soon as a client waits for this browser."""

    async def is_wanted() -> bool | None:
        try:
            lines = await store.zrange(LINES())
        except Unavailable:
            return None
        return any(line.startswith(f"playwright:{browser}:") for line in lines) or None

    await wait_for(store, new_line_bell(), is_wanted, timeout=None, look_every=look_every)
