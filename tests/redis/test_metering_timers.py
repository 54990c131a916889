"""The time of sessions and connections is counted exactly once, in the time slots in which it passed."""

import asyncio
import math
from collections.abc import AsyncIterator
from unittest import mock

import pytest

from grids import terminate_as_original
from remuda.base import clock
from remuda.base.errors import StoreUnavailable
from remuda.base.ids import ConnectionId, SessionId, WorkerId, new_id
from remuda.fleet.origin import Origin
from remuda.grid.model import State
from remuda.grid.omission import Requested
from remuda.grid.sessions import Sessions
from remuda.grid.usage import GRID
from remuda.keyspace import grid as grid_keys
from remuda.keyspace import playwright as playwright_keys
from remuda.keyspace.metering import METER_USAGE, TIMER, TIMERS
from remuda.metering.model import Level, Services
from remuda.metering.push import Metering
from remuda.metering.timers import Timer, Timers, events_of
from remuda.metering.usage import TimeRange, UsageReader
from remuda.playwright.leases import Leases
from remuda.playwright.model import Outcome, Place, ServedBrowser, WorkerLimits
from remuda.playwright.usage import PLAYWRIGHT
from remuda.store import Store
from waiting import eventually

SLOT = 15 * 60_000
NOON = 1_700_049_600_000
SERVICES = Services([GRID, PLAYWRIGHT])


@pytest.fixture
async def metering(store: Store) -> AsyncIterator[Metering]:
    metering = Metering(store, services=SERVICES)
    yield metering
    await metering.finish()


async def used(store: Store, service: str, account: str) -> dict[str, int]:
    reader = UsageReader(store, SERVICES[service], precision=15)
    asked = TimeRange(clock.now_ms() - 2 * SLOT, clock.now_ms())
    (usage,) = await reader.read(Level.ACCOUNTS, [account], asked)
    return {name: count for name, count in usage.counts.items() if count}


async def alive_session(store: Store, account: str = "ranch") -> SessionId:
    session, sessions = SessionId(new_id()), Sessions(store)
    await sessions.create(
        session, requested=Requested(b"{}", None), origin=Origin(address="127.0.0.1", account=account)
    )
    await sessions.move(session, State.PENDING, code="SCHED")
    assert await sessions.move(session, State.ALIVE, code="NALIVE")
    return session


async def ended_session(store: Store, *, after: float = 2.5) -> tuple[SessionId, int]:
    """A session that has ended, and its seconds."""
    session = await alive_session(store)
    status = grid_keys.SESSION_STATUS(session)
    await store.hset(status, {"aliveAt": clock.rfc3339(clock.now() - after)})
    await Sessions(store).move(session, State.TERMINATED, code="HALT")
    stamps = await store.hgetall(status)
    lasted = clock.parse_rfc3339(stamps["terminatedAt"]) - clock.parse_rfc3339(stamps["aliveAt"])
    return session, math.ceil(round(lasted, 3))


def fields_of(timer: Timer, metering: Metering, until: int) -> list[tuple[str, int, int]]:
    events = events_of(timer, metering, until=until, precision=SLOT)
    return [(event.action, event.timestamp, event.params.get("seconds", 0)) for event in events]


async def test_the_time_of_a_session_that_other_software_has_ended_is_counted_until_then(
    store: Store,
) -> None:
    session = await alive_session(store)
    await terminate_as_original(store, session)
    ended = await store.hget(grid_keys.SESSION_STATUS(session), "terminatedAt")
    assert ended is not None

    # As its orchestrator does once the node is gone.
    assert not await Sessions(store).move(session, State.TERMINATED, code="TERM")

    timer = await store.hgetall(TIMER(session))
    assert int(timer["ended"]) == round(clock.parse_rfc3339(ended) * 1000)


async def test_seconds_are_split_by_time_slot(metering: Metering) -> None:
    began, ended = NOON + SLOT - 1_500, NOON + 2 * SLOT + 700

    timer = Timer("a", "grid", "ranch", began, ended)

    assert fields_of(timer, metering, ended) == [
        ("createSession", began, 0),
        ("useBrowser", began, 2),
        ("useBrowser", NOON + SLOT, 900),
        ("useBrowser", NOON + 2 * SLOT, 1),
    ]


async def test_what_is_counted_on_the_way_adds_up_to_the_whole(metering: Metering) -> None:
    began, ended = NOON + 100, NOON + 3 * SLOT + 150
    whole = Timer("a", "grid", "ranch", began, ended)

    steps = [
        *fields_of(Timer("a", "grid", "ranch", began), metering, NOON + SLOT),
        *fields_of(Timer("a", "grid", "ranch", began, counted=NOON + SLOT), metering, NOON + 2 * SLOT),
        *fields_of(Timer("a", "grid", "ranch", began, ended, NOON + 2 * SLOT), metering, ended),
    ]

    assert steps == fields_of(whole, metering, ended)
    assert sum(seconds for _, _, seconds in steps) == whole.seconds_by(ended) == 2701


async def test_a_session_is_counted_when_it_begins(store: Store, metering: Metering) -> None:
    await alive_session(store)

    await Timers(store, metering).count_timers()

    assert await used(store, "grid", "ranch") == {"CreateSession": 1}


async def test_the_time_of_a_session_is_counted_when_it_ends(store: Store, metering: Metering) -> None:
    session, seconds = await ended_session(store)

    await Timers(store, metering).count_timers()

    assert await used(store, "grid", "ranch") == {"CreateSession": 1, "browserSeconds": seconds}
    assert not await store.exists(TIMER(session), TIMERS())


