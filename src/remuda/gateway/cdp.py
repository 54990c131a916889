"""The DevTools door: a Chromium of one's own, for as long as a WebSocket to it is open.

Each client gets a session of the grid, so that none sees the pages of another; over one browser that all
share, as Chromium offers it, they would. The session ends with its last WebSocket: its node sees to that,
even if this gateway is killed.

| path | what |
|---|---|
| WebSocket `/cdp`, and `/` for clients that speak CDP | a browser that nobody else finds |
| WebSocket `/cdp/<id>` | the browser of session `<id>`; it is created when `<id>` is a UUID not used before |
| `/cdp/<id>/json/...`, WebSocket `/cdp/<id>/devtools/...` | what Chromium has there, of that browser |
| `/json/...`, `/cdp/json/...` | the same with a fresh id: the client has no browser yet that could be meant |

An HTTP request says nothing of who sent it, so a browser can only be a client's by its name. Questions
therefore start no browser: `/json/version` and `/json/list` make a name up and answer with it, and the
WebSocket that is opened there starts the browser. Something that polls them costs nothing.

Where tokens are needed, a name that a client chooses is one within its account: the session's own id is made
of both. So the names that others have chosen, and the ids of their sessions, are as free as any.
"""

import asyncio
import re
from typing import Any
from urllib.parse import parse_qs
from uuid import UUID, uuid5

import msgspec

from remuda import __version__
from remuda.accounts.model import EVERYTHING
from remuda.accounts.tickets import Tickets
from remuda.base import clock
from remuda.base.errors import (
    AccountLimitReached,
    InvalidArgument,
    Lost,
    RemudaError,
    SessionUnknown,
    Unavailable,
    UnknownCommand,
    UnknownMethod,
    UpgradeRequired,
    UpstreamLost,
    UpstreamUnavailable,
    UpstreamUntrusted,
)
from remuda.base.ids import UUID_PATTERN, SessionId, new_id
from remuda.base.log import get_logger
from remuda.fleet.http_client import ask
from remuda.fleet.internal import NO_TLS, InternalTls
from remuda.fleet.origin import Origin
from remuda.fleet.relay import Address, Answer, Dial, Forward, Plan, Request, TunnelLimits
from remuda.fleet.secret import HerdSecret
from remuda.fleet.tasks import Tasks
from remuda.gateway.directory import BrowserDirectory, Viewer
from remuda.gateway.faces import MANAGER_LOST
from remuda.grid.options import read_keep
from remuda.playwright.revoked import Revoked

log = get_logger(__name__)

PATH = "/cdp"
# A manager answers by itself when its time-outs are up; this is for one that hangs.
CREATE_TIMEOUT = 24 * 3600.0
HANDSHAKE_TIMEOUT = 15.0
ASK_TIMEOUT = 15.0
DELETE_TIMEOUT = 60.0
# For clients that never open the WebSocket.
IDLE_TIMEOUT = 30
# The description of the protocol changes with the browser's version only.
PROTOCOL_KEPT = 3600.0
MAX_OPENED = 1000

_path = re.compile(rf"(?:{PATH}(?:/({UUID_PATTERN}))?)?(/json|/devtools)?((?:/[^/]*)*)").fullmatch
_target = re.compile(r"/json/(?:close|activate)/([0-9A-F]{32})").fullmatch


