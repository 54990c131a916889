"""Time slots: quarters of an hour in UTC, and nothing about them depends on a calendar."""

from datetime import UTC, datetime
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from remuda.fleet import timeslots

MOMENTS = st.integers(min_value=0, max_value=4_000_000_000_000)


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def test_a_moment_belongs_to_the_quarter_of_an_hour_it_lies_in() -> None:
    assert timeslots.floor(at("2026-01-02 03:14:59.999")) == at("2026-01-02 03:00")
    assert timeslots.floor(at("2026-01-02 03:15")) == at("2026-01-02 03:15")


@given(MOMENTS)
def test_a_moment_lies_in_the_slot_that_it_is_floored_to(moment: int) -> None:
    start = timeslots.floor(moment)

    assert start <= moment < start + timeslots.LENGTH_MS
    assert datetime.fromtimestamp(start / 1000, UTC).minute in (0, 15, 30, 45)
    assert datetime.fromtimestamp(start / 1000, UTC).second == 0


@given(MOMENTS)
def test_a_slot_starts_where_it_is_floored_to_and_ends_a_millisecond_before_the_next(moment: int) -> None:
    start = timeslots.floor(moment)

    assert timeslots.is_start(start)
    assert timeslots.is_end(start + timeslots.LENGTH_MS - 1)
    assert not timeslots.is_start(start + 1)
    assert not timeslots.is_end(start)


def test_a_range_touches_every_slot_from_its_first_to_its_last_moment() -> None:
    touched = timeslots.between(at("2026-01-02 03:10"), at("2026-01-02 03:30"))

    assert list(touched) == [at("2026-01-02 03:00"), at("2026-01-02 03:15"), at("2026-01-02 03:30")]


def test_a_range_that_ends_with_a_slot_does_not_touch_the_next() -> None:
    assert list(timeslots.between(0, timeslots.LENGTH_MS - 1)) == [0]


def test_a_single_moment_touches_one_slot() -> None:
    assert list(timeslots.between(at("2026-01-02 03:20"), at("2026-01-02 03:20"))) == [at("2026-01-02 03:15")]


@given(MOMENTS, st.integers(min_value=0, max_value=10 * timeslots.LENGTH_MS))
def test_slots_of_a_range_follow_each_other_without_a_gap(start: int, length: int) -> None:
    touched = list(timeslots.between(start, start + length))

    assert touched[0] == timeslots.floor(start)
    assert touched[-1] == timeslots.floor(start + length)
    assert {b - a for a, b in pairwise(touched)} <= {timeslots.LENGTH_MS}
