"""The waiting line: first come, first served across processes, and what a crowd costs."""

import asyncio

import pytest

from lines import FOREVER, FREED, LINE, SHELF, free, order, order_is, process
from remuda.base.errors import InvalidArgument, LineFull
from remuda.fleet.bell import bell_of
from remuda.fleet.line import Lines, new_line_bell, who_waits
from remuda.keyspace.fleet import LINE_LEASES
from remuda.store import Store
from remuda.store.census import take_census
from waiting import eventually


async def test_who_comes_first_is_served_first_across_processes(any_store: Store, any_url: str) -> None:
    async with process(any_url) as one, process(any_url) as two:
        await one.queue("a")
        await two.queue("b", "c")
        await one.queue("d")
        assert await order(any_store) == ["a", "b", "c", "d"]

        for number, ticket in enumerate("abcd"):
            await free(any_store, str(number))
            holder = one if ticket in "ad" else two
            async with asyncio.timeout(5):
                assert await holder.task(ticket) == str(number)

        assert await order(any_store) == []
        await any_store.delete(SHELF)
        assert await take_census(any_store) == []


async def test_several_that_are_freed_at_once_reach_as_many(store: Store, redis_url: str) -> None:
    async with process(redis_url) as one, process(redis_url) as two:
        await one.queue("a")
        await two.queue("b")
        await one.queue("c")

        await free(store, "1", "2", "3")

        async with asyncio.timeout(5):
            got = [await one.task("a"), await two.task("b"), await one.task("c")]
        assert got == ["1", "2", "3"]


async def test_a_ring_makes_only_the_head_look(store: Store, redis_url: str) -> None:
    async with process(redis_url) as one, process(redis_url) as two:
        await one.queue(*(f"a{number}" for number in range(50)))
        await two.queue(*(f"b{number}" for number in range(50)))
        await eventually(lambda: one.looks == 1)

        for ring in (2, 3, 4):
            await store.publish(FREED)
            await eventually(lambda ring=ring: one.looks == ring)  # type: ignore[misc]

        assert two.looks == 0


async def test_what_a_crowd_costs_grows_with_the_crowd_and_not_with_its_square(
    store: Store, redis_url: str
) -> None:
    crowd = 500
    async with process(redis_url) as one, process(redis_url) as two:
        await store.send("CONFIG", "RESETSTAT")
        for number in range(crowd):
            await (one, two)[number % 2].queue(f"t{number}")
        await free(store, *(str(number) for number in range(crowd)))
        async with asyncio.timeout(30):
            await asyncio.gather(*one.waiting, *two.waiting)
        stats = await store.send("INFO", "commandstats")

    # To join, to hear that one is the first, to leave.
    assert calls(stats, "evalsha") <= crowd * 3
    assert calls(stats, "lpop") <= crowd * 1.1


def calls(stats: str, command: str) -> int:
    (line,) = [line for line in stats.splitlines() if line.startswith(f"cmdstat_{command}:")]
    return int(line.split("calls=")[1].split(",")[0])


async def test_renewing_a_crowd_is_few_commands(store: Store, redis_url: str) -> None:
    async with process(redis_url, lease=3, look_every=FOREVER) as one:
        await one.queue(*(f"t{number}" for number in range(500)))
        before = calls(await store.send("INFO", "commandstats"), "evalsha")
        ends = await store.send("ZSCORE", LINE_LEASES(LINE), "default|t499")

        async def is_renewed() -> bool:
            return bool(await store.send("ZSCORE", LINE_LEASES(LINE), "default|t499") > ends)

        await eventually(is_renewed)

        # Three batches, and the head of the line looks; one round more on a slow machine.
        assert calls(await store.send("INFO", "commandstats"), "evalsha") - before <= 2 * (3 + 1)


