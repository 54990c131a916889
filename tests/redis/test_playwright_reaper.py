"""The reaper: clears the dead away as documented, never the living, and takes up strangers."""

import asyncio
from dataclasses import replace

from registered_workers import (
    CHROMIUM,
    LIMITS,
    active,
    check_registry,
    give_back,
    lifetime,
    pick,
    placed,
    reaper,
    register,
    scores,
)
from remuda.keyspace import playwright
from remuda.playwright.leases import Leases
from remuda.playwright.model import WorkerLimits
from remuda.playwright.reaper import Reaper, playwright_sweeps
from remuda.store import Store
from remuda.store.census import take_census
from waiting import eventually

W1 = playwright.WORKER(CHROMIUM, "w1")
WORKERS = playwright.PLAYWRIGHT_WORKERS(CHROMIUM)
LONG_AGO = 1_000_000_000


async def seconds(store: Store) -> int:
    return int((await store.send("TIME"))[0])


async def stranger(store: Store, name: str, *, beat: int | None = None, ttl: int | None = 60) -> None:
    """A worker of the original's: it counts in milliseconds, and knows nothing of our book."""
    field = f"chromium:{name}"
    await store.hsetnx(playwright.ACTIVE_CONNECTIONS(), field, 0)
    await store.hsetnx(playwright.LIFETIME_CONNECTIONS(), field, 0)
    beat = await seconds(store) if beat is None else beat
    key = playwright.WORKER(CHROMIUM, name)
    fields = {"id": name, "browserType": "chromium", "endpoint": f"ws://host:1/{name}", "status": "available"}
    await store.hset(key, {**fields, "lastHeartbeat": beat * 1000})
    if ttl is not None:
        await store.expire(key, ttl)


async def test_a_stale_worker_is_reaped_from_all_keys(any_store: Store) -> None:
    await register(any_store, "w1", "w2")
    await any_store.hset(W1, {"lastHeartbeat": LONG_AGO})

    assert await reaper(any_store).sweep() == {"workers_reaped": 1}

    assert await any_store.exists(W1) == 0
    assert await active(any_store) == {"chromium:w2": 0}
    assert await lifetime(any_store) == {"chromium:w2": 0}
    assert list(await scores(any_store, WORKERS)) == ["w2"]
    assert await take_census(any_store) == []


async def test_a_stale_key_that_no_counter_names_is_found(store: Store) -> None:
    await store.hset(W1, {"status": "available", "lastHeartbeat": LONG_AGO})

    assert await reaper(store).sweep() == {"workers_reaped": 1}

    assert await store.exists(W1) == 0


async def test_a_living_worker_is_left_alone(store: Store) -> None:
    await register(store, "w1")
    place = await placed(store)

    assert await reaper(store).sweep() == {}

    assert await check_registry(store) == {"w1": 1}
    await give_back(store, place)


async def test_counters_whose_worker_is_gone_are_removed_after_a_while(store: Store) -> None:
    await register(store, "w1")
    await store.delete(W1)
    assert await reaper(store).sweep() == {}, "it may only have been cut off from Redis"

    await store.zadd(WORKERS, {"w1": await seconds(store) - 2 * LIMITS.key_ttl - 1})
    assert await reaper(store).sweep() == {"workers_reaped": 1}

    assert await active(store) == {}
    assert await lifetime(store) == {}


async def test_a_worker_whose_key_stays_away_is_cleared_away_in_seconds(store: Store) -> None:
    await register(store, "w1", "w2")
    await store.delete(W1)

    assert await Reaper(store, LIMITS, silence=0).remove_silent() == 1

    assert await active(store) == await lifetime(store) == {"chromium:w2": 0}
    assert list(await scores(store, WORKERS)) == ["w2"]


async def test_a_worker_that_was_only_cut_off_is_not_cleared_away(store: Store) -> None:
    (own,) = await register(store, "w1")
    patient = Reaper(store, LIMITS, silence=0.3)
    await store.delete(W1)
    assert await patient.remove_silent() == 0

    await own.beat()
    assert await patient.remove_silent() == 0
    await store.delete(W1)
    assert await patient.remove_silent() == 0, "its silence begins anew"

    async def is_buried() -> bool:
        return await patient.remove_silent() == 1

    await eventually(is_buried)


async def test_after_an_absence_of_redis_everybody_has_time_to_come_back(store: Store) -> None:
    await register(store, "w1")
    reaper = Reaper(store, replace(LIMITS, lease=0.05), silence=0.1)
    await store.delete(W1)
    assert await reaper.remove_silent() == 0

    # No look for longer than a silence: it may have been Redis that was away.
    await asyncio.sleep(0.3)

    assert await reaper.remove_silent() == 0


