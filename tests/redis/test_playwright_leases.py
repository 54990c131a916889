"""The counters tell the truth: they follow the leases, whoever dies, and whatever Redis loses."""

from dataclasses import replace

import pytest

from registered_workers import (
    CHROMIUM,
    LIMITS,
    active,
    check_registry,
    give_back,
    lifetime,
    pick,
    placed,
    register,
    set_lifetime,
)
from remuda.keyspace import playwright
from remuda.playwright.book import freed_bell
from remuda.playwright.leases import BATCH, Leases
from remuda.playwright.model import WorkerLimits
from remuda.store import Store
from remuda.store.census import take_census

OVER = WorkerLimits(lease=-1)
"""Leases that are over as soon as they begin."""
COMMAND = playwright.WORKER_COMMAND(CHROMIUM, "w1")


async def test_what_is_given_back_is_free_again_and_those_who_wait_hear_of_it(any_store: Store) -> None:
    await register(any_store, "w1")
    place = await placed(any_store)

    with any_store.subscribe(freed_bell(CHROMIUM)) as rings:
        assert await give_back(any_store, place)
        assert await rings.wait(10) == [""]

    assert await check_registry(any_store) == {"w1": 0}
    assert await lifetime(any_store) == {"chromium:w1": 1}, "lifetime is never decremented"
    assert await take_census(any_store) == []


async def test_a_place_is_given_back_once_however_often_it_is_tried(store: Store) -> None:
    await register(store, "w1")
    place, _ = await placed(store), await placed(store)

    assert [await give_back(store, place) for _ in range(3)] == [True, False, False]

    assert await check_registry(store) == {"w1": 1}


async def test_connections_of_a_gateway_that_died_end_with_their_lease(store: Store) -> None:
    await register(store, "w1")
    for _ in range(5):
        await placed(store, limits=OVER)
    assert await pick(store) is None

    with store.subscribe(freed_bell(CHROMIUM)) as rings:
        assert await Leases(store, OVER).sweep(CHROMIUM) == 5
        assert await rings.wait(10)

    assert await check_registry(store) == {"w1": 0}
    await placed(store)


async def test_a_sweep_ends_nobody_who_was_renewed(store: Store) -> None:
    await register(store, "w1")
    kept, _ = await placed(store, limits=OVER), await placed(store, limits=OVER)

    await Leases(store, LIMITS).renew([kept])
    assert await Leases(store, OVER).sweep(CHROMIUM) == 1

    assert await check_registry(store) == {"w1": 1}


async def test_a_sweep_does_a_bounded_piece_of_work(store: Store) -> None:
    limits = replace(OVER, concurrent=BATCH + 1)
    await register(store, "w1")
    for _ in range(BATCH + 1):
        await placed(store, limits=limits)

    assert [await Leases(store, limits).sweep(CHROMIUM) for _ in range(3)] == [BATCH, 1, 0]


async def test_connections_that_redis_has_lost_are_counted_again(store: Store) -> None:
    (own,) = await register(store, "w1")
    places = [await placed(store) for _ in range(3)]
    await store.send("FLUSHALL")

    await own.beat()
    assert await Leases(store, LIMITS).renew(places) == 3

    assert await check_registry(store) == {"w1": 3}
    assert await lifetime(store) == {"chromium:w1": 3}
    for place in places:
        await give_back(store, place)
    assert await check_registry(store) == {"w1": 0}


async def test_connections_counted_again_before_their_worker_is_back_stay_counted(store: Store) -> None:
    (own,) = await register(store, "w1")
    places = [await placed(store) for _ in range(2)]
    await store.send("FLUSHALL")

    await Leases(store, LIMITS).renew(places)
    await own.beat()

    assert await check_registry(store) == {"w1": 2}
    await placed(store)
    assert await check_registry(store) == {"w1": 3}


async def test_sessions_that_end_after_a_loss_leave_no_negative_count(store: Store) -> None:
    # What playwright-distributed 0.3 does here: active = -2, and two more than allowed are let in.
    (own,) = await register(store, "w1")
    places = [await placed(store) for _ in range(2)]
    await store.send("FLUSHALL")
    await own.beat()

    for place in places:
        await give_back(store, place)

    assert await check_registry(store) == {"w1": 0}


