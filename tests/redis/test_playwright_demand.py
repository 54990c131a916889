"""The demand for a browser: heard of when the first client waits, and only of this browser; and whether the
workers that it has are enough."""

import asyncio

import pytest

from remuda.base import clock
from remuda.base.ids import WorkerId, new_id
from remuda.fleet.line import Lines
from remuda.playwright.demand import until_crowded, until_idle, until_wanted
from remuda.playwright.model import ServedBrowser
from remuda.store import Store
from waiting import DEADLINE, eventually

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


async def test_a_browser_is_crowded_when_clients_wait_for_a_while(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(clock, "monotonic", lambda: now)
    crowded = asyncio.create_task(until_crowded(store, ServedBrowser.CHROMIUM, "1.64", lasting=1))
    lines = Lines(store)

    # A client of another version does not count, and nobody has waited for long enough.
    async with lines.wait("playwright:chromium:1.50", new_id()):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(crowded), 0.6)
        now = 2.0
        async with lines.wait("playwright:chromium:1.64", new_id()):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asyncio.shield(crowded), 1)
            now = 4.0
            await asyncio.wait_for(crowded, DEADLINE)


async def test_the_line_of_a_killed_gateway_is_no_crowd(store: Store) -> None:
    seconds, _ = await store.send("TIME")
    await store.send("ZADD", "remuda:lines", int(seconds) * 1_000_000 - 1, "playwright:chromium:any")

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(until_crowded(store, ServedBrowser.CHROMIUM, "1.64", lasting=0), 1)


async def test_a_worker_is_idle_when_no_client_came_for_a_while(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, looks = 0.0, 0

    def monotonic() -> float:
        nonlocal looks
        looks += 1
        return now

    async def pass_time(seconds: float) -> None:
        """Lets it look at what there is, and then again after this time."""
        nonlocal now
        for step in (0.0, seconds):
            now, seen = now + step, looks
            await eventually(lambda: idle.done() or looks > seen + 2, DEADLINE)  # noqa: B023

    monkeypatch.setattr(clock, "monotonic", monotonic)
    active, lifetime, field = "cluster:active_connections", "cluster:lifetime_connections", "chromium:w1"
    await store.send("HSET", active, field, 1)
    waiting = until_idle(store, ServedBrowser.CHROMIUM, WorkerId("w1"), lasting=100, look_every=0.01)
    idle = asyncio.create_task(waiting)

    await pass_time(1000)
    await store.send("HSET", active, field, 0)
    await pass_time(99)
    # A connection that came and went between two looks counts, too.
    await store.send("HSET", lifetime, field, 2)
    await pass_time(99)
    assert not idle.done()
    await pass_time(1)
    await asyncio.wait_for(idle, DEADLINE)