class Cdp:
    """Serves what `routes` calls CDP."""

    def __init__(
        self,
        directory: BrowserDirectory,
        secret: HerdSecret,
        tickets: Tickets,
        revoked: Revoked,
        *,
        tls: InternalTls = NO_TLS,
        keep: float = 0.0,
    ) -> None:
        self.directory = directory
        self._secret = secret
        self._tickets = tickets
        self._revoked = revoked
        self._tls = tls
        self._keep = keep
        self._deletions = Tasks()
        # Pages that `/json/new` opened for clients who named no browser.
        self._opened: dict[str, SessionId] = {}
        self._protocol = b""
        self._protocol_until = 0.0
        self._reading_protocol = asyncio.Lock()

    async def route(self, request: Request, origin: Origin) -> Plan:
        """The way to a browser that is the client's, or what is said of it."""
        path, _, query = request.target.partition("?")
        match = _path(path.rstrip("/"))
        if match is None:
            raise UnknownCommand(f"There is nothing at {path[:100]}.")
        named, room, rest = match.groups()
        session = SessionId(named or "")
        if room == "/json":
            return await self._tell(request, origin, session, f"{room}{rest or '/list'}")
        if room is None and rest:
            raise UnknownCommand(f"There is nothing at {path[:100]}.")
        if not request.is_upgrade:
            raise UpgradeRequired(f"{path} is for connect_over_cdp: connect to {origin.websocket_url}{PATH}.")
        return await self._open(request, origin, session, f"{room or ''}{rest}", _read_keep(query))

    # Browsers

    async def _open(
        self, request: Request, origin: Origin, named: SessionId, rest: str, keep: float | None
    ) -> Plan:
        """The WebSocket of a session, which is created if there is none."""
        if not named and (keep or rest):
            raise InvalidArgument(
                f"To reconnect, give the session an id: {origin.websocket_url}{PATH}/<UUID>?keep=60s. "
                "GET /json/version returns a new id."
            )
        session, address = await self._resolve(named, origin) if named else (SessionId(new_id()), None)
        is_new = address is None
        if is_new:
            if named and UUID(named).version != 4:
                raise InvalidArgument(f"{named} is not a random UUID (version 4), so others could guess it.")
            kept = self._keep if keep is None else keep
            await self._create(request, origin, session, keep=kept if named else 0)
        try:
            address = address or await self._find(session, origin)
        except BaseException:
            self.delete_soon(session)
            raise
        # The page that `/json/list` promised before there was a browser is its first.
        if rest == f"/devtools/page/{_target_of(named or session)}":
            rest = "/devtools/page"
        path = f"/session/{session}/se/cdp{rest}"
        limits = TunnelLimits(cause=self._revoked.cause_for(origin))
        forward = Forward(address, path, host=str(address), credential=self._secret.line, limits=limits)
        call = _Call(self, session, is_new=is_new, is_named=bool(named))
        return Dial(forward, call, HANDSHAKE_TIMEOUT)

    async def _find(self, session: SessionId, viewer: Viewer) -> Address:
        node = self.directory.find_node(session, viewer)
        return node if isinstance(node, Address) else await node

    async def _resolve(self, named: SessionId, origin: Origin) -> tuple[SessionId, Address | None]:
        """The session that the client means, and its node; none if there is no such session yet."""
        # By its own id first: the browser's own answers have that in their URLs.
        meanings = [named, SessionId(str(uuid5(UUID(named), origin.account)))] if origin.token else [named]
        for session in meanings:
            try:
                return session, await self._find(session, origin)
            except SessionUnknown:
                continue
        return meanings[-1], None

    async def _create(self, request: Request, origin: Origin, session: SessionId, *, keep: float) -> None:
        options = {"endsWithWebSocket": True, "idleTimeout": IDLE_TIMEOUT, "keep": keep}
        wanted = {
            "alwaysMatch": {"remuda:options": options},
            "firstMatch": [{"browserName": "chrome"}, {"browserName": "chrome-headless-shell"}],
        }
        headers = {**dict(origin.headers()), "User-Agent": request.header("user-agent") or ""}
        found = self.directory.find_manager()
        manager = found if isinstance(found, Address) else await found
        try:
            status, body = await ask(
                manager,
                "POST",
                f"/session/{session}",
                msgspec.json.encode({"capabilities": wanted}),
                credential=self._secret.line,
                headers=headers,
                timeout=CREATE_TIMEOUT,
                tls=self._tls.context_for(manager),
            )
        except UpstreamUntrusted:
            raise
        except UpstreamUnavailable as error:
            self.directory.forget(manager, may_run=isinstance(error, UpstreamLost))
            log.warning("session not created", session=session, reason=error.message)
            raise Unavailable(MANAGER_LOST) from error
        if status == 200:
            return
        told = _read_error(body)
        message = str(told.get("message") or "") or f"The manager answered {status}."
        if status == AccountLimitReached.status:
            raise AccountLimitReached(message, retry_after=float(told["data"]["retryAfter"]))
        raise Unavailable(message)

    def delete_soon(self, session: SessionId) -> None:
        """Ends a session, apart from the request, which may be over."""
        self._deletions.spawn(self._delete(session), name=f"end session {session}")

    async def _delete(self, session: SessionId) -> None:
        try:
            address, path = await self._find(session, EVERYTHING), f"/session/{session}"
            await ask(
                address,
                "DELETE",
                path,
                credential=self._secret.line,
                timeout=DELETE_TIMEOUT,
                tls=self._tls.context_for(address),
            )
        except UpstreamUnavailable as error:
            await self.directory.end_session(session, error.message)
        except RemudaError as error:
            log.debug("session ended before", session=session, reason=error.message)

    # What is said of them

    async def _tell(self, request: Request, origin: Origin, named: SessionId, asked: str) -> Plan:
        target = _target(asked)
        if not named and target is not None:
            # The page of a list that was made up here names its browser.
            named = self._opened.get(target[1]) or SessionId(str(UUID(target[1])))
        if not named and asked == "/json/new":
            return await self._open_page(request, origin)
        session, address = await self._resolve(named, origin) if named else (named, None)
        if address is None:
            if target is not None:
                raise Lost(f"No such target id: {target[1]}")
            return await self._make_up(request, origin, named or SessionId(new_id()), asked)
        if target is not None and target[1] == _target_of(named):
            pages = [each["id"] for each in await self._ask(session, "/json/list") if each["type"] == "page"]
            asked = f"{asked.rpartition('/')[0]}/{next(iter(pages), target[1])}"
        query = request.target.partition("?")[2]
        way = f"/session/{session}/se/cdp{asked}" + (f"?{query}" if query else "")
        return Forward(address, way, origin.headers(), credential=self._secret.line)

    async def _open_page(self, request: Request, origin: Origin) -> Answer:
        """A page in a new browser, which ends soon unless its WebSocket is opened."""
        if request.method != "PUT":
            raise UnknownMethod(f"/json/new takes PUT, not {request.method}.")
        session = SessionId(new_id())
        await self._create(request, origin, session, keep=self._keep)
        query = request.target.partition("?")[2]
        way = f"/json/new?{query}" if query else "/json/new"
        told = await self._ask(session, way, method="PUT", origin=origin)
        self._opened[str(told["id"])] = session
        if len(self._opened) > MAX_OPENED:
            self._opened.pop(next(iter(self._opened)))
        return Answer(200, msgspec.json.encode(told))

    async def _ask(
        self, session: SessionId, way: str, *, method: str = "GET", origin: Origin | None = None
    ) -> Any:
        path = f"/session/{session}/se/cdp{way}"
        address = await self._find(session, EVERYTHING)
        status, body = await ask(
            address,
            method,
            path,
            credential=self._secret.line,
            headers={} if origin is None else dict(origin.headers()),
            timeout=ASK_TIMEOUT,
            tls=self._tls.context_for(address),
        )
        if status != 200:
            raise UpstreamUnavailable(f"The browser of session {session} answered {status} to {way[:100]}")
        return msgspec.json.decode(body)

    async def _read_protocol(self, request: Request, origin: Origin) -> bytes:
        """The description of the protocol, from a browser that runs or one that is started for this: at most
        one an hour, however many ask."""
        async with self._reading_protocol:
            if not self._protocol or clock.monotonic() > self._protocol_until:
                told = await self._ask_any_browser("/json/protocol")
                if told is None:
                    own = SessionId(new_id())
                    await self._create(request, origin, own, keep=0)
                    try:
                        told = await self._ask(own, "/json/protocol")
                    finally:
                        self.delete_soon(own)
                self._protocol = msgspec.json.encode(told)
                self._protocol_until = clock.monotonic() + PROTOCOL_KEPT
            return self._protocol

    async def _ask_any_browser(self, way: str) -> Any:
        """What a browser that runs answers; None when there is none, or it has just ended."""
        session = await self.directory.find_chromium()
        try:
            return None if session is None else await self._ask(session, way)
        except RemudaError as error:
            log.debug("browser does not answer", session=session, reason=error.message)
            return None

    async def _make_up(self, request: Request, origin: Origin, session: SessionId, asked: str) -> Answer:
        """What Chromium would say of a browser that is started when its WebSocket is opened."""
        query = request.target.partition("?")[2]
        keep = _read_keep(query)
        url = f"{origin.websocket_url}{PATH}/{session}"
        end = "" if keep is None else f"?keep={keep:g}"
        if asked == "/json/protocol":
            return Answer(200, await self._read_protocol(request, origin))
        if asked == "/json/version":
            found: Any = {
                "Browser": f"Remuda/{__version__}",
                "Protocol-Version": "1.3",
                "webSocketDebuggerUrl": self._tickets.add_to(url + end, session, origin),
            }
        elif asked == "/json/list":
            page = f"{url}/devtools/page/{_target_of(session)}{end}"
            found = [
                {
                    "description": "",
                    "id": _target_of(session),
                    "title": "about:blank",
                    "type": "page",
                    "url": "about:blank",
                    "webSocketDebuggerUrl": self._tickets.add_to(page, session, origin),
                }
            ]
        else:
            raise UnknownCommand(f"There is nothing at {asked[:100]}.")
        return Answer(200, msgspec.json.encode(found))


