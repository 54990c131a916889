"""What a driver is asked for: what the client wants, plus what the herd adds, less what it keeps. Pure."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from remuda.base.config import Config
from remuda.base.errors import InvalidArgument
from remuda.fleet.browsers import BrowserConfig
from remuda.fleet.display import Display
from remuda.fleet.permits import NOTHING_MORE, Allowance
from remuda.grid.browsers import Browser, Family
from remuda.grid.capabilities import Capabilities
from remuda.grid.sifting import sift

# Meant for the grid; a driver refuses extension capabilities that it does not know.
_OURS = ("se:", "remuda:", "selenoid:", "moon:", "webgrid:")
# Matched by the grid already, in words that the driver may not understand ("chromium", "any", "156").
_MATCHED = ("browserName", "browserVersion", "platformName")
# What a client says of its window, which a screen decides.
_WINDOW_ARGS = ("headless", "width", "height", "kiosk")
# Meant for the grid too, but a browser must be started for it.
_SPECIAL = ("se:downloadsEnabled",)

# What a driver does unasked, and clients like to say all the same (W3C WebDriver 7).
_DEFAULTS: Capabilities = {
    "acceptInsecureCerts": False,
    "pageLoadStrategy": "normal",
    "proxy": {},
    "setWindowRect": True,
    "strictFileInteractability": False,
    "unhandledPromptBehavior": "dismiss and notify",
    "webSocketUrl": False,
}
_DEFAULT_TIMEOUTS = {"implicit": 0, "pageLoad": 300_000, "script": 30_000}


def herd_args(config: Config, browser: Browser, *, has_sandbox: bool) -> list[str]:
    """The arguments that this herd's browsers get beyond those of their family."""
    if not browser.family.is_chromium:
        return []
    # Chromium does not start where it cannot have its sandbox, unless it is told to do without.
    return [*config[BrowserConfig].chromium_args.split(), *([] if has_sandbox else ["--no-sandbox"])]


def driver_request(
    wanted: Capabilities,
    *,
    browser: Browser,
    args: Sequence[str],
    headless: bool,
    screen: Display | None = None,
    launcher: Path | None = None,
) -> dict[str, Any]:
    """The body of the driver's own New Session request, of capabilities that `sift` has let pass.

    A browser that is given a screen fills it, whatever the client says of a window. One that has a launcher
    is started by that, and listens to its driver at a pipe.
    """
    family = browser.family
    kept = {
        name: value
        for name, value in wanted.items()
        if not name.startswith(_OURS) and name not in (*_MATCHED, family.options)
    }
    options = dict(wanted.get(family.options, {}))
    given: list[str] = options.get("args") or []
    look: Sequence[str] = family.headless_args if headless else ()
    if screen is not None and family.screen_args:
        given = [arg for arg in given if _name(arg) not in _WINDOW_ARGS]
        look = [arg.format_map(screen.names()) for arg in family.screen_args]
    added = [*family.args, *look, *args, *([] if launcher is None else ["--remote-debugging-pipe"])]
    options["args"] = [*given, *(arg for arg in added if not _is_given(arg, given))]
    options["binary"] = str(launcher or browser.binary)
    for name, ours in family.own_options.items():
        options[name] = {**(options.get(name) or {}), **ours}
    return {"capabilities": {"alwaysMatch": {**kept, "browserName": browser.name, family.options: options}}}


def is_plain(
    wanted: Capabilities,
    *,
    browser: Browser,
    args: Sequence[str],
    headless: bool,
    allowed: Allowance = NOTHING_MORE,
) -> bool:
    """Whether a browser that was started in advance is just what the client wants."""
    if any(wanted.get(name) for name in _SPECIAL):
        return False
    try:
        harmless = sift(_without_defaults(wanted), allowed).wanted
    except InvalidArgument:
        return False
    asked = driver_request(harmless, browser=browser, args=args, headless=headless)
    unasked = driver_request({}, browser=browser, args=args, headless=headless)
    return _shape(asked, browser.family) == _shape(unasked, browser.family)


def _without_defaults(wanted: Capabilities) -> Capabilities:
    return {name: value for name, value in wanted.items() if not _is_default(name, value)}


def _is_default(name: str, value: Any) -> bool:
    if name == "timeouts" and isinstance(value, dict):
        return value.items() <= _DEFAULT_TIMEOUTS.items()
    return name in _DEFAULTS and value == _DEFAULTS[name]


def _shape(request: dict[str, Any], family: Family) -> Capabilities:
    """A request without what makes no difference: empty options, and the order of arguments."""
    always = request["capabilities"]["alwaysMatch"]
    options = {name: value for name, value in always[family.options].items() if value not in (None, [], {})}
    return {**always, family.options: {**options, "args": set(options["args"])}}


def _is_given(arg: str, given: Sequence[str]) -> bool:
    # Clients write "--headless", "headless=new" and "--headless=old" alike; theirs wins.
    name = _name(arg)
    return any(_name(each) == name for each in given)


def _name(arg: str) -> str:
    # With blanks, too, the browser or its driver would take it.
    return arg.strip().lstrip("-").partition("=")[0].strip().lower()
