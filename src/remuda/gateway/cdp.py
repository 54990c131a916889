"""`connect_over_cdp`: a Chromium of one's own, for as long as the WebSocket is open.

Each connection gets a session of the grid, so that no client sees the pages of another; over one browser that
all share, as Chromium offers it, they would. The session ends with its WebSocket: its node sees to
that, even if this gateway is killed.
"""

import asyncio
from typing import Any

import msgspec

from remuda.base.errors import RemudaError, Unavailable, UpgradeRequired, UpstreamUnavailable
from remuda.base.ids import SessionId
from remuda.base.log import get_logger
from remuda.fleet.relay import Address, Answer, Dial, Forward, Plan, Request, ask
from remuda.fleet.secret import HerdSecret
from remuda.gateway.directory import Directory

log = get_logger(__name__)

PATH = "/cdp"
# A manager answers by itself when its time-outs are up; this is for one that hangs.
CREATE_TIMEOUT = 24 * 3600.0
HANDSHAKE_TIMEOUT = 15.0
DELETE_TIMEOUT = 60.0
# For the case that nobody ever opens the WebSocket.
IDLE_TIMEOUT = 30

_WANTED = msgspec.json.encode(
    {
        "capabilities": {
            "alwaysMatch": {"remuda:options": {"endsWithWebSocket": True, "idleTimeout": IDLE_TIMEOUT}},
            "firstMatch": [{"browserName": "chrome"}, {"browserName": "chrome-headless-shell"}],
        }
    }
)


class Cdp:
    """Serves `/cdp`."""

    def __init__(self, directory: Directory, secret: HerdSecret) -> None:
        self._directory = directory
        self._secret = secret
        self._deletions: set[asyncio.Task[None]] = set()

    async def route(self, request: Request) -> Plan:
        """The way to a browser that is made for this request."""
        path = request.target.partition("?")[0].rstrip("/")
        if path.endswith("/json/version"):
            return _tell_where(request)
        if not request.is_upgrade:
            raise UpgradeRequired(f"{path} is for connect_over_cdp: connect to ws://{_host(request)}{PATH}.")
        session = await self._create(request)
        try:
            node = self._directory.find_node(session)
            address = node if isinstance(node, Address) else await node
        except BaseException:
            self.delete_soon(session)
            raise
        path = f"/session/{session}/se/cdp"
        forward = Forward(address, path, host=str(address), credential=self._secret.line)
        return Dial(forward, _Call(self, session), HANDSHAKE_TIMEOUT)

    async def _create(self, request: Request) -> SessionId:
        headers = {"X-Forwarded-For": request.client, "User-Agent": request.header("user-agent") or ""}
        status, body = await self._ask_manager(headers)
        value = _value(body)
        if status != 200:
            raise Unavailable(value.get("message") or f"The manager answered {status}.")
        return SessionId(value["sessionId"])

    async def _ask_manager(self, headers: dict[str, str]) -> tuple[int, bytes]:
        found = self._directory.find_manager()
        manager = found if isinstance(found, Address) else await found
        try:
            return await ask(
                manager,
                "POST",
                "/session",
                _WANTED,
                credential=self._secret.line,
                headers=headers,
                timeout=CREATE_TIMEOUT,
            )
        except UpstreamUnavailable:
            self._directory.forget(manager)
            raise

    def delete_soon(self, session: SessionId) -> None:
        """Ends a session, apart from the request, which may be over."""
        task = asyncio.create_task(self._delete(session), name=f"end session {session}")
        self._deletions.add(task)
        task.add_done_callback(self._deletions.discard)

    async def _delete(self, session: SessionId) -> None:
        try:
            node = self._directory.find_node(session)
            address = node if isinstance(node, Address) else await node
            path = f"/session/{session}"
            await ask(address, "DELETE", path, credential=self._secret.line, timeout=DELETE_TIMEOUT)
        except RemudaError as error:
            log.debug("session ended before", session=session, reason=error.message)


class _Call:
    """One client's WebSocket to its browser."""

    def __init__(self, cdp: Cdp, session: SessionId) -> None:
        self._cdp = cdp
        self._session = session

    def is_answer(self, status: int) -> bool:
        return False

    def taken(self) -> None:
        """The session is its client's from its creation on."""

    async def refused(self, reason: str) -> Dial | Answer:
        raise UpstreamUnavailable(f"The browser of session {self._session} does not answer: {reason}")

    def ended(self) -> None:
        # The node ends it too, but not before the last client's WebSocket has really closed.
        self._cdp.delete_soon(self._session)


def _tell_where(request: Request) -> Answer:
    """What Chromium answers at this path, as far as clients look at it."""
    scheme = "wss" if request.header("x-forwarded-proto") == "https" else "ws"
    found = {
        "Browser": "Remuda",
        "Protocol-Version": "1.3",
        "webSocketDebuggerUrl": f"{scheme}://{_host(request)}{PATH}",
    }
    return Answer(200, msgspec.json.encode(found))


def _host(request: Request) -> str:
    return request.header("x-forwarded-host") or request.header("host") or ""


def _value(body: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(body, type=dict[str, dict[str, Any]])["value"]
    except (msgspec.DecodeError, KeyError) as error:
        raise UpstreamUnavailable("The manager's answer makes no sense.") from error
