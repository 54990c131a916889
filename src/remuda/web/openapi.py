"""The OpenAPI 3.1 document, made from the table of routes. Pure."""

import re
from collections.abc import Iterable, Sequence
from typing import Any, get_args

import msgspec
from msgspec import Struct

from remuda import __version__
from remuda.base.errors import InvalidArgument, Lost, RemudaError, ScopeMissing, Unauthorized
from remuda.fleet.room import Room
from remuda.fleet.route import ANY_TOKEN, WEBSOCKET, Route
from remuda.grid.wire import HUB, is_webdriver
from remuda.web.app import ProblemAnswer, WebdriverAnswer

Schema = dict[str, Any]

_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
_DESCRIPTION = (
    "The JSON API of a herd of browsers. An error has a code for programs and a sentence for people. "
    f"Every path is also there with {HUB} in front. Where the herd asks for tokens, a path needs one "
    "with the scope that its security names, or with the scope admin."
)
_SECURITY: dict[str, Schema] = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "The token"},
    "basic": {"type": "http", "scheme": "basic", "description": "Any user, with the token as password"},
    "query": {
        "type": "apiKey",
        "in": "query",
        "name": "token",
        "description": "The token, for clients that can send no header",
    },
}


class OpenApi(Struct):
    """An OpenAPI 3.1 document."""

    openapi: str
    info: dict[str, str]
    tags: list[dict[str, str]]
    paths: dict[str, dict[str, Any]]
    components: dict[str, Any]


def describe(groups: Iterable[tuple[Room, Sequence[Route]]]) -> Schema:
    """The document that describes the routes of these rooms."""
    described = [(room, routes) for room, routes in groups if routes]
    schemas = _Schemas([route for _, routes in described for route in routes])
    paths: dict[str, Schema] = {}
    for room, routes in described:
        for route in routes:
            # OpenAPI has no WebSockets, but they begin as a GET.
            method = "get" if route.method == WEBSOCKET else route.method.lower()
            operation = _operation(route, schemas)
            paths.setdefault(public_path(route), {})[method] = {"tags": [room.name], **operation}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Remuda", "version": __version__, "description": _DESCRIPTION},
        "tags": [{"name": room.name, "description": room.about} for room, _ in described],
        "paths": paths,
        "components": {"schemas": schemas.components, "securitySchemes": _SECURITY},
    }


class _Schemas:
    """The schemas of all that these routes take and answer."""

    def __init__(self, routes: Sequence[Route]) -> None:
        queries = {route.query for route in routes if route.query is not None}
        types: set[Any] = {ProblemAnswer, WebdriverAnswer, *queries}
        for route in routes:
            named = (route.answer, route.body, route.read_by_handler, route.error_answer)
            types.update(each for each in named if each is not None and not isinstance(each, str))
        found, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
        self._of = dict(zip(types, found, strict=True))
        # A query is no schema of its own: its fields are parameters.
        self._queries = {
            query: components.pop(self._of[query]["$ref"].rpartition("/")[2]) for query in queries
        }
        self.components = dict(sorted(components.items()))

    def content(self, kind: Any, example: Any = None) -> Schema:
        """The content of a body of this type."""
        if isinstance(kind, str):
            return {kind: {}}
        return {"application/json": {"schema": self._of[kind], **_given("example", example)}}

    def parameters(self, query: Any) -> list[Schema]:
        """The parameters of this query."""
        schema = self._queries[query]
        return [
            {"name": name, "in": "query", "required": name in schema["required"], "schema": field}
            for name, field in schema["properties"].items()
        ]


def public_path(route: Route) -> str:
    """The path as OpenAPI writes it: without the kind of a parameter."""
    return _PARAMETER.sub(r"{\1}", route.path)


def _operation(route: Route, schemas: _Schemas) -> Schema:
    status = "101" if route.method == WEBSOCKET else str(route.status)
    body = route.body or route.read_by_handler
    parameters: list[Schema] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PARAMETER.findall(route.path)
    ]
    if route.query is not None:
        parameters += schemas.parameters(route.query)
    responses = {
        status: {"description": _meaning(route.answer), "content": schemas.content(route.answer)},
        **_refusals(route, schemas),
    }
    return {
        "summary": route.summary,
        "operationId": "_".join([route.method.lower(), *re.findall(r"\w+", public_path(route))]),
        "parameters": parameters,
        "security": _security(route),
        **(
            {}
            if body is None
            else {"requestBody": {"required": True, "content": schemas.content(body, route.example)}}
        ),
        "responses": responses,
    }


def _refusals(route: Route, schemas: _Schemas) -> Schema:
    """How a request is refused for what the route declares, and the form of all other errors."""
    is_for_webdriver = is_webdriver(route.path)
    problem = route.error_answer or (WebdriverAnswer if is_for_webdriver else ProblemAnswer)
    face = route.error_face
    if route.error_answer is None:
        face = face or (RemudaError.webdriver_face if is_for_webdriver else RemudaError.api_face)
    errors: list[type[RemudaError]] = []
    if route.query or route.body or route.read_by_handler:
        errors.append(InvalidArgument)
    if route.scope is not None:
        errors.append(Unauthorized)
        if route.scope != ANY_TOKEN:
            errors.append(ScopeMissing)
    if _PARAMETER.search(route.path):
        errors.append(Lost)
    return {
        **{
            str(error.status): {
                "description": error().message,
                "content": schemas.content(problem, face and face(error())),
            }
            for error in errors
        },
        "default": {"description": _meaning(problem), "content": schemas.content(problem)},
    }


def _security(route: Route) -> list[Schema]:
    if route.scope is None:
        return []
    # OpenAPI 3.1, "Security Requirement Object": the roles that are needed. A list of several would ask for
    # all of them, and every token has one.
    roles = [] if route.scope == ANY_TOKEN else sorted(route.scopes)
    return [{scheme: roles} for scheme in _SECURITY]


def _given(name: str, value: Any) -> Schema:
    return {} if value is None else {name: value}


def _meaning(answer: Any) -> str:
    if isinstance(answer, str):
        return answer
    kind = next(iter(get_args(answer)), answer)
    return " ".join((kind.__doc__ or kind.__name__).split())
