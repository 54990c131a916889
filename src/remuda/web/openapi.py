"""The OpenAPI 3.1 document, made from the table of routes. Pure."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from remuda import __version__
from remuda.grid.wire import HUB
from remuda.web.faces import ProblemAnswer, WebdriverAnswer, is_webdriver
from remuda.web.route import Route

Schema = dict[str, Any]

_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
_DESCRIPTION = (
    "The JSON API of a herd of browsers. An error has a code for programs and a sentence for people. "
    f"Every path is also there with {HUB} in front."
)


def describe(routes: Sequence[Route]) -> Schema:
    """The document that describes these routes."""
    structs: list[type[Struct]] = [ProblemAnswer, WebdriverAnswer]
    structs += [route.answer for route in routes if not isinstance(route.answer, str)]
    _, components = msgspec.json.schema_components(structs, ref_template="#/components/schemas/{name}")
    paths: dict[str, Schema] = {}
    for route in routes:
        paths.setdefault(public_path(route), {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Remuda", "version": __version__, "description": _DESCRIPTION},
        "paths": paths,
        "components": {"schemas": components},
    }


def public_path(route: Route) -> str:
    """The path as OpenAPI writes it: without the kind of a parameter."""
    return _PARAMETER.sub(r"{\1}", route.path)


def _operation(route: Route) -> Schema:
    problem = WebdriverAnswer if is_webdriver(route.path) else ProblemAnswer
    return {
        "summary": route.summary,
        "operationId": "_".join([route.method.lower(), *re.findall(r"\w+", public_path(route))]),
        "parameters": [*_path_parameters(route), *_query_parameters(route)],
        "responses": {
            "200": {"description": _first_line(route.answer), "content": _content(route.answer)},
            "default": {"description": _first_line(problem), "content": _content(problem)},
        },
    }


def _path_parameters(route: Route) -> list[Schema]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PARAMETER.findall(route.path)
    ]


def _query_parameters(route: Route) -> list[Schema]:
    if route.query is None:
        return []
    _, components = msgspec.json.schema_components([route.query])
    fields = components[route.query.__name__]["properties"]
    return [
        {"name": name, "in": "query", "required": False, "schema": schema} for name, schema in fields.items()
    ]


def _content(answer: type[Struct] | str) -> Schema:
    if isinstance(answer, str):
        return {answer: {}}
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{answer.__name__}"}}}


def _first_line(answer: type[Struct] | str) -> str:
    if isinstance(answer, str):
        return answer
    return (answer.__doc__ or answer.__name__).strip().splitlines()[0]
