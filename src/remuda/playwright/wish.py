"""What a Playwright client wants, read from its request. Pure."""

from dataclasses import dataclass
from urllib.parse import parse_qs, unquote

import msgspec

from remuda.base.errors import UnknownCommand, UpgradeRequired
from remuda.fleet.relay import Answer, Request
from remuda.playwright.model import Browser, browser_of, version_of

_ROOM = "playwright"
_DISCOVERY = "json"
# Relative to where the client asks, which is where it then opens its WebSocket.
_HERE = Answer(200, msgspec.json.encode({"wsEndpointPath": "/"}))


@dataclass(frozen=True)
class Wish:
    """A browser for a client of a Playwright version; empty if the client does not tell it."""

    browser: Browser
    version: str

    def __str__(self) -> str:
        return f"{self.browser} for Playwright {self.version}" if self.version else str(self.browser)


def read_wish(request: Request, *, default: str) -> Wish | Answer:
    """The client's wish, or the answer to its question where the WebSocket is.

    `connect("http://...")` asks that first. Raises InvalidArgument, UnknownCommand or UpgradeRequired.
    """
    path, _, query = request.target.partition("?")
    named, asks_where = _split(path)
    browser = browser_of(
        named or _last(query, "browser") or request.header("x-playwright-browser") or default
    )
    if request.is_upgrade:
        return Wish(browser, version_of(request.header("user-agent") or ""))
    if asks_where:
        return _HERE
    raise UpgradeRequired(
        f'{path} is for WebSockets: playwright.{browser}.connect("ws://{request.header("host")}{path}").'
    )


def _split(path: str) -> tuple[str, bool]:
    """The browser that a path names, if any, and whether it asks where the WebSocket is."""
    parts = [unquote(part) for part in path.split("/") if part]
    if parts[:1] == [_ROOM]:
        parts = parts[1:]
    asks_where = parts[-1:] == [_DISCOVERY]
    if asks_where:
        parts = parts[:-1]
    if len(parts) > 1:
        raise UnknownCommand(f"There is nothing at {path}; a browser is at /{_ROOM}/<name>.")
    return "".join(parts), asks_where


def _last(query: str, name: str) -> str:
    return parse_qs(query).get(name, [""])[-1]
