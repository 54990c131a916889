"""What a client may say of its session: labels, patience, downloads, in the words of every grid."""

from typing import Any

import pytest

from remuda.base.errors import InvalidArgument
from remuda.grid.options import (
    MAX_KEY,
    MAX_LABELS,
    MAX_VALUE,
    Options,
    check_count,
    cookie_label,
    labels_of,
    read_idle,
    read_labels,
    read_options,
)

# Labels


@pytest.mark.parametrize(
    ("wanted", "labels"),
    [
        ({"se:name": "checkout"}, {"name": "checkout"}),
        ({"se:build": 17, "se:nightly": True}, {"build": "17", "nightly": "true"}),
        ({"se:downloadsEnabled": True, "se:recordVideo": True, "se:screenResolution": "1x1"}, {}),
        ({"se:remoteUrl": "http://user:password@herd:4444"}, {}),
        ({"se:nested": {"a": 1}, "se:list": []}, {}),
        (
            {"remuda:options": {"name": "n", "build": "b", "metadata": {"team": "qa"}}},
            {"name": "n", "build": "b", "team": "qa"},
        ),
        ({"remuda:options": {"name": None, "metadata": None}}, {}),
        ({"webgrid:options": {"metadata": {"name": "n", "build": "b"}}}, {"name": "n", "build": "b"}),
        (
            {"selenoid:options": {"name": "n", "labels": {"com.example/team": "qa"}}},
            {"name": "n", "com.example/team": "qa"},
        ),
        ({"moon:options": {"name": "n"}}, {"name": "n"}),
    ],
)
def test_each_grids_clients_label_their_sessions_in_their_own_words(
    wanted: dict[str, Any], labels: dict[str, str]
) -> None:
    assert read_options(wanted).labels == labels


def test_our_own_word_counts_most() -> None:
    wanted = {
        "remuda:options": {"name": "ours", "metadata": {"name": "inner"}},
        "selenoid:options": {"name": "theirs", "labels": {"only": "here"}},
        "se:name": "old",
    }

    assert read_options(wanted).labels == {"name": "ours", "only": "here"}


def test_of_several_capability_sets_the_first_names_the_session() -> None:
    sets = [{"browserName": "chrome"}, {"se:name": "first", "se:a": "1"}, {"se:name": "second", "se:b": "2"}]

    assert labels_of(sets) == {"name": "first", "a": "1", "b": "2"}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([], "must be an object of plain values, not a list"),
        ("name", "not a string"),
        ({"": "x"}, "has the key ''"),
        ({"two words": "x"}, "has the key 'two words'"),
        ({"line\nbreak": "x"}, "has the key"),
        ({"-dash": "x"}, "has the key '-dash'"),
        ({"é": "x"}, "has the key"),
        ({"k" * (MAX_KEY + 1): "x"}, "at most 64 letters"),
        ({"a": {}}, "'a' of The body must be a plain value, not an object"),
        ({"a": None}, "not null"),
        ({"a": "x" * (MAX_VALUE + 1)}, "has 1025 characters; it may have 1024"),
    ],
)
def test_a_label_that_cannot_be_kept_is_refused(given: Any, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        read_labels(given, "The body")


def test_labels_up_to_the_limits_are_kept() -> None:
    given = {"k" * MAX_KEY: "x" * MAX_VALUE, "a.b:c/d@e+f-g_1": "", "n": 1.5}

    assert read_labels(given, "The body") == {**given, "n": "1.5"}


def test_a_session_has_so_many_labels_and_no_more() -> None:
    labels = {f"k{number}": "" for number in range(MAX_LABELS)}
    check_count(labels)

    with pytest.raises(InvalidArgument, match="at most 50 labels; these are 51"):
        read_options({"remuda:options": {"metadata": {**labels, "more": ""}}})
    with pytest.raises(InvalidArgument, match="at most 50 labels"):
        labels_of([{"webgrid:options": {"metadata": labels}}, {"se:name": "more"}])


@pytest.mark.parametrize(
    "capability", ["remuda:options", "webgrid:options", "selenoid:options", "moon:options"]
)
def test_options_that_are_no_object_are_refused(capability: str) -> None:
    with pytest.raises(InvalidArgument, match=f"'{capability}' must be an object, not a string"):
        read_options({capability: "name"})


def test_an_option_of_remudas_own_that_it_does_not_know_is_named() -> None:
    with pytest.raises(InvalidArgument, match=r"remuda:options has 'idletimeout', .* build, .*idleTimeout"):
        read_options({"remuda:options": {"name": "x", "idletimeout": 5}})
    # Those of other grids have words for what is done another way here.
    read_options({"selenoid:options": {"enableVNC": True}, "moon:options": {"mobileDevice": {}}})


# Cookies that are labels


def test_webgrids_cookie_is_a_label() -> None:
    cookie = {"name": "webgrid:metadata.session:build", "value": "17", "path": "/"}

    assert cookie_label({"cookie": cookie}) == {"build": "17"}


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        {},
        {"cookie": 1},
        {"cookie": {}},
        {"cookie": {"name": 1}},
        {"cookie": {"name": "id", "value": "1"}},
        {"cookie": {"name": "webgrid:message", "value": "1"}},
    ],
)
def test_any_other_cookie_is_the_browsers(body: Any) -> None:
    assert cookie_label(body) is None


