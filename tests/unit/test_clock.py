"""The clock: what is written down is RFC 3339 in UTC and reads back as the same moment."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.base import clock


def test_a_moment_is_written_in_utc_with_milliseconds() -> None:
    assert clock.rfc3339(1767323045.678) == "2026-01-02T03:04:05.678Z"
    assert clock.rfc3339(0) == "1970-01-01T00:00:00.000Z"


def test_without_a_moment_now_is_written() -> None:
    before = time.time()

    written = clock.parse_rfc3339(clock.rfc3339())

    assert before - 0.001 <= written <= time.time()


def test_milliseconds_and_seconds_tell_the_same_time() -> None:
    assert abs(clock.now_ms() / 1000 - clock.now()) < 1


@given(st.integers(min_value=0, max_value=4_000_000_000_000))
def test_a_written_moment_reads_back_to_the_millisecond(moment_ms: int) -> None:
    written = clock.rfc3339(moment_ms / 1000)

    assert abs(clock.parse_rfc3339(written) * 1000 - moment_ms) <= 1


def test_another_time_zone_is_understood() -> None:
    assert clock.parse_rfc3339("2026-01-02T05:04:05+02:00") == clock.parse_rfc3339("2026-01-02T03:04:05Z")


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01T00:00:00Z", "2026-01-02T03:04:05"])
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        clock.parse_rfc3339(text)
