"""Workers, connections and waiting clients, as a person wants to see them.

Times are RFC 3339, and names are camel case in JSON. A worker's endpoint is not shown: with it, the browser
could be used without a gateway."""

from collections.abc import Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from remuda.base import clock
from remuda.fleet.line import Waiting, who_waits
from remuda.keyspace.fleet import ROLE
from remuda.keyspace.playwright import (
    ACTIVE_CONNECTIONS,
    ANY_VERSION,
    LIFETIME_CONNECTIONS,
    PLAYWRIGHT_CONNECTIONS,
    PLAYWRIGHT_OBSTACLES,
    PLAYWRIGHT_ORIGINS,
    PLAYWRIGHT_SUSPECTS,
    PLAYWRIGHT_VERSIONS,
    PLAYWRIGHT_WORKERS,
    WORKER,
)
from remuda.playwright.model import ServedBrowser, Status, beat_of
from remuda.store import Store

MOST = 10_000
"""Workers that are looked at; more than one herd has."""
BATCH = 500
"""Workers in one write: others share the connection, and wait behind it."""

MAX_SHOWN = 200
"""Workers of each browser that the dashboard shows; the API lists them all."""

SILENT = "silent"
"""The status of a worker whose key is gone: dead, or cut off from Redis."""
SUSPECTED = "suspected"
"""The status of a worker that says it is available, but did not answer a gateway."""
HINDERED = "hindered"
"""The status of a worker that takes no connections for now: the disk of its machine is full, for instance."""
STATUSES = (*Status, HINDERED, SUSPECTED, SILENT)

LINES = "playwright:"
"""How the names of the lines begin that clients wait in: then come the browser and the workers' version."""


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
    """A client that waits for a place: its position in its queue, and for how many seconds it has waited."""

    browser: str
    version: str
    position: int
    since: str
    waited: float


class PlaywrightView(Struct):
    """Playwright workers, the connections that they serve, and the clients that wait for one."""

    connections: int
    workers: list[WorkerView]
    queue: list[WaitingView]


class PlaywrightOverview(Struct):
    """What the dashboard shows of Playwright."""

    playwright: PlaywrightView


async def read_workers(store: Store, *, limit: int = MOST) -> list[WorkerView]:
    """Every worker that is registered, silent ones included until they are reaped; by browser and id."""
    workers: list[WorkerView] = []
    for browser in ServedBrowser:
        names = await store.zrange(PLAYWRIGHT_WORKERS(browser), 0, limit - 1)
        for start in range(0, len(names), BATCH):
            workers += await _some_workers(store, browser, names[start : start + BATCH])
    return sorted(workers, key=lambda each: (each.browser, each.id))


async def _some_workers(store: Store, browser: ServedBrowser, names: Sequence[str]) -> list[WorkerView]:
    fields = [f"{browser}:{name}" for name in names]
    active = store.hmget(ACTIVE_CONNECTIONS(), *fields)
    lifetime = store.hmget(LIFETIME_CONNECTIONS(), *fields)
    versions = store.hmget(PLAYWRIGHT_VERSIONS(browser), *names)
    entries = [store.hmget(WORKER(browser, name), "status", "lastHeartbeat") for name in names]
    obstacles = store.hmget(PLAYWRIGHT_OBSTACLES(browser), *names)
    suspicions = store.send("ZMSCORE", PLAYWRIGHT_SUSPECTS(browser), *names)
    # A worker is a role, too, of the same id.
    starts = [store.hget(ROLE(name), "startedAt") for name in names]
    views = []
    for name, now, ever, version, entry, obstacle, suspected_until, start in zip(
        names,
        await active,
        await lifetime,
        await versions,
        entries,
        await obstacles,
        await suspicions,
        starts,
        strict=True,
    ):
        status, beat = await entry
        last_beat = beat_of(beat)
        views.append(
            WorkerView(
                id=name,
                browser=browser,
                version=_shown(version),
                status=HINDERED if status and obstacle else _status(status, suspected_until),
                active=int(now or 0),
                lifetime=int(ever or 0),
                started_at=await start,
                beat_at=None if last_beat is None else clock.rfc3339(last_beat),
            )
        )
    return views


