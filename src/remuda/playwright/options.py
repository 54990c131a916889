"""Playwright's launch options, as a client may send them: which mean another browser than the shared one, and
which the herd does not take. Pure.

Each option is taken, or has nothing to say here, or is refused by name: none is left out in silence.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from remuda.base.errors import InvalidArgument
from remuda.fleet.permits import Allowance, Sieve
from remuda.fleet.permits.rules import PROXY, shown
from remuda.playwright.model import ServedBrowser

Options = Mapping[str, Any]
"""Options of Playwright's `launch`, by its own names."""

WHERE = "the launch options"
MAX_SLOWNESS_MS = 60_000
MAX_TIMEOUT_MS = 600_000

# About the process that launches, which is the herd's, and directories of the client, which gets all files
# over its connection. @playwright/test sends some of them whenever it connects.
_OF_THE_CLIENT = frozenset(
    ("handleSIGINT", "handleSIGTERM", "handleSIGHUP", "tracesDir", "artifactsDir", "logger")
)
_NEVER = frozenset(("devtools", "downloadsPath", "ignoreAllDefaultArgs"))
# No other browser than the shared one comes of it.
_OF_THE_START = frozenset(("timeout",))


class LaunchSieve:
    """Reads the launch options of one client."""

    def __init__(self, browser: ServedBrowser, *, headless: bool, allowed: Allowance) -> None:
        self._browser = browser.engine
        self._headless = headless
        self._sieve = Sieve(allowed)

    @property
    def dropped(self) -> list[str]:
        """Arguments that were left out because they are pointless here."""
        return self._sieve.dropped

    def read(self, text: str) -> Options:
        """The options in this JSON that have something to say; InvalidArgument names what is refused."""
        try:
            given = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise InvalidArgument(f"The launch options are not valid JSON: {error}") from None
        if not isinstance(given, dict):
            raise InvalidArgument("The launch options must be a JSON object")
        taken = {}
        for name, value in given.items():
            if value is None or name in _OF_THE_CLIENT:
                continue
            if isinstance(value, dict):
                # What a client library leaves unset comes as null, here as at the top.
                value = {key: each for key, each in value.items() if each is not None}
            if name not in self._readers:
                known = ", ".join(sorted(self._readers.keys() - _NEVER))
                raise InvalidArgument(f"The launch option {name!r} is not supported; supported are {known}")
            read = self._readers[name](self, name, value)
            if read is not None:
                taken[name] = read
        return taken

    # One reader for each kind of option: the value to launch with; None if it has nothing to say.

    def _args(self, name: str, value: Any) -> list[str] | None:
        if self._browser is ServedBrowser.CHROMIUM:
            return self._sieve.chromium_args(value, where=WHERE) or None
        if self._browser is ServedBrowser.FIREFOX:
            return self._sieve.firefox_args(value, where=WHERE) or None
        self._none_of_it(name, value)
        return None

    def _default_args(self, name: str, value: Any) -> list[str] | None:
        if not value:
            return None
        if value is True or self._browser is not ServedBrowser.CHROMIUM:
            raise InvalidArgument(
                f"The launch option {name!r} cannot be {value!r}: the herd needs its arguments. For "
                "Chromium it can be a list of single ones"
            )
        self._sieve.chromium_excluded(value, where=f"{name!r} of {WHERE}")
        return list(value)

    def _preferences(self, name: str, value: Any) -> dict[str, Any] | None:
        # As in Playwright itself, where one set of options may be meant for several browsers.
        if self._browser is not ServedBrowser.FIREFOX:
            return None
        return self._sieve.firefox_prefs(value, where=WHERE) or None

    def _variables(self, name: str, value: Any) -> dict[str, str] | None:
        return self._sieve.firefox_env(value, where=WHERE) or None

    def _headless_mode(self, name: str, value: Any) -> bool | None:
        return None if self._flag(name, value) is self._headless else value

    def _flag(self, name: str, value: Any) -> bool:
        if not isinstance(value, bool):
            raise InvalidArgument(f"The launch option {name!r} is {value!r}; it can be true or false")
        return value

    def _milliseconds(self, name: str, value: Any) -> float | None:
        most = MAX_SLOWNESS_MS if name == "slowMo" else MAX_TIMEOUT_MS
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
            raise InvalidArgument(
                f"The launch option {name!r} is {value!r}; it can be milliseconds, up to {most}"
            )
        return value or None

    def _word(self, name: str, value: Any) -> str | None:
        if not isinstance(value, str):
            raise InvalidArgument(f"The launch option {name!r} is {value!r}; it can be a string")
        return value or None

    def _proxy(self, name: str, value: Any) -> dict[str, str]:
        if not isinstance(value, dict) or not isinstance(value.get("server"), str):
            raise InvalidArgument(f"The launch option {name!r} must be an object with a string 'server'")
        for key, word in value.items():
            if key not in ("server", "bypass", "username", "password"):
                raise InvalidArgument(
                    f"{key!r} in the launch option {name!r} is not known; known are server, bypass, username "
                    "and password"
                )
            if not isinstance(word, str):
                raise InvalidArgument(f"{key!r} in the launch option {name!r} must be a string")
        if not PROXY.fits(value["server"]):
            what = f"'server' in the launch option {name!r}"
            raise InvalidArgument(f"{what} is {shown(value['server'])}; it must be {PROXY.words}")
        # A proxy is a switch of the browser, too, and the rules for that are the same.
        if self._browser is ServedBrowser.CHROMIUM:
            bypass = value.get("bypass") or ""
            switches = [f"--proxy-server={value['server']}", f"--proxy-bypass-list={bypass}"]
            self._sieve.chromium_args(switches, where=f"{name!r} of {WHERE}")
        return dict(value)

    def _none_of_it(self, name: str, value: Any) -> None:
        if value:
            raise InvalidArgument(
                f"The launch option {name!r} is not supported for {self._browser} here; leave it out"
            )

    _readers: Mapping[str, Callable[["LaunchSieve", str, Any], Any]] = {
        "args": _args,
        "channel": _word,
        "chromiumSandbox": _flag,
        "env": _variables,
        "executablePath": _word,
        "firefoxUserPrefs": _preferences,
        "headless": _headless_mode,
        "ignoreDefaultArgs": _default_args,
        "proxy": _proxy,
        "slowMo": _milliseconds,
        "timeout": _milliseconds,
        **dict.fromkeys(_NEVER, _none_of_it),
    }


def need_own_browser(options: Options) -> bool:
    """Whether a browser must be launched for these options: a shared one runs already, and is as it is."""
    return bool(options.keys() - _OF_THE_START)


def check_network(network: str, options: Options) -> None:
    """InvalidArgument if the options cannot be had together with `expose_network`."""
    # The browser has one proxy, which then leads to the client; and its driver takes no variables for it.
    for name in ("proxy", "env"):
        if network and name in options:
            raise InvalidArgument(f"The launch option {name!r} cannot be combined with expose_network")
