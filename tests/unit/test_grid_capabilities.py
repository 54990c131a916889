"""What clients may ask for, how it is merged, and what satisfies it: the algorithm of W3C WebDriver."""

from typing import Any

import pytest

from remuda.base.errors import InvalidArgument
from remuda.grid.capabilities import (
    MAX_CAPABILITIES,
    MAX_NAME,
    MAX_SETS,
    Capabilities,
    Offer,
    as_request,
    describe_wishes,
    first_match,
    is_match,
    read_request,
    sets_of,
)

CHROME = Offer(browser="chrome", version="81.0.4044.113", platform="linux")
FIREFOX = Offer(browser="firefox", version="74.0.1", platform="linux")


def request(**capabilities: Any) -> dict[str, Any]:
    return {"capabilities": capabilities}


def complaint(body: Any) -> str:
    """What a client is told about a request that cannot be used."""
    with pytest.raises(InvalidArgument) as caught:
        read_request(body)
    return caught.value.message


# Reading a request


def test_an_empty_request_is_one_set_that_anything_satisfies() -> None:
    assert read_request(request()) == [{}]


def test_what_always_matches_is_part_of_every_set() -> None:
    body = request(
        alwaysMatch={"platformName": "linux"},
        firstMatch=[{"browserName": "chrome"}, {"browserName": "firefox"}],
    )

    assert read_request(body) == [
        {"platformName": "linux", "browserName": "chrome"},
        {"platformName": "linux", "browserName": "firefox"},
    ]


def test_a_name_in_both_places_is_a_conflict() -> None:
    body = request(
        alwaysMatch={"browserName": "chrome", "pageLoadStrategy": "eager"},
        firstMatch=[{}, {"pageLoadStrategy": "eager", "browserName": "chrome"}],
    )

    assert complaint(body) == "browserName, pageLoadStrategy is in both 'alwaysMatch' and 'firstMatch'"


def test_a_null_is_as_good_as_nothing_and_conflicts_with_nothing() -> None:
    body = request(alwaysMatch={"browserName": None}, firstMatch=[{"browserName": "chrome", "proxy": None}])

    assert read_request(body) == [{"browserName": "chrome"}]


def test_extension_capabilities_go_through_unseen() -> None:
    extension = {"goog:chromeOptions": {"args": ["--mute-audio"]}, "se:name": 5}

    assert read_request(request(alwaysMatch=extension)) == [extension]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ([], "'capabilities' must be inside a JSON object, not a list"),
        ("chrome", "'capabilities' must be inside a JSON object, not a string"),
        ({}, "The request has no 'capabilities'; W3C WebDriver clients send them"),
        ({"desiredCapabilities": {}}, "The request has no 'capabilities'; W3C WebDriver clients send them"),
        ({"capabilities": None}, "The request has no 'capabilities'; W3C WebDriver clients send them"),
        ({"capabilities": 5}, "'alwaysMatch' must be inside a JSON object, not a number"),
        (request(alwaysMatch=None), "'alwaysMatch' must be an object, not null"),
        (request(alwaysMatch=[]), "'alwaysMatch' must be an object, not a list"),
        (request(firstMatch=[]), "'firstMatch' must be a list of at least one object"),
        (request(firstMatch={}), "'firstMatch' must be a list of at least one object"),
        (request(firstMatch=[{}, "x"]), "'firstMatch[1]' must be an object, not a string"),
        (request(firstMatch=[{}] * (MAX_SETS + 1)), "'firstMatch' has 101 objects; it may have 100"),
        (
            request(alwaysMatch={f"a:{number}": 1 for number in range(MAX_CAPABILITIES + 1)}),
            "'alwaysMatch' has 1001 capabilities; it may have 1000",
        ),
        (
            request(firstMatch=[{"browserVersion": "1." * MAX_NAME}]),
            "'browserVersion' in firstMatch[0] has 400 characters; it may have 200",
        ),
    ],
)
def test_a_request_of_the_wrong_shape_is_refused_with_what_is_wrong(body: Any, message: str) -> None:
    assert complaint(body) == message


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("version", "81", "alwaysMatch has the unknown capability 'version'"),
        ("browserName", 5, "'browserName' in alwaysMatch is 5, which is a number"),
        ("browserVersion", 81.0, "'browserVersion' in alwaysMatch is 81.0, which is a number"),
        ("acceptInsecureCerts", "yes", "'acceptInsecureCerts' in alwaysMatch is 'yes', which is a string"),
        ("acceptInsecureCerts", 1, "'acceptInsecureCerts' in alwaysMatch is 1, which is a number"),
        ("timeouts", [], "'timeouts' in alwaysMatch is [], which is a list"),
        ("proxy", True, "'proxy' in alwaysMatch is True, which is a boolean"),
        (
            "pageLoadStrategy",
            "fast",
            "'pageLoadStrategy' in alwaysMatch is 'fast'; it may be one of none, eager, normal",
        ),
    ],
)
def test_a_capability_that_cannot_be_used_is_named_with_its_value(
    name: str, value: Any, message: str
) -> None:
    assert complaint(request(alwaysMatch={name: value})) == message


