"""The registry of workers: written as documented, and true again after every loss."""

import pytest

from registered_workers import (
    CHROMIUM,
    active,
    check_registry,
    entry,
    give_back,
    lifetime,
    pick,
    placed,
    register,
    scores,
    set_lifetime,
)
from remuda.keyspace import playwright
from remuda.playwright.book import freed_bell
from remuda.playwright.model import ServedBrowser, Status
from remuda.store import Store
from remuda.store.census import take_census

W1 = playwright.WORKER(CHROMIUM, "w1")
COMMAND = playwright.WORKER_COMMAND(CHROMIUM, "w1")


async def test_a_registration_writes_what_is_documented(any_store: Store) -> None:
    await register(any_store, "w1")

    fields = await any_store.hgetall(W1)
    beat = int(fields.pop("lastHeartbeat"))
    assert abs(int(fields.pop("startedAt")) / 1000 - beat) <= 5
    assert fields == {
        "id": "w1",
        "browserType": "chromium",
        "wsEndpoint": "ws://host:1/w1",
        "endpoint": "ws://host:1/w1",
        "status": "available",
    }
    assert abs(beat - int((await any_store.send("TIME"))[0])) <= 5
    assert 0 < await any_store.ttl_ms(W1) <= 60_000
    assert await active(any_store) == {"chromium:w1": 0}
    assert await lifetime(any_store) == {"chromium:w1": 0}
    assert await take_census(any_store) == []


async def test_a_registration_calls_those_who_wait_for_a_place(store: Store) -> None:
    with store.subscribe(freed_bell(CHROMIUM)) as rings:
        await register(store, "w1")

        assert await rings.wait(10) == [""]


async def test_a_beat_refreshes_key_and_time(store: Store) -> None:
    (own,) = await register(store, "w1")
    await store.hset(W1, {"lastHeartbeat": 1})
    await store.expire(W1, 5)

    assert await own.beat() is False

    assert int(await store.hget(W1, "lastHeartbeat") or 0) > 1
    assert await store.ttl_ms(W1) > 5_000


async def test_a_hindered_worker_takes_no_connections_until_that_is_over(any_store: Store) -> None:
    (own,) = await register(any_store, "w1")
    before = await placed(any_store)

    await own.beat(obstacle="low disk space")

    assert await pick(any_store) is None
    assert await any_store.hget(W1, "status") == Status.DRAINING
    # It is not about to leave: no other is waited for in its place.
    for key in (playwright.PLAYWRIGHT_LEAVING, playwright.PLAYWRIGHT_VACANT):
        assert await any_store.exists(key(CHROMIUM)) == 0
    assert await take_census(any_store) == []

    with any_store.subscribe(freed_bell(CHROMIUM)) as rings:
        await own.beat()

        assert await rings.wait(10) == [""]
    assert await any_store.hget(W1, "status") == Status.AVAILABLE
    assert await any_store.exists(playwright.PLAYWRIGHT_OBSTACLES(CHROMIUM)) == 0
    assert (await placed(any_store)).worker == before.worker
    assert await check_registry(any_store) == {"w1": 2}


async def test_a_worker_that_is_hindered_from_the_start_is_not_picked(store: Store) -> None:
    own = entry(store)
    await own.register(obstacle="low disk space")

    assert await pick(store) is None
    await own.leave()
    assert await store.exists(playwright.PLAYWRIGHT_OBSTACLES(CHROMIUM)) == 0


async def test_a_beat_hears_the_command(store: Store) -> None:
    (own,) = await register(store, "w1")
    await store.set(COMMAND, "shutdown", ex=60)

    assert await own.beat() is True
    assert await own.beat() is True, "the command stays until it is obeyed"

    await own.drain()
    assert await own.beat() is False


async def test_a_draining_worker_gets_no_connection(store: Store) -> None:
    (own,) = await register(store, "w1")

    await own.drain()

    assert await store.hget(W1, "status") == Status.DRAINING
    assert await pick(store) is None


async def test_a_beat_after_the_key_was_lost_registers_again_and_counts_what_goes_on(store: Store) -> None:
    (own,) = await register(store, "w1")
    for _ in range(2):
        await placed(store)
    await store.delete(W1)

    await own.beat()

    assert await check_registry(store) == {"w1": 2}
    assert await lifetime(store) == {"chromium:w1": 2}
    assert await store.hget(W1, "status") == Status.AVAILABLE
    await placed(store)


async def test_a_beat_after_redis_lost_everything_registers_again(store: Store) -> None:
    (own,) = await register(store, "w1")
    await store.send("FLUSHALL")

    await own.beat()

    assert await check_registry(store) == {"w1": 0}
    await placed(store)


@pytest.mark.parametrize("loss", ["DEL", "FLUSHALL"])
async def test_a_loss_does_not_undo_a_drain(store: Store, loss: str) -> None:
    (own,) = await register(store, "w1")
    await own.drain()
    await store.send(*((loss, W1) if loss == "DEL" else (loss,)))

    await own.beat()

    assert await store.hget(W1, "status") == Status.DRAINING
    assert await pick(store) is None


async def test_after_a_loss_a_worker_does_not_take_the_empty_book_for_an_idle_browser(store: Store) -> None:
    (own,) = await register(store, "w1")
    await placed(store)
    assert await own.active() == 1
    await store.send("FLUSHALL")

    assert await own.active() is None
    await own.beat()

    assert await own.active() is None


async def test_a_worker_that_leaves_takes_everything_along(store: Store) -> None:
    own, _ = await register(store, "w1", "w2")
    await store.set(COMMAND, "shutdown", ex=60)
    await set_lifetime(store, w1=10)
    assert (await placed(store)).worker == "w1"
    await own.drain()

    await own.leave()

    assert await store.exists(W1, COMMAND) == 0
    assert "chromium:w1" not in await active(store)
    assert "chromium:w1" not in await lifetime(store)
    assert list(await scores(store, playwright.PLAYWRIGHT_WORKERS(CHROMIUM))) == ["w2"]
    await check_registry(store)
    assert await take_census(store) == []


async def test_what_is_given_back_after_its_worker_left_brings_no_counter_back(store: Store) -> None:
    (own,) = await register(store, "w1")
    place = await placed(store)
    await own.leave()

    assert await give_back(store, place) is False

    assert await active(store) == {}
    assert await lifetime(store) == {}


async def test_workers_of_several_browsers_keep_apart(store: Store) -> None:
    await register(store, "w1")
    await entry(store, "w1", browser=ServedBrowser.FIREFOX).register()

    await placed(store)

    assert await active(store) == {"chromium:w1": 1, "firefox:w1": 0}