async def test_a_new_line_is_told_of_once(store: Store, redis_url: str) -> None:
    async with process(redis_url) as one:
        with store.subscribe(new_line_bell()) as rings:
            await store.send("PING")  # The subscription is read now; another connection may overtake it.
            await one.queue("a")
            assert await rings.wait(5) == [""]

            await one.queue("b", "c")
            await free(store, "1", "2", "3")
            await eventually(lambda: one.served == ["a", "b", "c"])
            assert await rings.wait(0) == []

            await one.queue("d")
            assert await rings.wait(5) == [""]


async def test_who_leaves_from_the_middle_disturbs_nobody(store: Store, redis_url: str) -> None:
    async with process(redis_url) as one:
        await one.queue("a", "b", "c")

        one.task("b").cancel()
        await eventually(lambda: one.task("b").done())

        assert await order(store) == ["a", "c"]
        await free(store, "1", "2")
        async with asyncio.timeout(5):
            assert [await one.task("a"), await one.task("c")] == ["1", "2"]


async def test_when_the_head_leaves_unserved_the_next_is_called(store: Store, redis_url: str) -> None:
    async with process(redis_url) as one, process(redis_url) as two:
        await one.queue("a")
        await two.queue("b")
        await store.rpush(SHELF, "1")  # Without a ring: only the call of the one who leaves can tell b.

        one.task("a").cancel()

        async with asyncio.timeout(5):
            assert await two.task("b") == "1"


async def test_a_full_line_takes_nobody_else_in(any_store: Store, any_url: str) -> None:
    async with process(any_url) as one, process(any_url) as two:
        await one.queue("a", longest=2)
        await two.queue("b", longest=2)

        with pytest.raises(LineFull, match="2 already wait"):
            async with two.lines.wait(LINE, "c", longest=2):
                pytest.fail("there was no room")

        assert await order(any_store) == ["a", "b"]
        one.task("a").cancel()
        await eventually(lambda: one.task("a").done())
        await two.queue("d", longest=2)
        assert await order(any_store) == ["b", "d"]


async def test_the_wait_ends_in_time_and_the_place_is_left(store: Store, redis_url: str) -> None:
    async with process(redis_url) as one:
        await one.queue("a")

        async with one.lines.wait(LINE, "b") as place:
            found = await place.served(FREED, one._look, timeout=0.05)

            assert found is None
            assert place.position == 2
        assert await order(store) == ["a"]


async def test_ones_own_bell_has_one_check_wherever_one_stands(store: Store, redis_url: str) -> None:
    class CalledOff(Exception):
        pass

    is_off = False

    async def check() -> None:
        if is_off:
            raise CalledOff

    async def wait(lines: Lines) -> None:
        async with lines.wait(LINE, "b") as place:
            await place.served(FREED, one._look, timeout=None, check=check)

    async with process(redis_url) as one:
        await one.queue("a")
        waiting = asyncio.create_task(wait(one.lines))
        await eventually(lambda: order_is(store, ["a", "b"]))
        is_off = True

        await store.publish(bell_of("b"))

        async with asyncio.timeout(5):
            with pytest.raises(CalledOff):
                await waiting
        assert await order(store) == ["a"]


async def test_who_waits_is_told_by_line_with_position_and_time(store: Store, redis_url: str) -> None:
    async with process(redis_url) as one, one.lines.wait("elsewhere", "x"), one.lines.wait("test:2", "y"):
        await one.queue("a", "b")

        seen = await who_waits(store, "test:")

    assert [(each.line, each.ticket, each.position) for each in seen] == [
        ("test:2", "y", 1),
        (LINE, "a", 1),
        (LINE, "b", 2),
    ]
    seconds, _ = await store.send("TIME")
    assert abs(int(seconds) - seen[1].since) < 60
    assert seen[1].since < seen[2].since


async def test_a_name_that_no_key_may_hold_is_refused(store: Store) -> None:
    lines = Lines(store)
    for name, ticket, account in (
        ("a b", "ticket", "qa"),
        (LINE, "no ticket", "qa"),
        (LINE, "ticket", "a|b"),
    ):
        with pytest.raises(InvalidArgument):
            async with lines.wait(name, ticket, account=account):
                pytest.fail("a client's words in a key")
