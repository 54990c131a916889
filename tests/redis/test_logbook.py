"""The logbook: events in order, only the latest kept, and a follower that hears each as it comes."""

import asyncio
from collections.abc import AsyncIterator

from remuda.fleet.logbook import Logbook
from remuda.keyspace.grid import SESSION_LOG
from remuda.store import Store
from remuda.store.commands import StreamEntry
from servers import Server
from waiting import eventually

KEY = SESSION_LOG("6f9619ff-8b86-d011-b42d-00cf4fc964ff")
FOREVER = 3600.0


async def collect(events: AsyncIterator[StreamEntry], into: list[str]) -> None:
    async for _, event in events:
        into.append(event["code"])


async def test_events_are_read_in_the_order_they_were_written(any_store: Store) -> None:
    book = Logbook(any_store, KEY)
    numbers = [await book.append({"code": str(number)}) for number in range(10)]

    read = await book.read()

    assert [number for number, _ in read] == numbers
    assert [event for _, event in read] == [{"code": str(number)} for number in range(10)]


async def test_one_can_read_on_from_any_event(any_store: Store) -> None:
    book = Logbook(any_store, KEY)
    numbers = [await book.append({"code": str(number)}) for number in range(5)]

    assert [event["code"] for _, event in await book.read(after=numbers[2])] == ["3", "4"]
    assert [event["code"] for _, event in await book.read(limit=2)] == ["0", "1"]
    assert await book.read(after=numbers[-1]) == []


async def test_only_about_the_latest_are_kept(any_store: Store) -> None:
    book = Logbook(any_store, KEY, keep=100)
    for number in range(1000):
        await book.append({"code": str(number)})

    kept = [event["code"] for _, event in await book.read()]

    assert 100 <= len(kept) < 300
    assert kept[-1] == "999"


async def test_events_of_many_writers_all_arrive(any_store: Store, any_url: str) -> None:
    async with Store(any_url) as other:
        books = [Logbook((any_store, other)[n % 2], KEY) for n in range(10)]

        async def write(writer: int) -> None:
            for number in range(20):
                await books[writer].append({"code": f"{writer} {number:02}"})

        await asyncio.gather(*(write(n) for n in range(10)))

    codes = [event["code"] for _, event in await Logbook(any_store, KEY).read()]
    assert len(set(codes)) == 200
    for writer in range(10):
        own = [code for code in codes if code.startswith(f"{writer} ")]
        assert own == sorted(own)


async def test_a_follower_gets_what_was_and_then_what_comes(any_store: Store, any_url: str) -> None:
    await Logbook(any_store, KEY).append({"code": "before"})
    heard: list[str] = []
    following = asyncio.create_task(collect(Logbook(any_store, KEY).follow(look_every=FOREVER), heard))
    await eventually(lambda: heard == ["before"])

    async with Store(any_url) as other:
        for number in range(50):
            await Logbook(other, KEY).append({"code": str(number)})

    await eventually(lambda: heard == ["before", *(str(number) for number in range(50))])
    following.cancel()


async def test_a_follower_can_start_behind_an_event(store: Store) -> None:
    book = Logbook(store, KEY)
    seen = await book.append({"code": "seen"})
    await book.append({"code": "new"})
    heard: list[str] = []

    following = asyncio.create_task(collect(book.follow(after=seen, look_every=FOREVER), heard))

    await eventually(lambda: heard == ["new"])
    following.cancel()


async def test_a_follower_that_comes_late_gets_more_than_one_reading_holds(store: Store) -> None:
    book = Logbook(store, KEY, keep=5000)
    replies = [store.xadd(KEY, {"code": str(number)}, about=5000) for number in range(2500)]
    await asyncio.gather(*replies)
    heard: list[str] = []

    following = asyncio.create_task(collect(book.follow(look_every=FOREVER), heard))

    await eventually(lambda: len(heard) == 2500)
    assert heard == [str(number) for number in range(2500)]
    following.cancel()


async def test_a_follower_misses_nothing_while_its_connection_is_cut(
    server: Server,
) -> None:
    async with Store(server.url, name="follower") as store, Store(server.url) as other:
        heard: list[str] = []
        following = asyncio.create_task(collect(Logbook(store, KEY).follow(look_every=FOREVER), heard))
        await Logbook(other, KEY).append({"code": "before"})
        await eventually(lambda: heard == ["before"])

        async with other.transaction() as transaction:
            transaction.send("CLIENT", "KILL", "TYPE", "pubsub")
            transaction.xadd(KEY, {"code": "meanwhile"}, about=10)

        await eventually(lambda: heard == ["before", "meanwhile"])
        following.cancel()


async def test_a_follower_outlives_a_reading_that_breaks_off(server: Server) -> None:
    async with Store(server.url) as store:
        heard: list[str] = []
        following = asyncio.create_task(collect(Logbook(store, KEY).follow(look_every=FOREVER), heard))
        server.pause()
        await asyncio.sleep(0)  # The first reading is under way, and will never be answered.
        server.kill()
        await eventually(lambda: not store.is_connected)
        server.start()

        await Logbook(store, KEY).append({"code": "after"})

        await eventually(lambda: heard == ["after"])
        following.cancel()
