"""The body of a push is read, or refused with what is wrong with it: it never fails in another way."""

import math

import pytest

from remuda.base.errors import InvalidArgument
from remuda.metering.http import read_events


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[" * 100_000,
        b'{"action":' * 100_000,
        b'{"action": 1, "timestamp": ' + b"1" * 5000 + b"}",
        b'{"action": "headBucket", "params": {"bucket": NaN}}',
        b'"\xff"',
    ],
    ids=["nothing", "deep list", "deep object", "long number", "NaN", "no UTF-8"],
)
def test_a_body_that_is_not_valid_json_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidArgument, match="The body is not valid JSON"):
        read_events(body)


def test_a_number_that_is_too_great_is_left_to_the_check_of_its_event() -> None:
    (event,) = read_events(b'{"action": "getObject", "params": {"newByteLength": 1e400}}')

    assert event.params == {"newByteLength": math.inf}
