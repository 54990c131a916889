"""The OpenAPI 3.1 document, made from the table of routes. Pure."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from remuda import __version__
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


def describe(routes: Sequence[Route]) -> Schema:
    """The document that describes these routes."""
    structs: list[type[Struct]] = [ProblemAnswer, WebdriverAnswer]
    structs += [route.answer for route in routes if not isinstance(route.answer, str)]
    structs += [route.body for route in routes if route.body is not None]
    _, components = msgspec.json.schema_components(structs, ref_template="#/components/schemas/{name}")
    paths: dict[str, Schema] = {}
    for route in routes:
        # OpenAPI has no WebSockets, but they begin as a GET.
        method = "get" if route.method == WEBSOCKET else route.method.lower()
        paths.setdefault(public_path(route), {})[method] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Remuda", "version": __version__, "description": _DESCRIPTION},
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": _SECURITY},
    }


def public_path(route: Route) -> str:
    """The path as OpenAPI writes it: without the kind of a parameter."""
    return _PARAMETER.sub(r"{\1}", route.path)


def _operation(route: Route) -> Schema:
    problem = WebdriverAnswer if is_webdriver(route.path) else ProblemAnswer
    status = "101" if route.method == WEBSOCKET else "200"
    body = {} if route.body is None else {"requestBody": {"required": True, "content": _content(route.body)}}
    parameters: list[Schema] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PARAMETER.findall(route.path)
    ]
    if route.query is not None:
        _, components = msgspec.json.schema_components([route.query])
        query = components[route.query.__name__]
        parameters += [
            {"name": name, "in": "query", "required": name in query["required"], "schema": schema}
            for name, schema in query["properties"].items()
        ]
    return {
        "summary": route.summary,
        "operationId": "_".join([route.method.lower(), *re.findall(r"\w+", public_path(route))]),
        "parameters": parameters,
        "security": _security(route),
        **body,
        "responses": {
            status: {
                "description": _first_line(route.answer),
                "content": _content(route.answer),
            },
            "default": {"description": _first_line(problem), "content": _content(problem)},
        },
    }


def _security(route: Route) -> list[Schema]:
    if route.scope is None:
        return []
    # OpenAPI 3.1, "Security Requirement Object": the roles that are needed. A list of several would ask for
    # all of them, and every token has one.
    roles = [] if route.scope == ANY_TOKEN else sorted(route.scopes)
    return [{scheme: roles} for scheme in _SECURITY]


def _content(answer: type[Struct] | str) -> Schema:
    if isinstance(answer, str):
        return {answer: {}}
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{answer.__name__}"}}}


def _first_line(answer: type[Struct] | str) -> str:
    if isinstance(answer, str):
        return answer
    return (answer.__doc__ or answer.__name__).strip().splitlines()[0]
