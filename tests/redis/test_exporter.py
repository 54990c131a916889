"""/metrics, of a herd whose state was written by those who write it in earnest."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from unittest import mock

import aiohttp
import pytest

import servers
from configs import make_config
from exposition import Metric, parse, value
from grids import own_slots
from remuda import __version__
from remuda.base import clock
from remuda.base.ids import OrchestratorId
from remuda.cli.rooms import ROOMS
from remuda.fleet.metrics import MetricKind
from remuda.fleet.role import Life, Role
from remuda.fleet.room import Surroundings, role_kinds
from remuda.grid import metrics as grid_metrics
from remuda.grid.sessions import Sessions
from remuda.keyspace import fleet, grid, metrics, playwright
from remuda.keyspace.key import ListName
from remuda.keyspace.metering import USAGE_TOTALS
from remuda.keyspace.storage import STORAGE_METADATA_PENDING
from remuda.ops.exporter import all_metrics, expose
from remuda.store import Store
from remuda.web.api import Api
from waiting import eventually
from web_states import CHROME, FIREFOX, SessionWriter, herd_client, orchestrator, running, serving

HISTOGRAM = "webgrid_session_startup_duration_seconds"


async def scrape(store: Store) -> dict[str, Metric]:
    return parse(await expose(Surroundings(store, make_config(), ROOMS)))


@asynccontextmanager
async def visiting(store: Store) -> AsyncIterator[aiohttp.ClientSession]:
    """A client of the api role as the command line wires it."""
    api = role_kinds(ROOMS)["api"].make(Surroundings(store, make_config(), ROOMS))
    assert isinstance(api, Api)
    async with serving(api) as url, herd_client(store, url) as client:
        yield client


async def test_metrics_are_served_as_prometheus_text(store: Store) -> None:
    async with visiting(store) as client, client.get("/metrics") as response:
        text = await response.text()

        assert response.status == 200
        assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert response.headers["Cache-Control"] == "no-cache"
        assert value(parse(text), "remuda_roles_up", role="gateway") == 0


async def test_metrics_are_described_among_the_routes(store: Store) -> None:
    async with visiting(store) as client, client.get("/api/openapi.json") as response:
        document = await response.json()

        assert "get" in document["paths"]["/metrics"]


async def test_without_redis_there_are_no_metrics(server: servers.Server) -> None:
    async with Store(server.url, timeout=servers.PATIENCE) as store, visiting(store) as client:
        server.kill()
        await eventually(lambda: not store.is_connected)

        async with client.get("/metrics") as response:
            assert response.status == 503


async def test_sessions_are_counted_by_stage_and_state(store: Store) -> None:
    writer = SessionWriter(store)
    async with running(orchestrator(store, slots=4)):
        await writer.queue(browserName="chrome")
        await writer.claim(browserName="chrome")
        await writer.schedule(browserName="chrome")
        await writer.serve(browserName="chrome")
        await writer.end(await writer.serve(browserName="chrome"))

        families = await scrape(store)

    total = "webgrid_session_total"
    assert [value(families, total, stage=each) for each in ("queued", "pending", "alive", "terminated")] == [
        5,
        3,
        2,
        1,
    ]
    assert [value(families, "remuda_sessions", state=each) for each in ("queued", "pending", "alive")] == [
        2,
        1,
        1,
    ]
    assert value(families, "webgrid_sessions_active") == 4
    assert value(families, "webgrid_sessions_terminated") == 1
    assert value(families, "webgrid_session_status_codes_total", level="info", code="CLOSED") == 1
    assert value(families, "webgrid_session_status_codes_total", level="info", code="QUEUED") == 5


async def test_time_spent_in_each_stage_adds_up(store: Store) -> None:
    writer = SessionWriter(store)
    async with running(orchestrator(store)):
        session = await writer.schedule(browserName="chrome")
        earlier = clock.rfc3339(clock.now() - 90)
        await store.hset(grid.SESSION_STATUS(session), {"pendingAt": earlier})
        await writer.end(session, code="CLEFT")

        families = await scrape(store)

    spent = value(families, "webgrid_session_duration_seconds_total", stage="pending")
    assert spent == pytest.approx(90, abs=10)
    assert value(families, "webgrid_session_duration_seconds_total", stage="alive") == 0


async def test_slots_are_counted_as_a_whole_and_by_browser(store: Store) -> None:
    async with running(
        orchestrator(store, "ranch", CHROME, FIREFOX, slots=3), orchestrator(store, "farm", FIREFOX, slots=2)
    ):
        await SessionWriter(store).serve(browserName="chrome")

        families = await scrape(store)

    assert value(families, "webgrid_slots_allocated") == 5
    assert value(families, "webgrid_slots_available") == 4
    assert value(families, "webgrid_browser_slots_total", browser="chrome") == 3
    assert value(families, "webgrid_browser_slots_available", browser="chrome") == 2
    assert value(families, "webgrid_browser_slots_total", browser="firefox") == 5
    assert value(families, "webgrid_browser_slots_available", browser="firefox") == 4
    assert value(families, "remuda_orchestrators", state="alive") == 2


async def test_slots_of_a_dead_orchestrator_are_none(store: Store) -> None:
    async with running(orchestrator(store, slots=3)):
        await store.delete(grid.ORCHESTRATOR_HEARTBEAT("ranch"))

        families = await scrape(store)

    assert value(families, "webgrid_slots_available") == 0
    assert value(families, "remuda_orchestrators", state="alive") == 0
    assert value(families, "remuda_orchestrators", state="dead") == 1


async def test_a_lost_slot_that_is_found_is_counted(store: Store) -> None:
    own = await own_slots(store, OrchestratorId("ranch"), 2)
    await store.send("LPOP", grid.ORCHESTRATOR_SLOTS_AVAILABLE("ranch"))
    await own.reclaim()

    families = await scrape(store)

    assert value(families, "webgrid_slots_reclaimed_total", source="orphaned") == 1
    assert value(families, "webgrid_slots_reclaimed_total", source="dead") == 0


async def test_the_queue_holds_those_without_a_slot_and_knows_the_longest_wait(store: Store) -> None:
    writer = SessionWriter(store)
    async with running(orchestrator(store)):
        await writer.claim(browserName="chrome")
        await writer.queue(browserName="chrome")
        patient = await writer.queue(browserName="chrome")
        await store.hset(grid.SESSION_STATUS(patient), {"queuedAt": clock.rfc3339(clock.now() - 60)})

        families = await scrape(store)

    assert value(families, "remuda_queue_length") == 2
    assert value(families, "remuda_queue_longest_wait_seconds") == pytest.approx(60, abs=10)


async def test_startups_fill_a_cumulative_histogram(store: Store) -> None:
    sessions = Sessions(store)
    for seconds in (0.5, 3.25, 3.5, 5000):
        await sessions.count_startup(seconds)

    families = await scrape(store)

    bucket = f"{HISTOGRAM}_bucket"
    counted = [value(families, bucket, of=HISTOGRAM, le=le) for le in ("2", "4", "4096", "+Inf")]
    assert counted == [1, 3, 3, 4]
    assert value(families, f"{HISTOGRAM}_count", of=HISTOGRAM) == 4
    assert value(families, f"{HISTOGRAM}_sum", of=HISTOGRAM) == pytest.approx(5007.25)


async def test_requests_bytes_and_storages_are_told(store: Store) -> None:
    await store.hincrby(metrics.METRICS_HTTP_REQUESTS("POST"), "200", 12)
    await store.hincrby(metrics.METRICS_HTTP_BYTES(), "out", 1 << 40)
    await store.hset(metrics.METRICS_STORAGE_TOTAL(), {"barn": 1000})
    await store.hset(metrics.METRICS_STORAGE_USED(), {"barn": 250})
    await store.rpush(STORAGE_METADATA_PENDING("barn"), "{}", "{}")

    families = await scrape(store)

    assert value(families, "webgrid_proxy_http_requests_total", method="POST", code="200") == 12
    assert value(families, "webgrid_proxy_http_net_bytes_total", direction="out") == 1 << 40
    assert value(families, "webgrid_storage_disk_bytes_total", id="barn") == 1000
    assert value(families, "webgrid_storage_disk_bytes_used", id="barn") == 250
    assert value(families, "remuda_storage_news", id="barn") == 2


async def test_roles_that_run_are_counted_and_those_that_do_not_are_zero(store: Store) -> None:
    class Groom(Role):
        name = "groom"

    life = Life(store, [Groom(), Groom()])
    await life._announce()

    families = await scrape(store)

    assert value(families, "remuda_roles_up", role="groom") == 2
    assert value(families, "remuda_roles_up", role="gateway") == 0


@pytest.mark.parametrize("broken", ["many", "-1", "nan", "inf", ""])
async def test_a_broken_value_is_skipped_and_logged(
    store: Store, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    await store.hset(metrics.METRICS_SESSIONS_TOTAL(), {"queued": broken, "alive": 3})

    with caplog.at_level(logging.WARNING):
        families = await scrape(store)

    assert value(families, "webgrid_session_total", stage="queued") is None
    assert value(families, "webgrid_session_total", stage="alive") == 3
    assert "metric skipped" in caplog.text


async def test_names_that_cannot_be_right_are_skipped(store: Store) -> None:
    await store.hset(metrics.METRICS_HTTP_REQUESTS("GET"), {"20x": 1, "200": 2})
    await store.hset(metrics.METRICS_SESSIONS_LOG("info"), {'"} 1': 1})
    await store.hset(metrics.METRICS_STORAGE_USED(), {"../barn": 1, "barn": 2})

    families = await scrape(store)

    assert len(families["webgrid_proxy_http_requests_total"].samples) == 1
    assert len(families["webgrid_storage_disk_bytes_used"].samples) == 1
    assert value(families, "webgrid_session_status_codes_total", level="info", code='"} 1') is None


@pytest.mark.parametrize(
    ("key", "family"),
    [
        (metrics.METRICS_SESSIONS_TOTAL(), "webgrid_session_total"),
        (metrics.METRICS_SLOTS_RECLAIMED(), "webgrid_slots_reclaimed_total"),
        (grid.SESSIONS_ACTIVE(), "remuda_sessions"),
        (grid.SESSIONS_ACTIVE(), "webgrid_sessions_active"),
        (grid.ORCHESTRATORS(), "webgrid_slots_available"),
        (fleet.ROLES(), "remuda_roles_up"),
    ],
)
async def test_a_key_of_the_wrong_type_costs_its_own_family_only(store: Store, key: str, family: str) -> None:
    await store.rpush(ListName(key), "what?")
    await store.hset(metrics.METRICS_HTTP_BYTES(), {"in": 5})

    families = await scrape(store)

    assert not families[family].samples
    assert value(families, "webgrid_proxy_http_net_bytes_total", direction="in") == 5


async def test_strangers_among_the_sessions_and_orchestrators_do_no_harm(store: Store) -> None:
    writer = SessionWriter(store)
    await writer.queue(browserName="chrome")
    await store.sadd(grid.SESSIONS_ACTIVE(), "no id at all")
    odd = await writer.queue(browserName="chrome")
    await store.hset(grid.SESSION_STATUS(odd), {"queuedAt": "yesterday"})

    families = await scrape(store)

    assert value(families, "remuda_sessions", state="queued") == 2
    assert value(families, "remuda_queue_length") == 2


async def test_of_very_many_sessions_only_some_are_looked_at(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grid_metrics, "MAX_SESSIONS", 5)
    monkeypatch.setattr(grid_metrics, "BATCH", 2)
    for _ in range(7):
        await SessionWriter(store).queue(browserName="chrome")

    families = await scrape(store)

    assert value(families, "webgrid_sessions_active") == 7
    assert value(families, "remuda_sessions", state="queued") == 5


async def test_what_nobody_has_counted_is_zero(store: Store) -> None:
    families = await scrape(store)

    assert value(families, "webgrid_session_total", stage="queued") == 0
    assert value(families, "webgrid_session_status_codes_total", level="fail", code="DFAILURE") == 0
    assert value(families, "webgrid_proxy_http_net_bytes_total", direction="in") == 0
    assert value(families, f"{HISTOGRAM}_count", of=HISTOGRAM) == 0
    assert value(families, f"{HISTOGRAM}_sum", of=HISTOGRAM) == 0


async def test_the_version_is_told(store: Store) -> None:
    families = await scrape(store)

    assert value(families, "remuda_build_info", version=__version__) == 1


async def test_a_metric_has_the_labels_that_it_declares(store: Store) -> None:
    await store.hincrby(metrics.METRICS_HTTP_REQUESTS("GET"), "200", 7)
    await store.hset(metrics.METRICS_STORAGE_TOTAL(), {"barn": 1000})
    await store.hset(metrics.METRICS_STORAGE_USED(), {"barn": 250})
    await store.hset(USAGE_TOTALS("grid"), {"ranch commands": 3})
    async with running(orchestrator(store)):
        families = await scrape(store)

    for metric in all_metrics(ROOMS):
        assert families[metric.name].samples, metric.name
        for _, labels in families[metric.name].samples:
            own = {name for name, _ in labels if metric.kind is not MetricKind.HISTOGRAM or name != "le"}
            assert own == set(metric.labels), metric.name


async def test_the_first_commands_of_all_reads_leave_in_one_write(store: Store) -> None:
    wire = store._wire
    assert wire is not None
    transport = wire._transport
    assert transport is not None
    with mock.patch.object(wire, "_transport", wraps=transport) as tapped:
        await scrape(store)

    first = tapped.write.call_args_list[0].args[0]
    for key in (
        metrics.METRICS_HTTP_BYTES(),
        metrics.METRICS_STARTUP_SUM(),
        metrics.METRICS_STORAGE_USED(),
        grid.SESSIONS_TERMINATED(),
        grid.ORCHESTRATORS(),
        fleet.ROLES(),
        fleet.LINES(),
        playwright.PLAYWRIGHT_WORKERS("chromium"),
        playwright.PLAYWRIGHT_TOTALS("webkit"),
    ):
        assert key.encode() in first, key


async def test_metrics_that_come_from_the_same_keys_share_one_read(store: Store) -> None:
    await store.send("CONFIG", "RESETSTAT")

    await scrape(store)

    calls = str(await store.send("INFO", "commandstats"))
    assert "cmdstat_srandmember:calls=1," in calls
    assert "cmdstat_info:calls=1," in calls


async def test_a_scrape_changes_nothing(store: Store) -> None:
    async with running(orchestrator(store)):
        await SessionWriter(store).serve(browserName="chrome")
        before = await store.send("DBSIZE")

        await scrape(store)

        assert await store.send("DBSIZE") == before
