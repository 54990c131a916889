"""What is kept of a request's capabilities once no node needs them."""

import hashlib
from typing import Any

import msgspec
import pytest

from remuda.base.errors import InvalidArgument
from remuda.grid.capabilities import MAX_SETS, sets_of
from remuda.grid.omission import LARGE, LONG, MAX_REQUEST, encode_request

EXTENSION = "x" * (LONG + 1)
OMITTED = {"omitted": {"bytes": LONG + 1, "sha256": hashlib.sha256(EXTENSION.encode()).hexdigest()}}


def shortened(*sets: dict[str, Any]) -> Any:
    short = encode_request(sets).short
    return None if short is None else sets_of(msgspec.json.decode(short))


@pytest.mark.parametrize(
    "capabilities",
    [
        {},
        {"browserName": "chrome", "goog:chromeOptions": {"args": ["--headless"] * 300}},
        {"se:name": "x" * LONG},
    ],
)
def test_what_is_small_stays_as_it_is(capabilities: dict[str, Any]) -> None:
    requested = encode_request([capabilities])

    assert requested.short is None
    assert msgspec.json.decode(requested.whole) == {"alwaysMatch": capabilities, "firstMatch": [{}]}


def test_a_long_string_becomes_its_size_and_digest_wherever_it_stands() -> None:
    capabilities = {
        "browserName": "chrome",
        "goog:chromeOptions": {"extensions": ["small", EXTENSION], "args": ["-a"]},
        "moz:firefoxOptions": {"profile": EXTENSION},
    }

    assert shortened(capabilities) == [
        {
            "browserName": "chrome",
            "goog:chromeOptions": {"extensions": ["small", OMITTED], "args": ["-a"]},
            "moz:firefoxOptions": {"profile": OMITTED},
        }
    ]


def test_bytes_count_not_characters() -> None:
    assert shortened({"se:name": "\N{HORSE}" * (LONG // 4)}) is None
    assert shortened({"se:name": "\N{HORSE}" * (LONG // 4 + 1)})[0]["se:name"]["omitted"]["bytes"] == LONG + 4


def many(count: int) -> list[str]:
    return [f"--switch-{number}" for number in range(count)]


@pytest.mark.parametrize(
    "capabilities",
    [
        {"goog:chromeOptions": {"args": many(LARGE)}, "browserName": "chrome"},
        {"goog:chromeOptions": {"x" * LARGE: 1}, "browserName": "chrome"},
        {f"se:{number}": "x" * 200 for number in range(LARGE // 200)},
        {"se:" + "x" * LARGE: True},
    ],
)
def test_whatever_makes_a_request_large_it_is_kept_small(capabilities: dict[str, Any]) -> None:
    short = encode_request([capabilities]).short

    assert short is not None
    assert len(short) <= LARGE
    (kept,) = sets_of(msgspec.json.decode(short))
    assert kept.get("browserName") == capabilities.get("browserName")


def test_what_is_nested_too_deeply_is_left_out() -> None:
    deep: Any = EXTENSION
    for _ in range(200):
        deep = [deep]

    assert len(encode_request([{"x:y": deep}]).short or b"") < LONG


def test_a_hundred_sets_of_one_large_alternative_are_refused_before_they_take_memory() -> None:
    always = {"goog:chromeOptions": {"extensions": ["x" * (MAX_REQUEST // 10)]}}

    with pytest.raises(InvalidArgument, match="together they take more than 64 MB"):
        encode_request([always] * MAX_SETS)
