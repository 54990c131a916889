"""Which kind of process serves which path of the front door. Pure; the directory knows where they are."""

import re
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from remuda.base.errors import SessionLost, UnknownMethod
from remuda.base.ids import UUID_PATTERN, SessionId
from remuda.fleet.origin import Scope
from remuda.grid.wire import HUB
from remuda.storage.model import StorageId

# With more slashes than needed, too: a client that is given `http://host:4444/` begins every path with two.
_HUB = rf"({HUB}/*|/+)?"
_command = re.compile(rf"{_HUB}/session/({UUID_PATTERN})(?![^/?])").match
_webdriver = re.compile(rf"{_HUB}/session(?![^/?])").match
_session_root = re.compile(rf"{_HUB}/session").fullmatch
# Selenoid's paths; Moon has the same below the session, and there the node serves them.
_selenoid = re.compile(rf"/(download|devtools|clipboard)/({UUID_PATTERN})(?![^/?])").match
_clipboard = re.compile(
    rf"(/clipboard/{UUID_PATTERN}|({HUB})?/session/{UUID_PATTERN}/aerokube/clipboard)(?![^/?])"
).match
_storage = re.compile(rf"/storage/({UUID_PATTERN})/(job_)?").match
# What is before the storage's id says whether it is shared; the storage reads it.
_shared = re.compile(rf"/shared/[^/?]+/({UUID_PATTERN})/").match
# Chromium has the list at `/json` too, but there Playwright's clients that were given an http:// URL ask for
# their WebSocket.
_cdp = re.compile(
    rf"(/cdp(/{UUID_PATTERN})?(/json(/[^?]*)?|/devtools/[^?]*)?/?"
    r"|/json/(version|list|new|protocol|(close|activate)/[^?]*)/?)(?![^?])"
).match
# Utapi's listings. `/` is the dashboard for all but POST.
_usage = re.compile(r"/(buckets|accounts|users|service|location)?(?![^?])").match
# What tells of a session's DevTools, with URLs of their WebSockets.
_DEVTOOLS = "/se/cdp/json"
_ticketed = re.compile(rf"(?:(?:{HUB})?/session|/devtools|/cdp)/({UUID_PATTERN})(?![^/?])").match
_playwright = re.compile(r"/(playwright(?![^/?])|json/?(?![^?]))").match


PROBES = ("/healthz", "/readyz")
"""What the gateway answers itself: for these it must not depend on another process."""


class Backend(Enum):
    """Who serves a request."""

    MANAGER = "manager"
    NODE = "node"
    API = "api"
    STORAGE = "storage"
    PLAYWRIGHT = "playwright"
    CDP = "cdp"
    BIDI = "bidi"
    PROBES = "probes"


class Destination(NamedTuple):
    """Who serves a request, about which session, and under which target where that differs."""

    backend: Backend
    session: SessionId | None = None
    target: str | None = None
    storage: StorageId | None = None
    scope: Scope | None = Scope.USE
    """What a token must be good for; None if that is decided where the request is served."""
    hands_out_urls: bool = False
    """Whether a node must know how its client sees the herd."""
    may_be_signed: bool = False
    """Whether a client may sign the request by AWS Signature V4 instead of showing a token."""


_MANAGER = Destination(Backend.MANAGER)
_API = Destination(Backend.API, scope=None)
_USAGE = Destination(Backend.API, scope=None, may_be_signed=True)
_PLAYWRIGHT = Destination(Backend.PLAYWRIGHT)
_CDP = Destination(Backend.CDP)
_BIDI = Destination(Backend.BIDI)
_PROBES = Destination(Backend.PROBES, scope=None)


def speaks_cdp(user_agent: str, headers: Iterable[str], target: str) -> bool:
    """Whether a client at `/` wants DevTools: Puppeteer, or Playwright's connect_over_cdp.

    Playwright's own protocol is what others get there. Its clients have the same User-Agent either way, but
    for that protocol they send headers of their own.
    """
    if "browser=" in target.partition("?")[2]:
        return False
    is_own = any(name.startswith("x-playwright-") for name in headers)
    return user_agent.startswith("Puppeteer") or (user_agent.startswith("Playwright/") and not is_own)


def find_destination(
    method: str, target: str, *, is_upgrade: bool = False, is_cdp: bool = False
) -> Destination:
    """The destination of a request; raises SessionLost or UnknownMethod where there is none."""
    # First, and in one match: commands to a session are nearly all there is.
    command = _command(target)
    if command is not None:
        prefix, session = command.groups()
        return Destination(
            Backend.NODE,
            SessionId(session),
            target[len(prefix) :] if prefix else None,
            hands_out_urls=target.startswith(_DEVTOOLS, command.end()),
        )
    webdriver = _webdriver(target)
    path = target.partition("?")[0]
    if webdriver is None:
        if method == "POST" and not is_upgrade and _usage(target):
            return _USAGE
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
    prefix = webdriver[1]
    return Destination(Backend.MANAGER, target=target[len(prefix) :]) if prefix else _MANAGER


