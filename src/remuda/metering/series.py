"""Reads usage as series: what resources used in each time slot, hour or day, and what states were then.

Of one resource everything is read in one transaction, so that nothing moves between two reads. Before the
oldest point of a state that is kept, the state follows from its changes, which are rolled up.
"""

import asyncio
from collections.abc import Awaitable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from remuda.base import clock
from remuda.fleet.services import Service
from remuda.keyspace.key import Name
from remuda.keyspace.metering import (
    CLOSED,
    LATE,
    METER_STATE,
    METER_USAGE,
    RESOURCES,
    ROLLED_DAYS,
    ROLLED_SLOTS,
)
from remuda.metering import pack
from remuda.metering.model import DAY_MS, Level, Precision
from remuda.metering.rollup import MINUTE_MS, as_bytes
from remuda.metering.usage import MGET_BATCH
from remuda.store import Store

Step = Literal["slot", "hour", "day"]
HOUR_MS = 3_600_000
TOGETHER = 8
"""Resources that are read at a time: each is a transaction, and Redis does others between them."""


@dataclass(frozen=True)
class SeriesSteps:
    """The steps of a series: `count` of them from `start` on, each of `width` milliseconds."""

    start: int
    width: int
    count: int

    @classmethod
    def over(cls, start: int, end: int, step: Step, precision: Precision) -> "SeriesSteps":
        """The steps that have a part of the time from start to end, of which the end is not part."""
        width = {"slot": precision * MINUTE_MS, "hour": HOUR_MS, "day": DAY_MS}[step]
        first = start - start % width
        return cls(first, width, max(0, -(-(end - first) // width)))

    @property
    def end(self) -> int:
        return self.start + self.width * self.count

    @property
    def times(self) -> list[int]:
        """When each step begins."""
        return list(range(self.start, self.end, self.width))


@dataclass
class Series:
    """What one resource used, step by step."""

    resource: str
    counts: dict[str, list[int]] = field(default_factory=dict)
    """Operation or measure -> how often or how much in each step; those that are nowhere used are missing."""
    states: dict[str, list[int]] = field(default_factory=dict)
    """State -> its value at the end of each step."""
    held: dict[str, list[int]] = field(default_factory=dict)
    """State -> its value times the milliseconds for which it had that, in each step."""


class SeriesReader:
    """Reads the series of one service."""

    def __init__(self, store: Store, service: Service, *, precision: Precision) -> None:
        self._store = store
        self._service = service
        self._slot = precision * MINUTE_MS

    async def read(self, level: Level, resources: Sequence[str], steps: SeriesSteps) -> list[Series]:
        """The series of each resource, in their order."""
        if not resources:
            return []
        known = await self._store.send("ZMSCORE", RESOURCES(self._service.name, level), *resources)
        gate = asyncio.Semaphore(TOGETHER)

        async def read(resource: str) -> Series:
            reading = _Resource(self._store, self._service, level, resource, self._slot)
            async with gate:
                while (found := await reading.read(steps)) is None:
                    pass  # Days were packed meanwhile.
                return found

        return await asyncio.gather(
            *(
                # Of what was never used nothing has to be looked for.
                self._nothing(resource, steps) if score is None else read(resource)
                for resource, score in zip(resources, known, strict=True)
            )
        )

    async def _nothing(self, resource: str, steps: SeriesSteps) -> Series:
        nothing = {state: [0] * steps.count for state in self._service.states}
        return Series(resource, {}, nothing, {state: list(each) for state, each in nothing.items()})


class _Resource:
    """Reads one resource."""

    def __init__(self, store: Store, service: Service, level: Level, resource: str, slot: int) -> None:
        self._store = store
        self._service = service
        self._metered = (service.name, level, resource)
        self._slot = slot

    async def read(self, steps: SeriesSteps) -> Series | None:
        """Its series; None if days were packed while it was read."""
        now = clock.now_ms()
        end = min(steps.end, now - now % self._slot + self._slot)
        service, metered = self._service, self._metered
        oldest = await self._oldest_points(self._store.send)
        closed = int(await self._store.get(CLOSED()) or 0)
        days = range(steps.start // DAY_MS, (closed - 1) // DAY_MS + 1) if steps.start < closed else range(0)
        # Of later days, only by how much they have changed a state is of interest, unless its oldest point is
        # in one of them.
        split = {day for day in days if day * DAY_MS < end}
        split |= {slot // DAY_MS for slot, _ in oldest.values() if slot // DAY_MS in days}
        names = [*_single_names(service, metered, range(max(steps.start, closed), end, self._slot))]
        async with self._store.transaction() as commands:
            singles = [
                commands.send("MGET", *names[start : start + MGET_BATCH])
                for start in range(0, len(names), MGET_BATCH)
            ]
            # All days, not only those since the start: what came late may have changed a state long before.
            totals = commands.hgetall(ROLLED_DAYS(*metered)) if service.states else None
            ordered = sorted(split)
            slots = commands.send("HMGET", ROLLED_SLOTS(*metered), *map(str, ordered)) if ordered else None
            late = commands.hgetall(LATE(*metered))
            points = {
                state: commands.send(
                    "ZRANGE", METER_STATE(*metered, state), "-inf", "+inf", "BYSCORE", "WITHSCORES"
                )
                for state in service.states
            }
            is_closed = commands.get(CLOSED())
        if int(await is_closed or 0) != closed:
            return None  # A time slot was rolled up between the two looks.
        changes: list[tuple[str, int, int]] = []
        for day_name, blob in (await totals if totals else {}).items():
            if int(day_name) not in split:
                of_day = pack.decode_totals(as_bytes(blob))
                changes += (
                    (name, int(day_name) * DAY_MS, by)
                    for name, by in of_day.items()
                    if name in service.states
                )
        for day, blob in zip(ordered, await slots if slots else (), strict=False):
            if blob is not None:
                # A time slot that is rolled up and not closed yet is still read from its single keys.
                changes += (each for each in _slots_of(day, pack.unpack(as_bytes(blob))) if each[1] < closed)
        for late_field, amount in (await late).items():
            moment, _, name = late_field.partition(":")
            changes.append((name, int(moment), int(amount)))
        values = [value for reply in singles for value in await reply]
        series = Series(metered[2])
        for name, slot, by in [*changes, *_single_changes(service, steps.start, closed, self._slot, values)]:
            if by and name not in service.states and steps.start <= slot < end:
                numbers = series.counts.setdefault(name, [0] * steps.count)
                numbers[(slot - steps.start) // steps.width] += by
        for state in service.states:
            recorded = _read_points(await points[state])
            if (recorded[0] if recorded else None) != oldest.get(state):
                return None
            line = _StateLine(recorded, [(slot, by) for name, slot, by in changes if name == state], closed)
            series.states[state], series.held[state] = line.over(steps, end, now)
        return series

    async def _oldest_points(self, send: Any) -> dict[str, tuple[int, int]]:
        """State -> time slot and value of its oldest point that is kept."""
        replies: dict[str, Awaitable[Any]] = {
            state: send("ZRANGE", METER_STATE(*self._metered, state), 0, 0, "WITHSCORES")
            for state in self._service.states
        }
        found = {state: _read_points(await reply) for state, reply in replies.items()}
        return {state: points[0] for state, points in found.items() if points}


class _StateLine:
    """A state in time: its recorded points, and what changed it before the oldest of them."""

    def __init__(
        self, points: Sequence[tuple[int, int]], changes: Sequence[tuple[int, int]], closed: int
    ) -> None:
        by_slot: dict[int, int] = {}
        for at, by in changes:
            by_slot[at] = by_slot.get(at, 0) + by
        before: list[tuple[int, int]] = []
        if points and points[0][0] < closed:
            # Back from the oldest point to what it was before all changes that were read.
            slot, value = points[0]
            for at in sorted((at for at in by_slot if at <= slot), reverse=True):
                if at != slot:
                    before.append((at, value))
                value -= by_slot[at]
            before.append((-1, value))
            before.reverse()
        else:
            # What is not rolled up began with this point, but for what came late before it.
            value = 0
            for at in sorted(at for at in by_slot if not points or at < points[0][0]):
                value += by_slot[at]
                before.append((at, value))
        self._points = [*before, *points]

    def over(self, steps: SeriesSteps, end: int, now: int) -> tuple[list[int], list[int]]:
        """The value at the end of each step, and value times milliseconds in each step, until now."""
        values, held = [0] * steps.count, [0] * steps.count
        place, value = 0, 0
        points = self._points
        while place < len(points) and points[place][0] <= steps.start:
            value = max(0, points[place][1])
            place += 1
        at, until = steps.start, min(end, max(now, steps.start))
        for step in range(steps.count):
            step_end = steps.start + (step + 1) * steps.width
            while place < len(points) and points[place][0] < step_end:
                moment = points[place][0]
                held[step] += value * max(0, min(moment, until) - at)
                at = max(at, min(moment, until))
                value = max(0, points[place][1])
                place += 1
            values[step] = value
            held[step] += value * max(0, min(step_end, until) - at)
            at = max(at, min(step_end, until))
        return values, held


def _read_points(reply: Sequence[tuple[str, float]]) -> list[tuple[int, int]]:
    """Time slot and value of each point. Utapi has written some that are not numbers."""
    points = []
    for member, score in reply:
        text = member.partition(":")[0]
        if text.removeprefix("-").isdecimal():
            points.append((int(score), int(text)))
    return points


def _single_names(service: Service, metered: tuple[str, Level, str], slots: range) -> Iterator[Name]:
    template = METER_USAGE.template(service.name, metered[1])
    for slot in slots:
        for name in service.counted:
            yield Name(template % (slot, metered[2], name))


def _single_changes(
    service: Service, start: int, closed: int, width: int, values: Sequence[str | None]
) -> Iterator[tuple[str, int, int]]:
    names, first = service.counted, max(start, closed)
    for place, value in enumerate(values):
        if value is not None:
            yield names[place % len(names)], first + place // len(names) * width, int(value)


def _slots_of(day: int, columns: pack.Day) -> Iterator[tuple[str, int, int]]:
    for name, numbers in columns.items():
        width = DAY_MS // len(numbers)
        for index, number in enumerate(numbers):
            if number:
                yield name, day * DAY_MS + index * width, number
