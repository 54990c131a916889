"""Waiting in line, across all processes, with the accounts in turn.

    async with lines.wait("grid:chrome", ticket, account="qa") as place:
        slot = await place.served(freed_bell(), claim, timeout=600)

Among the accounts that wait in a line, the one with the fewest browsers comes first, and among those with
equally many the one for which this has been so for longest (`turns.lua`). Within an account it is first come,
first served. So an account with hundreds of tickets delays another's single ticket by one browser.

A ticket may stand in several lines, where different things can serve it. It has one time of arrival in all of
them, and leaves them all once one has served it.

A ticket is the topic of a bell: news for it is rung at `bell_of(ticket)`. So nothing polls, and no ring wakes
all that wait: only the head of a line listens to the bell of what it waits for. When it leaves, or the turn
of another account has come, the next ticket is called by its own. A ticket counts as long as its process
prolongs its lease; those of a killed process fall out within two seconds. No place is lost because a process
or Redis is slow for so long: a ticket that fell out joins again where it stood, by its time of arrival.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from remuda.base.errors import LineFull, StoreUnavailable, Unavailable
from remuda.base.log import get_logger
from remuda.fleet.bell import LOOK_EVERY, bell_of, look_at_rings
from remuda.fleet.liveness import RENEWALS_PER_TTL
from remuda.fleet.origin import DEFAULT_ACCOUNT
from remuda.fleet.tasks import repeat
from remuda.keyspace.fleet import (
    BELL,
    HELD,
    LINE_COUNTS,
    LINE_LEASES,
    LINE_ORDER,
    LINE_TURNS,
    LINES,
    WAITS,
)
from remuda.keyspace.key import ChannelName, Name
from remuda.store import Store, Subscription, load_script

log = get_logger(__name__)

T = TypeVar("T")

_LINE = load_script(
    __file__,
    "line.lua",
    keys=[LINE_TURNS, LINE_LEASES, LINE_COUNTS, LINES],
    args=[
        "turns",
        "order",
        "held",
        "waits",
        "bell",
        "verb",
        "line",
        "lease",
        "arrival",
        "longest",
        "members",
    ],
    shared="turns.lua",
)
TURN_ARGS = [Name(key.template()) for key in (LINE_TURNS, LINE_ORDER, HELD, WAITS, BELL)]
"""What `turns.lua` takes."""

# With a renewal's time on top, the tickets of a killed process hold the others up for 1.6 s.
LEASE = 1.2
# So many tickets at a time: thousands at once would keep Redis from everything else for too long.
RENEW_BATCH = 200
_ONE_BROWSER = 10**12
"""Of a turn, as in `turns.lua`."""


def new_line_bell() -> ChannelName:
    """Rung when the first ticket joins an empty line; once, however many follow."""
    return bell_of("lines")


def _member(account: str, ticket: str) -> str:
    return f"{account}|{ticket}"


class _Line:
    """One line, as it is in Redis."""

    def __init__(self, store: Store, name: str, *, lease: float) -> None:
        self.name = name
        self._store = store
        self._lease = lease
        self._keys = [LINE_TURNS(name), LINE_LEASES(name), LINE_COUNTS(name), LINES()]

    async def join(
        self, account: str, ticket: str, *, arrival: str, longest: int | None
    ) -> tuple[bool | None, str]:
        """Whether the ticket, which is in the line now, is its head, and its arrival; None when there is no
        room."""
        limit = "" if longest is None else longest
        is_head, arrived = await self._run("join", [_member(account, ticket)], arrival, limit)
        return (None if is_head is None else bool(is_head)), arrived

    async def leave(self, account: str, ticket: str) -> None:
        await self._run("leave", [_member(account, ticket)])

    async def renew(self, members: Sequence[str]) -> list[str]:
        """Prolongs the tickets that are in the line; those that are not (any more)."""
        # All on their way at once: a distant Redis takes as long for one batch as the lease allows for all.
        batches = [members[start : start + RENEW_BATCH] for start in range(0, len(members), RENEW_BATCH)]
        lost = await asyncio.gather(*(self._run("renew", batch) for batch in batches))
        return [member for batch in lost for member in batch]

    async def head(self) -> str | None:
        """The ticket at the head."""
        found: str | None = await self._run("head", [])
        return found

    async def position(self, account: str, ticket: str) -> int | None:
        """Where the ticket stands, as `positions_of` predicts it; None when it is not in the line."""
        turns = self._store.send("ZRANGE", self._keys[0], 0, -1, "WITHSCORES")
        counts = self._store.send("HGETALL", self._keys[2])
        rank = self._store.send("ZRANK", LINE_ORDER(account, self.name), ticket)
        parts = _parts(await turns, {each: int(count) for each, count in (await counts).items()})
        own, before = next((part for part in parts if part.account == account), None), await rank
        if own is None or before is None:
            return None
        return 1 + sum(part.count_before(own, before) for part in parts)

    async def _run(
        self, verb: str, members: Sequence[str], arrival: str = "", longest: int | str = ""
    ) -> Any:
        args = [*TURN_ARGS, verb, self.name, self._lease, arrival, longest, *members]
        return await self._store.run(_LINE, keys=self._keys, args=args)


async def _no_check() -> None:
    return


class LinePlace:
    """The place of one ticket, in one line or several, from joining to leaving."""

    def __init__(
        self,
        store: Store,
        lines: Iterable[str],
        ticket: str,
        calls: Subscription,
        *,
        account: str = DEFAULT_ACCOUNT,
        lease: float = LEASE,
    ) -> None:
        self.lines = frozenset(lines)
        self.heads: frozenset[str] = frozenset()
        """The lines in which it is served next."""
        self.position = 0
        """1 when it is served next in any line; behind that as `ask_position` last predicted."""
        self.account = account
        self._store = store
        self._lease = lease
        self._joined: dict[str, _Line] = {}
        self._ticket = ticket
        self._calls = calls
        self._arrival = ""
        self._is_news = False

    def move_to(self, lines: Iterable[str]) -> None:
        """Has it stand in these lines from now on: in the new ones by its time of arrival."""
        if self.lines != (wanted := frozenset(lines)):
            self.lines = wanted
            self._is_news = False
            self.call()

    def call(self) -> None:
        """Has the waiting coroutine look again."""
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
        called at any place, when the ticket's own bell rings; what it raises ends the wait. A Redis that goes
        away does not: both are called again when it is back, so a look may find what the last one has done.
        """
        with ExitStack() as listening:
            is_listening = False

            async def look_if_first() -> T | None:
                nonlocal is_listening
                # What joining has just told need not be asked again: whatever changed since then has rung.
                if not self._is_news:
                    await self.join()
                self._is_news = False
                found = None
                if self.position == 1:
                    if not is_listening:
                        listening.enter_context(self._store.subscribe(bell, into=self._calls))
                        is_listening = True
                    found = await look()
                elif is_listening:  # It is another account's turn: a ring would wake both for nothing.
                    listening.pop_all().close()
                    is_listening = False
                if found is None:
                    await check()
                return found

            async def look_if_possible() -> T | None:
                try:
                    return await look_if_first()
                except StoreUnavailable:  # The connection rings when it is back.
                    return None

            found = await look_at_rings(self._calls, look_if_possible, timeout=timeout, look_every=None)
        if found is None:
            with suppress(Unavailable):
                await self.ask_position()
        return found

    async def join(self, *, longest: int | None = None) -> None:
        """Joins its lines, each at the end or where it stood before; LineFull for a new ticket when `longest`
        of its account already wait in one."""
        lines = self.lines
        await asyncio.gather(*(self._leave(name) for name in self._joined.keys() - lines))
        first, *others = sorted(lines)
        # The first tells the time of arrival in all of them.
        is_first_head = await self._join(first, longest)
        are_heads = await asyncio.gather(*(self._join(name, longest) for name in others))
        heads = zip((first, *others), (is_first_head, *are_heads), strict=True)
        self.heads = frozenset(name for name, is_head in heads if is_head)
        self.position = 1 if self.heads else max(2, self.position)
        # Unless it has been moved meanwhile.
        self._is_news = lines == self.lines

    async def _join(self, name: str, longest: int | None) -> bool:
        """Whether the ticket, which is in the line now, is its head."""
        line = self._joined.setdefault(name, _Line(self._store, name, lease=self._lease))
        is_head, self._arrival = await line.join(
            self.account, self._ticket, arrival=self._arrival, longest=longest
        )
        if is_head is None:
            raise LineFull(f"The queue is full: {longest} already wait")
        return is_head

    async def ask_position(self) -> int:
        """Where the ticket stands: how many are served before it, and itself, if nothing is given back. Of
        several lines, in the one where these are the fewest."""
        asked = [line.position(self.account, self._ticket) for line in self._joined.values()]
        found = [position for position in await asyncio.gather(*asked) if position is not None]
        self.position = min(found, default=self.position)
        return self.position

    async def leave(self) -> None:
        """Makes room for the next tickets, which are called where this was the first."""
        await asyncio.gather(*(self._leave(name) for name in list(self._joined)))

    async def _leave(self, name: str) -> None:
        try:
            await self._joined.pop(name).leave(self.account, self._ticket)
        except Unavailable as error:  # The ticket runs out by itself; what the wait ended with matters more.
            log.warning("line not left", line=name, ticket=self._ticket, reason=error.message)


