"""What a driver is asked for: the client's wishes, the herd's additions, and what neither may say."""

from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver

from configs import make_config
from remuda.base.errors import InvalidArgument
from remuda.fleet.browsers import QUIET_ARGS
from remuda.fleet.display import Display
from remuda.grid.browsers import FAMILIES, Browser, Family
from remuda.grid.browsers.families import CHROME, FIREFOX, HEADLESS_SHELL, WEBKIT
from remuda.grid.capabilities import Capabilities
from remuda.grid.node.payload import driver_request, herd_args, is_plain
from remuda.grid.sifting import sift


def browser(family: Family) -> Browser:
    return Browser(family.name, "1.2", Path("/opt/browser"), Path("/opt/driver"), "3.4", family.names)


FORBIDDEN_ARGS = {
    CHROME.options: (
        *("browser-subprocess-path", "gpu-launcher", "ppapi-plugin-launcher", "register-pepper-plugins"),
        *("renderer-cmd-prefix", "utility-cmd-prefix", "zygote-cmd-prefix", "breakpad-dump-location"),
        *("crash-dumps-dir", "data-path", "disable-extensions-except", "disk-cache-dir", "homedir"),
        *("enable-crash-reporter-for-testing", "extra-plugin-dir", "load-extension", "log-file"),
        *("log-net-log", "media-cache-dir", "print-to-pdf", "profiling-file", "screenshot"),
        *("ssl-key-log-file", "trace-startup-file", "user-data-dir", "remote-debugging-address", "LOG-FILE"),
    ),
    FIREFOX.options: (
        *("app", "appomni", "backgroundtask", "createprofile", "display", "greomni", "marionette-port", "p"),
        *("profile", "profilemanager", "recording-file", "recording-output", "remote-allow-hosts"),
        *("remote-allow-system-access", "remote-debugging-port", "screenshot", "start-debugger-server"),
        *("PROFILE", "Remote-Allow-System-Access"),
    ),
    WEBKIT.options: ("content-filter", "cookies-file", "display", "gtk-module", "time-zone", "DISPLAY"),
}
ANY = pytest.mark.parametrize("family", FAMILIES.values(), ids=list(FAMILIES))


def ask(
    wanted: Capabilities, *, family: Family = CHROME, args: tuple[str, ...] = (), headless: bool = True
) -> dict[str, Any]:
    """The capabilities that a driver is sent."""
    body = driver_request(sift(wanted).wanted, browser=browser(family), args=args, headless=headless)
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
            "binary": "/opt/browser",
            "args": [*CHROME.args, "--headless=new", "--no-sandbox"],
            **CHROME.own_options,
        },
    }


def test_a_clients_preferences_stay_beside_those_of_the_herd() -> None:
    prefs = {"homepage": "http://a.test/"}

    asked = ask({CHROME.options: {"prefs": prefs, "localState": None}})

    assert asked[CHROME.options]["prefs"] == {**prefs, "policy_test_page_enabled": False}
    assert asked[CHROME.options]["localState"] == CHROME.own_options["localState"]


def test_a_browser_with_a_launcher_is_started_by_it_and_listens_to_its_driver_at_a_pipe() -> None:
    launcher = Path("/opt/openers/launch-chromium")

    body = driver_request({}, browser=browser(CHROME), args=(), headless=True, launcher=launcher)

    options = body["capabilities"]["alwaysMatch"]["goog:chromeOptions"]
    assert options["binary"] == str(launcher)
    assert "--remote-debugging-pipe" in options["args"]
    assert "--remote-debugging-pipe" not in args_of({})


def test_a_chromium_makes_no_process_that_nothing_needs() -> None:
    assert {*QUIET_ARGS, "--disable-breakpad", "--enable-features=NetworkServiceInProcess2"} <= set(
        args_of({})
    )


def test_features_that_a_client_enables_replace_the_herds() -> None:
    args = args_of(with_args("--enable-features=NetworkService"))

    assert [arg for arg in args if "enable-features" in arg] == ["--enable-features=NetworkService"]


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

    assert [arg for arg in args if "headless" in arg] == [f"--{given.removeprefix('--')}"]


