"""The ASGI application: the routes that rooms declare, and how their errors look. A WebDriver client gets an
error in the W3C form, any other client a code and a message.

Before a handler sees a request, its route's scope is compared with what the front door says of the client.
Without a token every path that is not public answers the same, whether it exists or not.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from msgspec import Struct
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, WebSocketRoute
from starlette.routing import Route as StarletteRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from remuda.accounts.access import KNOWN_WITHIN
from remuda.base.errors import (
    Broken,
    RemudaError,
    Unauthorized,
    UnknownCommand,
    UnknownMethod,
    UpgradeRequired,
)
from remuda.fleet.challenge import challenge_for
from remuda.fleet.http_server import Talk, websocket_endpoint
from remuda.fleet.origin import Origin
from remuda.fleet.room import WaitForRefusal
from remuda.fleet.route import WEBSOCKET, Route, json_response, origin_of, read_body, read_query
from remuda.fleet.tasks import run_until
from remuda.grid.wire import HUB, is_webdriver
from remuda.web.files import answer_login

STRICT = (b"strict-transport-security", b"max-age=31536000")
"""RFC 6797, 6.1: for a year, a browser is to speak TLS only to this host name."""
LONGEST_PATH = 200
"""Characters of a path that a refusal repeats."""


class Problem(Struct):
    """What went wrong: a fixed code for programs and a sentence for people."""

    code: str
    message: str


class ProblemAnswer(Struct):
    """The answer to a request that failed."""

    error: Problem


class WebdriverError(Struct):
    """What went wrong, as W3C WebDriver has it."""

    error: str
    message: str
    stacktrace: str


class WebdriverAnswer(Struct):
    """The answer to a WebDriver client's request that failed."""

    value: WebdriverError


@dataclass(frozen=True)
class Ends:
    """When streams and WebSockets end, which clients never leave by themselves."""

    closing: asyncio.Event
    """Set when the application closes. Clients come back to whatever serves next."""
    refusals: Sequence[WaitForRefusal]

    async def wait(self, origin: Origin) -> None:
        """Returns when the application closes, or when a client of this origin is let in no longer."""
        await _first_of([self.closing.wait(), self.wait_for_refusal(origin)])

    async def wait_for_refusal(self, origin: Origin) -> None:
        """Returns when a client of this origin is let in no longer."""
        await _first_of([each(origin) for each in self.refusals] or [asyncio.Event().wait()])


async def _first_of(waits: Sequence[Awaitable[object]]) -> None:
    """Returns when one of them does, and ends the others."""
    waiting = [asyncio.ensure_future(each) for each in waits]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waiting:
            each.cancel()


def build_app(routes: Sequence[Route], ends: Ends) -> ASGIApp:
    """The application that serves these routes."""
    sockets = [route for route in routes if route.method == WEBSOCKET]
    # One Starlette route a path, since Starlette refuses a wrong method at the first path that matches.
    by_path: dict[str, dict[str, Route]] = {}
    for route in routes:
        if route.method != WEBSOCKET:
            by_path.setdefault(route.path, {})[route.method] = route
    for route in sockets:
        by_path.setdefault(route.path, {"GET": replace(route, handler=_ask_for_upgrade, query=None)})
    served: list[BaseRoute] = []
    for prefix in ("", HUB):
        served += [
            StarletteRoute(prefix + path, _endpoint(methods, ends), methods=list(methods))
            for path, methods in by_path.items()
        ]
        served += [
            WebSocketRoute(prefix + route.path, websocket_endpoint(_talk(route, ends))) for route in sockets
        ]
    served.append(WebSocketRoute("/{path:path}", websocket_endpoint(_refuse_talk)))
    whole = Starlette(routes=served, exception_handlers={HTTPException: _on_http_error, Exception: _on_bug})
    to_strangers = Starlette(
        routes=served, exception_handlers={HTTPException: _refuse_without_token, Exception: _on_bug}
    )
    # It would redirect to what is there.
    to_strangers.router.redirect_slashes = False

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        origin = origin_of(HTTPConnection(scope))

        # Not by the gateway: what it relays are commands too, whose clients do not look at this.
        async def send_strictly(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], STRICT]
            await send(message)

        app = whole if origin.scopes else to_strangers
        await app(scope, receive, send_strictly if origin.scheme == "https" else send)

    return serve


def _endpoint(methods: Mapping[str, Route], ends: Ends) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        route = methods["GET" if request.method == "HEAD" else request.method]
        given: list[Struct] = []
        try:
            route.check(origin_of(request))
            if route.query is not None:
                given.append(read_query(request, route.query))
            if route.body is not None:
                given.append(await _read_body(request, route, route.body, ends))
            answer = await route.handler(request, *given)
        except RemudaError as error:
            return _answer_error(request, error, route.error_face)
        if isinstance(answer, Response):
            return answer
        if isinstance(answer, AsyncIterator):
            return _answer_stream(request, route, _until(ends, origin_of(request), answer))
        return json_response(answer)

    return endpoint