class _Call:
    """One client's WebSocket to its browser."""

    def __init__(self, cdp: Cdp, session: SessionId, *, is_new: bool, is_named: bool) -> None:
        self._cdp = cdp
        self._session = session
        self._is_new = is_new
        self._is_named = is_named
        self._is_taken = False

    def is_answer(self, status: int) -> bool:
        # A page that the browser does not have.
        return status == Lost.status

    def taken(self, _status: int) -> None:
        self._is_taken = True

    async def refused(self, reason: str) -> Dial | Answer:
        # One that has ended says so, with when and why.
        await self._cdp.directory.look_again(self._session, EVERYTHING)
        raise UpstreamUnavailable(f"The browser of session {self._session} does not answer: {reason}")

    def ended(self) -> None:
        # The node ends it too, but not before the last client's WebSocket has really closed. To one that has
        # a name its client may come back.
        if not self._is_named or (self._is_new and not self._is_taken):
            self._cdp.delete_soon(self._session)


def _target_of(session: SessionId) -> str:
    """What the first page of a browser is called before there is one, in the form of Chromium's ids."""
    return UUID(session).hex.upper()


def _read_keep(query: str) -> float | None:
    given = parse_qs(query).get("keep")
    return read_keep(given[-1], "'keep' in the URL") if given else None


def _read_error(body: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(body, type=dict[str, dict[str, Any]])["value"]
    except (msgspec.DecodeError, KeyError) as error:
        raise UpstreamUnavailable("The manager's answer is not valid.") from error
