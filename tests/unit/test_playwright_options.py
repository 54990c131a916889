"""Launch options as clients send them: which are taken, which say nothing here, which are refused by name."""

import json
from pathlib import Path
from typing import Any

import pytest

from configs import make_config
from remuda.base.config import Config
from remuda.base.errors import InvalidArgument
from remuda.fleet.permits import Allowance
from remuda.playwright.browsers import find_tailored_launch
from remuda.playwright.model import ServedBrowser
from remuda.playwright.options import LaunchSieve, check_network, need_own_browser

PROXY = {"server": "http://proxy.example:3128", "bypass": "*.example.org", "username": "a", "password": "b"}
# As @playwright/test 1.64 sends them, whatever its user has configured.
OF_THE_RUNNER = {
    "handleSIGINT": False,
    "tracesDir": "/t",
    "artifactsDir": "/x",
    "headless": True,
}


def read(options: Any, browser: ServedBrowser = ServedBrowser.CHROMIUM, allowed: str = "") -> dict[str, Any]:
    sieve = LaunchSieve(browser, headless=True, allowed=Allowance.of(allowed))
    return dict(sieve.read(options if isinstance(options, str) else json.dumps(options)))


@pytest.mark.parametrize(
    ("browser", "options"),
    [
        (ServedBrowser.CHROMIUM, {"args": ["--user-agent=Mule", "--lang=de"]}),
        (ServedBrowser.FIREFOX, {"firefoxUserPrefs": {"dom.webnotifications.enabled": False}}),
        (ServedBrowser.CHROMIUM, {"proxy": PROXY}),
        (ServedBrowser.FIREFOX, {"proxy": PROXY}),
        (ServedBrowser.CHROMIUM, {"env": {"TZ": "Asia/Tokyo"}}),
        (ServedBrowser.CHROMIUM, {"headless": False}),
        (ServedBrowser.CHROMIUM, {"slowMo": 50}),
        (ServedBrowser.CHROMIUM, {"ignoreDefaultArgs": ["--mute-audio"]}),
        (ServedBrowser.CHROMIUM, {"channel": "chrome"}),
        (ServedBrowser.CHROMIUM, {"executablePath": "/usr/bin/chromium"}),
        (ServedBrowser.CHROMIUM, {"chromiumSandbox": True}),
    ],
)
def test_what_a_shared_browser_cannot_do_needs_one_of_ones_own(
    browser: ServedBrowser, options: dict[str, Any]
) -> None:
    assert read(options, browser) == options
    assert need_own_browser(read(options, browser))


@pytest.mark.parametrize(
    "options",
    [
        {},
        OF_THE_RUNNER,
        {
            "args": [],
            "channel": "",
            "proxy": None,
            "devtools": False,
            "slowMo": 0,
            "ignoreDefaultArgs": False,
        },
        {"firefoxUserPrefs": {"any.thing": 1}},
        {"timeout": 30_000},
    ],
)
def test_what_says_nothing_here_needs_none(options: dict[str, Any]) -> None:
    assert not need_own_browser(read(options))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"args": ["--zygote-cmd-prefix=/bin/sh"]}, "--zygote-cmd-prefix"),
        ({"args": ["--renderer-cmd-prefix=/bin/sh"]}, "--renderer-cmd-prefix"),
        ({"args": "--lang=de"}, "args"),
        ({"env": {"LD_PRELOAD": "/tmp/evil.so"}}, "LD_PRELOAD"),
        ({"downloadsPath": "/etc"}, "downloadsPath"),
        ({"devtools": True}, "devtools"),
        ({"ignoreDefaultArgs": True}, "ignoreDefaultArgs"),
        ({"ignoreAllDefaultArgs": True}, "ignoreAllDefaultArgs"),
        ({"ignoreDefaultArgs": ["--remote-debugging-pipe"]}, "remote-debugging-pipe"),
        ({"proxy": {"server": 1}}, "proxy"),
        ({"proxy": {"server": "http://p:1", "certificate": "/etc/x"}}, "certificate"),
        ({"headless": "yes"}, "headless"),
        ({"slowMo": -1}, "slowMo"),
        ({"timeout": True}, "timeout"),
        ({"channel": 7}, "channel"),
        ({"userDataDir": "/root"}, "userDataDir"),
        ({"cdpPort": 9222}, "cdpPort"),
        ("[]", "JSON object"),
        ("{", "not valid JSON"),
        pytest.param("[" * 5000, "not valid JSON", id="nested"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(options: Any, named: str) -> None:
    with pytest.raises(InvalidArgument, match=named):
        read(options)


@pytest.mark.parametrize(
    ("browser", "options", "named"),
    [
        (ServedBrowser.FIREFOX, {"firefoxUserPrefs": {"browser.helperApps.x": "/bin/sh"}}, "helperApps"),
        (ServedBrowser.FIREFOX, {"args": ["-remote-allow-system-access"]}, "remote-allow-system-access"),
        (ServedBrowser.FIREFOX, {"ignoreDefaultArgs": ["-headless"]}, "ignoreDefaultArgs"),
        (ServedBrowser.WEBKIT, {"args": ["--anything"]}, "args"),
    ],
)
def test_every_browser_has_its_own_rules(browser: ServedBrowser, options: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidArgument, match=named):
        read(options, browser)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("proxy", {**PROXY, "bypass": None, "password": None}),
        ("env", {"TZ": "Asia/Tokyo", "LANG": None}),
        ("firefoxUserPrefs", {"geo.enabled": False, "dom.push.enabled": None}),
    ],
)
def test_null_inside_an_option_says_nothing(name: str, given: dict[str, Any]) -> None:
    taken = read({name: given}, ServedBrowser.FIREFOX)

    assert taken == {name: {key: value for key, value in given.items() if value is not None}}


