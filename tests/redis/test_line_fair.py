"""The fair queue: accounts take turns, whichever has how many waiting."""

import asyncio
from random import Random

import pytest

from lines import FREED, LINE, SHELF, free, order, process
from remuda.base.errors import LineFull
from remuda.fleet.line import Lines, who_waits
from remuda.fleet.uses import Uses
from remuda.keyspace.fleet import HELD, LINE_COUNTS, LINE_LEASES, LINE_ORDER, LINE_TURNS, LINES, WAITS
from remuda.store import Store
from remuda.store.census import take_census
from waiting import eventually


async def test_five_hundred_of_one_account_delay_another_by_one_browser(store: Store, redis_url: str) -> None:
    async with process(redis_url) as one, process(redis_url) as two:
        await one.queue(*(f"a{number}" for number in range(500)), account="a")
        await free(store, "the browser")
        await eventually(lambda: one.served == ["a0"])
        await two.queue("b0", account="b")

        for ticket, following, account in (("a0", two, "a"), ("b0", one, "b")):
            holder = one if account == "a" else two
            served = len(following.served)
            await holder.uses.give_back(account, ticket)
            await free(store, "the browser")
            await eventually(lambda served=served, of=following: len(of.served) > served)  # type: ignore[misc]

        assert two.served == ["b0"]
        assert one.served == ["a0", "a1"]


async def test_who_has_the_fewest_comes_first(store: Store, redis_url: str) -> None:
    async with process(redis_url) as one:
        for account, held in (("three", 3), ("one", 1), ("two", 2)):
            for number in range(held):
                await one.uses.hold(account, f"{account}-{number}")
        await one.queue("x3", account="three")
        await one.queue("x2", account="two")
        await one.queue("x1", account="one")
        await one.queue("x0", account="none")

        for number in range(1, 5):
            await free(store, "a browser")
            await eventually(lambda number=number: len(one.served) == number)  # type: ignore[misc]

        assert one.served == ["x0", "x1", "x2", "x3"]


async def test_among_those_with_equally_many_it_is_the_turn_of_who_has_waited_longest(
    store: Store, redis_url: str
) -> None:
    async with process(redis_url) as one:
        for account in "cab":
            await one.queue(*(f"{account}{number}" for number in range(2)), account=account)

        for number in range(6):
            await free(store, "a browser")
            await eventually(lambda number=number: len(one.served) == number + 1)  # type: ignore[misc]

        assert one.served == ["c0", "a0", "b0", "c1", "a1", "b1"]


async def test_who_gives_a_browser_back_is_behind_those_who_had_none(store: Store, redis_url: str) -> None:
    async with process(redis_url) as one:
        await one.uses.hold("a", "browser")
        await one.queue("a0", account="a")
        await one.queue("b0", account="b")

        await one.uses.give_back("a", "browser")

        assert await order(store) == ["b0", "a0"]


async def test_whose_turn_has_come_by_anothers_browser_is_called(store: Store, redis_url: str) -> None:
    async with process(redis_url) as one, process(redis_url) as two:
        await one.queue("a0", account="a")
        await eventually(lambda: one.looks == 1)
        await two.queue("b0", account="b")
        await store.rpush(SHELF, "1")  # Without a ring: only its own bell can tell b.

        await one.uses.hold("a", "elsewhere")

        async with asyncio.timeout(5):
            assert await two.task("b0") == "1"


async def test_whose_turn_has_come_by_giving_back_is_called(store: Store, redis_url: str) -> None:
    async with process(redis_url) as one, process(redis_url) as two:
        await one.uses.hold("a", "elsewhere")
        await one.queue("a0", account="a")
        await two.uses.hold("b", "elsewhere")
        await two.uses.hold("b", "elsewhere too")
        await two.queue("b0", account="b")
        await store.rpush(SHELF, "1")

        await two.uses.give_back("b", "elsewhere")
        await two.uses.give_back("b", "elsewhere too")

        async with asyncio.timeout(5):
            assert await two.task("b0") == "1"


async def test_a_head_whose_turn_is_over_looks_no_more(store: Store, redis_url: str) -> None:
    async with process(redis_url) as one, process(redis_url) as two:
        await one.uses.hold("a", "elsewhere")
        await one.queue("a0", account="a")
        await eventually(lambda: one.looks == 1)
        await two.queue("b0", account="b")
        await eventually(lambda: two.looks == 1)

        for ring in (2, 3):
            await store.publish(FREED)
            await eventually(lambda ring=ring: two.looks == ring)  # type: ignore[misc]

        assert one.looks == 1
        assert await store.count_listeners([FREED]) == [1]


async def test_a_browser_of_a_killed_process_does_not_count_against_its_account(
    store: Store, redis_url: str
) -> None:
    async with process(redis_url, lease=1) as one, Store(redis_url) as dying:
        await Uses(dying, lease=0.5).hold("a", "of a killed process")
        await one.queue("a0", account="a")
        await one.uses.hold("b", "browser")
        await one.queue("b0", account="b")
        await one.queue("c0", account="c")
        assert await order(store) == ["c0", "a0", "b0"]

        async def has_expired() -> bool:
            return await order(store) == ["c0", "a0", "b0"] and not await store.exists(HELD("a"))

        await eventually(has_expired)
        turn = await store.send("ZSCORE", LINE_TURNS(LINE), "a")
        assert turn < 10**12