class Lines:
    """The lines in which tickets of this process wait. Run `run()` as a task of the owner's."""

    def __init__(self, store: Store, *, lease: float = LEASE, look_every: float = LOOK_EVERY) -> None:
        self._store = store
        self._lease = lease
        self._look_every = look_every
        self._places: dict[str, LinePlace] = {}
        """By ticket."""

    @asynccontextmanager
    async def wait(
        self,
        names: str | Collection[str],
        ticket: str,
        *,
        account: str = DEFAULT_ACCOUNT,
        longest: int | None = None,
    ) -> AsyncIterator[LinePlace]:
        """A place at the end of the account's part of the line, or of each of these, left with the block;
        LineFull when `longest` of the account already wait there."""
        WAITS(account)  # InvalidArgument for what no key may hold.
        with self._store.subscribe(bell_of(ticket)) as calls:
            lines = [names] if isinstance(names, str) else names
            place = LinePlace(self._store, lines, ticket, calls, account=account, lease=self._lease)
            self._places[ticket] = place
            try:
                await place.join(longest=longest)
                yield place
            finally:
                # Forgotten before it is left: it must not be prolonged afterwards.
                del self._places[ticket]
                await place.leave()

    async def is_empty(self, name: str) -> bool:
        """Whether no ticket is in the line, of this process or another."""
        return not await self._store.zcard(LINE_LEASES(name))

    def _by_line(self) -> list[tuple[_Line, dict[str, LinePlace]]]:
        """Each line with the places in it, by ticket."""
        found: dict[str, dict[str, LinePlace]] = {}
        for ticket, place in self._places.items():
            for name in place.lines:
                found.setdefault(name, {})[ticket] = place
        return [(_Line(self._store, name, lease=self._lease), here) for name, here in found.items()]

    async def run(self) -> None:
        """Keeps the tickets for ever. Outlives any absence of Redis."""
        renew_every = self._lease / RENEWALS_PER_TTL
        async with asyncio.TaskGroup() as group:
            renew = repeat(self._renew_all, every=renew_every, failure="tickets not prolonged")
            group.create_task(renew, name="prolong tickets")
            look = repeat(self._look, every=self._look_every, failure="lines not looked at")
            group.create_task(look, name="look at lines")

    async def _renew_all(self) -> None:
        await asyncio.gather(*(self._renew(*each) for each in self._by_line()))

    async def _renew(self, line: _Line, here: dict[str, LinePlace]) -> None:
        # Account by account: a batch of few accounts costs Redis less.
        members = sorted(_member(place.account, ticket) for ticket, place in here.items())
        for member in await line.renew(members):
            here[member.partition("|")[2]].call()

    async def _look(self) -> None:
        # A ring can be lost, and the head of a line can die: the head looks all the same.
        lines = self._by_line()
        heads = await asyncio.gather(*(line.head() for line, _ in lines))
        for head, (_, here) in zip(heads, lines, strict=True):
            if head in here:
                here[head].call()


