"""uvicorn inside a role: its steps are taken one by one, so that signals stay the process's business.

Every such server is behind the gateway, so it answers only those that show the herd's credential.
"""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import uvicorn
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from remuda.base import descriptors
from remuda.base.errors import Broken, InternalPort, Overloaded, Refused, RemudaError, Unavailable
from remuda.base.hosts import InternalHosts, host_port, open_listener
from remuda.base.log import get_logger
from remuda.fleet.relay import CREDENTIAL_HEADER, Guard

log = get_logger(__name__)

# Longer than any gateway keeps a pooled connection: the side that reuses must be the first to close.
KEEP_ALIVE = 75
LAST_ANSWERS = 5
# Of a WebSocket: the largest message that is taken, and how often a silent client is asked for an answer.
MAX_MESSAGE = 1 << 20
PING_EVERY = 20.0
# RFC 6455 7.4.1, and 1013 of IANA's registry: "try again later".
NORMAL, POLICY, FAILED, TRY_LATER = 1000, 1008, 1011, 1013
MAX_REASON = 123
_CREDENTIAL = CREDENTIAL_HEADER.lower().encode()


Talk = Callable[[WebSocket], Awaitable[None]]
"""Accepts a WebSocket and speaks with its client until one of the two has had enough."""


class HttpServer:
    """An ASGI application on an internal port of its own.

    Without `websockets` it sees no WebSocket: a handshake is a GET like any other.
    """

    def __init__(self, app: ASGIApp, *, hosts: InternalHosts, guard: Guard, websockets: bool = False) -> None:
        self._hosts = hosts
        config = uvicorn.Config(
            _guarded(_spare_descriptors(app), guard),
            http="httptools",
            ws="wsproto" if websockets else "none",
            ws_max_size=MAX_MESSAGE,
            ws_ping_interval=PING_EVERY,
            ws_ping_timeout=PING_EVERY,
            ws_per_message_deflate=False,
            lifespan="off",
            log_config=None,
            access_log=False,
            # It would log the path of every WebSocket, with its query.
            log_level="warning",
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE,
            timeout_graceful_shutdown=LAST_ANSWERS,
        )
        config.load()
        if hosts.certificate is not None:
            config.ssl = hosts.certificate.follow()
        self._uvicorn = uvicorn.Server(config)
        self._uvicorn.lifespan = config.lifespan_class(config)

    async def start(self) -> str:
        """Listens; the address that it advertises, as `host:port`."""
        listener = open_listener(self._hosts.listen)
        port = listener.getsockname()[1]
        await self._uvicorn.startup(sockets=[listener])
        return host_port(self._hosts.advertise, port)

    async def serve(self) -> None:
        """Keeps uvicorn's clock for the Date header, until it is cancelled."""
        while True:
            await self._uvicorn.on_tick(0)
            await asyncio.sleep(1.0)

    async def stop(self) -> None:
        """Closes the port and waits for the answers under way; WebSockets are closed with 1012."""
        if self._uvicorn.started:
            self._uvicorn.started = False
            await self._uvicorn.shutdown()


def websocket_endpoint(talk: Talk) -> Talk:
    """The same talk with answers to its errors, for a route of Starlette's.

    An error that it raises before it has accepted the WebSocket is the answer to the handshake. A later one
    closes the WebSocket with a code and the error's message. So does its return.
    """

    async def serve(socket: WebSocket) -> None:
        error: RemudaError | None = None
        try:
            await talk(socket)
        except WebSocketDisconnect:
            return
        except RemudaError as raised:
            error = raised
        except Exception:
            log.exception("websocket failed", path=socket.url.path)
            error = Broken()
        if socket.client_state is WebSocketState.DISCONNECTED:
            return
        if socket.application_state is WebSocketState.CONNECTED:
            reason = "" if error is None else error.message.encode()[:MAX_REASON].decode(errors="ignore")
            await socket.close(_close_code(error), reason)
        elif socket.application_state is WebSocketState.CONNECTING:
            await socket.send_denial_response(_answer(error or Broken()))

    return serve


def _close_code(error: RemudaError | None) -> int:
    if error is None:
        return NORMAL
    if isinstance(error, Refused):
        return POLICY
    return TRY_LATER if isinstance(error, Unavailable) else FAILED


def _guarded(app: ASGIApp, guard: Guard) -> ASGIApp:
    """The application for those that show the right credential, which it does not see."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        shown = [value for name, value in scope["headers"] if name == _CREDENTIAL]
        credential = b", ".join(shown) if shown else None
        if not guard.admits(credential):
            looked = asyncio.Event()
            guard.look_again(looked.set)
            await looked.wait()
        if guard.admits(credential):
            scope["headers"] = [each for each in scope["headers"] if each[0] != _CREDENTIAL]
            await app(scope, receive, send)
        else:
            await _answer(InternalPort())(scope, receive, send)

    return serve


def _spare_descriptors(app: ASGIApp) -> ASGIApp:
    """The application as long as there are descriptors left; then its clients hear that there are none.

    The last eighth is for what is under way. What needs several descriptors per request refuses earlier.
    """

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        limit = descriptors.limit()
        if descriptors.in_use() < limit - limit // 8:
            await app(scope, receive, send)
        else:
            await _answer(Overloaded())(scope, receive, send)

    return serve


def _answer(error: RemudaError) -> Response:
    answer = Response(msgspec.json.encode(error.api_face()), error.status, error.headers())
    answer.headers["Content-Type"] = "application/json; charset=utf-8"
    return answer
