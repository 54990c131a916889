"""What a person sees of Playwright: in the API, in the overview, and in the metrics."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from exposition import parse, value
from proxies import Proxy, listening
from registered_workers import CHROMIUM, LIMITS, give_back, pick, placed, register
from remuda.base import clock
from remuda.base.config import Config
from remuda.cli.rooms import ROOMS
from remuda.fleet.line import Lines
from remuda.fleet.room import Surroundings
from remuda.keyspace import playwright
from remuda.keyspace.fleet import ROLE
from remuda.ops.exporter import expose
from remuda.playwright import view
from remuda.playwright.leases import Leases
from remuda.playwright.model import Outcome, ServedBrowser, WorkerLimits
from remuda.playwright.view import read_connections, read_overview, read_waiting, read_workers
from remuda.playwright.waiting import ticket_of
from remuda.store import Store
from web_states import get, visiting

WAITS = "remuda_playwright_wait_seconds"


@asynccontextmanager
async def two_wait(store: Store) -> AsyncIterator[None]:
    lines = Lines(store)
    async with (
        lines.wait("playwright:chromium:1.62", ticket_of("1.62")),
        lines.wait("playwright:chromium:1.62", ticket_of("1.62")),
    ):
        yield


async def test_a_worker_is_shown_with_its_connections(store: Store) -> None:
    await register(store, "w1")
    await register(store, "mute", version="", browser=ServedBrowser.FIREFOX)
    place, _ = await placed(store), await placed(store)
    await give_back(store, place)

    first, second = await read_workers(store)

    assert (first.id, first.browser, first.version, first.status) == ("w1", "chromium", "1.62", "available")
    assert (first.active, first.lifetime) == (1, 2)
    assert first.beat_at is not None
    assert abs(clock.parse_rfc3339(first.beat_at) - clock.now()) < 60
    assert (second.id, second.browser, second.version) == ("mute", "firefox", "")


async def test_a_worker_is_shown_with_its_start_if_that_is_known(store: Store) -> None:
    await register(store, "w1", "stranger")
    await store.hset(ROLE("w1"), {"startedAt": "2026-01-02T03:04:05.000Z"})

    stranger, known = await read_workers(store)

    assert known.started_at == "2026-01-02T03:04:05.000Z"
    assert stranger.started_at is None


async def test_a_worker_that_drains_and_one_that_fell_silent_are_told_apart(store: Store) -> None:
    one, _ = await register(store, "w1", "w2")
    await one.drain()
    await store.delete(playwright.WORKER(CHROMIUM, "w2"))

    assert [each.status for each in await read_workers(store)] == ["draining", "silent"]


async def test_a_hindered_worker_is_shown_as_such(store: Store) -> None:
    (own,) = await register(store, "w1")
    await own.beat(obstacle="low disk space")

    assert [each.status for each in await read_workers(store)] == ["hindered"]


async def test_a_worker_that_did_not_answer_is_shown_so_until_it_is_trusted_again(store: Store) -> None:
    (own,) = await register(store, "w1")
    await give_back(store, await placed(store), Outcome.FAILED)
    assert [each.status for each in await read_workers(store)] == ["suspected"]

    await own.beat()

    assert [each.status for each in await read_workers(store)] == ["available"]


async def test_a_beat_in_milliseconds_is_understood(store: Store) -> None:
    await register(store, "w1")
    await store.hset(playwright.WORKER(CHROMIUM, "w1"), {"lastHeartbeat": 1_700_000_000_123})

    assert (await read_workers(store))[0].beat_at == "2023-11-14T22:13:20.123Z"


async def test_open_connections_are_listed(store: Store) -> None:
    await register(store, "w1")
    places = {(await placed(store)).connection for _ in range(3)}

    found = await read_connections(store, limited_to=None)

    assert {each.id for each in found} == places
    assert {(each.browser, each.worker) for each in found} == {("chromium", "w1")}


async def test_those_who_wait_are_listed_in_their_order(store: Store) -> None:
    async with two_wait(store):
        found = await read_waiting(store, limited_to=None)

    assert [(each.browser, each.version, each.position) for each in found] == [
        ("chromium", "1.62", 1),
        ("chromium", "1.62", 2),
    ]
    assert found[0].waited >= found[1].waited >= 0


async def test_an_account_sees_those_of_its_own_who_wait(store: Store) -> None:
    lines = Lines(store)
    async with (
        lines.wait("playwright:chromium:1.62", ticket_of("1.62"), account="own"),
        lines.wait("playwright:firefox:1.62", ticket_of("1.62"), account="other"),
    ):
        found = await read_waiting(store, limited_to="own")

    assert [each.browser for each in found] == ["chromium"]


async def test_no_endpoint_leaves_the_herd_by_the_api(store: Store) -> None:
    await register(store, "w1")
    await placed(store)

    async with visiting(store) as client:
        for path in ("/api/overview", "/api/playwright/workers", "/api/playwright/connections"):
            async with client.get(path) as response:
                assert "ws://" not in await response.text()


async def test_the_api_tells_of_workers_connections_and_queue(store: Store) -> None:
    await register(store, "w1")
    place = await placed(store)

    async with visiting(store) as client, two_wait(store):
        _, workers = await get(client, "/api/playwright/workers")
        _, connections = await get(client, "/api/playwright/connections")
        _, queue = await get(client, "/api/playwright/queue")

    assert [each["id"] for each in workers["workers"]] == ["w1"]
    assert [each["id"] for each in connections["connections"]] == [place.connection]
    assert [each["position"] for each in queue["queue"]] == [1, 2]


async def test_connections_of_many_workers_are_asked_for_some_at_a_time(
    store: Store, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "BATCH", 2)
    await register(store, *(f"w{number}" for number in range(5)))
    places = [await placed(store, limits=WorkerLimits(concurrent=1)) for _ in range(5)]

    proxy = Proxy(redis_url)
    async with listening(proxy.talk) as url, Store(url) as watched:
        seen = await read_connections(watched, limited_to=None)

    assert {each.id for each in seen} == {place.connection for place in places}
    assert max(sent.count(b"WITHSCORES") for sent in proxy.received) == 2


async def test_the_overview_counts_connections(store: Store) -> None:
    await register(store, "w1", "w2")
    for _ in range(7):
        await placed(store)

    seen = (await read_overview(store, None)).playwright

    assert seen.connections == 7
    assert [each.active for each in seen.workers] == [2, 5]


async def test_the_metrics_tell_what_is_and_what_happened(store: Store) -> None:
    one, *_ = await register(store, "w1", "w2", "w3")
    await one.drain()
    await give_back(store, await placed(store), Outcome.FAILED)
    await placed(store, limits=WorkerLimits(lease=-1))
    await Leases(store, LIMITS).sweep(CHROMIUM)
    await placed(store)

    async with two_wait(store):
        seen = parse(await expose(Surroundings(store, Config(), ROOMS)))

    assert value(seen, "remuda_playwright_workers", browser="chromium", status="available") == 1
    assert value(seen, "remuda_playwright_workers", browser="chromium", status="suspected") == 1
    assert value(seen, "remuda_playwright_workers", browser="chromium", status="draining") == 1
    assert value(seen, "remuda_playwright_workers", browser="webkit", status="silent") == 0
    assert value(seen, "remuda_playwright_connections", browser="chromium") == 1
    assert value(seen, "remuda_playwright_picks_total", browser="chromium") == 3
    assert value(seen, "remuda_playwright_failed_total", browser="chromium") == 1
    assert value(seen, "remuda_playwright_healed_total", browser="chromium") == 1
    assert value(seen, "remuda_playwright_reaped_total", browser="firefox") == 0
    assert value(seen, "remuda_playwright_queue_length", browser="chromium") == 2
    assert (value(seen, "remuda_playwright_queue_longest_wait_seconds", browser="chromium") or 0) >= 0


async def test_waits_fill_a_cumulative_histogram(store: Store) -> None:
    await register(store, "w1")
    for waited in (0.001, 0.5, 0.75, 1000):
        await pick(store, waited=waited)

    seen = parse(await expose(Surroundings(store, Config(), ROOMS)))

    counted = [
        value(seen, f"{WAITS}_bucket", of=WAITS, browser="chromium", le=le)
        for le in ("0.01", "0.25", "1", "300", "+Inf")
    ]
    assert counted == [1, 1, 3, 3, 4]
    assert value(seen, f"{WAITS}_count", of=WAITS, browser="chromium") == 4
    assert value(seen, f"{WAITS}_sum", of=WAITS, browser="chromium") == pytest.approx(1001.251)
    assert value(seen, f"{WAITS}_count", of=WAITS, browser="webkit") == 0


async def test_who_gets_no_place_adds_no_wait(store: Store) -> None:
    await register(store, "w1")
    await pick(store, waited=3, limits=WorkerLimits(concurrent=1))
    assert await pick(store, waited=30, limits=WorkerLimits(concurrent=1)) is None

    seen = parse(await expose(Surroundings(store, Config(), ROOMS)))

    assert value(seen, f"{WAITS}_sum", of=WAITS, browser="chromium") == 3


async def test_a_histogram_that_lacks_a_bucket_is_not_told(store: Store) -> None:
    await register(store, "w1")
    await pick(store, waited=3)
    await store.hset(playwright.PLAYWRIGHT_WAITS(CHROMIUM), {"1": "nonsense"})

    seen = parse(await expose(Surroundings(store, Config(), ROOMS)))

    assert value(seen, f"{WAITS}_count", of=WAITS, browser="chromium") is None
    assert value(seen, f"{WAITS}_count", of=WAITS, browser="firefox") == 0
