"""A series says what a plain list of events says, however much of it is rolled up."""

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import servers
from remuda.base import clock
from remuda.fleet.services import STORAGE
from remuda.keyspace.metering import CLOSED
from remuda.metering.model import DAY_MS, Counting, Level, Services, find_change, slot_of
from remuda.metering.push import Metering
from remuda.metering.rollup import Rollup
from remuda.metering.s3 import S3
from remuda.metering.series import HOUR_MS, Series, SeriesReader, SeriesSteps, Step
from remuda.store import Store

SLOT_MS = 900_000
FIRST = (clock.now_ms() - 20 * DAY_MS) // DAY_MS * DAY_MS
SERVICES = Services([S3])
BUCKET = {"bucket": "b", "accountId": "a"}
Event = tuple[int, str, dict[str, Any]]


def plain_series(events: list[Event], grid: SeriesSteps) -> Series:
    """What the series should say: each step added up from a list of all events."""
    series = Series("b")
    changes = [
        (slot_of(timestamp, 15), find_change(S3, action, params, Counting()))
        for timestamp, action, params in events
    ]
    for slot, change in changes:
        if grid.start <= slot < grid.end:
            for name, by in ((name, by) for name, by in change.counts if by):
                numbers = series.counts.setdefault(name, [0] * grid.count)
                numbers[(slot - grid.start) // grid.width] += by

    def state_at(state: str, moment: int) -> int:
        moved = sum(dict(change.moves).get(state, 0) for slot, change in changes if slot <= moment)
        return max(0, moved)

    for state in S3.states:
        series.states[state] = [state_at(state, time + grid.width - 1) for time in grid.times]
        series.held[state] = [
            sum(SLOT_MS * state_at(state, slot) for slot in range(time, time + grid.width, SLOT_MS))
            for time in grid.times
        ]
    return series


MOMENTS = st.integers(0, 5 * 96 - 1)
ACTIONS = st.one_of(
    st.builds(lambda size: ("putObject", {**BUCKET, "newByteLength": size, "oldByteLength": None}), MOMENTS),
    st.just(("getObject", {**BUCKET, "newByteLength": 77})),
    st.just(("deleteObject", {**BUCKET, "byteLength": 300, "numberOfObjects": 1})),
)
# A number is a roll-up of all that is over after so many days.
STEPS = st.lists(st.one_of(st.tuples(MOMENTS, ACTIONS), st.integers(1, 8)), max_size=16)
RANGES = st.lists(
    st.tuples(MOMENTS, st.integers(1, 200), st.sampled_from(["slot", "hour", "day"])), min_size=1, max_size=4
)


@settings(max_examples=20, deadline=None)
@given(steps=STEPS, ranges=RANGES)
def test_every_series_is_that_of_a_plain_list_of_events(
    embedded_url: str, steps: list[Any], ranges: list[tuple[int, int, Step]]
) -> None:
    async def history() -> None:
        async with Store(embedded_url) as store:
            metering, rollup = Metering(store), Rollup(store, SERVICES)
            events: list[Event] = []
            for step in steps:
                if isinstance(step, int):
                    await rollup.run_once(FIRST + step * DAY_MS)
                    continue
                place, (action, params) = step
                events.append((FIRST + place * SLOT_MS + 5, action, params))
                await metering.push(action, params, timestamp=events[-1][0])
            reader = SeriesReader(store, S3, precision=15)
            for first, length, step in ranges:
                start = FIRST + first * SLOT_MS
                grid = SeriesSteps.over(start, start + length * SLOT_MS, step, 15)
                assert await reader.read(Level.BUCKETS, ["b"], grid) == [plain_series(events, grid)]

    servers.empty(embedded_url)
    asyncio.run(history())


async def test_a_time_slot_that_is_rolled_up_and_not_closed_yet_counts_once(store: Store) -> None:
    metering = Metering(store)
    put = {**BUCKET, "newByteLength": 10, "oldByteLength": None}
    events = [(FIRST + place * SLOT_MS, "putObject", put) for place in (1, 5)]
    for timestamp, action, params in events:
        await metering.push(action, params, timestamp=timestamp)
    await Rollup(store, SERVICES).run_once(FIRST + DAY_MS)

    # As if the process had been killed between the two.
    await store.set(CLOSED(), FIRST + 3 * SLOT_MS)
    grid = SeriesSteps.over(FIRST, FIRST + 8 * SLOT_MS, "slot", 15)

    assert await SeriesReader(store, S3, precision=15).read(Level.BUCKETS, ["b"], grid) == [
        plain_series(events, grid)
    ]


async def test_what_is_stored_now_counts_until_now(store: Store) -> None:
    now = clock.now_ms()
    await Metering(store).push("putObject", {**BUCKET, "newByteLength": 1000, "oldByteLength": None})

    grid = SeriesSteps.over(now - HOUR_MS, now + HOUR_MS, "hour", 15)
    (series,) = await SeriesReader(store, S3, precision=15).read(Level.ACCOUNTS, ["a"], grid)

    # From the beginning of this time slot, and not into the future.
    longest = clock.now_ms() - slot_of(now, 15)
    assert 0 <= sum(series.held[STORAGE]) <= 1000 * longest
    assert series.states[STORAGE][-1] == 1000


async def test_what_was_never_used_is_not_looked_for(store: Store) -> None:
    grid = SeriesSteps.over(FIRST, FIRST + 20 * DAY_MS, "day", 15)

    (series,) = await SeriesReader(store, S3, precision=15).read(Level.ACCOUNTS, ["never"], grid)

    assert series.counts == {}
    assert series.states[STORAGE] == [0] * 20