async def test_a_foreign_decrement_too_many_does_not_stay(store: Store) -> None:
    await register(store, "w1")
    await store.hincrby(playwright.ACTIVE_CONNECTIONS(), "chromium:w1", -2)

    await placed(store)

    assert await check_registry(store) == {"w1": 1}


async def test_a_renewal_of_what_has_just_been_pruned_counts_its_lifetime_once(store: Store) -> None:
    await register(store, "w1")
    place = await placed(store, limits=OVER)
    await Leases(store, OVER).sweep(CHROMIUM)

    assert await Leases(store, LIMITS).renew([place]) == 1

    assert await check_registry(store) == {"w1": 1}
    assert await lifetime(store) == {"chromium:w1": 1}


async def test_many_connections_are_renewed_in_batches(store: Store) -> None:
    limits = WorkerLimits(concurrent=2 * BATCH + 1)
    await register(store, "w1")
    places = [await placed(store, limits=limits) for _ in range(2 * BATCH + 1)]
    await store.send("FLUSHALL")

    assert await Leases(store, limits).renew(places) == len(places)
    assert await Leases(store, limits).renew(places) == 0


# Restarts at the lifetime limit


@pytest.mark.parametrize("ended", ["at once", "later"])
async def test_a_worker_at_its_limit_is_told_to_shut_down_when_a_connection_ends(
    store: Store, ended: str
) -> None:
    (own,) = await register(store, "w1")
    await set_lifetime(store, w1=48)
    places = [await placed(store) for _ in range(2)]
    if ended == "later":
        await own.beat()

    with store.subscribe(own.command_channel) as rings:
        await give_back(store, places[0])
        assert await rings.wait(10) == ["shutdown"]

    assert await store.get(COMMAND) == "shutdown"
    assert 0 < await store.ttl_ms(COMMAND) <= 60_000
    assert await own.beat() is True
    assert await pick(store) is None, "it is on its way out"
    assert await check_registry(store) == {"w1": 1}


async def test_a_worker_below_its_limit_is_not_told_anything(store: Store) -> None:
    await register(store, "w1")
    await set_lifetime(store, w1=48)

    await give_back(store, await placed(store))

    assert await store.exists(COMMAND) == 0


async def test_a_command_that_was_never_seen_is_given_again(store: Store) -> None:
    await register(store, "w1")
    await set_lifetime(store, w1=49)
    await give_back(store, await placed(store))
    # As if its time had passed.
    await store.delete(COMMAND)
    await store.zadd(playwright.PLAYWRIGHT_LEAVING(CHROMIUM), {"w1": 1})

    await Leases(store, LIMITS).sweep(CHROMIUM)

    assert await store.exists(COMMAND) == 1


async def test_only_the_share_may_be_out_at_the_same_time(store: Store) -> None:
    workers = await register(store, "w1", "w2", "w3", "w4")
    await set_lifetime(store, w1=50, w2=50, w3=50, w4=50)
    leases = Leases(store, LIMITS)
    commands = [playwright.WORKER_COMMAND(CHROMIUM, f"w{number}") for number in range(1, 5)]

    await leases.sweep(CHROMIUM)
    await leases.sweep(CHROMIUM)

    assert await store.exists(*commands) == 1
    told = [each for each in workers if await each.beat()]
    await told[0].drain()
    await leases.sweep(CHROMIUM)
    assert await store.exists(*commands) == 0, "it drains"
    await told[0].leave()
    await leases.sweep(CHROMIUM)
    assert await store.exists(*commands) == 0, "it has not been replaced"
    await register(store, "w5")
    await leases.sweep(CHROMIUM)
    assert await store.exists(*commands) == 1


async def test_a_dead_worker_at_its_limit_keeps_no_other_from_its_restart(store: Store) -> None:
    await register(store, "w1", "w2")
    await set_lifetime(store, w1=50, w2=51)
    await store.delete(playwright.WORKER(CHROMIUM, "w2"))

    await Leases(store, LIMITS).sweep(CHROMIUM)

    assert await store.exists(COMMAND) == 1


async def test_a_worker_that_waits_for_its_restart_still_serves(store: Store) -> None:
    await register(store, "w1", "w2")
    await set_lifetime(store, w1=50, w2=50)
    await Leases(store, LIMITS).sweep(CHROMIUM)

    places = [await pick(store) for _ in range(6)]

    assert [place is not None for place in places] == [True] * 5 + [False]
    assert len(set((await active(store)).values())) == 2
