"""Which bytes a request gets."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.storage.ranges import ByteSpan, RangeOutcome, Version, decide, find_span

VERSION = Version('"abc"', 1_800_000_000.5, 100)
OLD_DATE, LAST_MODIFIED = "Fri, 15 Jan 2027 07:59:59 GMT", "Fri, 15 Jan 2027 08:00:00 GMT"
WHOLE, KNOWN = RangeOutcome(200, ByteSpan(0, 100)), RangeOutcome(304, ByteSpan(0, 0))


@pytest.mark.parametrize(
    ("header", "span"),
    [
        ("bytes=0-", ByteSpan(0, 100)),
        ("bytes=0-0", ByteSpan(0, 1)),
        ("bytes=10-19", ByteSpan(10, 20)),
        ("bytes=90-1000", ByteSpan(90, 100)),
        ("bytes=-10", ByteSpan(90, 100)),
        ("bytes=-1000", ByteSpan(0, 100)),
        ("BYTES = 1 - 2", ByteSpan(1, 3)),
        ("bytes=5-4", None),
        ("bytes=-", None),
        ("bytes=", None),
        ("bytes=a-b", None),
        ("bytes=0-1,5-6", None),
        ("lines=0-1", None),
        ("bytes=٣-", None),
        ("bytes=0-1,a-b", None),
        ("bytes=200-,a-b", None),
        ("bytes=,", None),
        ("bytes=0-1,200-", None),
        ("bytes=10-" + "9" * 5000, ByteSpan(10, 100)),
        ("bytes=-" + "9" * 5000, ByteSpan(0, 100)),
        ("bytes=" + "0" * 5000 + "10-19", ByteSpan(10, 20)),
        ("", None),
    ],
)
def test_a_range_is_understood_or_ignored(header: str, span: ByteSpan | None) -> None:
    assert find_span(header, 100) == span


@pytest.mark.parametrize(
    "header",
    [
        "bytes=100-",
        "bytes=100-200",
        "bytes=-0",
        "bytes=99999999999999999999-",
        "bytes=" + "9" * 5000 + "-",
        "bytes=100-,200-300, -0",
    ],
)
def test_a_range_beyond_the_file_cannot_be_satisfied(header: str) -> None:
    assert decide("GET", {"range": header}, VERSION).status == 416


def test_a_range_of_blanks_takes_no_time() -> None:
    blanks = " " * 2_000
    began = time.thread_time()

    assert find_span(f"bytes={blanks}-{blanks}x", 100) is None
    assert time.thread_time() - began < 2.0


def test_of_an_empty_file_there_is_no_part() -> None:
    assert decide("GET", {"range": "bytes=0-"}, Version('"e"', 0.0, 0)).status == 416


@given(st.integers(0, 200), st.integers(0, 200), st.integers(1, 150))
def test_a_part_lies_within_the_file(start: int, last: int, size: int) -> None:
    status, span = decide("GET", {"range": f"bytes={start}-{last}"}, Version('"e"', 0.0, size))

    assert status in (200, 206, 416)
    if status == 206:
        assert 0 <= span.start < span.stop <= size


@pytest.mark.parametrize(
    ("headers", "outcome"),
    [
        ({}, WHOLE),
        ({"if-none-match": '"abc"'}, KNOWN),
        ({"if-none-match": 'W/"abc"'}, KNOWN),
        ({"if-none-match": '"x", "abc"'}, KNOWN),
        ({"if-none-match": "*"}, KNOWN),
        ({"if-none-match": '"x"'}, WHOLE),
        ({"if-none-match": '"x"', "if-modified-since": LAST_MODIFIED}, WHOLE),
        ({"if-modified-since": LAST_MODIFIED}, KNOWN),
        ({"if-modified-since": OLD_DATE}, WHOLE),
        ({"if-modified-since": "soon"}, WHOLE),
        ({"range": "bytes=1-2", "if-none-match": '"abc"'}, KNOWN),
        ({"range": "bytes=1-2", "if-range": '"abc"'}, RangeOutcome(206, ByteSpan(1, 3))),
        ({"range": "bytes=1-2", "if-range": LAST_MODIFIED}, RangeOutcome(206, ByteSpan(1, 3))),
        ({"range": "bytes=1-2", "if-range": 'W/"abc"'}, WHOLE),
        ({"range": "bytes=1-2", "if-range": '"x"'}, WHOLE),
        ({"range": "bytes=1-2", "if-range": OLD_DATE}, WHOLE),
        ({"range": "bytes=100-", "if-range": '"abc"'}, RangeOutcome(416, ByteSpan(0, 0))),
        ({"range": "bytes=100-", "if-range": '"x"'}, WHOLE),
        ({"range": "bytes=100-", "if-none-match": '"abc"'}, KNOWN),
    ],
)
def test_conditions_are_heeded_in_their_order(headers: dict[str, str], outcome: RangeOutcome) -> None:
    assert decide("GET", headers, VERSION) == outcome


def test_a_head_has_no_range() -> None:
    assert decide("HEAD", {"range": "bytes=1-2"}, VERSION) == WHOLE
