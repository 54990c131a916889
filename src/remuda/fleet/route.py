"""What a route of the API is. The room that serves it declares it once; it becomes a route of the application
and a piece of the OpenAPI document."""

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from remuda.base.errors import InvalidArgument, RemudaError, ScopeMissing, Unauthorized
from remuda.fleet.origin import EVERY_SCOPE, Origin, Scope

S = TypeVar("S", bound=Struct)

Handler = Callable[..., Awaitable[Any]]
"""Gets the request, then the query and the body where its route declares them. Gives an instance of the
route's answer, an iterator of bytes to stream, or a whole Response."""

WEBSOCKET = "WEBSOCKET"
"""The method of a route that is a WebSocket. Its handler gets a Starlette WebSocket instead of a request. It
accepts that, or refuses it by an error, and returns when it is done. It is cancelled when the role ends."""

ANY_TOKEN = EVERY_SCOPE
"""The scope of a route that every token is good for."""

MAX_BODY = 64 << 10
EVENT_STREAM = "text/event-stream"


@dataclass(frozen=True)
class Route:
    """One method on one path."""

    method: str
    path: str
    summary: str
    handler: Handler
    answer: Any
    """What it answers with or a WebSocket sends: a Struct, a list of one, or the media type where that is not
    JSON."""
    query: type[Struct] | None = None
    body: type[Struct] | None = None
    """The JSON that it takes. Anything else is answered with a 400 that names the field."""
    max_body: int = MAX_BODY
    """Bytes that a body may have."""
    read_by_handler: Any = None
    """The type of a body that the handler reads by itself: it is only described."""
    example: Any = None
    """A body that it takes, in plain JSON."""
    status: int = 200
    """Of the answer."""
    error_face: Callable[[RemudaError], object] | None = None
    """The JSON of an error, where the clients of this path expect a form of their own."""
    error_answer: type[Struct] | None = None
    """The type of that JSON."""
    scope: Scope | frozenset[Scope] | None = Scope.ADMIN
    """What a client's token must be good for, one of these if there are several; None: no token is needed. A
    route that declares nothing is for operators only."""

    @property
    def scopes(self) -> frozenset[Scope]:
        """The scopes of which a client needs one; empty where it needs no token."""
        if self.scope is None:
            return frozenset()
        return frozenset((self.scope,)) if isinstance(self.scope, Scope) else self.scope

    def check(self, origin: Origin) -> None:
        """Raises Unauthorized for a client that shows no token, and ScopeMissing for one whose token is not
        good for this."""
        if self.scope is not None:
            check_scope(origin, self.scopes)


def check_scope(origin: Origin, scopes: Collection[Scope]) -> None:
    """Raises Unauthorized for a client that shows no token, and ScopeMissing for one whose token has none of
    these scopes."""
    if any(map(origin.may, scopes)):
        return
    if not origin.scopes:
        raise Unauthorized
    names = " or ".join(f"`{each}`" for each in sorted(scopes))
    raise ScopeMissing(f"This needs a token with the scope {names}.")


def origin_of(request: HTTPConnection) -> Origin:
    """Where a request comes from, as the front door says."""
    return Origin.read(request.headers.get, address="")


def text_route(path: str, summary: str, media_type: str, read: Callable[[], Awaitable[str]]) -> Route:
    """A route for operators, to a text that is made anew for each request."""

    async def handler(_request: Request) -> Response:
        return Response(await read(), headers={"Cache-Control": "no-cache"}, media_type=media_type)

    return Route("GET", path, summary, handler, media_type)


def json_response(body: object, *, status: int = 200) -> Response:
    """An answer in JSON. It shows the state at this moment, so it may not be cached."""
    return Response(
        msgspec.json.encode(body),
        status,
        headers={"Cache-Control": "no-cache"},
        media_type="application/json; charset=utf-8",
    )


def read_query(request: HTTPConnection, kind: type[S]) -> S:
    """The query as the Struct that its route declares; InvalidArgument says which value is wrong."""
    try:
        return msgspec.convert(dict(request.query_params), kind, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidArgument(f"The query is wrong: {error}") from error


async def read_raw_body(request: Request, *, max_body: int) -> bytes:
    """The body as it came; InvalidArgument if it is too long."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > max_body:
            raise InvalidArgument(f"The body is longer than {max_body} bytes.")
    return bytes(body)


async def read_body(request: Request, kind: type[S], *, max_body: int) -> S:
    """The body as the Struct that its route declares; InvalidArgument says which value is wrong."""
    body = await read_raw_body(request, max_body=max_body)
    try:
        # A client that has nothing to say need not say so in JSON.
        return msgspec.json.decode(body or b"{}", type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidArgument(f"The body is not a valid {kind.__name__} in JSON: {error}") from error
