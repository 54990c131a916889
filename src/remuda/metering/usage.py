"""Reads usage: what resources used in a range of time slots, exactly, however much of it is rolled up.

All of a resource is read in one transaction, so that nothing moves between two reads. Whole days are added
up from the rolled-up days, the rest from their time slots, and what is not rolled up from the single keys.
Nothing here scans.
"""

import asyncio
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from remuda.base import clock
from remuda.base.errors import Unavailable
from remuda.fleet.services import Service
from remuda.keyspace.key import Name, ZSetName
from remuda.keyspace.metering import (
    ADOPTED,
    CLOSED,
    LATE,
    METER_STATE,
    METER_USAGE,
    RESOURCES,
    ROLLED_DAYS,
    ROLLED_SLOTS,
)
from remuda.metering import pack
from remuda.metering.model import DAY_MS, Level, Precision, slot_of
from remuda.metering.push import FUTURE_MS
from remuda.metering.rollup import MINUTE_MS, as_bytes
from remuda.store import Store, Transaction

MGET_BATCH = 1000
"""Keys of one command: it takes Redis well under a millisecond."""
TOGETHER = 10
"""Resources of one transaction."""
AT_A_TIME = 2
"""Transactions under way, of all who ask: a long list must not keep the process and Redis from all others."""
MOST_NAMED_DAYS = 366
"""Of a longer range, all rolled-up days of a resource are read: naming each day would cost more."""
UNADOPTED_DAYS = 100
"""How far back the single keys of another writer are read, as long as nothing has rolled them up."""
MOST_UNKNOWN = 3
"""Unknown resources for which these keys are read at a time: half a million keys each."""

Points = Sequence[tuple[str, float]]


@dataclass
class Usage:
    """What one resource used in a range."""

    resource: str
    counts: dict[str, int] = field(default_factory=dict)
    """Operation or measure -> how often or how much."""
    states: dict[str, tuple[int, int]] = field(default_factory=dict)
    """State -> its value when the first time slot had ended, and at the end of the range."""


@dataclass(frozen=True)
class TimeRange:
    """From the beginning of a time slot to the last millisecond that counts."""

    start: int
    end: int


class UsageReader:
    """Reads the usage of one service."""

    def __init__(self, store: Store, service: Service, *, precision: Precision) -> None:
        self._store = store
        self._service = service
        self._precision = precision
        self._gate = asyncio.Semaphore(AT_A_TIME)

    async def read(self, level: Level, resources: Sequence[str], asked: TimeRange) -> list[Usage]:
        """The usage of each resource, in their order. Unavailable if too many of them are unknown before what
        Utapi has counted was looked for."""
        # Nothing is counted later than this, so nothing is looked for there.
        asked = TimeRange(asked.start, min(asked.end, clock.now_ms() + FUTURE_MS))
        names = list(dict.fromkeys(resources))
        found: dict[str, Usage] = {}
        # One after the other, so that other requests get their turn in between.
        for start in range(0, len(names), TOGETHER):
            async with self._gate:
                for usage in await self._read(level, names[start : start + TOGETHER], asked):
                    found[usage.resource] = usage
        return [found[resource] for resource in resources]

    async def _read(self, level: Level, resources: Sequence[str], asked: TimeRange) -> list[Usage]:
        name, states = self._service.name, self._service.states
        template = METER_STATE.template(name, level)
        while True:
            closed, adopted = self._store.get(CLOSED()), self._store.exists(ADOPTED())
            scores = self._store.send("ZMSCORE", RESOURCES(name, level), *resources)
            oldest = {
                (resource, state): self._store.send(
                    "ZRANGE", ZSetName(template % (resource, state)), 0, 0, "WITHSCORES"
                )
                for resource in resources
                for state in states
            }
            rolled_until = int(await closed or 0)
            is_adopted = bool(await adopted)
            readings, unknown = [], 0
            async with self._store.transaction() as commands:
                for resource, score in zip(resources, await scores, strict=True):
                    firsts = {state: await oldest[resource, state] for state in states}
                    # What is unknown here was written by Utapi. Once its keys were looked for, a state must
                    # tell of it: of a name that was made up, a hundred days of single keys are not read.
                    is_unknown = score is None and not any(firsts.values())
                    unknown += is_unknown and not is_adopted
                    if unknown > MOST_UNKNOWN:
                        raise Unavailable(
                            f"Usage of many unknown {level} can be read when the role `metering` has looked "
                            "for what Utapi has counted, which it does at its start"
                        )
                    is_rolled = score is not None or (is_adopted and is_unknown)
                    reading = _Reading(self._service, level, resource, asked, firsts)
                    reading.send(
                        commands, closed=rolled_until if is_rolled else 0, step=self._precision * MINUTE_MS
                    )
                    readings.append(reading)
            usages = [await each.finish() for each in readings]
            if all(usage is not None for usage in usages):
                return [usage for usage in usages if usage is not None]


