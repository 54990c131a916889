"""The bell: whoever waits looks as soon as it rings, and now and then without a ring."""

import asyncio

import pytest

from remuda.base.errors import InvalidArgument
from remuda.fleet.bell import bell_of, wait_for
from remuda.fleet.tasks import repeat
from remuda.keyspace.fleet import LEASE
from remuda.store import Store
from servers import Server
from waiting import eventually

STRING = LEASE("test")
BELL = bell_of(STRING)
FOREVER = 3600.0


class Look:
    """Reads a key, and counts how often."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.times = 0

    async def __call__(self) -> str | None:
        self.times += 1
        return await self._store.get(STRING)


async def test_what_is_there_already_is_found_at_once(store: Store) -> None:
    await store.set(STRING, "x")
    look = Look(store)

    assert await wait_for(store, BELL, look, timeout=None, look_every=FOREVER) == "x"
    assert look.times == 1


async def test_a_ring_makes_the_waiting_one_look(any_store: Store) -> None:
    look = Look(any_store)
    waiting = asyncio.create_task(wait_for(any_store, BELL, look, timeout=None, look_every=FOREVER))
    await eventually(lambda: look.times == 1)

    async with any_store.transaction() as transaction:
        transaction.set(STRING, "x")
        transaction.publish(BELL)

    assert await waiting == "x"
    assert look.times == 2


async def test_a_ring_without_news_only_costs_a_look(store: Store) -> None:
    look = Look(store)
    waiting = asyncio.create_task(wait_for(store, BELL, look, timeout=None, look_every=FOREVER))
    for times in (1, 2, 3):
        await eventually(lambda times=times: look.times == times)  # type: ignore[misc]
        await store.publish(BELL)

    await eventually(lambda: look.times == 4)
    assert not waiting.done()
    waiting.cancel()


async def test_nothing_is_missed_that_comes_between_looking_and_waiting(store: Store, redis_url: str) -> None:
    async with Store(redis_url) as other:
        for round_ in range(100):
            await store.delete(STRING)
            waiting = asyncio.create_task(
                wait_for(store, BELL, Look(store), timeout=None, look_every=FOREVER), name=f"round {round_}"
            )
            async with other.transaction() as transaction:
                transaction.set(STRING, "x")
                transaction.publish(BELL)
            async with asyncio.timeout(5):
                assert await waiting == "x"


async def test_without_a_ring_one_looks_all_the_same(store: Store) -> None:
    look = Look(store)
    waiting = asyncio.create_task(wait_for(store, BELL, look, timeout=None, look_every=0.01))
    await eventually(lambda: look.times > 2)

    await store.set(STRING, "x")

    assert await waiting == "x"


async def test_the_wait_ends_in_time(store: Store) -> None:
    started = asyncio.get_running_loop().time()

    assert await wait_for(store, BELL, Look(store), timeout=0.05, look_every=FOREVER) is None

    assert 0.04 < asyncio.get_running_loop().time() - started < 5


async def test_the_time_that_looking_takes_counts(store: Store) -> None:
    look = Look(store)

    async def look_slowly() -> str | None:
        await asyncio.sleep(0.05)
        return await look()

    assert await wait_for(store, BELL, look_slowly, timeout=0.1, look_every=0.01) is None
    assert look.times <= 3


async def test_no_time_to_wait_still_means_one_look(store: Store) -> None:
    look = Look(store)

    assert await wait_for(store, BELL, look, timeout=0) is None
    assert look.times == 1


async def test_when_redis_comes_back_the_waiting_one_looks(server: Server) -> None:
    async with Store(server.url) as store:
        look = Look(store)
        waiting = asyncio.create_task(wait_for(store, BELL, look, timeout=None, look_every=FOREVER))
        await eventually(lambda: look.times == 1)

        server.kill()
        await eventually(lambda: not store.is_connected)
        server.start()
        await eventually(lambda: look.times == 2)

        await store.set(STRING, "x")
        await store.publish(BELL)
        assert await waiting == "x"


def test_a_topic_that_no_channel_may_hold_is_refused() -> None:
    with pytest.raises(InvalidArgument):
        bell_of("a b")


async def test_what_is_repeated_is_done_at_once_when_it_rings(store: Store) -> None:
    look = Look(store)

    with store.subscribe(BELL) as rings:
        repeating = asyncio.create_task(repeat(look, every=FOREVER, failure="not looked", rings=rings))
        await eventually(lambda: look.times == 1)
        await store.publish(BELL)

        await eventually(lambda: look.times == 2)
        repeating.cancel()
