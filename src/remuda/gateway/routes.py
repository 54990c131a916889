"""Which kind of process serves which path of the front door. Pure; the directory knows where they are."""

import re
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from remuda.base.errors import SessionLost, UnknownCommand, UnknownMethod
from remuda.base.ids import UUID_PATTERN, SessionId
from remuda.grid.wire import HUB
from remuda.storage.model import StorageId

_command = re.compile(rf"({HUB})?/session/({UUID_PATTERN})(?![^/?])").match
_webdriver = re.compile(rf"({HUB})?/session(?![^/?])").match
# Selenoid's paths; Moon has the same below the session, and there the node serves them.
_selenoid = re.compile(rf"/(download|devtools|clipboard)/({UUID_PATTERN})(?![^/?])").match
_clipboard = re.compile(
    rf"(/clipboard/{UUID_PATTERN}|({HUB})?/session/{UUID_PATTERN}/aerokube/clipboard)(?![^/?])"
).match
_storage = re.compile(rf"/storage/({UUID_PATTERN})/").match
# Chromium has the list at `/json` too, but there Playwright's clients that were given an http:// URL ask for
# their WebSocket.
_cdp = re.compile(
    rf"(/cdp(/{UUID_PATTERN})?(/json(/[^?]*)?|/devtools/[^?]*)?/?"
    r"|/json/(version|list|new|protocol|(close|activate)/[^?]*)/?)(?![^?])"
).match
_playwright = re.compile(r"/(playwright(?![^/?])|json/?(?![^?]))").match


class Kind(Enum):
    """Who serves a request."""

    MANAGER = "manager"
    NODE = "node"
    API = "api"
    STORAGE = "storage"
    PLAYWRIGHT = "playwright"
    CDP = "cdp"
    BIDI = "bidi"


class Route(NamedTuple):
    """Who serves a request, about which session, and under which target where that differs."""

    kind: Kind
    session: SessionId | None = None
    target: str | None = None
    storage: StorageId | None = None


_MANAGER = Route(Kind.MANAGER)
_API = Route(Kind.API)
_PLAYWRIGHT = Route(Kind.PLAYWRIGHT)
_CDP = Route(Kind.CDP)
_BIDI = Route(Kind.BIDI)


def speaks_cdp(user_agent: str, headers: Iterable[str], target: str) -> bool:
    """Whether a client at `/` wants DevTools: Puppeteer, or Playwright's connect_over_cdp.

    Playwright's own protocol is what others get there. Its clients have the same User-Agent either way, but
    for that protocol they send headers of their own.
    """
    if "browser=" in target.partition("?")[2]:
        return False
    is_own = any(name.startswith("x-playwright-") for name in headers)
    return user_agent.startswith("Puppeteer") or (user_agent.startswith("Playwright/") and not is_own)


def find_route(method: str, target: str, *, is_upgrade: bool = False, is_cdp: bool = False) -> Route:
    """The route of a request; raises SessionLost, UnknownCommand or UnknownMethod where there is none."""
    # First, and in one match: commands to a session are nearly all there is.
    command = _command(target)
    if command is not None:
        prefix, session = command.groups()
        return Route(Kind.NODE, SessionId(session), target[len(prefix) :] if prefix else None)
    webdriver = _webdriver(target)
    path = target.partition("?")[0]
    if webdriver is None:
        return (
            _CDP
            if is_upgrade and is_cdp and path == "/"
            else _find_other(target, path, is_upgrade=is_upgrade)
        )
    if not is_session_root(path):
        raise SessionLost(f"There is no session {path.split('/session/')[1].partition('/')[0]!r}.")
    if is_upgrade:
        return _BIDI
    if method != "POST":
        raise UnknownMethod(f"{path} takes POST, not {method}.")
    return Route(Kind.MANAGER, target=target[len(HUB) :]) if webdriver[1] else _MANAGER


def _find_other(target: str, path: str, *, is_upgrade: bool) -> Route:
    if (is_upgrade and path == "/") or _playwright(target):
        return _PLAYWRIGHT
    if _cdp(target):
        return _CDP
    if storage := _storage(target):
        return Route(Kind.STORAGE, storage=StorageId(storage[1]))
    if selenoid := _selenoid(target):
        what, session = selenoid.groups()
        rest = target[selenoid.end() :]
        return Route(Kind.NODE, SessionId(session), f"/session/{session}/aerokube/{what}{rest}")
    if is_upgrade:
        raise UnknownCommand(
            f"No WebSocket is at {path}: Playwright connects to / or /playwright/<browser>, "
            "connect_over_cdp to /cdp, and what a session offers is below /session/<id>/."
        )
    return _API


def session_of(target: str) -> SessionId | None:
    """The session that a command is for; None when it is for none."""
    command = _command(target)
    return SessionId(command[2]) if command else None


def is_for_any_page(method: str, target: str) -> bool:
    """Whether any web page may ask for this: players of artifacts are embedded elsewhere.

    Who names an artifact knows two ids that nobody can guess, so there is nothing for a stranger to find.
    """
    return method in ("GET", "HEAD", "OPTIONS") and _storage(target) is not None


def takes_any_text(target: str) -> bool:
    """Whether a body may have any type: Selenoid's clients send text for the clipboard as `curl -d` does."""
    return _clipboard(target) is not None


def is_session_root(path: str) -> bool:
    """Whether sessions are created at this path."""
    return path in ("/session", HUB + "/session")


def is_webdriver(target: str) -> bool:
    """Whether a WebDriver client asks, who understands errors in the W3C form only."""
    return _webdriver(target) is not None or target.startswith(HUB + "/")