def _status(own: str | None, suspected_until: float | None) -> str:
    """What it says of itself, unless others know better."""
    is_suspected = suspected_until is not None and suspected_until > clock.now()
    return SUSPECTED if own == Status.AVAILABLE and is_suspected else own or SILENT


async def read_connections(
    store: Store, *, limited_to: str | None, limit: int = 1000
) -> list[ConnectionView]:
    """Open connections of an account, None: of all, the oldest first; at most so many of each worker."""
    found: list[ConnectionView] = []
    for browser in ServedBrowser:
        workers = await store.zrange(PLAYWRIGHT_WORKERS(browser), 0, MOST - 1)
        for start in range(0, len(workers), BATCH):
            some = await _connections_of(store, browser, workers[start : start + BATCH], limit=limit)
            found += some if limited_to is None else await _owned(store, browser, some, account=limited_to)
    return sorted(found, key=lambda each: (each.since, each.id))


async def _connections_of(
    store: Store, browser: ServedBrowser, workers: Sequence[str], *, limit: int
) -> list[ConnectionView]:
    keys = [PLAYWRIGHT_CONNECTIONS(browser, worker) for worker in workers]
    replies = [store.send("ZRANGE", key, 0, limit - 1, "WITHSCORES") for key in keys]
    return [
        ConnectionView(connection, browser, worker, clock.rfc3339(float(since)))
        for worker, reply in zip(workers, replies, strict=True)
        for connection, since in await reply
    ]


async def _owned(
    store: Store, browser: ServedBrowser, connections: Sequence[ConnectionView], *, account: str
) -> list[ConnectionView]:
    if not connections:
        return []
    origins = await store.hmget(PLAYWRIGHT_ORIGINS(browser), *(each.id for each in connections))
    return [
        each
        for each, origin in zip(connections, origins, strict=True)
        if origin and msgspec.json.decode(origin).get("account") == account
    ]


async def read_waiting(store: Store, *, limited_to: str | None) -> list[WaitingView]:
    """Clients of an account, None: of all, that wait, line by line: each in the line in which it is served
    first."""
    now = clock.now()
    first: dict[str, Waiting] = {}
    for each in await who_waits(store, LINES):
        known = first.get(each.ticket, each)
        if limited_to in (None, each.account) and each.position <= known.position:
            first[each.ticket] = each
    waiting = []
    for each in first.values():
        browser = each.line.removeprefix(LINES).partition(":")[0]
        version = each.ticket.partition(":")[0]
        waited = max(0.0, round(now - each.since, 3))
        waiting.append(
            WaitingView(browser, _shown(version), each.position, clock.rfc3339(each.since), waited)
        )
    return waiting


async def read_overview(store: Store, limited_to: str | None) -> PlaywrightOverview:
    """What there is of Playwright now. An account sees what is its own; workers are for operators."""
    queue = await read_waiting(store, limited_to=limited_to)
    if limited_to is not None:
        own = await read_connections(store, limited_to=limited_to)
        return PlaywrightOverview(PlaywrightView(len(own), [], queue))
    workers = await read_workers(store, limit=MAX_SHOWN)
    active = await store.send("HVALS", ACTIVE_CONNECTIONS())
    return PlaywrightOverview(PlaywrightView(sum(int(count) for count in active), workers, queue))


def without_time(overview: PlaywrightOverview) -> PlaywrightOverview:
    """The overview less what changes by itself."""
    shown = overview.playwright
    return PlaywrightOverview(
        PlaywrightView(
            shown.connections,
            [replace(each, beat_at=None) for each in shown.workers],
            [replace(each, waited=0.0) for each in shown.queue],
        )
    )


def _shown(version: str | None) -> str:
    return "" if version in (None, ANY_VERSION) else str(version)