@pytest.mark.parametrize(("key", "value"), [("", "x"), ("a key", "x"), ("key", None), ("key", {})])
def test_a_cookie_that_is_no_good_label_is_refused(key: str, value: Any) -> None:
    with pytest.raises(InvalidArgument, match="The cookie webgrid"):
        cookie_label({"cookie": {"name": f"webgrid:metadata.session:{key}", "value": value}})


# Patience


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (1, 1.0),
        (90.5, 90.5),
        ("300", 300.0),
        ("30m", 1800.0),
        ("1h30m", 5400.0),
        ("1h15m30.5s", 4530.5),
        ("1500ms", 1.5),
        ("2000000us", 2.0),
        ("24h", 86400.0),
    ],
)
def test_patience_is_seconds_or_a_go_duration(value: Any, seconds: float) -> None:
    assert read_idle(value, "x") == pytest.approx(seconds)


@pytest.mark.parametrize(
    "value",
    [
        *(0, -1, 0.5, 86401, 10**400, float("inf"), float("nan"), True, None, [], {}),
        *("", "0", "0s", "-5m", "5 m", "m", "1d", "25h", "999ms", "١٢٠", "9" * 60, "1h" * 30),
    ],
)
def test_absurd_patience_is_refused(value: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"'idleTimeout' in x is .*from 1 s to 24 h"):
        read_idle(value, "'idleTimeout' in x")


@pytest.mark.parametrize(
    ("wanted", "idle"),
    [
        ({}, None),
        ({"remuda:options": {"idleTimeout": 60}}, 60.0),
        ({"webgrid:options": {"idleTimeout": "2m"}}, 120.0),
        ({"selenoid:options": {"sessionTimeout": "30m"}}, 1800.0),
        ({"selenoid:options": {"sessionTimeout": "30m"}, "remuda:options": {"idleTimeout": 5}}, 5.0),
    ],
)
def test_each_grids_clients_say_how_long_a_session_may_be_idle(
    wanted: dict[str, Any], idle: float | None
) -> None:
    assert read_options(wanted).idle == idle


def test_downloads_are_kept_only_for_those_who_ask() -> None:
    assert read_options({}) == Options()
    assert read_options({"se:downloadsEnabled": True}).downloads
    assert read_options({"se:downloadsEnabled": "true"}).downloads
    assert not read_options({"se:downloadsEnabled": False}).downloads


def test_only_who_asks_for_it_has_a_session_that_ends_with_its_websocket() -> None:
    assert read_options({"remuda:options": {"endsWithWebSocket": True}}).ends_with_websocket
    assert not read_options({"remuda:options": {"endsWithWebSocket": "true"}}).ends_with_websocket
    assert not read_options({"remuda:options": {}}).ends_with_websocket
