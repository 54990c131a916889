"""What a Playwright client wants, read from its request. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import parse_qs, unquote, urlencode

import msgspec

from remuda.base.config import Config
from remuda.base.errors import InvalidArgument, UnknownCommand, UpgradeRequired, VersionNotOffered
from remuda.fleet.browsers import BrowserConfig
from remuda.fleet.origin import UNKNOWN, Origin
from remuda.fleet.permits import NOTHING_MORE, Allowance
from remuda.fleet.relay import Answer, Request
from remuda.playwright.model import ServedBrowser, browser_of, path_version, version_of
from remuda.playwright.options import LaunchSieve, check_network, need_own_browser
from remuda.playwright.room import PlaywrightConfig, are_browsers_own

_ROOM = "playwright"
_DISCOVERY = "json"
# Relative to where the client asks, which is where it then opens its WebSocket.
_HERE = Answer(200, msgspec.json.encode({"wsEndpointPath": "/"}))


@dataclass(frozen=True)
class PlaywrightWish:
    """A browser for a client of a Playwright version; empty if the client does not tell it."""

    browser: ServedBrowser
    version: str
    query: str = ""
    """What the worker of a browser of one's own must know, as the query of its URL."""
    dropped: Sequence[str] = ()
    """Launch arguments that were left out because they are pointless here."""
    origin: Origin = UNKNOWN

    def __str__(self) -> str:
        name = f"{self.browser.engine} of one's own" if self.browser.is_own else str(self.browser)
        return f"{name} for Playwright {self.version}" if self.version else name


@dataclass(frozen=True, kw_only=True)
class Defaults:
    """What holds for clients that say nothing of it."""

    browser: str = PlaywrightConfig.playwright_browser
    headless: bool = BrowserConfig.headless
    is_own: bool = False
    """Whether each has a browser of its own."""
    allowed: Allowance = NOTHING_MORE

    @classmethod
    def of(cls, config: Config) -> "Defaults":
        return cls(
            browser=config[PlaywrightConfig].playwright_browser,
            headless=config[BrowserConfig].headless,
            is_own=are_browsers_own(config),
            allowed=Allowance.of(config[BrowserConfig].allow_browser_args),
        )


def read_wish(request: Request, defaults: Defaults, *, front_door: str) -> PlaywrightWish | Answer:
    """The client's wish, or the answer to its question where the WebSocket is. `front_door` is where the
    client sees the herd, for WebSockets.

    `connect("http://...")` asks that first. Raises InvalidArgument, UnknownCommand, VersionNotOffered or
    UpgradeRequired.
    """
    path, _, query = request.target.partition("?")
    named, asked, asks_where = _split(path)
    browser = browser_of(
        named or _last(query, "browser") or request.header("x-playwright-browser") or defaults.browser
    )
    if request.is_upgrade:
        version = _version(asked, version_of(request.header("user-agent") or ""))
        return _judge_isolation(request, query, PlaywrightWish(browser, version), defaults)
    if asks_where:
        return _HERE
    raise UpgradeRequired(f'{path} is for WebSockets: playwright.{browser}.connect("{front_door}{path}").')


def _split(path: str) -> tuple[str, str, bool]:
    """The browser and the Playwright version that a path names, if any, and whether it asks where the
    WebSocket is."""
    parts = [unquote(part) for part in path.split("/") if part]
    if parts[:1] == [_ROOM]:
        parts = parts[1:]
    asks_where = parts[-1:] == [_DISCOVERY]
    if asks_where:
        parts = parts[:-1]
    version = path_version(parts[1]) if len(parts) == 2 else ""
    if len(parts) > 2 or (len(parts) == 2 and not version):
        raise UnknownCommand(
            f"There is nothing at {path}; a browser is at /{_ROOM}/<name>, and one for a certain Playwright "
            f"at /{_ROOM}/<name>/playwright-<version>, such as /{_ROOM}/chromium/playwright-1.64.1."
        )
    return parts[0] if parts else "", version, asks_where


def _judge_isolation(
    request: Request, query: str, wish: PlaywrightWish, defaults: Defaults
) -> PlaywrightWish:
    """The wish for a browser of one's own, if the client asks for one or for what a shared one cannot do."""
    # Playwright's own server reads these two the same way, and the query before the header.
    given = _last(query, "launch-options") or request.header("x-playwright-launch-options")
    network = _last(query, "proxy") or request.header("x-playwright-proxy") or ""
    sieve = LaunchSieve(wish.browser, headless=defaults.headless, allowed=defaults.allowed)
    options = sieve.read(given) if given else {}
    check_network(network, options)
    own = _last(query, "own").lower()
    if own not in ("", "true", "false"):
        raise InvalidArgument(f"'own' is {own!r}; it can be true or false")
    reasons = [
        *(["browsers are not shared here (playwright_isolation)"] if defaults.is_own else []),
        *([f"expose_network is {network!r}"] if network else []),
        *(["the launch options ask for it"] if need_own_browser(options) else []),
    ]
    if reasons and own == "false":
        raise InvalidArgument(f"'own' is false, but this request needs a browser of its own: {reasons[0]}")
    if not reasons and own != "true":
        return wish
    details = {"launch-options": msgspec.json.encode(options).decode(), "proxy": network}
    return PlaywrightWish(wish.browser.own, wish.version, urlencode(details), sieve.dropped)


def _version(asked: str, own: str) -> str:
    """The version to serve. What the path asks for counts like what the client says of itself; the worker
    would refuse a client that says something else, so that is refused here."""
    if asked and own and asked != own:
        raise VersionNotOffered(
            f"The path asks for Playwright {asked}, but the client is Playwright {own}. Leave the version "
            f"out of the path, or install Playwright {asked} where the client runs"
        )
    return asked or own


def _last(query: str, name: str) -> str:
    return parse_qs(query).get(name, [""])[-1]