@pytest.mark.parametrize(
    ("proxy", "message"),
    [
        ({"bypass": "x"}, "The launch option 'proxy' must be an object with a string 'server'"),
        ({"server": None}, "The launch option 'proxy' must be an object with a string 'server'"),
        ({"server": "p:1", "password": 1}, "'password' in the launch option 'proxy' must be a string"),
        ({"server": "p:1", "x": "y"}, "'x' in the launch option 'proxy' is not known"),
        ({"server": "p:1", "x": 1}, "'x' in the launch option 'proxy' is not known"),
    ],
)
def test_the_refusal_of_a_proxy_says_what_is_wrong_with_it(proxy: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        read({"proxy": proxy})


@pytest.mark.parametrize("browser", [ServedBrowser.CHROMIUM, ServedBrowser.FIREFOX, ServedBrowser.WEBKIT])
@pytest.mark.parametrize("server", ["file:///run/docker.sock", "FILE:x", "socks5://file:///run/x", "/run/x"])
def test_a_proxy_is_a_host_for_every_browser(browser: ServedBrowser, server: str) -> None:
    with pytest.raises(InvalidArgument, match="must be host:port"):
        read({"proxy": {"server": server}}, browser)


def test_an_operator_can_allow_an_argument() -> None:
    options = {"args": ["--load-extension=/opt/extension"]}

    assert read(options, allowed="load-extension") == options


@pytest.mark.parametrize("name", ["proxy", "env"])
def test_what_expose_network_rules_out_is_refused(name: str) -> None:
    check_network("", {name: {}})
    with pytest.raises(InvalidArgument, match=name):
        check_network("*", {name: {}})


# What a machine makes of them


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    program = tmp_path / "my-chromium"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    return make_config(headless_shell=str(program))


def test_a_clients_arguments_come_after_the_herds(config: Config) -> None:
    plain = find_tailored_launch("chromium", config, {}).options

    launch = find_tailored_launch("chromium", config, {"args": ["--lang=de"], "slowMo": 5})

    assert launch.options == {**plain, "args": [*plain["args"], "--lang=de"], "slowMo": 5}


def test_the_herds_own_program_may_be_named(config: Config) -> None:
    launch = find_tailored_launch("chromium", config, {"executablePath": config.value("headless_shell")})

    assert launch == find_tailored_launch("chromium", config, {})


@pytest.mark.parametrize(
    "wishes",
    [
        {"executablePath": "/bin/sh"},
        {"channel": "msedge"},
    ],
)
def test_what_this_machine_does_not_have_is_refused_by_name(config: Config, wishes: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match=next(iter(wishes))):
        find_tailored_launch("chromium", config, wishes)


def test_the_machine_decides_about_the_sandbox(config: Config) -> None:
    plain = find_tailored_launch("chromium", config, {})
    own = plain.options["chromiumSandbox"]

    assert find_tailored_launch("chromium", config, {"chromiumSandbox": own}) == plain
    with pytest.raises(InvalidArgument, match="chromiumSandbox"):
        find_tailored_launch("chromium", config, {"chromiumSandbox": not own})
