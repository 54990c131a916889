"""Which worker is picked: as documented, never a dead, full, draining or excluded one, and in one step."""

import asyncio
from collections import Counter

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
from remuda.base.errors import NoWorker, VersionNotOffered
from remuda.base.ids import ConnectionId, WorkerId, new_id
from remuda.keyspace import playwright
from remuda.playwright.model import Outcome, Place, ServedBrowser, WorkerLimits
from remuda.playwright.selector import Selector
from remuda.store import Store
from remuda.store.census import take_census

W1, W2 = playwright.WORKER(CHROMIUM, "w1"), playwright.WORKER(CHROMIUM, "w2")


async def test_a_pick_gives_the_endpoint_and_counts_both(any_store: Store) -> None:
    await register(any_store, "w1")

    place = await placed(any_store)

    assert (place.worker, place.endpoint) == ("w1", "ws://host:1/w1")
    assert await active(any_store) == {"chromium:w1": 1}
    assert await lifetime(any_store) == {"chromium:w1": 1}
    assert await check_registry(any_store) == {"w1": 1}
    assert await take_census(any_store) == []


async def test_the_highest_lifetime_under_the_margin_is_picked(store: Store) -> None:
    # Four workers and 50 sessions: the margin is 12, so that 37 is the last lifetime under it.
    await register(store, "w1", "w2", "w3", "w4")
    await set_lifetime(store, w1=10, w2=37, w3=38, w4=20)

    assert (await placed(store)).worker == "w2"
    assert (await placed(store)).worker == "w4", "w2 is in the margin now"


async def test_beyond_the_margin_the_highest_lifetime_under_the_limit_is_picked(store: Store) -> None:
    await register(store, "w1", "w2", "w3", "w4")
    await set_lifetime(store, w1=40, w2=49, w3=45, w4=50)

    assert [(await placed(store)).worker for _ in range(2)] == ["w2", "w3"]


async def test_with_one_lifetime_the_less_busy_one_is_picked(store: Store) -> None:
    await register(store, "w1", "w2")
    await set_lifetime(store, w1=10, w2=9)
    await placed(store)
    await set_lifetime(store, w1=10, w2=10)

    assert (await placed(store)).worker == "w2"


async def test_a_worker_at_its_limit_is_the_last_resort(store: Store) -> None:
    await register(store, "w1", "w2")
    await set_lifetime(store, w1=50, w2=49)

    first, second = await placed(store), await placed(store)

    assert (first.worker, second.worker) == ("w2", "w1")
    assert (await lifetime(store)) == {"chromium:w1": 51, "chromium:w2": 50}


async def test_no_worker_gets_more_than_it_may_serve_at_once(store: Store) -> None:
    await register(store, "w1", "w2", "w3")

    places = [await pick(store) for _ in range(20)]

    assert Counter(place.worker for place in places if place) == {"w1": 5, "w2": 5, "w3": 5}
    assert await active(store) == {"chromium:w1": 5, "chromium:w2": 5, "chromium:w3": 5}


async def test_no_place_is_given_twice_however_many_ask_at_once(store: Store, redis_url: str) -> None:
    await register(store, *(f"w{number}" for number in range(7)))
    async with Store(redis_url) as one, Store(redis_url) as two:
        picks = [pick(gateway) for _ in range(30) for gateway in (store, one, two)]

        places = [place for place in await asyncio.gather(*picks) if place]

        assert len(places) == 35
        assert set((await check_registry(store)).values()) == {5}
        assert all(await asyncio.gather(*(give_back(two, place) for place in places)))
        assert set((await check_registry(store)).values()) == {0}


