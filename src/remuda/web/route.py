"""What a route of the API is: declared once, it becomes a Starlette route and a piece of the OpenAPI
document."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from remuda.base.errors import InvalidArgument
from remuda.web.faces import json_response
from remuda.web.herd import Herd

Q = TypeVar("Q", bound=Struct)

Handler = Callable[[Herd, Request], Awaitable[Any]]


@dataclass(frozen=True)
class Route:
    """One method on one path. The handler gives an instance of `answer`, or a whole Response."""

    method: str
    path: str
    summary: str
    handler: Handler
    answer: type[Struct] | str
    """What it answers with: a Struct, or a media type where that is not JSON."""
    query: type[Struct] | None = None

    async def respond(self, herd: Herd, request: Request) -> Response:
        """The handler's answer as a response."""
        answer = await self.handler(herd, request)
        return answer if isinstance(answer, Response) else json_response(answer)


def text_route(path: str, summary: str, media_type: str, read: Callable[[], Awaitable[str]]) -> Route:
    """A route to a text that somebody else makes: this room knows no other than those below it."""

    async def handler(_herd: Herd, _request: Request) -> Response:
        return Response(await read(), headers={"Cache-Control": "no-cache"}, media_type=media_type)

    return Route("GET", path, summary, handler, media_type)


def read_query(request: Request, kind: type[Q]) -> Q:
    """The query as the Struct that its route declares; InvalidArgument says which value is wrong."""
    try:
        return msgspec.convert(dict(request.query_params), kind, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidArgument(f"The query is wrong: {error}") from error