@dataclass(frozen=True)
class _Part:
    """An account's part of a line."""

    account: str
    held: int
    since: float
    """Of its turn: when it got so many browsers."""
    waiting: int

    def count_before(self, other: "_Part", rank: int) -> int:
        """How many of its tickets are served before another's that has so many of its own account before it.

        Each ticket that is served gives its account one browser more and a later turn. So accounts with
        equally many browsers go in the order in which they came to have that many: first those that have
        them now, then those with one less now, then those with two less, and so on.
        """
        if self.account == other.account:
            return rank
        level = other.held + rank
        is_before = (-self.held, self.since, self.account) < (-other.held, other.since, other.account)
        return max(0, min(self.waiting, level - self.held + (is_before and self.held <= level)))


def _parts(turns: Sequence[tuple[str, float]], counts: Mapping[str, int]) -> list[_Part]:
    return [
        _Part(account, int(turn // _ONE_BROWSER), turn % _ONE_BROWSER, counts[account])
        for account, turn in turns
        if counts.get(account)
    ]


@dataclass(frozen=True)
class Waiting:
    """A ticket that waits in a line."""

    line: str
    ticket: str
    account: str
    position: int
    """1 is served next; behind that the order in which they are served if no browser is given back."""
    since: float
    """Unix time."""


async def who_waits(store: Store, prefix: str) -> list[Waiting]:
    """All tickets in the lines whose names begin so: line by line, each in its order."""
    names = sorted(name for name in await store.zrange(LINES()) if name.startswith(prefix))
    asked = [store.send("ZRANGE", LINE_TURNS(name), 0, -1, "WITHSCORES") for name in names]
    turns = [await each for each in asked]
    asked = [
        store.send("ZRANGE", LINE_ORDER(account, name), 0, -1, "WITHSCORES")
        for name, accounts in zip(names, turns, strict=True)
        for account, _ in accounts
    ]
    orders = iter([await each for each in asked])
    return [
        each
        for name, accounts in zip(names, turns, strict=True)
        for each in _in_order(name, [(account, turn, next(orders)) for account, turn in accounts])
    ]


def _in_order(line: str, parts: Sequence[tuple[str, float, Sequence[tuple[str, float]]]]) -> list[Waiting]:
    """The tickets of a line's parts, each an account with its turn and its tickets, in the order in which
    they are served; see `_Part.count_before`."""
    queue = sorted(
        (held + rank, -held, turn % _ONE_BROWSER, account, ticket, arrival)
        for account, turn, tickets in parts
        for held in (int(turn // _ONE_BROWSER),)
        for rank, (ticket, arrival) in enumerate(tickets)
    )
    return [
        Waiting(line=line, ticket=ticket, account=account, position=position, since=float(arrival) / 1e6)
        for position, (_, _, _, account, ticket, arrival) in enumerate(queue, start=1)
    ]
