"""What a Playwright client wants, read from its request. Pure."""

from dataclasses import dataclass
from urllib.parse import parse_qs, unquote

import msgspec

from remuda.base.errors import UnknownCommand, UpgradeRequired, VersionNotOffered
from remuda.fleet.relay import Answer, Request
from remuda.playwright.model import Browser, browser_of, path_version, version_of

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

    `connect("http://...")` asks that first. Raises InvalidArgument, UnknownCommand, VersionNotOffered or
    UpgradeRequired.
    """
    path, _, query = request.target.partition("?")
    named, asked, asks_where = _split(path)
    browser = browser_of(
        named or _last(query, "browser") or request.header("x-playwright-browser") or default
    )
    if request.is_upgrade:
        return Wish(browser, _version(asked, version_of(request.header("user-agent") or "")))
    if asks_where:
        return _HERE
    raise UpgradeRequired(
        f'{path} is for WebSockets: playwright.{browser}.connect("ws://{request.header("host")}{path}").'
    )


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