async def test_counters_that_nobody_ever_knew_are_removed_too(store: Store) -> None:
    await store.hset(playwright.ACTIVE_CONNECTIONS(), {"chromium:ghost": 3})
    await store.hset(playwright.LIFETIME_CONNECTIONS(), {"chromium:ghost": 9, "chromium:other": 1})
    await reaper(store).sweep()
    assert sorted(await scores(store, WORKERS)) == ["ghost", "other"]

    await store.zadd(WORKERS, {"ghost": LONG_AGO, "other": LONG_AGO})
    await reaper(store).sweep()

    assert await active(store) == {}
    assert await lifetime(store) == {}
    assert await take_census(store) == []


async def test_connections_that_outlive_their_worker_stay_counted_until_they_end(store: Store) -> None:
    await register(store, "w1")
    place = await placed(store)
    await store.hset(W1, {"lastHeartbeat": LONG_AGO})

    assert await reaper(store).sweep() == {"workers_reaped": 1}

    assert await check_registry(store) == {"w1": 1}
    await give_back(store, place)
    assert await active(store) == {}
    assert await lifetime(store) == {}


async def test_sessions_that_end_after_the_reaper_leave_no_negative_count(store: Store) -> None:
    # What playwright-distributed 0.3 does here: active = -2, since the worker begins at 0 again.
    (own,) = await register(store, "w1")
    places = [await placed(store) for _ in range(2)]
    await store.hset(W1, {"lastHeartbeat": LONG_AGO})
    await reaper(store).sweep()

    await own.beat()
    assert await check_registry(store) == {"w1": 2}
    for place in places:
        await give_back(store, place)

    assert await check_registry(store) == {"w1": 0}


async def test_what_is_no_worker_is_passed_by(store: Store) -> None:
    await store.hset(playwright.ACTIVE_CONNECTIONS(), {":": -3, "opera:x": 1, "chromium:a b": 1})
    await store.set(playwright.WORKER_COMMAND(CHROMIUM, "w1"), "shutdown", ex=60)

    assert await reaper(store).sweep() == {}

    assert await store.exists(playwright.WORKER_COMMAND(CHROMIUM, "w1")) == 1


async def test_the_reaper_rests_between_two_runs(store: Store) -> None:
    rests = Reaper(store, replace(LIMITS, reaper_interval=1000))
    await rests.sweep()
    await store.hset(W1, {"lastHeartbeat": LONG_AGO})

    assert await rests.sweep() == {}
    assert await reaper(store).sweep() == {"workers_reaped": 1}


async def test_more_workers_than_one_batch_holds_are_all_looked_at(store: Store) -> None:
    await register(store, *(f"w{number}" for number in range(120)))
    for number in range(70):
        await store.hset(playwright.WORKER(CHROMIUM, f"w{number}"), {"lastHeartbeat": LONG_AGO})

    assert await reaper(store).sweep() == {"workers_reaped": 70}

    assert len(await active(store)) == 50


# Workers of another make


async def test_a_worker_of_the_originals_is_taken_up_and_serves_every_version(store: Store) -> None:
    await stranger(store, "foreign")

    assert await Reaper(store, LIMITS).adopt_unregistered_workers() is True

    place = await placed(store, version="1.48")
    assert place.endpoint == "ws://host:1/foreign"
    assert await check_registry(store) == {"foreign": 1}
    assert await Reaper(store, LIMITS).adopt_unregistered_workers() is False


async def test_a_stranger_that_died_is_reaped(store: Store) -> None:
    await stranger(store, "dead", beat=LONG_AGO, ttl=None)

    assert await reaper(store).sweep() == {"workers_reaped": 1}

    assert await active(store) == {}


async def test_a_stranger_whose_key_never_expires_gets_nobody(store: Store) -> None:
    await register(store, "w1")
    await stranger(store, "immortal", ttl=None)
    await reaper(store).sweep()

    assert [(await placed(store)).worker for _ in range(5)] == ["w1"] * 5
    assert await pick(store) is None


async def test_a_stranger_at_its_limit_is_told_the_original_way(store: Store) -> None:
    await stranger(store, "foreign")
    await store.hset(playwright.LIFETIME_CONNECTIONS(), {"chromium:foreign": 49})
    await reaper(store).sweep()

    await give_back(store, await placed(store))

    assert await store.get(playwright.WORKER_COMMAND(CHROMIUM, "foreign")) == "shutdown"


async def test_the_gc_ends_connections_when_no_gateway_is_left(store: Store) -> None:
    await register(store, "w1")
    await placed(store, limits=WorkerLimits(lease=-1))

    done = await playwright_sweeps(store, LIMITS)["connections"]()

    assert done == {"connections_ended": 1}
    assert await check_registry(store) == {"w1": 0}
    assert await Leases(store, LIMITS).sweep(CHROMIUM) == 0