@pytest.mark.parametrize(
    "command",
    [
        ("DEL", W1),
        ("PERSIST", W1),
        ("HSET", W1, "status", "draining"),
        ("HSET", W1, "status", "shutting-down"),
        ("HDEL", W1, "wsEndpoint", "endpoint"),
    ],
    ids=lambda command: " ".join(command),
)
async def test_who_is_dead_or_does_not_take_connections_is_passed_by(
    store: Store, command: tuple[str, ...]
) -> None:
    await register(store, "w1", "w2")
    await set_lifetime(store, w1=20)
    await store.send(*command)

    assert (await placed(store)).worker == "w2"
    assert (await active(store))["chromium:w1"] == 0


async def test_a_clock_that_goes_wrong_hides_no_worker(store: Store) -> None:
    await register(store, "w1")
    await store.hset(W1, {"lastHeartbeat": 0})

    await placed(store)


async def test_who_failed_to_answer_is_excluded(store: Store) -> None:
    await register(store, "w1", "w2", "w3")
    await set_lifetime(store, w1=30, w2=20)

    assert (await placed(store)).worker == "w1"
    second = await pick(store, excluded=["w1"])
    third = await pick(store, excluded=["w1", "w2"])

    assert [place.worker for place in (second, third) if place] == ["w2", "w3"]
    assert await pick(store, excluded=["w1", "w2", "w3"]) is None


async def test_a_black_hole_attracts_nobody_until_it_beats_again(store: Store) -> None:
    hole, _ = await register(store, "w1", "w2")
    await set_lifetime(store, w1=20)
    place = await placed(store)
    assert place.worker == "w1"

    await give_back(store, place, Outcome.FAILED)

    assert [(await placed(store)).worker for _ in range(3)] == ["w2"] * 3
    await hole.beat()
    assert (await placed(store)).worker == "w1"


async def test_a_client_gets_a_worker_of_its_own_version_or_of_an_unknown_one(store: Store) -> None:
    await register(store, "new", version="1.65")
    await register(store, "old", version="1.62")
    await register(store, "mute", version="")
    await set_lifetime(store, new=30, old=20, mute=10)

    assert (await placed(store, version="1.62")).worker == "old"
    assert (await placed(store, version="1.65")).worker == "new"
    assert (await placed(store, version="1.48")).worker == "mute"
    assert (await placed(store)).worker == "new"


async def test_a_client_whose_version_nobody_speaks_hears_at_once_what_is_on_offer(store: Store) -> None:
    await register(store, "w1", version="1.62")
    await register(store, "w2", version="1.9")

    with pytest.raises(VersionNotOffered, match=r"speaks Playwright 1\.65; on offer: 1\.9, 1\.62\."):
        await pick(store, version="1.65")

    assert await active(store) == {"chromium:w1": 0, "chromium:w2": 0}


async def test_a_version_whose_only_worker_restarts_is_waited_for(store: Store) -> None:
    (own,) = await register(store, "w1", version="1.62")
    await register(store, "w2", version="1.65")
    await own.drain()
    assert await pick(store, version="1.62") is None

    await own.leave()

    assert await pick(store, version="1.62") is None


async def test_a_worker_that_comes_back_with_another_version_serves_that_one_only(store: Store) -> None:
    await register(store, "w1", version="1.62")
    await register(store, "w1", version="1.65")

    assert await pick(store, version="1.62") is None
    assert (await placed(store, version="1.65")).worker == "w1"


async def test_a_full_worker_of_the_right_version_is_waited_for(store: Store) -> None:
    await register(store, "w1", version="1.62")
    limits = WorkerLimits(concurrent=1)
    await placed(store, version="1.62", limits=limits)

    assert await pick(store, version="1.62", limits=limits) is None


async def test_a_browser_without_any_worker_is_named(store: Store) -> None:
    await register(store, "w1")

    with pytest.raises(NoWorker, match="no worker with webkit"):
        await pick(store, browser=ServedBrowser.WEBKIT)


async def test_a_foreign_proxys_connections_count(store: Store) -> None:
    await register(store, "w1")
    await store.hincrby(playwright.ACTIVE_CONNECTIONS(), "chromium:w1", 3)

    mine = [await placed(store) for _ in range(2)]

    assert await pick(store) is None
    assert await active(store) == {"chromium:w1": 5}
    for place in mine:
        await give_back(store, place)
    assert await active(store) == {"chromium:w1": 3}


