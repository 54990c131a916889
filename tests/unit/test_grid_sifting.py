"""What of a client's capabilities reaches a driver, and which browser its `binary` means."""

from collections.abc import Iterator
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.firefox.firefox_profile import FirefoxProfile

from common_wishes import SELENIUMBASE
from remuda.base.errors import InvalidArgument
from remuda.fleet.permits import Allowance
from remuda.grid.capabilities import Capabilities, Offer, first_match
from remuda.grid.sifting import check_all, sift, with_named_browsers


def refusal(wanted: Capabilities, allow: str = "") -> str:
    with pytest.raises(InvalidArgument) as caught:
        sift(wanted, Allowance.of(allow))
    return caught.value.message


def chrome(**options: Any) -> Capabilities:
    return {"goog:chromeOptions": options}


def firefox(**options: Any) -> Capabilities:
    return {"moz:firefoxOptions": options}


@pytest.mark.parametrize(
    "wanted",
    [
        {
            "browserName": "chrome",
            "se:name": "x",
            "bstack:options": {"os": "x"},
            "wdio:enforceWebDriverClassic": True,
        },
        {"goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}},
        {"goog:prerenderingDisabled": True, "goog:disableNetworkDurableMessages": True},
        {"moz:debuggerAddress": True, "moz:webdriverClick": False},
        {
            "proxy": {
                "proxyType": "manual",
                "httpProxy": "a.example:3128",
                "sslProxy": "http://a.example:3128",
            }
        },
        {
            "proxy": {
                "proxyType": "manual",
                "socksProxy": "a.example:1080",
                "socksVersion": 5,
                "noProxy": ["b", "*.c"],
            }
        },
        {"proxy": {"proxyType": "manual", "noProxy": "localhost, 127.0.0.1"}},
        {"proxy": {"proxyType": "pac", "proxyAutoconfigUrl": "http://a.example/x.pac"}},
        chrome(mobileEmulation={"deviceName": "Pixel 7"}, detach=True, w3c=True),
        chrome(mobileEmulation={"deviceMetrics": {"width": 360, "height": 640, "pixelRatio": 3.0}}),
        chrome(excludeSwitches=["enable-automation", "enable-logging"], useAutomationExtension=False),
        chrome(
            perfLoggingPrefs={"enableNetwork": True, "traceCategories": "devtools.network"},
            windowTypes=["webview"],
        ),
        chrome(localState={"browser.enabled_labs_experiments": ["same-site-by-default-cookies@2"]}),
        chrome(extensions=["Q3IyNA=="], args=[], prefs={}),
        firefox(log={"level": "trace"}, args=["-headless"], prefs={"intl.accept_languages": "de"}),
        firefox(env={"MOZ_HEADLESS": "1"}),
        {
            "webkitgtk:browserOptions": {
                "args": ["--automation", "--geometry=800x600"],
                "useOverlayScrollbars": False,
            }
        },
    ],
)
def test_what_documentation_has_clients_say_passes_as_it_is(wanted: Capabilities) -> None:
    assert sift(wanted).wanted == wanted
    assert sift(wanted).ignored == ()


def test_what_seleniums_own_classes_make_passes() -> None:
    options = webdriver.ChromeOptions()
    options.add_argument("--headless=new")
    options.add_experimental_option("excludeSwitches", ["enable-automation"])
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    fox = webdriver.FirefoxOptions()
    fox.profile = FirefoxProfile()  # type: ignore[no-untyped-call]
    fox.set_preference("intl.accept_languages", "de")

    for wanted in (options.to_capabilities(), fox.to_capabilities()):
        assert sift(wanted).wanted.keys() == wanted.keys()


@pytest.mark.parametrize("browser", SELENIUMBASE)
def test_what_seleniumbase_asks_for_passes(browser: str) -> None:
    wanted = dict(SELENIUMBASE[browser])

    sifted = sift(wanted)

    assert sifted.wanted.keys() == wanted.keys()
    assert ("binary in goog:chromeOptions" in sifted.ignored) == (browser == "chrome")


@pytest.mark.parametrize(
    ("wanted", "name"),
    [
        ({"proxy": {"proxyType": "pac", "proxyAutoconfigUrl": "file:///etc/shadow"}}, "proxyAutoconfigUrl"),
        ({"proxy": {"proxyType": "manual", "socksProxy": "file:///run/docker.sock"}}, "socksProxy"),
        ({"proxy": {"proxyType": "manual", "httpProxy": "/run/docker.sock"}}, "httpProxy"),
        ({"proxy": {"proxyType": "manual", "noProxy": [5]}}, "noProxy"),
        ({"proxy": {"path": "/x"}}, "path"),
        ({"proxy": "direct"}, "proxy"),
        ({"goog:somethingOfTomorrow": 1}, "goog:somethingOfTomorrow"),
        ({"goog:loggingPrefs": "/x"}, "goog:loggingPrefs"),
        ({"moz:somethingOfTomorrow": "/x"}, "moz:somethingOfTomorrow"),
        ({"webkitgtk:somethingOfTomorrow": "/x"}, "webkitgtk:somethingOfTomorrow"),
        (chrome(excludeSwitches=["user-data-dir"]), "user-data-dir"),
        (chrome(excludeSwitches="user-data-dir"), "excludeSwitches"),
        (chrome(localState={"browser.enabled_labs_experiments": "/x"}), "browser.enabled_labs_experiments"),
        (chrome(localState={"x": {"y": 1}}), "x.y"),
        (chrome(extensions="/x"), "extensions"),
        (chrome(detach="/x"), "detach"),
        (firefox(log={"level": "trace", "file": "/x"}), "log"),
        (firefox(profile={"path": "/x"}), "profile"),
        (firefox(env=["LD_PRELOAD=/x"]), "env"),
        ({"webkitgtk:browserOptions": {"args": ["/etc/shadow"]}}, "/etc/shadow"),
        ({"webkitgtk:browserOptions": {"args": ["--proxy=file:///x"]}}, "proxy"),
    ],
)
def test_what_is_not_listed_is_refused_by_name(wanted: Capabilities, name: str) -> None:
    assert name in refusal(wanted)


def test_the_operator_can_allow_driver_options_and_capabilities() -> None:
    wanted = {**chrome(somethingNew=1), "goog:new": 2}

    assert sift(wanted, Allowance.of("somethingNew,goog:new")).wanted == wanted
    assert sift(wanted, Allowance.of("*")).wanted == wanted
    assert "is controlled by this machine" in refusal(chrome(debuggerAddress="localhost:1"), "*")


# Which browser a binary means

OFFERS = [
    Offer("chrome", "140", "linux"),
    Offer("chrome-headless-shell", "140", "linux"),
    Offer("firefox", "140", "linux"),
]


def taken(wanted: Capabilities, offers: list[Offer] = OFFERS) -> str:
    found = first_match(with_named_browsers([wanted]), offers)
    assert found is not None
    return found[1].browser


@pytest.mark.parametrize(
    ("name", "binary", "browser"),
    [
        ("chrome", "/usr/bin/google-chrome", "chrome"),
        ("chrome", "/usr/bin/chromium-headless-shell", "chrome-headless-shell"),
        ("chrome", "chrome-headless-shell", "chrome-headless-shell"),
        ("chrome", "/opt/vendor/brave", "chrome"),
        ("chrome", "/usr/bin/firefox", "chrome"),
        ("chrome-headless-shell", "/usr/bin/chromium", "chrome"),
        ("", "/usr/bin/chrome-headless-shell", "chrome-headless-shell"),
        ("firefox", "/usr/bin/chrome-headless-shell", "firefox"),
        ("chrome", 5, "chrome"),
        ("chrome", None, "chrome"),
    ],
)
def test_a_binary_that_names_a_browser_of_the_herd_is_that_browser(
    name: str, binary: Any, browser: str
) -> None:
    assert taken({"browserName": name, **chrome(binary=binary)}) == browser


def test_a_binary_that_the_herd_does_not_offer_changes_nothing() -> None:
    wanted = {"browserName": "chrome", **chrome(binary="/usr/bin/chrome-headless-shell")}

    assert taken(wanted, OFFERS[:1]) == "chrome"


def test_sets_keep_their_order() -> None:
    sets = [{"browserName": "firefox"}, {"browserName": "chrome", **chrome(binary="chrome-headless-shell")}]

    names = [each["browserName"] for each in with_named_browsers(sets)]

    assert names == ["firefox", "chrome-headless-shell", "chrome"]


def test_what_all_sets_share_is_looked_at_once() -> None:
    looks = 0

    class Args(list[str]):
        def __iter__(self) -> Iterator[str]:
            nonlocal looks
            looks += 1
            return super().__iter__()

    always = chrome(args=Args(["--headless"]))
    sift(always)
    looks_of_one, looks = looks, 0

    check_all([{**always, "pageLoadStrategy": "none"} for _ in range(100)], Allowance())

    assert looks == looks_of_one


def test_what_only_the_last_set_has_is_looked_at() -> None:
    always = chrome(args=["--headless"])

    with pytest.raises(InvalidArgument, match="load-extension"):
        check_all([always, {**always, **chrome(args=["--load-extension=/x"])}], Allowance())
