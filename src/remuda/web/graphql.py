"""`/graphql`: takes a query from a request of any form that its clients send, and answers in GraphQL's.

KEDA's scaler sends no Content-Type, so none is asked for. A query that is wrong is answered with 200, as
GraphQL over HTTP has it for application/json; a failure of ours is not, since KEDA reads numbers out of
whatever comes with 200, and would take a herd whose Redis is away for one without work.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct, field
from starlette.requests import Request
from starlette.responses import Response

from remuda.base.errors import InvalidArgument, RemudaError, Unavailable
from remuda.web.faces import json_response
from remuda.web.graphql_look import Look
from remuda.web.grid4 import front_door
from remuda.web.herd import Herd

if TYPE_CHECKING:
    from remuda.web.graphql_engine import Answer, Question

MAX_BODY = 64 << 10
DEADLINE = 20.0

Run = Callable[["Question", Look], Awaitable["Answer"]]


class GraphqlQuery(Struct):
    """A query in a URL; its variables are JSON."""

    query: str
    variables: str = "{}"
    operation_name: str | None = field(default=None, name="operationName")


class GraphqlBody(Struct):
    """A query in a body."""

    query: str
    variables: dict[str, Any] | None = None
    operation_name: str | None = field(default=None, name="operationName")


async def get_graphql(herd: Herd, request: Request) -> Response:
    """`GET /graphql?query=`."""
    return await _respond(herd, request, _read_url)


async def post_graphql(herd: Herd, request: Request) -> Response:
    """`POST /graphql`."""
    return await _respond(herd, request, _read_body)


async def _respond(
    herd: Herd, request: Request, read: Callable[[Request], Awaitable[GraphqlBody]]
) -> Response:
    try:
        asked = await read(request)
        # In a thread: importing the engine takes a while, and other roles live on this loop.
        question, run = await asyncio.to_thread(_prepare, asked)
        async with asyncio.timeout(DEADLINE):
            answer = await run(question, Look(herd, uri=front_door(request)))
    except RemudaError as error:
        return _failed({"errors": [_face(error)]}, error)
    except TimeoutError:
        late = Unavailable(f"The answer takes more than {DEADLINE:g} s. Ask for less, or later.")
        return _failed({"errors": [_face(late)]}, late)
    return json_response(answer.body) if answer.failure is None else _failed(answer.body, answer.failure)


def _prepare(asked: GraphqlBody) -> "tuple[Question, Run]":
    from remuda.web.graphql_engine import Question, run

    return Question(asked.query, asked.variables or {}, asked.operation_name), run


def _failed(body: dict[str, Any], error: RemudaError) -> Response:
    response = json_response(body, status=error.status)
    response.headers.update(error.headers())
    return response


def _face(error: RemudaError) -> dict[str, Any]:
    return {"message": error.message, "extensions": {"code": error.api_code}}


async def _read_url(request: Request) -> GraphqlBody:
    try:
        asked = msgspec.convert(dict(request.query_params), GraphqlQuery)
        variables = msgspec.json.decode(asked.variables or "{}", type=dict[str, Any])
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise InvalidArgument(f"The URL holds no GraphQL query: {error}") from error
    return GraphqlBody(asked.query, variables, asked.operation_name)


async def _read_body(request: Request) -> GraphqlBody:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY:
            raise InvalidArgument(f"The body is longer than {MAX_BODY} bytes.")
    try:
        return msgspec.json.decode(body, type=GraphqlBody)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidArgument(f'The body is no GraphQL request, as {{"query": "..."}} is: {error}') from error
