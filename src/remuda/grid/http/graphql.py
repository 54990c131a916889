"""`/graphql`: takes a query from a request of any form that its clients send, and answers in GraphQL's.

KEDA's scaler sends no Content-Type, so none is asked for. A query that is wrong is answered with 200, as
GraphQL over HTTP has it for application/json; a failure of ours is not, since KEDA reads numbers out of
whatever comes with 200, and would take a herd whose Redis is away for one without work.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, Struct, UnsetType, field
from starlette.requests import Request
from starlette.responses import Response

from remuda.base.errors import InvalidArgument, RemudaError, Unavailable
from remuda.fleet.origin import Scope
from remuda.fleet.route import Route, json_response, origin_of
from remuda.grid.http.graphql_resolvers import Look
from remuda.store import Store

if TYPE_CHECKING:
    from remuda.grid.http.graphql_engine import GraphqlAnswer

DEADLINE = 20.0


class GraphqlQuery(Struct):
    """A query in a URL; its variables are JSON."""

    query: str
    variables: str = "{}"
    operation_name: str | None = field(default=None, name="operationName")


class GraphqlProblem(Struct):
    """What is wrong with a query; `extensions` has a code for programs."""

    message: str
    locations: list[dict[str, int]] | UnsetType = UNSET
    path: list[str | int] | UnsetType = UNSET
    extensions: dict[str, Any] | UnsetType = UNSET


class GraphqlResult(Struct):
    """What the query asks for, or what is wrong with it."""

    data: dict[str, Any] | UnsetType | None = UNSET
    errors: list[GraphqlProblem] | UnsetType = UNSET


class GraphqlRefusal(Struct):
    """Why the query was not answered."""

    errors: list[GraphqlProblem]


class GraphqlRequest(Struct):
    """A query in a body."""

    query: str
    variables: dict[str, Any] | None = None
    operation_name: str | None = field(default=None, name="operationName")


class Graphql:
    """Answers queries, wherever they are in a request."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def get(self, request: Request, query: GraphqlQuery) -> Response:
        """`GET /graphql?query=`."""
        try:
            variables = msgspec.json.decode(query.variables or "{}", type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidArgument(f"The variables are not a JSON object: {error}") from error
        return await self.post(request, GraphqlRequest(query.query, variables, query.operation_name))

    async def post(self, request: Request, asked: GraphqlRequest) -> Response:
        """`POST /graphql`."""
        # In a thread: importing the engine takes a while, and other roles live on this loop.
        run = await asyncio.to_thread(_load_engine)
        try:
            async with asyncio.timeout(DEADLINE):
                answer = await run(asked, Look(self._store, origin_of(request)))
        except TimeoutError:
            raise Unavailable(
                f"The query took more than {DEADLINE:g} s. Ask for less, or try again later."
            ) from None
        if answer.failure is None:
            return json_response(answer.body)
        response = json_response(answer.body, status=answer.failure.status)
        response.headers.update(answer.failure.headers())
        return response

    def routes(self) -> Sequence[Route]:
        return [
            Route(
                "GET",
                "/graphql",
                "The herd in GraphQL: Selenium Grid's schema and WebGrid's",
                self.get,
                GraphqlResult,
                query=GraphqlQuery,
                error_face=_face,
                error_answer=GraphqlRefusal,
                scope=Scope.USE,
            ),
            Route(
                "POST",
                "/graphql",
                "GraphQL with the query in a JSON body",
                self.post,
                GraphqlResult,
                body=GraphqlRequest,
                example={"query": "{ grid { sessionCount maxSession } }"},
                error_face=_face,
                error_answer=GraphqlRefusal,
                scope=Scope.USE,
            ),
        ]


def _load_engine() -> "Callable[[GraphqlRequest, Look], Awaitable[GraphqlAnswer]]":
    from remuda.grid.http.graphql_engine import run

    return run


def _face(error: RemudaError) -> dict[str, Any]:
    return {"errors": [{"message": error.message, "extensions": {"code": error.api_code}}]}
