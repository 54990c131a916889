"""The backlog: every session is handed over exactly once, in order, and none is lost with its taker."""

import asyncio
from collections import Counter

from remuda.base.ids import OrchestratorId
from remuda.fleet.bell import bell_of
from remuda.grid.orchestrator.placing import Backlog
from remuda.keyspace.grid import ORCHESTRATOR_BACKLOG
from remuda.store import Store
from waiting import eventually

WAITING = ORCHESTRATOR_BACKLOG("o1")
FOREVER = 3600.0


def backlog_of(store: Store) -> Backlog:
    return Backlog(store, OrchestratorId("o1"))


async def put(store: Store, entry: str) -> None:
    """What claiming a slot does, as far as the backlog is concerned."""
    async with store.transaction() as transaction:
        transaction.lpush(WAITING, entry)
        transaction.publish(bell_of(WAITING))


async def test_entries_come_out_in_the_order_they_went_in(any_store: Store) -> None:
    backlog = backlog_of(any_store)
    for number in range(10):
        await put(any_store, f"entry {number}")

    assert [await backlog.take(0) for _ in range(10)] == [f"entry {number}" for number in range(10)]
    assert await backlog.take(0) is None


async def test_what_is_taken_stays_in_work_until_it_is_done(any_store: Store) -> None:
    backlog = backlog_of(any_store)
    for entry in ("a", "b", "c"):
        await put(any_store, entry)

    for _ in range(3):
        await backlog.take(0)

    assert await backlog.taken() == ["a", "b", "c"]
    assert await backlog.done("b")
    assert await backlog.taken() == ["a", "c"]
    assert not await backlog.done("b")


async def test_everything_is_taken_exactly_once_by_many_takers_from_many_producers(
    any_store: Store, any_url: str
) -> None:
    made = {f"{producer}-{number}" for producer in range(10) for number in range(50)}
    got: Counter[str] = Counter()

    async def produce(store: Store, producer: int) -> None:
        for number in range(50):
            await put(store, f"{producer}-{number}")

    async def consume(store: Store) -> None:
        backlog = backlog_of(store)
        while True:
            entry = await backlog.take(look_every=FOREVER)
            assert entry is not None
            got[entry] += 1
            await backlog.done(entry)

    async with Store(any_url) as other:
        stores = (any_store, other)
        takers = [asyncio.create_task(consume(stores[n % 2])) for n in range(20)]
        await asyncio.gather(*(produce(stores[n % 2], n) for n in range(10)))
        await eventually(lambda: got.total() >= len(made))
        for taker in takers:
            taker.cancel()
        await asyncio.gather(*takers, return_exceptions=True)

    assert got == Counter(made)
    assert await any_store.llen(WAITING) == 0


async def test_one_taker_gets_each_producers_entries_in_order(store: Store) -> None:
    backlog = backlog_of(store)

    async def produce(producer: int) -> None:
        for number in range(50):
            await put(store, f"{producer} {number:02}")

    async def consume() -> list[str]:
        return [str(await backlog.take(30, look_every=FOREVER)) for _ in range(200)]

    consuming = asyncio.create_task(consume())
    await asyncio.gather(*(produce(number) for number in range(4)))
    taken = await consuming

    for producer in range(4):
        own = [entry for entry in taken if entry.startswith(f"{producer} ")]
        assert own == sorted(own)


async def test_a_waiting_taker_is_woken_at_once(any_store: Store, any_url: str) -> None:
    async with Store(any_url) as producer:
        taking = asyncio.create_task(backlog_of(any_store).take(look_every=FOREVER))
        await eventually(lambda: _is_heard(any_store))

        await put(producer, "x")

        async with asyncio.timeout(5):
            assert await taking == "x"


async def _is_heard(store: Store) -> bool:
    return bool(await store.send("PUBSUB", "CHANNELS", "*"))


async def test_a_taker_finds_what_a_foreign_writer_pushed_without_ringing(store: Store) -> None:
    taking = asyncio.create_task(backlog_of(store).take(look_every=0.01))
    await eventually(lambda: _is_heard(store))

    await store.lpush(WAITING, "x")

    assert await taking == "x"


async def test_a_taker_that_waits_in_vain_gets_nothing(store: Store) -> None:
    assert await backlog_of(store).take(0.02, look_every=FOREVER) is None


async def test_takers_that_die_in_the_middle_lose_nothing(store: Store, redis_url: str) -> None:
    entries = {f"entry {number}" for number in range(200)}
    for entry in entries:
        await put(store, entry)
    finished: set[str] = set()

    async def consume() -> None:
        """Takes entries until its connection is torn down somewhere between two commands."""
        async with Store(redis_url) as own:
            backlog = backlog_of(own)
            for _ in range(20):
                if (entry := await backlog.take(0)) is None:
                    return
                finished.add(entry)
                await backlog.done(entry)

    async with asyncio.timeout(20):
        while await store.llen(WAITING):
            dying = asyncio.create_task(consume())
            await asyncio.wait([dying], timeout=0.005)
            dying.cancel()
            await asyncio.wait([dying])
            # The next life of the orchestrator takes up what the last one had in work.
            for entry in await backlog_of(store).taken():
                assert await backlog_of(store).done(entry)
                finished.add(entry)

    assert finished == entries


async def test_a_taker_that_gives_up_leaves_the_channel(store: Store) -> None:
    taking = asyncio.create_task(backlog_of(store).take(look_every=FOREVER))
    await eventually(lambda: _is_heard(store))

    taking.cancel()
    await asyncio.wait([taking])

    assert not await _is_heard(store)
