"""The store's transactions, with the embedded server and with Debian's: all of them, or nothing."""

import asyncio
from contextlib import suppress

import pytest

from remuda.keyspace.fleet import BELL, LEASE
from remuda.keyspace.grid import ORCHESTRATOR_BACKLOG
from remuda.store import Store
from remuda.store.wire import CommandRefused

STRING, OTHER = LEASE("test"), LEASE("other")
LIST = ORCHESTRATOR_BACKLOG("test")


async def test_the_replies_of_a_transaction_are_there_after_its_block(any_store: Store) -> None:
    async with any_store.transaction() as transaction:
        length = transaction.rpush(LIST, "a", "b")
        items = transaction.lrange(LIST)

    assert await length == 2
    assert await items == ["a", "b"]


async def test_an_empty_transaction_does_nothing(store: Store) -> None:
    async with store.transaction():
        pass


async def test_a_block_that_fails_sends_nothing(store: Store) -> None:
    with suppress(ZeroDivisionError):
        async with store.transaction() as transaction:
            transaction.set(STRING, "x")
            _ = 1 / 0

    assert await store.get(STRING) is None


async def test_nobody_ever_sees_half_a_transaction(any_store: Store, any_url: str) -> None:
    async def transfer(store: Store, rounds: int) -> None:
        for _ in range(rounds):
            async with store.transaction() as transaction:
                transaction.incr(STRING)
                transaction.incr(OTHER, -1)

    async def watch(store: Store, writers: asyncio.Task[object]) -> int:
        looks = 0
        while not writers.done():
            first, second = await store.send("MGET", STRING, OTHER)
            assert int(first or 0) + int(second or 0) == 0
            looks += 1
        return looks

    async with Store(any_url) as other:
        # Two connections, and several tasks on each: neither may get between the others' commands.
        writers = asyncio.gather(*(transfer(each, 100) for each in (any_store, other) for _ in range(5)))
        writing = asyncio.ensure_future(writers)
        looks = await asyncio.gather(watch(any_store, writing), watch(other, writing))  # type: ignore[arg-type]
        await writing

    assert min(looks) > 0
    assert await any_store.get(STRING) == "1000"


async def test_a_command_that_redis_refuses_to_queue_discards_the_whole_transaction(any_store: Store) -> None:
    async def spoil() -> None:
        async with any_store.transaction() as transaction:
            transaction.set(STRING, "x")
            transaction.send("NONSENSE")

    with pytest.raises(CommandRefused, match="unknown command"):
        await spoil()
    assert await any_store.get(STRING) is None


async def test_a_transaction_may_depend_on_a_key_that_is_there(any_store: Store) -> None:
    await any_store.set(OTHER, "here")

    async with any_store.transaction_provided(OTHER) as transaction:
        length = transaction.rpush(LIST, "a", b"\x00\xff", 3)
        value = transaction.get(STRING)
        items = transaction.lrange(LIST, 0, 0)

    assert transaction.is_done
    assert (await length, await value, await items) == (3, None, ["a"])


async def test_a_transaction_whose_key_is_gone_does_nothing(any_store: Store) -> None:
    async with any_store.transaction_provided(OTHER) as transaction:
        length = transaction.rpush(LIST, "a")

    assert not transaction.is_done
    assert await length is None
    assert await any_store.send("DBSIZE") == 0


async def test_a_transaction_that_depends_on_a_key_heeds_the_prefix(any_url: str, any_store: Store) -> None:
    async with Store(any_url, prefix="herd:") as store:
        await store.set(OTHER, "here")
        async with store.transaction_provided(OTHER) as transaction:
            transaction.set(STRING, "x")

        assert await store.get(STRING) == "x"
    assert await any_store.get(STRING) is None


async def test_a_refusal_does_not_colour_the_next_transaction(store: Store) -> None:
    with pytest.raises(CommandRefused):
        async with store.transaction() as transaction:
            transaction.send("NONSENSE")

    with pytest.raises(CommandRefused, match="wrong number of arguments"):
        async with store.transaction() as transaction:
            transaction.send("GET")


async def test_a_command_that_fails_inside_a_transaction_surfaces(any_store: Store) -> None:
    await any_store.set(STRING, "x")

    with pytest.raises(CommandRefused, match="WRONGTYPE"):
        async with any_store.transaction() as transaction:
            transaction.send("LPUSH", STRING, "y")


async def test_a_transaction_may_ring_a_bell_that_its_own_connection_hears(any_store: Store) -> None:
    with any_store.subscribe(BELL("test")) as rings:
        for number in range(20):
            async with any_store.transaction() as transaction:
                before = transaction.incr(STRING)
                heard = transaction.publish(BELL("test"), number)
                after = transaction.incr(STRING)

            assert (await before, await heard, await after) == (2 * number + 1, 1, 2 * number + 2)
            assert await rings.wait(5) == [str(number)]
