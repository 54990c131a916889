"""WebDriver's JSON: the shape of values and errors, and bodies that are none."""

import json

import pytest

from remuda.base.errors import InvalidArgument, SessionLost, StoreUnavailable
from remuda.fleet.relay import Answer
from remuda.grid.wire import MAX_VALUES, answer_error, answer_value, is_webdriver, read_json


def test_a_value_is_wrapped_as_clients_expect() -> None:
    answer = answer_value({"ready": True})

    assert answer.status == 200
    assert json.loads(answer.body) == {"value": {"ready": True}}
    assert answer.content_type == "application/json; charset=utf-8"
    assert ("Cache-Control", "no-cache") in answer.headers


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (InvalidArgument("x is 5"), 400, "invalid argument"),
        (SessionLost("It ended"), 404, "invalid session id"),
        (StoreUnavailable("Redis is away"), 503, "unknown error"),
    ],
)
def test_an_error_has_its_status_its_code_and_its_message(
    error: StoreUnavailable, status: int, code: str
) -> None:
    answer: Answer = answer_error(error)

    assert answer.status == status
    assert json.loads(answer.body) == {"value": {"error": code, "message": error.message, "stacktrace": ""}}


@pytest.mark.parametrize(
    "body", [b"", b"{", b"browserName=chrome", b"\xff\xfe", b'{"a": 1} x', b"[" * 100_000]
)
def test_a_body_that_is_no_json_is_the_clients_mistake(body: bytes) -> None:
    with pytest.raises(InvalidArgument, match="The body is not valid JSON"):
        read_json(body)


def test_a_body_of_many_small_values_is_refused_before_it_is_read() -> None:
    with pytest.raises(InvalidArgument, match=f"more than {MAX_VALUES} values"):
        read_json(b"[" + b"[]," * MAX_VALUES + b"[]]")


def test_a_body_that_is_json_is_read() -> None:
    assert read_json('{"name": "Bärbel"}'.encode()) == {"name": "Bärbel"}


@pytest.mark.parametrize(
    "target",
    ["/session", "/session/x/url", "/wd/hub/status", "/wd/hub/api/x", "/status", "/status?a=b", "/se/grid/x"],
)
def test_webdriver_paths_are_known(target: str) -> None:
    assert is_webdriver(target)


@pytest.mark.parametrize("target", ["/", "/sessions", "/api/session", "/wd/hubs", "/statuses", "/status/x"])
def test_other_paths_are_not_taken_for_webdrivers(target: str) -> None:
    assert not is_webdriver(target)
