"""Whether a client waits for a browser that has no worker yet: then its workers are started. Whether clients
wait although there are workers: then another one is. And whether anything would start them: a client of a
browser that nothing can start is refused at once."""

import asyncio
from collections.abc import Collection
from contextlib import suppress

from remuda.base import clock
from remuda.base.errors import BrowserNotOffered, Unavailable
from remuda.base.ids import WorkerId
from remuda.base.log import get_logger
from remuda.fleet.bell import bell_of, wait_for
from remuda.fleet.line import new_line_bell
from remuda.fleet.tasks import repeat
from remuda.keyspace.fleet import LINES
from remuda.keyspace.playwright import (
    ACTIVE_CONNECTIONS,
    ANY_VERSION,
    LIFETIME_CONNECTIONS,
    PLAYWRIGHT_OFFERS,
    PLAYWRIGHT_STARTERS,
)
from remuda.playwright.model import ServedBrowser
from remuda.store import Store

log = get_logger(__name__)

# For a ring that got lost. Most herds wait for some browser all their life, so it is not done more often.
LOOK_EVERY = 5.0
LOOK_WHILE_WANTED = 0.25
CROWDED_AFTER = 1.0
"""Seconds for which clients wait before one more worker is started: most places are free again by then."""
ANNOUNCE_EVERY = 5.0
STARTER_TTL = 60
"""Seconds for which a starter counts: as long as a browser may take to start, so a worker says it once."""
KEY_TTL = 2 * STARTER_TTL


async def until_wanted(store: Store, browser: ServedBrowser, *, look_every: float = LOOK_EVERY) -> None:
    """Returns as soon as a client waits for this browser."""

    async def is_wanted() -> bool | None:
        try:
            lines = await store.zrange(LINES())
        except Unavailable:
            return None
        return any(line.startswith(f"playwright:{browser}:") for line in lines) or None

    await wait_for(store, new_line_bell(), is_wanted, timeout=None, look_every=look_every)


async def until_crowded(
    store: Store, browser: ServedBrowser, version: str, *, lasting: float = CROWDED_AFTER
) -> None:
    """Returns when clients that a worker of this version would serve have been waiting for a while: one of
    them, or several in turn."""
    lines = {f"playwright:{browser}:{each}" for each in (version, ANY_VERSION)}

    async def is_waited_for() -> bool:
        try:
            # Not those of a killed gateway, whose leases are over.
            now_us = await _now(store) * 1_000_000
            return not lines.isdisjoint(await store.send("ZRANGE", LINES(), now_us, "+inf", "BYSCORE"))
        except Unavailable:
            return False

    since: float | None = None
    while True:
        if not await is_waited_for():
            since = None
            await until_wanted(store, browser)
        elif since is None:
            since = clock.monotonic()
        elif clock.monotonic() - since >= lasting:
            return
        await asyncio.sleep(LOOK_WHILE_WANTED)


async def until_idle(
    store: Store,
    browser: ServedBrowser,
    worker: WorkerId,
    *,
    lasting: float,
    look_every: float = LOOK_EVERY,
) -> None:
    """Returns when this worker has had no connection for so many seconds."""
    field = f"{browser}:{worker}"
    served, since = "", clock.monotonic()
    while clock.monotonic() - since < lasting:
        await asyncio.sleep(min(look_every, lasting))
        with suppress(Unavailable):
            active = await store.hget(ACTIVE_CONNECTIONS(), field)
            total = await store.hget(LIFETIME_CONNECTIONS(), field) or ""
            if (active or "0") != "0" or total != served:
                served, since = total, clock.monotonic()


async def announce_starter(store: Store, starter: str, browsers: Collection[ServedBrowser]) -> None:
    """Says that this starter would start workers of these browsers, or is about to."""
    now = await _now(store)
    async with store.transaction() as transaction:
        for browser in browsers:
            key = PLAYWRIGHT_STARTERS(browser)
            transaction.zadd(key, {starter: now + STARTER_TTL})
            transaction.zremrange_by_score(key, "-inf", now)
            transaction.expire(key, KEY_TTL)


async def keep_announcing(
    store: Store, announced: asyncio.Event, *, starter: str, browsers: Collection[ServedBrowser]
) -> None:
    """Says so for ever, again at once when Redis comes back, and takes it back when it is cancelled."""

    async def announce() -> None:
        await announce_starter(store, starter, browsers)
        announced.set()

    try:
        # This bell never rings: it only tells when Redis is back.
        with store.subscribe(bell_of("playwright:starters")) as rings:
            await repeat(announce, every=ANNOUNCE_EVERY, failure="starter not announced", rings=rings)
    finally:
        try:
            async with asyncio.timeout(1), store.transaction() as transaction:
                for browser in browsers:
                    transaction.zrem(PLAYWRIGHT_STARTERS(browser), starter)
        except (Unavailable, TimeoutError):  # It runs out.
            log.debug("starter not withdrawn")


async def check_startable(
    store: Store, browser: ServedBrowser, *, expected: Collection[ServedBrowser] = (), is_early: bool = False
) -> None:
    """BrowserNotOffered, with what is on offer, if nothing would ever start a worker of this browser.

    When it `is_early`, a fleet in which there is nothing at all is one that is still being started.
    """
    now = await _now(store)
    counts = {
        each: [
            store.send("ZCOUNT", key(each), now, "+inf") for key in (PLAYWRIGHT_STARTERS, PLAYWRIGHT_OFFERS)
        ]
        for each in ServedBrowser
    }
    offered = [
        each for each, found in counts.items() if each in expected or any([await one for one in found])
    ]
    if browser not in offered and (offered or not is_early):
        # A shared browser does not help a client that needs one of its own.
        alike = [each.engine for each in offered if each.is_own == browser.is_own]
        raise BrowserNotOffered(
            f"No worker has {browser}, and nothing here can start one; on offer: "
            f"{', '.join(alike) or 'nothing'}. `remuda doctor` says what a machine lacks, "
            f"and `{browser.worker_command}` starts a worker where it lacks nothing"
        )


async def _now(store: Store) -> int:
    """Redis' clock: those of several machines differ."""
    seconds, _ = await store.send("TIME")
    return int(seconds)
