"""Whose turn it is for a place at a Playwright worker: that of the account with the fewest browsers among all
that the worker can serve, whichever version they have named."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import pytest

from registered_workers import register
from remuda.base import clock
from remuda.base.ids import WorkerId, new_id
from remuda.fleet.line import who_waits
from remuda.fleet.origin import Origin
from remuda.fleet.uses import Uses
from remuda.playwright.connections import Connections
from remuda.playwright.model import Outcome, Place, ServedBrowser, WorkerLimits
from remuda.playwright.view import read_waiting
from remuda.playwright.waiting import WaitingRoom, offers_for
from remuda.playwright.wish import PlaywrightWish
from remuda.store import Store
from waiting import eventually

ONE_PLACE = WorkerLimits(concurrent=1, lifetime=1000, lease=60)


class Crowd:
    """Clients of several accounts that wait for places, in one gateway."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.uses = Uses(store)
        self.connections = Connections(store, ONE_PLACE)
        self.room = WaitingRoom(store, self.connections, self.uses, patience=60, longest=100)
        self.served: list[str] = []
        """Account and version of each client that has got a place, in this order."""
        self._places: list[Place] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def take(self, account: str, version: str) -> None:
        """Has a client ask for a place until it has one."""
        wish = PlaywrightWish(ServedBrowser.CHROMIUM, version, origin=Origin(address="", account=account))
        self._places.append(await self.room.find(wish, new_id(), came=clock.monotonic()))
        self.served.append(f"{account} {version}".strip())

    async def line_up(self, account: str, *versions: str) -> None:
        """Has clients of these versions wait, each having come after the one before."""
        for version in versions:
            before = await self._count_waiting()
            self._tasks.append(asyncio.create_task(self.take(account, version), name=f"{account} {version}"))
            await eventually(partial(self._has_come, before + 1))

    async def _count_waiting(self) -> int:
        return len({each.ticket for each in await who_waits(self.store, "playwright:")})

    async def _has_come(self, number: int) -> bool:
        return await self._count_waiting() == number

    async def pass_on(self, times: int) -> list[str]:
        """Those who get the places that are given back one after the other, the oldest first. Each still
        counts for its account, as if it had another browser."""
        first = len(self.served)
        for turn in range(first, first + times):
            self.connections.close(self._places.pop(0), Outcome.SERVED)
            await eventually(partial(self._has_served, turn + 1))
        return self.served[first:]

    async def _has_served(self, count: int) -> bool:
        return len(self.served) >= count

    async def leave(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.connections.finish()


@pytest.fixture
async def crowd(store: Store) -> AsyncIterator[Crowd]:
    crowd = Crowd(store)
    keeping = asyncio.create_task(crowd.room.run(), name="keep places")
    try:
        yield crowd
    finally:
        await crowd.leave()
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)


async def test_clients_with_and_without_a_version_give_an_account_one_turn(
    store: Store, crowd: Crowd
) -> None:
    await register(store, "w1", version="1.64")
    await crowd.take("first", "1.64")
    await crowd.line_up("greedy", "", "1.64", "", "1.64")
    await crowd.line_up("modest", "1.64")

    assert await crowd.pass_on(3) == ["greedy", "modest 1.64", "greedy 1.64"]


async def test_versions_that_one_worker_may_serve_give_an_account_one_turn(
    store: Store, crowd: Crowd
) -> None:
    await register(store, "w1", version="")
    await crowd.take("first", "1.64")
    await crowd.line_up("greedy", "1.60", "1.61", "1.62", "1.63")
    await crowd.line_up("modest", "1.64")

    assert await crowd.pass_on(3) == ["greedy 1.60", "modest 1.64", "greedy 1.61"]


async def test_versions_that_different_workers_serve_take_no_turns_from_each_other(
    store: Store, crowd: Crowd
) -> None:
    await register(store, "w1", version="1.62")
    await register(store, "w2", version="1.64")
    await crowd.take("first", "1.62")
    await crowd.take("second", "1.64")
    await crowd.line_up("greedy", "1.62", "1.64")
    await crowd.line_up("modest", "1.64")

    # A place at the worker of 1.62 is of no use to the modest client.
    assert await crowd.pass_on(2) == ["greedy 1.62", "modest 1.64"]


async def test_a_client_without_a_version_takes_the_first_place_at_any_worker(
    store: Store, crowd: Crowd
) -> None:
    await register(store, "w1", version="1.62")
    await register(store, "w2", version="1.64")
    await crowd.take("first", "1.62")
    await crowd.take("second", "1.64")
    await crowd.line_up("modest", "", "1.64")
    await crowd.line_up("other", "1.62")

    assert await crowd.pass_on(2) == ["modest", "modest 1.64"]


async def test_a_place_at_a_worker_that_comes_later_goes_to_who_can_use_it(
    store: Store, crowd: Crowd
) -> None:
    await register(store, "w1", version="1.62")
    await crowd.take("first", "1.62")
    await crowd.line_up("greedy", "1.62")
    # It is not the next in the only line there is, and the newcomer is for it alone.
    await crowd.line_up("modest", "")

    await register(store, "w2", version="1.64")

    await eventually(lambda: crowd.served[1:] == ["modest"])


async def test_a_newcomer_does_not_overtake_who_waits_for_the_same_worker(store: Store, crowd: Crowd) -> None:
    await register(store, "w1", version="")
    await crowd.take("first", "1.64")
    await crowd.line_up("modest", "1.62")
    await crowd.line_up("other", "", "1.60")

    assert {each.line for each in await who_waits(store, "playwright:")} == {"playwright:chromium:any"}
    assert await crowd.pass_on(2) == ["modest 1.62", "other"]


async def test_a_version_that_a_worker_has_refused_holds_up_nobody_whom_it_serves(
    store: Store, crowd: Crowd
) -> None:
    await register(store, "w1", version="")
    await register(store, "w2", version="1.60")
    await crowd.take("first", "1.64")
    await crowd.take("second", "1.60")
    await crowd.line_up("old", "1.60")
    await crowd.line_up("modest", "1.64")

    crowd.room.note_unsuited(WorkerId("w1"), "1.60")

    assert await crowd.pass_on(2) == ["modest 1.64", "old 1.60"]


async def test_who_waits_in_several_lines_is_shown_once_with_its_own_version(
    store: Store, crowd: Crowd
) -> None:
    await register(store, "w1", version="1.64")
    await register(store, "w2", version="")
    await crowd.take("first", "1.64")
    await crowd.take("second", "1.64")

    await crowd.line_up("modest", "1.64", "", "1.60")

    shown = [(each.version, each.position) for each in await read_waiting(store, limited_to=None)]
    assert sorted(shown) == [("", 2), ("1.60", 3), ("1.64", 1)]


@pytest.mark.parametrize(
    ("version", "is_refused", "expected"),
    [
        ("", False, ["1.62", "1.64", "any"]),
        ("1.64", False, ["1.64", "any"]),
        ("1.60", False, ["any"]),
        ("1.64", True, ["1.64"]),
        ("1.60", True, []),
    ],
)
def test_a_client_waits_for_the_workers_that_can_serve_it(
    version: str, is_refused: bool, expected: list[str]
) -> None:
    assert offers_for(version, ["1.62", "1.64", "any"], is_refused=is_refused) == expected
