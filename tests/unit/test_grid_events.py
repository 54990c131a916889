"""Events that a client tells of its test."""

from typing import Any

import pytest

from remuda.base.errors import InvalidArgument
from remuda.grid.node.events import MAX_PAYLOAD, MAX_TYPE, read_event


def test_an_event_has_a_type_and_may_have_a_payload() -> None:
    assert read_event({"eventType": "test:step", "payload": {"step": 3}}) == ("test:step", {"step": 3})
    assert read_event({"eventType": "test:failed"}) == ("test:failed", {})


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        {},
        {"eventType": ""},
        {"eventType": 7},
        {"eventType": "x" * (MAX_TYPE + 1)},
        {"eventType": "x", "payload": ["y"]},
        {"eventType": "x", "payload": {"y": "z" * MAX_PAYLOAD}},
    ],
)
def test_what_cannot_be_kept_is_refused(body: Any) -> None:
    with pytest.raises(InvalidArgument):
        read_event(body)
