"""What the detail view of a session hides."""

import time
from typing import Any

import pytest

from remuda.grid.view.mask import HIDDEN, LONGEST, mask

SECRET_NAMES = (
    *("socksPassword", "socksUsername", "password", "pass", "passphrase", "accessToken", "apiKey", "api_key"),
    *("client-secret", "Authorization", "cookie", "proxy-credentials", "accessKey", "privateKey"),
)


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_the_value_of_a_secret_name_is_hidden(name: str) -> None:
    assert mask({name: "hush"}) == {name: HIDDEN}


def test_a_whole_tree_under_a_secret_name_is_hidden() -> None:
    assert mask({"credentials": {"user": "bob", "word": ["hush"]}}) == {"credentials": HIDDEN}


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("bob:hush@proxy.example:8080", f"{HIDDEN}@proxy.example:8080"),
        ("http://bob:hush@proxy.example/", f"http://{HIDDEN}@proxy.example/"),
        ("--proxy-server=http://bob:hush@proxy.example", f"--proxy-server=http://{HIDDEN}@proxy.example"),
        ("--proxy-server=bob:hush@proxy.example", f"--proxy-server={HIDDEN}@proxy.example"),
        ("--token=hush", f"--token={HIDDEN}"),
        ("my-password=hush@home", f"my-password={HIDDEN}"),
        ("https://example.com/?a=1&token=hush", f"https://example.com/?a=1&token={HIDDEN}"),
    ],
)
def test_credentials_inside_a_text_are_hidden(value: str, shown: str) -> None:
    assert mask({"deep": [{"down": value}]}) == {"deep": [{"down": shown}]}


@pytest.mark.parametrize(
    "value",
    ["chrome", "--window-size=800,600", "mail me at bob@example.com", "12:30", 3, 1.5, True, None, []],
)
def test_what_is_no_secret_stays(value: Any) -> None:
    assert mask({"value": value}) == {"value": value}


def test_a_secret_at_the_cut_of_a_long_text_is_not_left_half_open() -> None:
    long = "x" * (LONGEST - 20) + " http://bob:hush-hush-hush@proxy.example/"

    assert "hush" not in mask(long)


@pytest.mark.parametrize(
    "text",
    ["a" * 10_000, "=a:" * 3_000, "/@" + "=a:" * 3_000 + "/@", "@:a" * 3_000],
    ids=lambda text: text[:3],
)
def test_no_text_takes_long_to_mask(text: str) -> None:
    began = time.thread_time()
    mask([text] * 20)

    assert time.thread_time() - began < 0.2


def test_long_texts_are_cut() -> None:
    shown = mask({"extensions": ["A" * 10_000]})["extensions"][0]

    assert shown == "A" * LONGEST + "…"
