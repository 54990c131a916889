"""Workers and their connections in the registry, for tests: made, read, and checked against each other."""

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from remuda.base.ids import ConnectionId, WorkerId, new_id
from remuda.keyspace import playwright
from remuda.keyspace.key import HashName, ZSetName
from remuda.playwright.leases import Leases
from remuda.playwright.model import Outcome, Place, ServedBrowser, Worker, WorkerLimits
from remuda.playwright.reaper import Reaper
from remuda.playwright.registry import Registry
from remuda.playwright.selector import Selector
from remuda.store import Store
from waiting import eventually

T = TypeVar("T")

CHROMIUM = ServedBrowser.CHROMIUM
LIMITS = WorkerLimits(concurrent=5, lifetime=50, lease=60)


def worker(name: str = "w1", *, browser: ServedBrowser = CHROMIUM, version: str = "1.62") -> Worker:
    return Worker(browser, WorkerId(name), f"ws://host:1/{name}", version)


def entry(
    store: Store,
    name: str = "w1",
    *,
    browser: ServedBrowser = CHROMIUM,
    version: str = "1.62",
    lease: float = 60,
) -> Registry:
    """A worker's own view of the registry."""
    return Registry(store, worker(name, browser=browser, version=version), key_ttl=60, lease=lease)


async def register(
    store: Store, *names: str, browser: ServedBrowser = CHROMIUM, version: str = "1.62"
) -> list[Registry]:
    """Makes workers known."""
    entries = [entry(store, name, browser=browser, version=version) for name in names]
    for each in entries:
        await each.register()
    return entries


async def pick(
    store: Store,
    *,
    browser: ServedBrowser = CHROMIUM,
    version: str = "",
    waited: float = 0.0,
    excluded: Collection[str] = (),
    limits: WorkerLimits = LIMITS,
) -> Place | None:
    """A place for a new connection."""
    return await Selector(store, limits).pick(
        browser,
        ConnectionId(new_id()),
        version=version,
        waited=waited,
        excluded=[WorkerId(each) for each in excluded],
    )


async def placed(store: Store, *, version: str = "", limits: WorkerLimits = LIMITS) -> Place:
    """A place for a new connection, where there must be one."""
    place = await pick(store, version=version, limits=limits)
    assert place is not None
    return place


async def give_back(
    store: Store, place: Place, outcome: Outcome = Outcome.UNKNOWN, *, limits: WorkerLimits = LIMITS
) -> bool:
    return await Leases(store, limits).give_back(place, outcome)


async def counts(store: Store, key: HashName) -> dict[str, int]:
    """A documented counter, by worker."""
    return {field: int(count) for field, count in (await store.hgetall(key)).items()}


async def active(store: Store) -> dict[str, int]:
    return await counts(store, playwright.ACTIVE_CONNECTIONS())


async def lifetime(store: Store) -> dict[str, int]:
    return await counts(store, playwright.LIFETIME_CONNECTIONS())


async def set_lifetime(store: Store, **lifetimes: int) -> None:
    """Gives workers a past, as a proxy of another make would, and has it noticed."""
    for name, count in lifetimes.items():
        await store.hset(playwright.LIFETIME_CONNECTIONS(), {f"{CHROMIUM}:{name}": count})
    await reaper(store).look_at(f"{CHROMIUM}:{name}" for name in lifetimes)


def reaper(store: Store, limits: WorkerLimits = LIMITS) -> Reaper:
    return Reaper(store, replace(limits, reaper_interval=0))


async def scores(store: Store, key: ZSetName) -> dict[str, float]:
    """The members of a sorted set with their scores."""
    flat = await store.send("ZRANGE", key, 0, -1, "WITHSCORES")
    return {member: float(score) for member, score in flat}


async def check_registry(store: Store, browser: ServedBrowser = CHROMIUM) -> dict[str, int]:
    """The active connections by worker, after all who tell of them were found to agree."""
    names = list(_of(browser, await active(store)))
    # At one moment: clients come and go meanwhile.
    async with store.transaction() as transaction:
        counter = transaction.hgetall(playwright.ACTIVE_CONNECTIONS())
        leases = transaction.zrange(playwright.PLAYWRIGHT_LEASES(browser))
        origins = transaction.hgetall(playwright.PLAYWRIGHT_ORIGINS(browser))
        lists = {name: transaction.zrange(playwright.PLAYWRIGHT_CONNECTIONS(browser, name)) for name in names}
    shown = {name: int(count) for name, count in _of(browser, await counter).items()}
    listed = {name: await connections for name, connections in lists.items()}
    assert shown == {name: len(connections) for name, connections in listed.items()}
    assert {*await leases} == {f"{name}/{each}" for name in listed for each in listed[name]}
    assert {*await origins} == {each for connections in listed.values() for each in connections}
    return shown


def _of(browser: ServedBrowser, counter: Mapping[str, T]) -> dict[str, T]:
    """What a documented counter says of this browser, by worker."""
    prefix = f"{browser}:"
    return {field.removeprefix(prefix): count for field, count in counter.items() if field.startswith(prefix)}


async def settles_at(store: Store, **connections: int) -> None:
    """Waits until the workers have so many connections; fails with what they have if they never do."""

    async def has_settled() -> bool:
        with suppress(AssertionError):
            return await check_registry(store) == connections
        return False

    with suppress(AssertionError):
        await eventually(has_settled)
        return
    assert await check_registry(store) == connections
