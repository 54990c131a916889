"""What a driver is asked for: the client's wishes, the herd's additions, and what neither may say."""

from typing import Any

import pytest

from remuda.base.errors import InvalidArgument
from remuda.grid.capabilities import Capabilities
from remuda.grid.node.payload import QUIET_ARGS, driver_request


def ask(wanted: Capabilities, *, args: tuple[str, ...] = (), headless: bool = True) -> dict[str, Any]:
    """The capabilities that a driver is sent."""
    body = driver_request(wanted, browser="chrome", binary="/opt/chrome", args=args, headless=headless)
    capabilities: dict[str, Any] = body["capabilities"]
    assert capabilities.keys() == {"alwaysMatch"}
    always: dict[str, Any] = capabilities["alwaysMatch"]
    return always


def args_of(wanted: Capabilities, **herd: Any) -> list[Any]:
    args: list[Any] = ask(wanted, **herd)["goog:chromeOptions"]["args"]
    return args


def with_args(*args: Any) -> Capabilities:
    return {"goog:chromeOptions": {"args": list(args)}}


def test_a_client_without_wishes_gets_the_herds_browser() -> None:
    assert ask({}, args=("--no-sandbox",)) == {
        "browserName": "chrome",
        "goog:chromeOptions": {
            "binary": "/opt/chrome",
            "args": [*QUIET_ARGS, "--headless=new", "--no-sandbox"],
        },
    }


def test_what_the_grid_has_matched_already_is_not_asked_again() -> None:
    asked = ask({"browserName": "chromium", "browserVersion": "stable", "platformName": "ANY"})

    assert asked.keys() == {"browserName", "goog:chromeOptions"}
    assert asked["browserName"] == "chrome"


def test_what_is_meant_for_the_grid_stays_here_and_the_rest_goes_on() -> None:
    ours = {"se:name": "x", "remuda:options": {}, "selenoid:options": {}, "moon:options": {}, "webgrid:x": 1}
    theirs = {"acceptInsecureCerts": True, "goog:loggingPrefs": {"browser": "ALL"}, "webSocketUrl": True}

    asked = ask({**ours, **theirs})

    assert asked.keys() == {*theirs, "browserName", "goog:chromeOptions"}
    assert asked.items() >= theirs.items()


def test_a_clients_arguments_come_first_and_its_options_stay() -> None:
    wanted = {"goog:chromeOptions": {"args": ["--mute-audio"], "detach": True}}

    options = ask(wanted)["goog:chromeOptions"]

    assert options["args"][0] == "--mute-audio"
    assert options["detach"] is True


@pytest.mark.parametrize("given", ["--headless", "headless", "--headless=old", "headless=new"])
def test_a_client_that_chooses_its_own_headless_mode_gets_that(given: str) -> None:
    args = args_of(with_args(given))

    assert [arg for arg in args if "headless" in arg] == [given]


def test_an_argument_of_the_clients_replaces_the_herds_of_the_same_name() -> None:
    args = args_of(with_args("--proxy-server=a"), args=("--proxy-server=b", "--no-sandbox"))

    assert "--proxy-server=a" in args
    assert "--proxy-server=b" not in args
    assert "--no-sandbox" in args


def test_a_name_that_only_begins_alike_is_another_argument() -> None:
    assert "--headless=new" in args_of(with_args("--headless-but-not-quite"))


def test_a_herd_with_windows_adds_no_headless_mode() -> None:
    assert not any("headless" in arg for arg in args_of({}, headless=False))


def test_the_request_itself_is_left_as_it_was() -> None:
    wanted = with_args("--mute-audio")

    ask(wanted)

    assert wanted == with_args("--mute-audio")


def refusal(wanted: Capabilities) -> str:
    with pytest.raises(InvalidArgument) as caught:
        ask(wanted)
    return caught.value.message


@pytest.mark.parametrize("option", ["binary", "debuggerAddress", "minidumpPath"])
def test_a_client_names_no_program_browser_or_path_of_this_machine(option: str) -> None:
    assert repr(option) in refusal({"goog:chromeOptions": {option: "/bin/sh"}})


@pytest.mark.parametrize(
    "arg",
    [
        "--renderer-cmd-prefix=/bin/sh -c",
        "utility-cmd-prefix=x",
        "--gpu-launcher=x",
        "--Browser-Subprocess-Path=/bin/sh",
    ],
)
def test_a_client_has_no_program_of_this_machine_started(arg: str) -> None:
    assert arg in refusal(with_args("--mute-audio", arg))


@pytest.mark.parametrize(
    ("options", "kind"), [("headless", "a string"), (["--headless"], "a list"), (5, "a number")]
)
def test_options_that_are_no_object_are_refused_in_words(options: Any, kind: str) -> None:
    assert refusal({"goog:chromeOptions": options}) == f"'goog:chromeOptions' must be an object, not {kind}"


@pytest.mark.parametrize("args", ["--headless", {"headless": True}, 5, ["--mute-audio", 5], [None]])
def test_arguments_that_are_no_list_of_strings_are_refused_in_words(args: Any) -> None:
    assert refusal({"goog:chromeOptions": {"args": args}}) == (
        "'args' in goog:chromeOptions must be a list of strings"
    )


def test_arguments_that_are_null_are_none() -> None:
    assert args_of({"goog:chromeOptions": {"args": None}}) == args_of({})
