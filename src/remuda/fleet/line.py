"""Waiting in line, first come, first served, however many processes those who wait are spread over.

    async with lines.wait("grid:chrome", ticket) as place:
        slot = await place.served(freed_bell(), claim, timeout=600)

A ticket is the topic of a bell: whoever has news for the one who waits rings `bell_of(ticket)`. So nobody
polls and no ring wakes a herd: only the head of a line listens to the bell of what it waits for, and when it
leaves, the next is called by its own. A ticket counts as long as its process prolongs its lease; those of a
killed one fall out within two seconds. A process or a Redis that is slow for so long costs nobody its place:
a ticket that fell out joins again where it stood, by its time of arrival.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from remuda.base import clock
from remuda.base.errors import LineFull, StoreUnavailable, Unavailable
from remuda.base.log import get_logger
from remuda.fleet.bell import LOOK_EVERY, bell_of, look_at_rings
from remuda.keyspace.fleet import BELL, LINE_LEASES, LINE_ORDER, LINES
from remuda.keyspace.key import ChannelName, Name
from remuda.store import Store, Subscription, load_script

log = get_logger(__name__)

T = TypeVar("T")

_LINE = load_script(
    __file__,
    "line.lua",
    keys=[LINE_ORDER, LINE_LEASES, LINES],
    args=["verb", "line", "lease", "bell", "arrival", "longest", "tickets"],
)

# With a renewal's time on top, the tickets of a killed process hold the others up for 1.6 s.
LEASE = 1.2
# At a third of the lease: two renewals that get lost must not look like a death.
RENEWALS_PER_LEASE = 3
# So many tickets at a time: thousands at once would keep Redis from everything else for too long.
RENEW_BATCH = 200


def new_line_bell() -> ChannelName:
    """Rung when somebody comes to a line in which nobody stood; once, however many follow."""
    return bell_of("lines")


class _Line:
    """One line, as it is in Redis."""

    def __init__(self, store: Store, name: str, *, lease: float) -> None:
        self.name = name
        self._store = store
        self._lease = lease
        self._keys = [LINE_ORDER(name), LINE_LEASES(name), LINES()]

    async def join(self, ticket: str, *, arrival: str, longest: int | None) -> tuple[int, str]:
        """Position and arrival of the ticket, which is in the line now; 0 when there is no room."""
        position, arrived = await self._run("join", [ticket], arrival=arrival, longest=longest)
        return position, arrived

    async def leave(self, ticket: str) -> None:
        await self._run("leave", [ticket])

    async def renew(self, tickets: Sequence[str]) -> list[str]:
        """Prolongs the tickets that are in the line; those that are not (any more)."""
        # All on their way at once: a distant Redis takes as long for one batch as the lease allows for all.
        batches = [tickets[start : start + RENEW_BATCH] for start in range(0, len(tickets), RENEW_BATCH)]
        lost = await asyncio.gather(*(self._run("renew", batch) for batch in batches))
        return [ticket for batch in lost for ticket in batch]

    async def _run(
        self, verb: str, tickets: Sequence[str], *, arrival: str = "", longest: int | None = None
    ) -> Any:
        bell = Name(BELL.template())
        limit = "" if longest is None else longest
        args = [verb, self.name, self._lease, bell, arrival, limit, *tickets]
        return await self._store.run(_LINE, keys=self._keys, args=args)


async def _no_check() -> None:
    return


class Place:
    """One's place in a line, from joining to leaving."""

    def __init__(self, store: Store, line: _Line, ticket: str, calls: Subscription) -> None:
        self.position = 0
        """As last heard: who has 1 is served next."""
        self._store = store
        self._line = line
        self._ticket = ticket
        self._calls = calls
        self._arrival = ""
        self._is_news = False

    def call(self) -> None:
        """Has the one who waits look again."""
        self._calls.wake()

    async def served(
        self,
        bell: ChannelName,
        look: Callable[[], Awaitable[T | None]],
        *,
        timeout: float | None,
        check: Callable[[], Awaitable[None]] = _no_check,
    ) -> T | None:
        """What `look` finds, as soon as it finds something; None after the time-out.

        Looks only at the head of the line: on arriving there, and then whenever the bell rings. `check` is
        asked wherever one stands, when one's own bell rings; what it raises ends the wait. A Redis that goes
        away does not: both are asked again when it is back, so a look may find what the last one has done.
        """
        with ExitStack() as listening:
            is_listening = False

            async def look_if_first() -> T | None:
                nonlocal is_listening
                await self._ask_position()
                found = None
                if self.position == 1:
                    if not is_listening:
                        listening.enter_context(self._store.subscribe(bell, into=self._calls))
                        is_listening = True
                    found = await look()
                if found is None:
                    await check()
                return found

            async def look_if_possible() -> T | None:
                try:
                    return await look_if_first()
                except StoreUnavailable:  # The connection rings when it is back.
                    return None

            return await look_at_rings(self._calls, look_if_possible, timeout=timeout, look_every=None)

    async def _ask_position(self) -> None:
        # What joining has just told need not be asked again: whatever changed since then has rung.
        if not self._is_news:
            await self.join()
        self._is_news = False

    async def join(self, *, longest: int | None = None) -> None:
        """Stands in the line, at its end or where it stood before; LineFull if it is new and it is full."""
        position, arrival = await self._line.join(self._ticket, arrival=self._arrival, longest=longest)
        if not position:
            raise LineFull(f"{longest} wait already, and no more are let into the line")
        self.position, self._arrival, self._is_news = position, arrival, True

    async def leave(self) -> None:
        """Makes room for the next, who is called if this was the first."""
        try:
            await self._line.leave(self._ticket)
        except Unavailable as error:  # The ticket runs out by itself; what the wait ended with matters more.
            log.warning("line not left", line=self._line.name, ticket=self._ticket, reason=error.message)