async def test_a_session_that_never_had_a_browser_costs_nothing(store: Store, metering: Metering) -> None:
    session, sessions = SessionId(new_id()), Sessions(store)
    await sessions.create(
        session, requested=Requested(b"{}", None), origin=Origin(address="127.0.0.1", account="ranch")
    )
    await sessions.move(session, State.TERMINATED, code="QTIMEOUT")

    assert await Timers(store, metering).count_timers() == 0
    assert await used(store, "grid", "ranch") == {}


async def test_a_process_that_is_killed_while_it_counts_loses_and_doubles_nothing(
    store: Store, metering: Metering
) -> None:
    session, seconds = await ended_session(store)
    timers = Timers(store, metering)

    # Killed before the events are counted, then before the timer is gone.
    with (
        mock.patch.object(metering, "push_all", side_effect=StoreUnavailable),
        pytest.raises(StoreUnavailable),
    ):
        await timers.count_timers()
    fields = await store.hgetall(TIMER(session))
    timer = Timer.read(session, fields)
    assert timer is not None
    assert timer.ended is not None
    await metering.push_all(list(events_of(timer, metering, until=timer.ended, precision=SLOT)))
    await asyncio.gather(*(Timers(store, metering).count_timers() for _ in range(3)))

    assert await used(store, "grid", "ranch") == {"CreateSession": 1, "browserSeconds": seconds}
    assert not await store.exists(TIMER(session), TIMERS())


async def test_a_long_session_is_counted_while_it_goes_on(
    store: Store, metering: Metering, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await alive_session(store)
    await store.hset(TIMER(session), {"began": NOON})

    monkeypatch.setattr(clock, "now_ms", lambda: NOON + SLOT + 10_000)
    await store.zadd(TIMERS(), {session: 0})
    await Timers(store, metering).count_timers()

    assert await store.get(METER_USAGE("grid", "accounts", str(NOON), "ranch", "browserSeconds")) == "900"
    assert await store.send("ZSCORE", TIMERS(), session) == NOON + 2 * SLOT + 5_000


async def test_a_herd_that_does_not_meter_itself_counts_nothing_and_keeps_no_timer(
    store: Store, metering: Metering
) -> None:
    session, _ = await ended_session(store)

    await Timers(store, metering, is_on=False).count_timers()

    assert await used(store, "grid", "ranch") == {}
    assert not await store.exists(TIMER(session), TIMERS())


# Playwright's connections

LIMITS = WorkerLimits(concurrent=5, lifetime=50, lease=20.0, restart_share=50, command_ttl=60)


async def connected(store: Store) -> tuple[Leases, Place]:
    leases = Leases(store, LIMITS)
    place = Place(
        ServedBrowser.CHROMIUM,
        WorkerId("w"),
        "ws://w",
        ConnectionId(new_id()),
        int(clock.now()) - 10,
        Origin(address="127.0.0.1", account="ranch"),
    )
    await leases.renew([place])
    return leases, place


async def test_a_connection_and_its_time_are_counted_when_it_ends(store: Store, metering: Metering) -> None:
    leases, place = await connected(store)
    timers = Timers(store, metering)

    await timers.count_timers()  # Nothing, or what lies in a time slot that has just ended.
    await leases.give_back(place, Outcome.SERVED)
    # Redis rounds the end to a whole millisecond, which may not have come yet.
    await eventually(timers.count_timers)

    usage = await used(store, "playwright", "ranch")
    assert usage["Connect"] == 1
    assert 10 <= usage["browserSeconds"] <= 60
    assert not await store.exists(TIMER(place.connection), TIMERS())


@pytest.mark.parametrize("outcome", [Outcome.UNUSED, Outcome.FAILED])
async def test_a_connection_that_did_not_come_about_costs_nothing(
    store: Store, metering: Metering, outcome: Outcome
) -> None:
    leases, place = await connected(store)

    await leases.give_back(place, outcome)

    assert not await store.exists(TIMER(place.connection), TIMERS())


async def test_the_time_of_a_connection_whose_gateway_was_killed_ends_when_that_was_last_heard_of(
    store: Store, metering: Metering
) -> None:
    leases, place = await connected(store)
    # As if the lease had run out long after the last renewal.
    seen = clock.now_ms() - 4_000
    await store.hset(TIMER(place.connection), {"seen": seen})
    await store.zadd(
        playwright_keys.PLAYWRIGHT_LEASES(ServedBrowser.CHROMIUM), {f"{place.worker}/{place.connection}": 1}
    )

    await leases.sweep(ServedBrowser.CHROMIUM)
    await Timers(store, metering).count_timers()

    usage = await used(store, "playwright", "ranch")
    assert usage["Connect"] == 1
    assert 6 <= usage["browserSeconds"] <= 30


async def test_a_long_connection_is_counted_while_it_goes_on(
    store: Store, metering: Metering, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, place = await connected(store)
    seconds = METER_USAGE("playwright", "accounts", str(NOON), "ranch", "browserSeconds")
    monkeypatch.setattr(clock, "now_ms", lambda: NOON + SLOT + 10_000)

    # Its time slot is over, but its gateway was last heard of a moment before: it may have been killed.
    await store.hset(TIMER(place.connection), {"began": NOON + 60_000, "seen": NOON + SLOT - 2_000})
    await store.zadd(TIMERS(), {place.connection: 0})
    await Timers(store, metering).count_timers()

    assert await store.get(seconds) is None
    assert await store.send("ZSCORE", TIMERS(), place.connection) == NOON + SLOT + 15_000

    await store.hset(TIMER(place.connection), {"seen": NOON + SLOT + 8_000})
    await store.zadd(TIMERS(), {place.connection: 0})
    await Timers(store, metering).count_timers()

    assert await store.get(seconds) == "840"
    assert await store.send("ZSCORE", TIMERS(), place.connection) == NOON + 2 * SLOT + 5_000
