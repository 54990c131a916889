"""How people write names, durations, rates and scopes, and what a token looks like."""

import pytest

from remuda.accounts.model import (
    check_account,
    check_token_name,
    digest_of,
    hide_tokens,
    may_be_token,
    new_token,
    read_duration,
    read_rate,
    read_scopes,
)
from remuda.base.errors import InvalidArgument
from remuda.fleet.origin import Scope


def test_a_token_is_256_random_bits_behind_a_readable_prefix() -> None:
    token, other = new_token(), new_token()

    assert token.startswith("rmd_")
    assert len(token) == len("rmd_") + 43
    assert token != other
    assert may_be_token(token)


def test_a_client_that_sends_its_token_in_a_body_has_it_hidden() -> None:
    body = f'{{"se:remoteUrl": "http://anna:{new_token()}@herd:4444"}}'.encode()

    assert hide_tokens(body) == b'{"se:remoteUrl": "http://anna:rmd_***@herd:4444"}'
    assert hide_tokens(b"rmd_ is short") == b"rmd_ is short"
    with pytest.raises(InvalidArgument):
        hide_tokens(b"rmd_" * 16_000_000)


@pytest.mark.parametrize(
    "text", ["", "rmd_", "rmd_short", "rmd_" + "a" * 44, "ghp_" + "a" * 43, "rmd_" + "a" * 43 + "\n"]
)
def test_what_has_another_form_is_no_token(text: str) -> None:
    assert not may_be_token(text)


def test_a_digest_is_the_sha_256_of_the_token() -> None:
    assert digest_of("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


@pytest.mark.parametrize(
    ("text", "seconds"), [("90d", 7776000), ("12h", 43200), ("30m", 1800), ("45s", 45), (" 2w ", 1209600)]
)
def test_durations_are_read(text: str, seconds: float) -> None:
    assert read_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "90", "0d", "-1d", "1.5h", "d", "1y", "9999999d"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="write it as 90d"):
        read_duration(text)


@pytest.mark.parametrize(
    ("text", "per_minute"), [("60/m", 60), ("60", 60), ("1/s", 60), ("3600/h", 60), ("0", 0), ("5/min", 5)]
)
def test_rates_are_read_as_starts_in_a_minute(text: str, per_minute: int) -> None:
    assert read_rate(text) == per_minute


@pytest.mark.parametrize("text", ["", "many", "1/d", "10/h", "-1/m"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="60/m"):
        read_rate(text)


def test_scopes_are_read_and_without_any_a_token_is_for_use() -> None:
    assert read_scopes(["use,archive", "usage"]) == {Scope.USE, Scope.ARCHIVE, Scope.USAGE}
    assert read_scopes([]) == {Scope.USE}
    with pytest.raises(InvalidArgument, match="the scopes are use, archive, usage, admin"):
        read_scopes(["root"])


@pytest.mark.parametrize("name", ["", "Web", "a/b", "a b", "-a", "x" * 64, "a\n", "*"])
def test_what_cannot_name_an_account_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgument):
        check_account(name)


@pytest.mark.parametrize("name", ["", "a/b", "a b", "-a", "x" * 101, "a\n", "*"])
def test_what_cannot_name_a_token_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgument):
        check_token_name(name)
