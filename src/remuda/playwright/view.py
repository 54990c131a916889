"""Workers, connections and those who wait for one, as a person wants to see them.

Times are RFC 3339, and names are camel case in JSON. A worker's endpoint is not shown: who knows it needs no
gateway to use the browser."""

from collections.abc import Sequence

from msgspec import Struct

from remuda.base import clock
from remuda.fleet.line import who_waits
from remuda.keyspace.fleet import ROLE
from remuda.keyspace.playwright import (
    ACTIVE_CONNECTIONS,
    ANY_VERSION,
    LIFETIME_CONNECTIONS,
    PLAYWRIGHT_CONNECTIONS,
    PLAYWRIGHT_SUSPECTS,
    PLAYWRIGHT_VERSIONS,
    PLAYWRIGHT_WORKERS,
    WORKER,
)
from remuda.playwright.model import Browser, Status, beat_of
from remuda.store import Store

MOST = 10_000
"""Workers that are looked at; more than one herd has."""
BATCH = 500
"""Workers in one write: others share the connection, and wait behind it."""

SILENT = "silent"
"""The status of a worker whose key is gone: dead, or cut off from Redis."""
SUSPECTED = "suspected"
"""The status of a worker that says it is available, but did not answer a gateway."""
STATUSES = (*Status, SUSPECTED, SILENT)

LINES = "playwright:"
"""How the names of the lines begin that clients wait in: then come browser and version."""


class WorkerView(Struct, rename="camel", kw_only=True):
    """A worker: how many connections it serves now and has served, since when, and when it last beat.

    Of one of another make it is not known when it started.
    """

    id: str
    browser: str
    version: str
    status: str
    active: int
    lifetime: int
    started_at: str | None
    beat_at: str | None


class ConnectionView(Struct, rename="camel"):
    """An open connection, and since when."""

    id: str
    browser: str
    worker: str
    since: str


class WaitingView(Struct, rename="camel"):
    """A client that waits for a place: where among those who want the same, and for how many seconds."""

    browser: str
    version: str
    position: int
    since: str
    waited: float


async def read_workers(store: Store, *, limit: int = MOST) -> list[WorkerView]:
    """Every worker that is registered, silent ones included until they are reaped; by browser and id."""
    workers: list[WorkerView] = []
    for browser in Browser:
        names = await store.zrange(PLAYWRIGHT_WORKERS(browser), 0, limit - 1)
        for start in range(0, len(names), BATCH):
            workers += await _some_workers(store, browser, names[start : start + BATCH])
    return sorted(workers, key=lambda each: (each.browser, each.id))


async def _some_workers(store: Store, browser: Browser, names: Sequence[str]) -> list[WorkerView]:
    fields = [f"{browser}:{name}" for name in names]
    active = store.hmget(ACTIVE_CONNECTIONS(), *fields)
    lifetime = store.hmget(LIFETIME_CONNECTIONS(), *fields)
    versions = store.hmget(PLAYWRIGHT_VERSIONS(browser), *names)
    entries = [store.hmget(WORKER(browser, name), "status", "lastHeartbeat") for name in names]
    suspicions = store.send("ZMSCORE", PLAYWRIGHT_SUSPECTS(browser), *names)
    # A worker is a role, too, of the same id.
    starts = [store.hget(ROLE(name), "startedAt") for name in names]
    views = []
    for name, now, ever, version, entry, suspected_until, start in zip(
        names,
        await active,
        await lifetime,
        await versions,
        entries,
        await suspicions,
        starts,
        strict=True,
    ):
        status, beat = await entry
        views.append(
            WorkerView(
                id=name,
                browser=browser,
                version=_shown(version),
                status=_status(status, suspected_until),
                active=int(now or 0),
                lifetime=int(ever or 0),
                started_at=await start,
                beat_at=_moment(beat_of(beat)),
            )
        )
    return views


def _status(own: str | None, suspected_until: float | None) -> str:
    """What it says of itself, unless others know better."""
    is_suspected = suspected_until is not None and suspected_until > clock.now()
    return SUSPECTED if own == Status.AVAILABLE and is_suspected else own or SILENT


async def read_connections(store: Store, *, limit: int = 1000) -> list[ConnectionView]:
    """Open connections, the oldest first; at most so many of each worker."""
    found: list[ConnectionView] = []
    for browser in Browser:
        workers = await store.zrange(PLAYWRIGHT_WORKERS(browser), 0, MOST - 1)
        for start in range(0, len(workers), BATCH):
            found += await _connections_of(store, browser, workers[start : start + BATCH], limit=limit)
    return sorted(found, key=lambda each: (each.since, each.id))


async def _connections_of(
    store: Store, browser: Browser, workers: Sequence[str], *, limit: int
) -> list[ConnectionView]:
    keys = [PLAYWRIGHT_CONNECTIONS(browser, worker) for worker in workers]
    replies = [store.send("ZRANGE", key, 0, limit - 1, "WITHSCORES") for key in keys]
    return [
        ConnectionView(connection, browser, worker, clock.rfc3339(float(since)))
        for worker, reply in zip(workers, replies, strict=True)
        for connection, since in await reply
    ]


async def read_waiting(store: Store) -> list[WaitingView]:
    """Clients that wait, line by line."""
    now = clock.now()
    waiting = []
    for each in await who_waits(store, LINES):
        browser, _, version = each.line.removeprefix(LINES).partition(":")
        waited = max(0.0, round(now - each.since, 3))
        waiting.append(
            WaitingView(browser, _shown(version), each.position, clock.rfc3339(each.since), waited)
        )
    return waiting


def _shown(version: str | None) -> str:
    return "" if version in (None, ANY_VERSION) else str(version)


def _moment(seconds: float | None) -> str | None:
    return None if seconds is None else clock.rfc3339(seconds)