async def test_one_account_that_fills_its_part_keeps_no_other_out(store: Store, redis_url: str) -> None:
    async with process(redis_url) as one:
        await one.queue("a0", "a1", account="a", longest=2)

        with pytest.raises(LineFull, match="2 already wait"):
            async with one.lines.wait(LINE, "a2", account="a", longest=2):
                pytest.fail("there was no room")

        await one.queue("b0", account="b", longest=2)
        assert sorted(await order(store)) == ["a0", "a1", "b0"]


async def test_the_turn_changes_in_every_line_in_which_the_account_waits(
    store: Store, redis_url: str
) -> None:
    async with process(redis_url) as one:
        waits = [
            one.lines.wait(f"test:{number}", f"{account}-{number}", account=account)
            for account in "ab"
            for number in range(5)
        ]
        for wait in waits:
            await wait.__aenter__()

        await one.uses.hold("a", "browser")

        firsts = [each.account for each in await who_waits(store, "test:") if each.position == 1]
        assert firsts == ["b"] * 5
        for wait in waits:
            await wait.__aexit__(None, None, None)


async def test_more_lines_than_change_at_once_follow_with_the_next_renewal(
    store: Store, redis_url: str
) -> None:
    async with process(redis_url, lease=1) as one:
        waits = [
            one.lines.wait(f"test:{number}", f"{account}-{number}", account=account)
            for account in "ab"
            for number in range(50)
        ]
        for wait in waits:
            await wait.__aenter__()

        await one.uses.hold("a", "browser")

        async def is_everywhere_bs_turn() -> bool:
            firsts = [each.account for each in await who_waits(store, "test:") if each.position == 1]
            return firsts == ["b"] * 50

        await eventually(is_everywhere_bs_turn)
        for wait in waits:
            await wait.__aexit__(None, None, None)


async def test_a_ticket_in_several_lines_has_one_arrival_and_leaves_them_all(
    store: Store, redis_url: str
) -> None:
    async with process(redis_url) as one, process(redis_url) as two:
        async with (
            two.lines.wait("test:b", "first", account="a"),
            one.lines.wait({"test:a", "test:b"}, "both", account="a") as both,
            two.lines.wait({"test:a"}, "last", account="a") as last,
        ):
            assert both.heads == {"test:a"}
            assert await both.ask_position() == 1
            assert {each.since for each in await who_waits(store, "test:") if each.ticket == "both"} == {
                float(both._arrival) / 1e6
            }

            # By its time of arrival, not at the end.
            last.move_to(["test:b"])
            await last.join()
            both.move_to(["test:b"])
            await both.join()

            assert not both.heads
            assert await order(store) == ["first", "both", "last"]

        assert await store.send("EXISTS", LINES()) == 0


async def test_nothing_is_left_of_a_line_that_all_have_left(any_store: Store, any_url: str) -> None:
    async with process(any_url) as one:
        await one.queue("a0", "a1", account="a")
        await one.queue("b0", account="b")
        assert await take_census(any_store) == []

        for task in one.waiting:
            task.cancel()
        await asyncio.gather(*one.waiting, return_exceptions=True)

        keys = [LINE_TURNS(LINE), LINE_LEASES(LINE), LINE_COUNTS(LINE), LINES()]
        keys += [key for each in "ab" for key in (WAITS(each), LINE_ORDER(each, LINE))]
        assert not await any_store.exists(*keys)


@pytest.mark.parametrize("lost", ["turns", "leases", "counts", "order"])
async def test_whichever_key_is_lost_all_are_served(lost: str, store: Store, redis_url: str) -> None:
    keys = {
        "turns": LINE_TURNS(LINE),
        "leases": LINE_LEASES(LINE),
        "counts": LINE_COUNTS(LINE),
        "order": LINE_ORDER("a", LINE),
    }
    async with process(redis_url, lease=1, look_every=0.05) as one:
        await one.queue("a0", "a1", account="a")
        await one.queue("b0", account="b")

        await store.delete(keys[lost])
        await free(store, "1", "2", "3")

        await eventually(lambda: sorted(one.served) == ["a0", "a1", "b0"])


@pytest.mark.parametrize("seed", range(8))
async def test_the_order_that_is_shown_is_the_order_in_which_they_are_served(seed: int, store: Store) -> None:
    dice = Random(seed)
    lines, uses = Lines(store, lease=60), Uses(store)
    accounts = [f"account-{number}" for number in range(dice.randint(1, 5))]
    waits = {}
    for number in range(25):
        account = dice.choice(accounts)
        if dice.random() < 0.4:
            await uses.hold(account, f"held-{number}")
        else:
            waits[f"t{number}"] = lines.wait(LINE, f"t{number}", account=account)
            place = await waits[f"t{number}"].__aenter__()
            assert await place.ask_position() == await shown_position(store, f"t{number}")
    shown = [each.ticket for each in await who_waits(store, "test:")]

    served = []
    while first := [each for each in await who_waits(store, "test:") if each.position == 1]:
        served.append(first[0].ticket)
        await uses.hold(first[0].account, first[0].ticket)
        await waits[first[0].ticket].__aexit__(None, None, None)

    assert served == shown


async def shown_position(store: Store, ticket: str) -> int:
    (found,) = [each.position for each in await who_waits(store, "test:") if each.ticket == ticket]
    return found
