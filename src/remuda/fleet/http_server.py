"""uvicorn inside a role: its steps are taken one by one, so that signals stay the process's business.

Every such server is behind the gateway, so it answers only those that show the herd's credential.
"""

import asyncio
import socket

import msgspec
import uvicorn
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from remuda.base import descriptors
from remuda.base.errors import InternalPort, Overloaded, RemudaError
from remuda.fleet.relay import CREDENTIAL_HEADER, Guard

# Longer than any gateway keeps a pooled connection: the side that reuses must be the first to close.
KEEP_ALIVE = 75
LAST_ANSWERS = 5
BACKLOG = 1024
_CREDENTIAL = CREDENTIAL_HEADER.lower().encode()


class HttpServer:
    """An ASGI application on an internal port of its own."""

    def __init__(self, app: ASGIApp, *, host: str, guard: Guard) -> None:
        self._host = host
        config = uvicorn.Config(
            _guarded(_spare_descriptors(app), guard),
            http="httptools",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE,
            timeout_graceful_shutdown=LAST_ANSWERS,
        )
        config.load()
        self._uvicorn = uvicorn.Server(config)
        self._uvicorn.lifespan = config.lifespan_class(config)

    async def start(self) -> str:
        """Listens; the address as `host:port`."""
        listener = socket.create_server((self._host, 0), backlog=BACKLOG)
        listener.setblocking(False)
        port = listener.getsockname()[1]
        await self._uvicorn.startup(sockets=[listener])
        return f"{self._host}:{port}"

    async def serve(self) -> None:
        """Keeps uvicorn's clock for the Date header, until it is cancelled."""
        while True:
            await self._uvicorn.on_tick(0)
            await asyncio.sleep(1.0)

    async def stop(self) -> None:
        """Closes the port and waits for the answers under way."""
        if self._uvicorn.started:
            self._uvicorn.started = False
            await self._uvicorn.shutdown()


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

    The last eighth is for what is under way. Those who need more than a descriptor each give up earlier.
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