def test_a_bad_set_spoils_the_request_even_if_another_would_do() -> None:
    assert complaint(request(firstMatch=[{"browserName": "chrome"}, {"x": 1}])).startswith("firstMatch[1]")


@pytest.mark.parametrize("limit", [-1, "1", True, []])
def test_a_timeout_that_cannot_be_is_named_with_its_value(limit: Any) -> None:
    assert complaint(request(firstMatch=[{}, {"timeouts": {"implicit": limit}}])) == (
        f"'implicit' of 'timeouts' in firstMatch[1] is {limit!r}; it must be a number of at least 0"
    )


def test_a_timeout_may_be_a_number_or_null() -> None:
    wanted = {"timeouts": {"script": None, "pageLoad": 2.0, "implicit": (1 << 53) - 1}}

    assert read_request(request(alwaysMatch=wanted)) == [wanted]


@pytest.mark.parametrize("behavior", ["accept and notify", {"alert": "accept", "beforeUnload": "ignore"}])
def test_a_prompt_behaviour_may_be_a_word_or_a_table(behavior: Any) -> None:
    wanted = {"unhandledPromptBehavior": behavior}

    assert read_request(request(alwaysMatch=wanted)) == [wanted]


# Matching


@pytest.mark.parametrize(
    ("version", "is_satisfied"),
    [
        ("81", True),
        ("81.0", True),
        ("81.0.4044.113", True),
        ("8", False),
        ("81.0.4", False),
        ("811", False),
        ("81.1", False),
        ("82", False),
        ("81.0.4044.113.7", False),
        ("", True),
        ("any", True),
        ("stable", True),
        ("Latest", True),
        ("beta", False),
        ("81.", False),
    ],
)
def test_a_version_is_the_offered_one_or_whole_parts_of_its_beginning(
    version: str, is_satisfied: bool
) -> None:
    assert is_match({"browserVersion": version}, CHROME) == is_satisfied


@pytest.mark.parametrize(
    ("version", "is_satisfied"),
    [
        (">=81", True),
        (">= 81.0.4044.113", True),
        (">81.0.4044.112", True),
        ("<82", True),
        ("=81.0.4044.113", True),
        (">=82", False),
        ("<81", False),
        ("<=81", False),
        (">81.0.4044.113", False),
        ("=81", False),
        (">=", False),
        ("=>81", False),
    ],
)
def test_a_version_may_be_compared_with_the_offered_one(version: str, is_satisfied: bool) -> None:
    assert is_match({"browserVersion": version}, CHROME) == is_satisfied


@pytest.mark.parametrize(
    ("wanted", "is_satisfied"),
    [
        ({}, True),
        ({"browserName": ""}, True),
        ({"browserName": "chrome"}, True),
        ({"browserName": "Chrome"}, True),
        ({"browserName": "chromium"}, True),
        ({"browserName": "Chromium"}, True),
        ({"browserName": "firefox"}, False),
        ({"browserName": "chrom"}, False),
        ({"platformName": "linux"}, True),
        ({"platformName": "LINUX"}, True),
        ({"platformName": "any"}, True),
        ({"platformName": "ANY"}, True),
        ({"platformName": ""}, True),
        ({"platformName": "Unix"}, True),  # The family, as Selenium has it.
        ({"platformName": "windows"}, False),
        ({"browserName": "chrome", "platformName": "mac"}, False),
        ({"browserName": "chrome", "browserVersion": "80"}, False),
    ],
)
def test_names_and_platforms_are_matched_whatever_their_case(
    wanted: Capabilities, is_satisfied: bool
) -> None:
    assert is_match(wanted, CHROME) == is_satisfied