async def _read_body(request: Request, route: Route, kind: type[Struct], ends: Ends) -> Struct:
    """The body; Unauthorized if the token is revoked before all of it has come.

    The front door has looked at the token when the head came: what follows much later would not be let in.
    """

    async def refuse() -> None:
        await asyncio.sleep(KNOWN_WITHIN)  # Nearly all bodies are there by then, and cost Redis nothing.
        await ends.wait_for_refusal(origin_of(request))

    reading = read_body(request, kind, max_body=route.max_body)
    body = await run_until(refuse(), reading, name=f"read the body for {route.path}")
    if body is None:
        raise Unauthorized("The token has expired or was revoked before the whole body had come.")
    return body


def _answer_stream(request: Request, route: Route, messages: AsyncIterator[bytes]) -> Response:
    assert isinstance(route.answer, str)
    # Proxies between us and the browser must not hold events back.
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    if request.method == "HEAD":  # It would stream for ever to a client that wants no body.
        return Response(media_type=route.answer, headers=headers)
    return StreamingResponse(messages, media_type=route.answer, headers=headers)


async def _until(ends: Ends, origin: Origin, messages: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The messages until they are to end."""
    ended = asyncio.ensure_future(ends.wait(origin))
    upcoming: asyncio.Future[bytes | None] | None = None
    try:
        while True:
            upcoming = asyncio.ensure_future(anext(messages, None))
            await asyncio.wait((ended, upcoming), return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                return
            message = upcoming.result()
            if message is None:
                return
            yield message
    finally:
        ended.cancel()
        if upcoming is not None and not upcoming.done():
            upcoming.cancel()  # Ends the generator too, which waits in it.
        elif isinstance(messages, AsyncGenerator):
            await messages.aclose()


def _talk(route: Route, ends: Ends) -> Talk:
    async def handle(socket: WebSocket) -> bool:
        route.check(origin_of(socket))
        given = () if route.query is None else (read_query(socket, route.query),)
        await route.handler(socket, *given)
        return True

    async def talk(socket: WebSocket) -> None:
        end = ends.wait(origin_of(socket))
        if not await run_until(end, handle(socket), name=f"websocket {route.path}"):
            # When the application closes, the server has closed it.
            raise WebSocketDisconnect if ends.closing.is_set() else Unauthorized

    return talk


async def _ask_for_upgrade(_request: Request) -> None:
    raise UpgradeRequired


async def _refuse_talk(socket: WebSocket) -> None:
    if not origin_of(socket).scopes:
        raise Unauthorized
    raise UnknownCommand(
        f"There is no WebSocket at {socket.url.path[:LONGEST_PATH]}: Playwright connects to / or "
        "/playwright/<browser>, connect_over_cdp to /cdp, and what a session offers is below /session/<id>/."
    )


def _answer_error(
    request: Request, error: RemudaError, face: Callable[[RemudaError], object] | None = None
) -> Response:
    is_page = request.method == "GET" and "text/html" in request.headers.get("accept", "")
    if isinstance(error, Unauthorized) and is_page:
        return answer_login()
    if face is None:
        is_for_webdriver = is_webdriver(request.url.path)
        face = RemudaError.webdriver_face if is_for_webdriver else RemudaError.api_face
    answer = json_response(face(error), status=error.status)
    answer.headers.update(error.headers())
    if isinstance(error, Unauthorized):
        answer.headers["WWW-Authenticate"] = challenge_for(request.headers.get)
    return answer


async def _on_http_error(request: Request, error: Exception) -> Response:
    """Starlette's own refusals: no such path, or not with this method."""
    assert isinstance(error, HTTPException)
    shown = request.url.path[:LONGEST_PATH]
    if error.status_code == UnknownMethod.status:
        answer = _answer_error(request, UnknownMethod(f"{shown} does not take {request.method}."))
        answer.headers.update(error.headers or {})  # RFC 9110 15.5.6: a 405 says what is allowed.
        return answer
    return _answer_error(request, UnknownCommand(f"There is nothing at {shown}."))


async def _refuse_without_token(request: Request, _error: Exception) -> Response:
    """What Starlette finds no route for, to a client without a token."""
    return _answer_error(request, Unauthorized())


async def _on_bug(request: Request, _error: Exception) -> Response:
    # Starlette raises it again after this, and uvicorn logs it with its trace.
    return _answer_error(request, Broken())