def _find_other(target: str, path: str, *, is_upgrade: bool) -> Destination:
    if (is_upgrade and path == "/") or _playwright(target):
        return _PLAYWRIGHT
    if path in PROBES:
        return _PROBES
    if _cdp(target):
        return _CDP
    if storage := _storage(target):
        scope = Scope.ARCHIVE if storage[2] else Scope.USE
        return Destination(Backend.STORAGE, storage=StorageId(storage[1]), scope=scope)
    if shared := _shared(target):
        return Destination(Backend.STORAGE, storage=StorageId(shared[1]), scope=None)
    if selenoid := _selenoid(target):
        what, session = selenoid.groups()
        rest = target[selenoid.end() :]
        return Destination(Backend.NODE, SessionId(session), f"/session/{session}/aerokube/{what}{rest}")
    return _API


class PathExample(NamedTuple):
    """A request that the front door serves by a pattern, and not by a route of the API."""

    target: str
    """With `{session}` and `{storage}` where ids belong."""
    method: str = "GET"
    is_upgrade: bool = False


EXAMPLES = (
    PathExample("/session", "POST"),
    PathExample(f"{HUB}/session", "POST"),
    PathExample("/session", is_upgrade=True),
    PathExample("/session/{session}", "DELETE"),
    PathExample("/session/{session}/url"),
    PathExample(f"{HUB}/session/{{session}}/url"),
    PathExample("/session/{session}/se/files"),
    PathExample("/session/{session}/aerokube/clipboard"),
    PathExample("/session/{session}", is_upgrade=True),
    PathExample("/session/{session}/se/bidi", is_upgrade=True),
    PathExample("/session/{session}/se/cdp", is_upgrade=True),
    PathExample("/session/{session}/se/cdp/json/version"),
    PathExample("/download/{session}/report.pdf"),
    PathExample("/clipboard/{session}"),
    PathExample("/clipboard/{session}", "POST"),
    PathExample("/devtools/{session}/browser", is_upgrade=True),
    PathExample("/storage/{storage}/{session}/video.mp4"),
    PathExample("/storage/{storage}/{session}/"),
    PathExample("/shared/0.eA.0/{storage}/{session}/video.mp4"),
    PathExample("/cdp", is_upgrade=True),
    PathExample("/cdp/{session}", is_upgrade=True),
    PathExample("/cdp/{session}/json/version"),
    PathExample("/json/version"),
    PathExample("/json/list"),
    PathExample("/json"),
    PathExample("/", is_upgrade=True),
    PathExample("/playwright", is_upgrade=True),
    PathExample("/playwright/firefox", is_upgrade=True),
)
"""At least one for each pattern above: what is tested and told of all paths begins with these."""


def session_of(target: str) -> SessionId | None:
    """The session that a command is for; None when it is for none."""
    command = _command(target)
    return SessionId(command[2]) if command else None


def ends_session(method: str, target: str) -> bool:
    """Whether a request is the one that ends a session."""
    command = _command(target)
    return (
        method == "DELETE" and command is not None and target[command.end() :].partition("?")[0] in ("", "/")
    )


def ticketed_session(target: str, *, is_upgrade: bool) -> SessionId | None:
    """The session of this WebSocket or DevTools path, which a ticket of that session opens; None for all
    other requests."""
    match = _ticketed(target)
    if match is None:
        return None
    is_devtools = target.startswith(("/json", _DEVTOOLS), match.end())
    return SessionId(match[1]) if is_upgrade or is_devtools else None


def is_for_any_page(method: str, target: str, *, is_auth_on: bool) -> bool:
    """Whether any web page may ask for this: players of artifacts are embedded elsewhere.

    The name of an artifact has two ids that cannot be guessed, so a foreign page cannot find one.
    Where tokens are needed, ids are not enough: pages elsewhere get what is shared.
    """
    if method not in ("GET", "HEAD", "OPTIONS"):
        return False
    return _shared(target) is not None or (not is_auth_on and _storage(target) is not None)


def takes_any_text(target: str) -> bool:
    """Whether a body may have any type: Selenoid's clients send text for the clipboard as `curl -d` does."""
    return _clipboard(target) is not None


def is_session_root(path: str) -> bool:
    """Whether sessions are created at this path."""
    return _session_root(path) is not None