def test_chromium_is_no_other_name_for_firefox() -> None:
    assert not is_match({"browserName": "chromium"}, FIREFOX)


def test_the_clients_order_decides_not_the_order_of_the_offers() -> None:
    wanted: list[Capabilities] = [{"browserName": "firefox"}, {"browserName": "chrome"}]

    assert first_match(wanted, [CHROME, FIREFOX]) == (wanted[0], FIREFOX)
    assert first_match(wanted, [CHROME]) == (wanted[1], CHROME)
    assert first_match(wanted, []) is None


@pytest.mark.parametrize("name", ["platformName", "browserName"])
def test_a_name_in_the_right_case_comes_before_one_in_another(name: str) -> None:
    right = {"platformName": "linux", "browserName": "chrome"}[name]
    wanted: list[Capabilities] = [
        {name: right.upper(), "pageLoadStrategy": "none"},
        {name: right, "pageLoadStrategy": "eager"},
    ]

    assert first_match(wanted, [FIREFOX, CHROME]) == (wanted[1], CHROME if name == "browserName" else FIREFOX)
    assert first_match(wanted[:1], [CHROME]) == (wanted[0], CHROME)


@pytest.mark.parametrize("enabled", [True, "true"])
def test_who_wants_downloads_gets_a_browser_that_keeps_them(enabled: bool | str) -> None:
    wanted: Capabilities = {"se:downloadsEnabled": enabled}
    webkit = Offer(browser="MiniBrowser", version="2.50", platform="linux")

    assert first_match([wanted], [webkit, FIREFOX]) == (wanted, FIREFOX)
    assert first_match([{**wanted, "browserName": "MiniBrowser"}], [webkit, FIREFOX]) is None
    assert is_match({"se:downloadsEnabled": False}, webkit)


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        ([{}], "any browser"),
        ([{"browserName": "Opera"}], "opera"),
        (
            [{"browserName": "chrome", "browserVersion": "8", "platformName": "Windows"}],
            "chrome 8 on windows",
        ),
        ([{"browserName": "opera"}, {"platformName": "mac"}], "opera or any browser on mac"),
        ([{"browserName": "opera"}, {"browserName": "OPERA", "se:name": "x"}], "opera"),
        ([{"browserName": "x" * 300}], "x" * 200 + "..."),
    ],
)
def test_a_person_can_read_what_a_request_wants(sets: list[Capabilities], words: str) -> None:
    assert describe_wishes(sets) == words


def test_offers_may_come_from_a_generator() -> None:
    wanted: list[Capabilities] = [{"browserName": "safari"}, {"browserName": "chrome"}]

    assert first_match(iter(wanted), iter([FIREFOX, CHROME])) == (wanted[1], CHROME)


@pytest.mark.parametrize("name", ["any", "ANY", ""])
def test_any_browser_is_matched_by_every_offer(name: str) -> None:
    assert is_match({"browserName": name}, CHROME)
    assert is_match({"browserName": name}, FIREFOX)


# As they are kept


@pytest.mark.parametrize(
    "request_",
    [
        {"alwaysMatch": {"browserName": "chrome", "se:name": "a"}, "firstMatch": [{}]},
        {"alwaysMatch": {"browserName": "chrome"}, "firstMatch": [{"x:y": True}, {"x:y": 1}]},
        {"alwaysMatch": {}, "firstMatch": [{"browserName": "chrome"}, {"browserName": "firefox"}]},
    ],
)
def test_a_request_is_kept_as_its_client_sent_it(request_: dict[str, Any]) -> None:
    sets = read_request({"capabilities": request_})

    assert repr(as_request(sets)) == repr(request_)
    assert sets_of(request_) == sets


@pytest.mark.parametrize(
    ("kept", "sets"),
    [
        ({"alwaysMatch": None, "firstMatch": None}, [{}]),
        ({"firstMatch": [{"browserName": None}, {"browserName": "chrome"}]}, [{}, {"browserName": "chrome"}]),
        ({"alwaysMatch": {"browserName": "chrome"}}, [{"browserName": "chrome"}]),
        ([{"browserName": "chrome"}, 7], [{"browserName": "chrome"}]),
        ({"alwaysMatch": 7}, []),
        ("nonsense", []),
    ],
)
def test_whatever_is_kept_is_read(kept: Any, sets: list[dict[str, Any]]) -> None:
    assert sets_of(kept) == sets