def test_an_argument_of_the_clients_replaces_the_herds_of_the_same_name() -> None:
    args = args_of(with_args("--proxy-server=a"), args=("--proxy-server=b", "--no-sandbox"))

    assert "--proxy-server=a" in args
    assert "--proxy-server=b" not in args
    assert "--no-sandbox" in args


def test_a_name_that_only_begins_alike_is_another_argument() -> None:
    assert "--disable-sync" in args_of(with_args("--disable-sync-preferences"))


def test_a_herd_with_windows_adds_no_headless_mode() -> None:
    assert not any("headless" in arg for arg in args_of({}, headless=False))


def test_a_firefox_with_a_screen_fills_it_whatever_the_client_says() -> None:
    # No process is needed to tell of it.
    screen = Display(None, "127.1.2.3:4", Path("/home/.Xauthority"), "800x600")  # type: ignore[arg-type]
    wanted = {FIREFOX.options: {"args": ["-headless", "--width=5", "-private"]}}

    body = driver_request(wanted, browser=browser(FIREFOX), args=(), headless=True, screen=screen)

    asked = body["capabilities"]["alwaysMatch"][FIREFOX.options]
    assert asked["args"] == ["-private", "--display=127.1.2.3:4", "--width=800", "--height=600"]


def test_the_request_itself_is_left_as_it_was() -> None:
    wanted = with_args("--mute-audio")

    ask(wanted)

    assert wanted == with_args("--mute-audio")


@ANY
def test_the_browser_is_named_in_the_words_of_its_family(family: Family) -> None:
    asked = ask({"browserName": "any"}, family=family)

    assert asked.keys() == {"browserName", family.options}
    assert asked["browserName"] == family.name
    assert asked[family.options]["binary"] == "/opt/browser"


@pytest.mark.parametrize(
    ("family", "args"),
    [
        (CHROME, [*CHROME.args, "--headless=new"]),
        (HEADLESS_SHELL, [*QUIET_ARGS]),
        (FIREFOX, ["-headless"]),
        (WEBKIT, ["--automation"]),
    ],
)
def test_each_family_has_its_own_way_to_do_without_a_window(family: Family, args: list[str]) -> None:
    assert ask({}, family=family)[family.options]["args"] == args


def test_arguments_for_chromium_are_for_no_other_family() -> None:
    config = make_config(chromium_args="--mute-audio --lang=de")

    assert herd_args(config, browser(CHROME), has_sandbox=True) == ["--mute-audio", "--lang=de"]
    assert herd_args(config, browser(HEADLESS_SHELL), has_sandbox=False)[-1] == "--no-sandbox"
    assert herd_args(config, browser(FIREFOX), has_sandbox=False) == []


def refusal(wanted: Capabilities, family: Family = CHROME) -> str:
    with pytest.raises(InvalidArgument) as caught:
        ask(wanted, family=family)
    return caught.value.message


@pytest.mark.parametrize(
    ("family", "option"),
    [
        (CHROME, "debuggerAddress"),
        (CHROME, "minidumpPath"),
        (CHROME, "androidPackage"),
        (CHROME, "androidExecName"),
        (HEADLESS_SHELL, "androidDeviceSerial"),
        (HEADLESS_SHELL, "anOptionOfTomorrow"),
        (FIREFOX, "androidPackage"),
        (FIREFOX, "androidIntentArguments"),
        (FIREFOX, "anOptionOfTomorrow"),
        (WEBKIT, "certificates"),
        (WEBKIT, "anOptionOfTomorrow"),
    ],
)
def test_a_client_names_no_program_device_or_path_of_this_machine(family: Family, option: str) -> None:
    assert repr(option) in refusal({family.options: {option: "/bin/sh"}}, family)


@ANY
@pytest.mark.parametrize("form", ["--{}=/etc", "-{}", "{}", " --{} =x"])
def test_a_client_gives_no_argument_with_a_program_or_path_of_this_machine(family: Family, form: str) -> None:
    for name in FORBIDDEN_ARGS[family.options]:
        arg = form.format(name)

        assert arg in refusal({family.options: {"args": [arg]}}, family)