class _Reading:
    """The commands that read one resource, and what their replies add up to."""

    def __init__(
        self,
        service: Service,
        level: Level,
        resource: str,
        asked: TimeRange,
        oldest: Mapping[str, Points],
    ) -> None:
        self._service, self._asked, self._oldest = service, asked, oldest
        self._metered = (service.name, level, resource)
        self._closed = 0
        self._singles: list[Awaitable[list[str | None]]] = []
        self._points: dict[str, list[Awaitable[Any]]] = {}
        self._days = range(0)
        self._names_days = True
        self._split: list[int] = []
        self._rolled: tuple[Awaitable[Any], ...] = ()

    def send(self, commands: Transaction, *, closed: int, step: int) -> None:
        """Sends what reads the resource."""
        service, asked, metered = self._service, self._asked, self._metered
        self._closed = closed
        # By the template, not by the key itself: a day of single keys is thousands of names.
        template = METER_USAGE.template(service.name, metered[1])
        first_open = max(asked.start, closed or asked.end - UNADOPTED_DAYS * DAY_MS)
        names = [
            Name(template % (slot, metered[2], name))
            for slot in range(first_open - first_open % step, asked.end + 1, step)
            for name in service.counted
        ]
        for start in range(0, len(names), MGET_BATCH):
            self._singles.append(commands.send("MGET", *names[start : start + MGET_BATCH]))
        for state in service.states:
            key = ZSetName(METER_STATE.template(service.name, metered[1]) % (metered[2], state))
            self._points[state] = [
                *(
                    commands.send("ZRANGE", key, moment, "-inf", "BYSCORE", "REV", "LIMIT", 0, 10)
                    for moment in (asked.start, asked.end)
                ),
                commands.send("ZRANGE", key, 0, 0, "WITHSCORES"),
            ]
        if asked.start < closed:
            self._days = range(asked.start // DAY_MS, (closed - 1) // DAY_MS + 1)
            # Of these days only a part may count: the ends of the range, those of the oldest points, and the
            # day of which some time slots are rolled up already and still read from their single keys.
            moments = [
                asked.start,
                asked.end,
                closed - 1,
                *(int(points[0][1]) for points in self._oldest.values() if points),
            ]
            self._split = sorted({day for moment in moments if (day := moment // DAY_MS) in self._days})
            rolled = ROLLED_DAYS(*metered)
            self._names_days = len(self._days) <= MOST_NAMED_DAYS
            self._rolled = (
                commands.hmget(rolled, *map(str, self._days))
                if self._names_days
                else commands.hgetall(rolled),
                commands.send("HMGET", ROLLED_SLOTS(*metered), *(map(str, self._split or [0]))),
                commands.hgetall(LATE(*metered)),
            )

    async def finish(self) -> Usage | None:
        """What the replies add up to, after the transaction; None if days were packed just before it."""
        counts = dict.fromkeys(self._service.counted, 0)
        order, place = self._service.counted, 0
        for reply in self._singles:
            for value in await reply:
                if value is not None:
                    counts[order[place % len(order)]] += int(value)
                place += 1
        at = {state: [await reply for reply in replies] for state, replies in self._points.items()}
        if any(
            list(map(list, points[2])) != list(map(list, self._oldest[state])) for state, points in at.items()
        ):
            return None
        start, end = self._asked.start, self._asked.end
        since_start, since_end = dict.fromkeys(at, 0), dict.fromkeys(at, 0)
        oldest_slot = {state: int(points[2][0][1]) if points[2] else 0 for state, points in at.items()}
        for first, columns in self._columns([await reply for reply in self._rolled]):
            for name, numbers in columns.items():
                if name in counts:
                    counts[name] += _sum(numbers, first, start, min(end, self._closed - 1))
                elif name in oldest_slot:
                    since_start[name] += _sum(numbers, first, start + 1, oldest_slot[name])
                    since_end[name] += _sum(numbers, first, end + 1, oldest_slot[name])
        states = {}
        for state, (at_start, at_end, first) in at.items():
            # Before its oldest point, a state is what that says, less what changed until then. If that is not
            # rolled up, there was nothing before it.
            oldest = _value_of([first[0][0]]) if first and oldest_slot[state] < self._closed else None
            states[state] = (
                _state(_value_of(at_start), oldest, since_start[state]),
                _state(_value_of(at_end), oldest, since_end[state]),
            )
        return Usage(self._metered[2], counts, states)

    def _columns(self, rolled: Sequence[Any]) -> Iterator[tuple[int, pack.Day]]:
        """The first millisecond and the columns of all days that are rolled up, then of what came late. A day
        that counts as a whole has one time slot."""
        if not rolled:
            return
        totals, split, late = rolled
        named = zip(self._days, totals, strict=True) if self._names_days else totals.items()
        for day, blob in ((int(day), blob) for day, blob in named if int(day) in self._days):
            if blob is not None and day not in self._split:
                sums = pack.decode_totals(as_bytes(blob))
                yield day * DAY_MS, {name: [total] for name, total in sums.items()}
        for day, blob in zip(self._split, split, strict=False):
            if blob is not None:
                yield day * DAY_MS, pack.unpack(as_bytes(blob))
        for late_field, by in late.items():
            slot, _, name = late_field.partition(":")
            yield int(slot), {name: [int(by)]}


def _sum(numbers: Sequence[int], first: int, start: int, end: int) -> int:
    """The sum of the time slots that begin from `start` to `end`, of a day that begins at `first`."""
    if len(numbers) == 1:
        return numbers[0] if start <= first <= end else 0
    width = DAY_MS // len(numbers)
    return sum(numbers[max(0, -((first - start) // width)) : max(0, (end - first) // width + 1)])


def _value_of(members: Sequence[str]) -> int | None:
    """The newest value among these points. Utapi has written some that are not numbers."""
    for member in members:
        value = member.partition(":")[0]
        if value.removeprefix("-").isdecimal():
            return int(value)
    return None


def _state(found: int | None, oldest: int | None, changed_since: int) -> int:
    """The state at a moment: as it was recorded, or else the oldest that is known less what changed since.

    A negative one misses what was there before metering began, so nothing is known of it.
    """
    if found is None:
        found = 0 if oldest is None else oldest - changed_since
    return max(0, found)


def recent_range(precision: Precision) -> TimeRange:
    """The last time slot that is over, and the present one so far."""
    now = clock.now_ms()
    return TimeRange(slot_of(now, precision) - precision * MINUTE_MS, now)
