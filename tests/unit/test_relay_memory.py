"""How accounts share the memory for bodies."""

import asyncio
from itertools import count, takewhile

import pytest

from remuda.fleet.relay.bodies import SMALL, Bodies

LARGE = 1_000_000
# A quarter of it is for small ones.
ROOM = 16 * LARGE


def take_all(bodies: Bodies, account: str, size: int = LARGE) -> int:
    """How many bodies of an account there is room for."""
    return sum(1 for _ in takewhile(lambda _: bodies.take(size, account=account), count()))


@pytest.mark.parametrize(("size", "taken"), [(LARGE, [6, 3, 1]), (50_000, [40, 20, 10])])
def test_each_account_leaves_others_as_much_as_it_takes(size: int, taken: list[int]) -> None:
    bodies = Bodies(ROOM)

    assert [take_all(bodies, account, size) for account in ("a", "b", "c")] == taken


def test_without_accounts_there_is_room_until_it_is_full() -> None:
    bodies = Bodies(ROOM)

    assert take_all(bodies, "") == 12
    assert take_all(bodies, "", 50_000) == 80


def test_the_only_body_of_an_account_gets_in_beside_all_that_another_takes() -> None:
    bodies = Bodies(ROOM)
    take_all(bodies, "flood")

    assert bodies.take(5 * LARGE, account="other")
    assert not bodies.take(LARGE, account="other")


def test_a_body_that_grows_gives_the_room_of_small_ones_back() -> None:
    bodies = Bodies(ROOM)
    assert bodies.take(SMALL, account="a")

    assert bodies.take(LARGE, account="a", own=SMALL)

    assert bodies.held == SMALL + LARGE
    assert take_all(bodies, "", SMALL) == ROOM // 4 // SMALL
    bodies.give_back(SMALL + LARGE, account="a")
    assert take_all(bodies, "") == 12


async def waiting(bodies: Bodies, size: int, account: str) -> "asyncio.Task[None]":
    task = asyncio.create_task(bodies.wait(size, account=account), name=account)
    await asyncio.sleep(0)
    return task


async def test_in_an_account_the_first_that_waits_comes_first() -> None:
    bodies = Bodies(ROOM)
    take_all(bodies, "a")
    first = await waiting(bodies, 2 * LARGE, "a")
    second = await waiting(bodies, LARGE, "a")

    bodies.give_back(LARGE, account="a")
    await asyncio.sleep(0)

    assert not bodies.take(LARGE, account="a")
    assert [first.done(), second.done()] == [False, False]
    bodies.give_back(LARGE, account="a")
    await asyncio.wait([first])
    assert not second.done()
    second.cancel()
    await asyncio.wait([second])
    assert bodies.held == 6 * LARGE


async def test_a_body_that_waits_keeps_no_other_account_waiting() -> None:
    bodies = Bodies(ROOM)
    take_all(bodies, "flood")
    too_large = await waiting(bodies, 11 * LARGE, "flood")

    assert bodies.take(LARGE, account="other")
    bodies.give_back(LARGE, account="flood")
    assert bodies.take(LARGE, account="other")
    assert not too_large.done()
    too_large.cancel()
    await asyncio.wait([too_large])


async def test_a_body_that_leaves_when_its_turn_has_come_gives_its_room_back() -> None:
    bodies = Bodies(ROOM)
    taken = take_all(bodies, "a")
    left = await waiting(bodies, LARGE, "a")

    bodies.give_back(LARGE, account="a")
    left.cancel()
    await asyncio.wait([left])
    bodies.give_back((taken - 1) * LARGE, account="a")

    assert left.cancelled()
    assert bodies.held == 0