@ANY
def test_a_clients_own_binary_is_ignored(family: Family) -> None:
    sifted = sift({family.options: {"binary": "/bin/sh"}})

    assert sifted.wanted == {family.options: {}}
    assert sifted.ignored == (f"binary in {family.options}",)
    assert (
        ask({family.options: {"binary": "/bin/sh"}}, family=family)[family.options]["binary"]
        == "/opt/browser"
    )


@pytest.mark.parametrize(
    ("family", "arg"),
    [
        (CHROME, "--user-data-dir=/home/somebody"),
        (CHROME, "renderer-cmd-prefix=/bin/sh -c"),
        (HEADLESS_SHELL, "--log-file=/etc/passwd"),
        (HEADLESS_SHELL, "--remote-debugging-address=0.0.0.0"),
        (FIREFOX, "-profile"),
        (FIREFOX, "-P"),
        (WEBKIT, "--cookies-file=/etc/passwd"),
    ],
)
def test_what_would_reach_out_of_the_session_is_refused(family: Family, arg: str) -> None:
    assert "this machine" in refusal({family.options: {"args": [arg]}}, family)


def test_a_variable_for_firefox_could_load_a_library_and_is_refused() -> None:
    assert "'env'" in refusal({"moz:firefoxOptions": {"env": {"LD_PRELOAD": "x.so"}}}, FIREFOX)


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


# Plain wishes


def plain(wanted: Capabilities, *, family: Family = CHROME) -> bool:
    return is_plain(wanted, browser=browser(family), args=["--no-sandbox"], headless=True)


def test_what_stock_clients_send_without_being_asked_is_plain() -> None:
    sent = [
        {},
        webdriver.ChromeOptions().to_capabilities(),
        {"browserName": "chrome", "goog:chromeOptions": {"args": [], "extensions": []}},
        {"browserName": "chromium", "browserVersion": "stable", "platformName": "any"},
    ]

    assert [plain(wanted) for wanted in sent] == [True] * len(sent)


def test_a_stock_clients_firefox_is_plain_too() -> None:
    assert plain({"browserName": "firefox", "moz:firefoxOptions": {}}, family=FIREFOX)


def test_what_is_meant_for_the_herd_leaves_a_wish_plain() -> None:
    assert plain({"se:name": "a test", "remuda:options": {"build": "7"}, "selenoid:options": {"name": "x"}})


@pytest.mark.parametrize(
    "wanted",
    [
        {"pageLoadStrategy": "normal", "acceptInsecureCerts": False, "proxy": {}},
        {"unhandledPromptBehavior": "dismiss and notify", "strictFileInteractability": False},
        {"timeouts": {"implicit": 0, "pageLoad": 300_000, "script": 30_000}},
        {"timeouts": {}, "webSocketUrl": False, "setWindowRect": True},
        with_args("--headless=new", "--no-sandbox"),
        with_args("--remote-debugging-port=9222", "--disable-setuid-sandbox"),
        {"goog:chromeOptions": {"binary": "/opt/google/chrome/chrome"}},
        {"goog:chromeOptions": {"prefs": {}, "excludeSwitches": [], "localState": None}},
    ],
)
def test_what_a_browser_does_anyway_leaves_a_wish_plain(wanted: Capabilities) -> None:
    assert plain(wanted)


@pytest.mark.parametrize(
    "wanted",
    [
        with_args("--window-size=800,600"),
        with_args("--headless"),
        with_args("--user-data-dir=/tmp/x"),
        {"goog:chromeOptions": {"prefs": {"a": 1}}},
        {"goog:chromeOptions": {"prefs": {"intl.accept_languages": "de"}}},
        {"goog:chromeOptions": "nonsense"},
        {"goog:loggingPrefs": {"browser": "ALL"}},
        {"moz:firefoxOptions": {}},
        {"acceptInsecureCerts": True},
        {"pageLoadStrategy": "eager"},
        {"proxy": {"proxyType": "direct"}},
        {"timeouts": {"implicit": 5}},
        {"timeouts": {"unknown": 0}},
        {"unhandledPromptBehavior": "accept"},
        {"unhandledPromptBehavior": {"alert": "accept"}},
        {"webSocketUrl": True},
        {"se:downloadsEnabled": True},
    ],
)
def test_any_other_wish_is_not_plain(wanted: Capabilities) -> None:
    assert not plain(wanted)
