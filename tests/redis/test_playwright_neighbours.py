"""The original and Remuda on one Redis: each uses the other's workers, and no count stays wrong."""

from originals import OriginalProxy, register_original
from registered_workers import (
    CHROMIUM,
    LIMITS,
    active,
    entry,
    give_back,
    lifetime,
    pick,
    placed,
    register,
    worker,
)
from remuda.keyspace.playwright import ACTIVE_CONNECTIONS, LIFETIME_CONNECTIONS, WORKER
from remuda.playwright.model import WorkerSurplus
from remuda.playwright.reaper import Reaper
from remuda.playwright.registry import Registry
from remuda.store import Store
from remuda.store.census import take_census


def impatient(store: Store, name: str = "w1") -> Registry:
    """A worker's entry that believes its sockets at once."""
    return Registry(store, worker(name), key_ttl=60, lease=0)


async def test_the_originals_proxy_uses_our_worker(store: Store) -> None:
    await register(store, "w1")
    proxy = OriginalProxy(store)

    chosen = await proxy.select("chromium")

    assert chosen is not None
    assert (chosen.field, chosen.endpoint) == ("chromium:w1", "ws://host:1/w1")
    assert await active(store) == {"chromium:w1": 1}
    await proxy.disconnected(chosen)
    assert await active(store) == {"chromium:w1": 0}
    assert await lifetime(store) == {"chromium:w1": 1}


async def test_both_proxies_share_a_workers_places(store: Store) -> None:
    await register(store, "w1")
    proxy = OriginalProxy(store)
    theirs = [await proxy.select("chromium") for _ in range(3)]
    ours = [await placed(store) for _ in range(2)]

    assert await proxy.select("chromium") is None
    assert await pick(store) is None

    await give_back(store, ours[0])
    assert await proxy.select("chromium") is not None
    assert theirs[0] is not None
    await proxy.disconnected(theirs[0])
    assert await pick(store) is not None


async def test_our_proxy_uses_the_originals_worker(store: Store) -> None:
    await register_original(store, "w1")

    assert await Reaper(store, LIMITS).adopt_unregistered_workers() is True

    assert (await placed(store, version="1.64")).endpoint == "ws://host:1/w1"


async def test_the_originals_reaper_takes_nothing_of_a_living_worker(store: Store) -> None:
    (own,) = await register(store, "w1")
    proxy = OriginalProxy(store)
    assert await proxy.reap() == []

    # Cut off for a while: its key runs out, and the original's reaper comes first.
    await store.delete(WORKER(CHROMIUM, "w1"))
    assert await proxy.reap() == ["chromium:w1"]
    await own.beat()

    assert await proxy.select("chromium") is not None


async def test_counters_that_somebody_removed_are_back_with_the_next_beat(store: Store) -> None:
    (own,) = await register(store, "w1")
    await placed(store)
    await store.hdel(ACTIVE_CONNECTIONS(), "chromium:w1")
    await store.hdel(LIFETIME_CONNECTIONS(), "chromium:w1")

    await own.beat()

    assert await active(store) == await lifetime(store) == {"chromium:w1": 1}


async def test_a_count_below_zero_is_mended_with_the_next_beat(store: Store) -> None:
    (own,) = await register(store, "w1")
    await store.hset(ACTIVE_CONNECTIONS(), {"chromium:w1": -3})

    await own.beat()

    assert await active(store) == {"chromium:w1": 0}


async def test_what_a_dead_proxy_has_counted_is_taken_off(store: Store) -> None:
    own = impatient(store)
    await own.register()
    await placed(store)
    proxy = OriginalProxy(store)
    for _ in range(3):
        await proxy.select("chromium")
    assert await active(store) == {"chromium:w1": 4}

    # Ours and one of theirs are connected; their proxy was killed with the two others.
    await own.beat(sockets=2)

    assert await active(store) == {"chromium:w1": 2}


async def test_a_connection_with_a_lease_is_never_taken_off(store: Store) -> None:
    own = impatient(store)
    await own.register()
    places = [await placed(store) for _ in range(2)]

    await own.beat(sockets=0)

    assert await active(store) == {"chromium:w1": 2}
    for place in places:
        await give_back(store, place)
    assert await active(store) == {"chromium:w1": 0}


async def test_a_count_that_is_not_certain_yet_stays(store: Store) -> None:
    own = entry(store, "w1")  # It is patient for a minute.
    await own.register()
    await OriginalProxy(store).select("chromium")

    await own.beat(sockets=0)
    await own.beat(sockets=0)

    assert await active(store) == {"chromium:w1": 1}


def test_a_surplus_counts_once_it_has_been_there_all_the_time() -> None:
    surplus = WorkerSurplus(patience=20)

    assert [surplus.look(*each) for each in [(3, 0), (1, 5), (2, 15)]] == [0, 0, 0]
    assert surplus.look(3, 20) == 1, "the least that there was"
    assert surplus.look(2, 25) == 0, "and then it begins anew"
    assert surplus.look(2, 45) == 2


def test_a_connection_that_was_only_on_its_way_is_no_surplus() -> None:
    surplus = WorkerSurplus(patience=20)

    assert [surplus.look(*each) for each in [(1, 0), (1, 15), (0, 19), (1, 20), (1, 39)]] == [0] * 5


async def test_a_worker_of_the_originals_that_left_takes_its_counters_along(store: Store) -> None:
    # The original's own deletes its key and leaves both counters to the reaper.
    await register_original(store, "w1")
    await Reaper(store, LIMITS).adopt_unregistered_workers()
    await store.delete(WORKER(CHROMIUM, "w1"))

    assert await Reaper(store, LIMITS, silence=0).remove_silent() == 1

    assert await active(store) == await lifetime(store) == {}
    assert await take_census(store) == []