async def test_a_fleet_with_a_prefix_picks_its_own(store: Store, redis_url: str) -> None:
    async with Store(redis_url, prefix="east:") as east:
        await register(store, "w1")
        await register(east, "w2")

        assert (await placed(east)).worker == "w2"
        assert await active(east) == {"chromium:w2": 1}
        assert await active(store) == {"chromium:w1": 0}
        assert await take_census(east) == []


async def cost_of_a_pick(store: Store) -> int:
    """How many commands Redis does for one more connection."""
    await placed(store)  # From now on the script is known.
    await store.send("CONFIG", "RESETSTAT")
    await placed(store)
    stats: str = await store.send("INFO", "commandstats")
    return sum(int(line.split("calls=")[1].split(",")[0]) for line in stats.splitlines() if "calls=" in line)


async def test_a_pick_costs_the_same_however_many_workers_there_are(store: Store) -> None:
    await register(store, "w1", "w2")
    few = await cost_of_a_pick(store)

    await register(store, *(f"more-{number}" for number in range(300)))

    assert await cost_of_a_pick(store) == few


async def test_a_full_fleet_leaves_nobody_to_look_at(store: Store) -> None:
    await register(store, "w1", "w2")
    for _ in range(2 * LIMITS.concurrent):
        await placed(store)

    assert await store.zcard(playwright.PLAYWRIGHT_FREE(CHROMIUM, "1.62")) == 0


async def test_a_worker_that_speaks_the_clients_version_comes_before_one_that_does_not_tell(
    store: Store,
) -> None:
    await register(store, "exact", version="1.64")
    await register(store, "silent", version="")
    await set_lifetime(store, silent=40)

    picked = [(await placed(store, version="1.64")).worker for _ in range(6)]

    assert picked == ["exact"] * 5 + ["silent"]


async def test_a_worker_at_its_limit_does_not_come_before_one_that_does_not_tell(store: Store) -> None:
    await register(store, "exact", version="1.64")
    await register(store, "silent", version="")
    await set_lifetime(store, exact=50)

    assert (await placed(store, version="1.64")).worker == "silent"


async def test_workers_that_refused_a_version_are_not_offered_it_again(store: Store) -> None:
    await register(store, "silent", "other", version="")
    await set_lifetime(store, silent=40)
    selector = Selector(store, LIMITS)

    async def pick_without(*unsuited: str) -> Place | None:
        names = [WorkerId(each) for each in unsuited]
        return await selector.pick(CHROMIUM, ConnectionId(new_id()), version="1.64", unsuited=names)

    place = await pick_without("silent")
    assert place is not None
    assert place.worker == "other"
    with pytest.raises(VersionNotOffered, match=r"speaks Playwright 1\.64; on offer: none that tells"):
        await pick_without("silent", "other")


async def test_a_full_worker_that_may_speak_the_version_is_waited_for(store: Store) -> None:
    await register(store, "silent", version="")
    await register(store, "exact", version="1.64")
    for _ in range(5):
        await placed(store, version="1.64")

    place = await Selector(store, LIMITS).pick(
        CHROMIUM, ConnectionId(new_id()), version="1.64", unsuited=[WorkerId("silent")]
    )

    assert place is None


async def test_a_client_gets_only_a_place_for_which_it_is_next(store: Store) -> None:
    await register(store, "old", version="1.62")
    await register(store, "new", version="1.64")
    selector = Selector(store, WorkerLimits(concurrent=1, lifetime=1000, lease=60))

    async def pick_new() -> str | None:
        place = await selector.pick(CHROMIUM, ConnectionId(new_id()), among=["1.64"])
        return None if place is None else place.worker

    assert [await pick_new(), await pick_new()] == ["new", None]
