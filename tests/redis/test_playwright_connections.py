"""A gateway's connections: what it has open is counted, what it closes is not, and nothing else is."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

import servers
from registered_workers import CHROMIUM, LIMITS, active, check_registry, entry, lifetime, register
from remuda.base.errors import NoWorker, Unavailable
from remuda.keyspace import playwright
from remuda.playwright.connections import Connections
from remuda.playwright.model import Place, WorkerLimits
from remuda.store import Store
from servers import PATIENCE, Server
from waiting import eventually

BRISK = WorkerLimits(lease=0.6)


@asynccontextmanager
async def running(connections: Connections) -> AsyncIterator[None]:
    task = asyncio.create_task(connections.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def opened(connections: Connections) -> Place:
    place = await connections.open(CHROMIUM)
    assert place is not None
    return place


async def test_what_is_open_is_counted_and_what_is_closed_is_not(store: Store) -> None:
    await register(store, "w1")
    connections = Connections(store, LIMITS)

    places = [await opened(connections) for _ in range(3)]
    assert (len(connections), await check_registry(store)) == (3, {"w1": 3})

    connections.close(places[0])
    await connections.finish()
    assert (len(connections), await check_registry(store)) == (2, {"w1": 2})


async def test_a_connection_that_goes_on_outlives_its_lease(store: Store) -> None:
    await register(store, "w1")
    connections = Connections(store, BRISK)
    place = await opened(connections)
    key, member = playwright.PLAYWRIGHT_LEASES(CHROMIUM), f"{place.worker}/{place.connection}"
    first = float(await store.send("ZSCORE", key, member))

    async def is_prolonged() -> bool:
        return float(await store.send("ZSCORE", key, member) or 0) > first + 2 * BRISK.lease

    async with running(connections):
        await eventually(is_prolonged)

    assert await check_registry(store) == {"w1": 1}


async def test_connections_of_a_killed_gateway_are_ended_by_another(store: Store, redis_url: str) -> None:
    await register(store, "w1")
    async with Store(redis_url) as other:
        for _ in range(3):
            await opened(Connections(other, BRISK))
    assert await check_registry(store) == {"w1": 3}

    async with running(Connections(store, BRISK)):
        await eventually(lambda: _is_empty(store))


async def _is_empty(store: Store) -> bool:
    return await active(store) == {"chromium:w1": 0}


async def test_a_client_that_vanishes_while_a_worker_is_picked_leaves_no_count(
    store: Store, redis_url: str
) -> None:
    await register(store, "w1")
    async with Store(redis_url) as own:
        connections = Connections(own, LIMITS)
        opening = asyncio.create_task(connections.open(CHROMIUM))
        await asyncio.sleep(0)
        await asyncio.sleep(0)

        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        # The gateway may end right afterwards.
        await connections.finish()

    picks = await store.hget(playwright.PLAYWRIGHT_TOTALS(CHROMIUM), "picks")
    assert picks == "1", "the question was under way"
    assert await lifetime(store) == {"chromium:w1": 0}
    assert (len(connections), await check_registry(store)) == (0, {"w1": 0})


async def test_what_cannot_be_picked_is_raised(store: Store) -> None:
    with pytest.raises(NoWorker):
        await Connections(store, LIMITS).open(CHROMIUM)


async def test_after_redis_came_back_empty_everything_open_is_counted_again(server: Server) -> None:
    async with Store(server.url) as store:
        await register(store, "w1")
        connections = Connections(store, BRISK)
        for _ in range(3):
            await opened(connections)

        async with running(connections):
            server.kill()
            server.start()
            worker = entry(store, "w1")

            async def is_right_again() -> bool:
                with suppress(Unavailable):
                    await worker.beat()
                return await active(store) == {"chromium:w1": 3}

            await eventually(is_right_again)


async def test_a_connection_closed_while_it_is_renewed_does_not_stay_counted(store: Store) -> None:
    await register(store, "w1")
    connections = Connections(store, LIMITS)
    places = [await opened(connections) for _ in range(5)]

    keeping = asyncio.create_task(connections.keep())
    for place in places:
        connections.close(place)
        await asyncio.sleep(0)
    await keeping
    await connections.finish()

    assert await check_registry(store) == {"w1": 0}


async def test_what_was_closed_while_redis_was_away_is_given_back_when_it_returns() -> None:
    # At once: what Redis has yet to write when it is killed, it has forgotten.
    with servers.server("--appendonly", "yes", "--appendfsync", "always") as server:
        async with Store(server.url, timeout=PATIENCE) as store:
            await register(store, "w1")
            connections = Connections(store, LIMITS)
            place = await opened(connections)
            server.kill()
            connections.close(place)
            await connections.finish()

            server.start()
            await eventually(lambda: store.is_connected)
            assert await active(store) == {"chromium:w1": 1}
            await connections.keep()
            await connections.finish()

            # Long before its lease is over.
            assert await check_registry(store) == {"w1": 0}


@pytest.mark.parametrize(
    "nonsense",
    [
        ("HSET", "cluster:active_connections", "chromium:x", "many"),
        ("HSET", "cluster:lifetime_connections", "chromium:x", "many"),
        ("SET", "worker:chromium:x", "available"),
    ],
)
async def test_nonsense_in_redis_keeps_no_gateway_from_its_own_connections(
    store: Store, nonsense: tuple[str, ...]
) -> None:
    await register(store, "w1")
    connections = Connections(store, BRISK)
    async with running(connections):
        await opened(connections)
        await store.send("HSET", "cluster:active_connections", "chromium:x", "0")
        await store.send("HSET", "worker:chromium:x", "status", "available", "wsEndpoint", "ws://h:1/x")
        await store.send("PEXPIRE", "worker:chromium:x", "60000")
        await store.send("HSET", "worker:chromium:x", "lastHeartbeat", "99999999999")
        await store.send(*nonsense)
        key = playwright.PLAYWRIGHT_LEASES(CHROMIUM)
        ((_, first),) = await store.send("ZRANGE", key, 0, -1, "WITHSCORES")

        async def is_prolonged() -> bool:
            leases = await store.send("ZRANGE", key, 0, -1, "WITHSCORES")
            return bool(leases) and float(leases[0][1]) > float(first) + 2 * BRISK.lease

        await eventually(is_prolonged)
