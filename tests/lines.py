"""Processes that wait in a line under test, and what they wait for."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from remuda.fleet.bell import bell_of
from remuda.fleet.line import Lines, who_waits
from remuda.fleet.origin import DEFAULT_ACCOUNT
from remuda.fleet.uses import Uses
from remuda.keyspace.key import ListName
from remuda.store import Store

LINE = "test:browser"
FREED = bell_of("test:freed")
SHELF = ListName("test:shelf")
"""What is waited for: one takes from it what it can get."""
FOREVER = 3600.0


@asynccontextmanager
async def process(
    url: str, *, lease: float = 60, look_every: float = FOREVER, patience: float = 5
) -> AsyncIterator["Process"]:
    """What a process has: a connection of its own, and its lines kept. Nothing but bells wakes anybody."""
    async with Store(url, timeout=patience) as store:
        lines = Lines(store, lease=lease, look_every=look_every)
        keeping = asyncio.create_task(lines.run(), name="keep the lines")
        mine = Process(store, lines, keeping)
        try:
            yield mine
        finally:
            for task in (keeping, *mine.waiting):
                task.cancel()
            await asyncio.gather(keeping, *mine.waiting, return_exceptions=True)


class Process:
    """Some who wait, in a process."""

    def __init__(self, store: Store, lines: Lines, keeping: "asyncio.Task[None]") -> None:
        self.store = store
        self.lines = lines
        self.uses = Uses(store)
        self.keeping = keeping
        self.waiting: list[asyncio.Task[str | None]] = []
        self.served: list[str] = []
        self.looks = 0

    async def queue(self, *tickets: str, account: str = DEFAULT_ACCOUNT, longest: int | None = None) -> None:
        """Has these wait, one after the other. Who gets something that is waited for by an account that the
        test has named holds it until the test gives it back."""
        for ticket in tickets:
            joined = asyncio.Event()
            task = asyncio.create_task(self._wait(ticket, account, longest, joined), name=ticket)
            self.waiting.append(task)
            await asyncio.wait([task, asyncio.create_task(joined.wait())], return_when="FIRST_COMPLETED")

    async def _wait(
        self, ticket: str, account: str, longest: int | None, joined: asyncio.Event
    ) -> str | None:
        async def look() -> str | None:
            found = await self._look()
            if found is not None and account != DEFAULT_ACCOUNT:
                await self.uses.hold(account, ticket)
            return found

        async with self.lines.wait(LINE, ticket, account=account, longest=longest) as place:
            joined.set()
            found = await place.served(FREED, look, timeout=None)
            self.served.append(ticket)
            return found

    async def _look(self) -> str | None:
        self.looks += 1
        found: str | None = await self.store.send("LPOP", SHELF)
        return found

    def task(self, ticket: str) -> "asyncio.Task[str | None]":
        (found,) = [task for task in self.waiting if task.get_name() == ticket]
        return found


async def free(store: Store, *things: str) -> None:
    """Puts something on the shelf and rings."""
    await store.rpush(SHELF, *things)
    await store.publish(FREED)


async def order(store: Store) -> list[str]:
    return [each.ticket for each in await who_waits(store, "test:")]


async def order_is(store: Store, tickets: list[str]) -> bool:
    return await order(store) == tickets