class Lines:
    """The lines that somebody in this process waits in. Run `run()` as a task of the owner's."""

    def __init__(self, store: Store, *, lease: float = LEASE, look_every: float = LOOK_EVERY) -> None:
        self._store = store
        self._lease = lease
        self._look_every = look_every
        self._places: dict[str, dict[str, Place]] = {}

    @asynccontextmanager
    async def wait(self, name: str, ticket: str, *, longest: int | None = None) -> AsyncIterator[Place]:
        """A place at the end of the line, left with the block; LineFull when `longest` wait already."""
        with self._store.subscribe(bell_of(ticket)) as calls:
            place = Place(self._store, self._line(name), ticket, calls)
            here = self._places.setdefault(name, {})
            here[ticket] = place
            try:
                await place.join(longest=longest)
                yield place
            finally:
                # Forgotten before it is left: nobody must prolong it afterwards.
                del here[ticket]
                if not here:
                    del self._places[name]
                await place.leave()

    async def withdraw(self, name: str, ticket: str) -> None:
        """Takes a ticket out of the line whose process is known to be gone, and calls the next."""
        await self._line(name).leave(ticket)

    async def is_empty(self, name: str) -> bool:
        """Whether nobody stands in the line, here or elsewhere."""
        return not await self._store.zcard(LINE_ORDER(name))

    def _line(self, name: str) -> _Line:
        return _Line(self._store, name, lease=self._lease)

    async def run(self) -> None:
        """Keeps the tickets for ever. Outlives any absence of Redis."""
        renew_every = self._lease / RENEWALS_PER_LEASE
        renew_at = clock.monotonic() + renew_every
        look_at = clock.monotonic() + self._look_every
        while True:
            await asyncio.sleep(max(0.0, min(renew_at, look_at) - clock.monotonic()))
            if clock.monotonic() >= renew_at:
                renew_at = clock.monotonic() + renew_every
                await asyncio.gather(*(self._renew(*each) for each in list(self._places.items())))
            # A ring can be lost, and the head of a line can die: one of each line looks all the same.
            if clock.monotonic() >= look_at:
                look_at = clock.monotonic() + self._look_every
                for here in self._places.values():
                    next(iter(here.values())).call()

    async def _renew(self, name: str, here: dict[str, Place]) -> None:
        try:
            lost = await self._line(name).renew(list(here))
        except Unavailable as error:
            log.warning("tickets not prolonged", line=name, tickets=len(here), reason=error.message)
            return
        for ticket in lost:
            if ticket in here:
                here[ticket].call()


@dataclass(frozen=True)
class Waiting:
    """Somebody who waits in a line."""

    line: str
    ticket: str
    position: int
    since: float
    """Unix time."""


async def who_waits(store: Store, prefix: str) -> list[Waiting]:
    """Everybody in the lines whose names begin so: line by line, each in its order."""
    names = sorted(name for name in await store.zrange(LINES()) if name.startswith(prefix))
    replies = [store.send("ZRANGE", LINE_ORDER(name), 0, -1, "WITHSCORES") for name in names]
    return [
        Waiting(line=name, ticket=ticket, position=position, since=float(arrival) / 1e6)
        for name, reply in zip(names, replies, strict=True)
        for position, (ticket, arrival) in enumerate(await reply, start=1)
    ]
