"""The demand for a browser: heard of when the first client waits, and only of this browser."""

import asyncio

import pytest

from remuda.base.ids import new_id
from remuda.fleet.line import Lines
from remuda.playwright.demand import until_wanted
from remuda.playwright.model import ServedBrowser
from remuda.store import Store
from waiting import DEADLINE

FOREVER = 3600.0


async def test_a_client_that_waits_is_heard_at_once(store: Store) -> None:
    wanted = asyncio.create_task(until_wanted(store, ServedBrowser.FIREFOX, look_every=FOREVER))
    lines = Lines(store)

    async with lines.wait("playwright:chromium:1.62", new_id()):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(wanted), 0.1)
        async with lines.wait("playwright:firefox:any", new_id()):
            await asyncio.wait_for(wanted, DEADLINE)


async def test_a_client_that_has_been_waiting_is_seen(store: Store) -> None:
    async with Lines(store).wait("playwright:webkit:1.62", new_id()):
        await asyncio.wait_for(until_wanted(store, ServedBrowser.WEBKIT, look_every=FOREVER), DEADLINE)
