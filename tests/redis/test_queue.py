"""The reliable queue: every item is handed over exactly once, in order, and none is lost with its taker."""

import asyncio
from collections import Counter

from remuda.fleet.queue import ReliableQueue
from remuda.keyspace.grid import ORCHESTRATOR_BACKLOG, ORCHESTRATOR_PENDING
from remuda.store import Store
from waiting import eventually

WAITING = ORCHESTRATOR_BACKLOG("o1")
FOREVER = 3600.0


def queue_of(store: Store, owner: str = "o1") -> ReliableQueue:
    return ReliableQueue(store, waiting=WAITING, working=ORCHESTRATOR_PENDING(owner))


async def test_items_come_out_in_the_order_they_went_in(any_store: Store) -> None:
    queue = queue_of(any_store)
    for number in range(10):
        await queue.put(f"item {number}")

    assert [await queue.take(0) for _ in range(10)] == [f"item {number}" for number in range(10)]
    assert await queue.take(0) is None


async def test_what_is_taken_stays_on_its_takers_list_until_it_is_done(any_store: Store) -> None:
    queue = queue_of(any_store)
    for item in ("a", "b", "c"):
        await queue.put(item)

    for _ in range(3):
        await queue.take(0)

    assert await queue.taken() == ["a", "b", "c"]
    assert await queue.done("b")
    assert await queue.taken() == ["a", "c"]
    assert not await queue.done("b")


async def test_everything_is_taken_exactly_once_by_many_takers_from_many_producers(
    any_store: Store, any_url: str
) -> None:
    made = {f"{producer}-{number}" for producer in range(10) for number in range(50)}
    got: Counter[str] = Counter()

    async def produce(store: Store, producer: int) -> None:
        for number in range(50):
            await queue_of(store).put(f"{producer}-{number}")

    async def consume(store: Store, owner: str) -> None:
        queue = queue_of(store, owner)
        while True:
            item = await queue.take(look_every=FOREVER)
            assert item is not None
            got[item] += 1
            await queue.done(item)

    async with Store(any_url) as other:
        stores = (any_store, other)
        takers = [asyncio.create_task(consume(stores[n % 2], f"taker{n}")) for n in range(20)]
        await asyncio.gather(*(produce(stores[n % 2], n) for n in range(10)))
        await eventually(lambda: got.total() >= len(made))
        for taker in takers:
            taker.cancel()
        await asyncio.gather(*takers, return_exceptions=True)

    assert got == Counter(made)
    assert await any_store.llen(WAITING) == 0


async def test_one_taker_gets_each_producers_items_in_order(store: Store) -> None:
    queue = queue_of(store)

    async def produce(producer: int) -> None:
        for number in range(50):
            await queue.put(f"{producer} {number:02}")

    async def consume() -> list[str]:
        return [str(await queue.take(30, look_every=FOREVER)) for _ in range(200)]

    consuming = asyncio.create_task(consume())
    await asyncio.gather(*(produce(number) for number in range(4)))
    taken = await consuming

    for producer in range(4):
        own = [item for item in taken if item.startswith(f"{producer} ")]
        assert own == sorted(own)


async def test_a_waiting_taker_is_woken_at_once(any_store: Store, any_url: str) -> None:
    async with Store(any_url) as producer:
        taking = asyncio.create_task(queue_of(any_store).take(look_every=FOREVER))
        await eventually(lambda: _is_heard(any_store))

        await queue_of(producer).put("x")

        async with asyncio.timeout(5):
            assert await taking == "x"


async def _is_heard(store: Store) -> bool:
    return bool(await store.send("PUBSUB", "CHANNELS", "*"))


async def test_a_taker_finds_what_a_foreign_writer_pushed_without_ringing(store: Store) -> None:
    taking = asyncio.create_task(queue_of(store).take(look_every=0.01))
    await eventually(lambda: _is_heard(store))

    await store.lpush(WAITING, "x")

    assert await taking == "x"


async def test_a_taker_that_waits_in_vain_gets_nothing(store: Store) -> None:
    assert await queue_of(store).take(0.02, look_every=FOREVER) is None


async def test_a_dead_takers_items_are_put_back_in_front_and_in_order(any_store: Store) -> None:
    dying, queue = queue_of(any_store, "dead"), queue_of(any_store)
    for item in ("a", "b", "c", "d"):
        await queue.put(item)
    for _ in range(3):
        await dying.take(0)
    await dying.done("b")

    assert await queue.reclaim(ORCHESTRATOR_PENDING("dead")) == 2

    assert [await queue.take(0) for _ in range(4)] == ["a", "c", "d", None]
    assert await dying.taken() == []


async def test_reclaiming_wakes_those_who_wait(store: Store) -> None:
    await store.lpush(ORCHESTRATOR_PENDING("dead"), "x")
    taking = asyncio.create_task(queue_of(store).take(look_every=FOREVER))
    await eventually(lambda: _is_heard(store))

    await queue_of(store).reclaim(ORCHESTRATOR_PENDING("dead"))

    async with asyncio.timeout(5):
        assert await taking == "x"


async def test_two_who_reclaim_at_the_same_time_put_nothing_back_twice(store: Store, redis_url: str) -> None:
    items = [f"item {number}" for number in range(100)]
    await store.lpush(ORCHESTRATOR_PENDING("dead"), *items)

    async with Store(redis_url) as other:
        queues = [queue_of(each) for each in (store, other) for _ in range(3)]
        counts = await asyncio.gather(*(queue.reclaim(ORCHESTRATOR_PENDING("dead")) for queue in queues))

    assert sum(counts) == 100
    assert sorted(await store.lrange(WAITING)) == sorted(items)


async def test_takers_that_die_in_the_middle_lose_nothing(store: Store, redis_url: str) -> None:
    items = {f"item {number}" for number in range(200)}
    for item in items:
        await queue_of(store).put(item)
    finished: set[str] = set()

    async def consume(life: int) -> None:
        """Takes items until its connection is torn down somewhere between two commands."""
        async with Store(redis_url) as own:
            queue = queue_of(own, f"life{life}")
            for _ in range(20):
                if (item := await queue.take(0)) is None:
                    return
                if life % 3:
                    finished.add(item)
                    await queue.done(item)

    async def live_and_die(life: int) -> None:
        dying = asyncio.create_task(consume(life))
        if life % 2:
            await asyncio.wait([dying], timeout=0.005)
            dying.cancel()
        await asyncio.wait([dying])
        finished.difference_update(await queue_of(store, f"life{life}").taken())
        await queue_of(store).reclaim(ORCHESTRATOR_PENDING(f"life{life}"))

    async with asyncio.timeout(20):
        life = 0
        while len(finished) < len(items):
            life += 1
            await live_and_die(life)

    assert finished == items
    assert await store.llen(WAITING) == 0


async def test_a_taker_that_gives_up_leaves_the_channel(store: Store) -> None:
    taking = asyncio.create_task(queue_of(store).take(look_every=FOREVER))
    await eventually(lambda: _is_heard(store))

    taking.cancel()
    await asyncio.wait([taking])

    assert not await _is_heard(store)
