"""The OpenAPI document says what the table of routes says, no more and no less."""

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import Struct

from remuda.fleet.route import Route
from remuda.web.openapi import describe, public_path
from web_states import all_routes

ROUTES = all_routes()
DOCUMENT = describe(ROUTES)


def operations() -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (method.upper(), path): operation
        for path, methods in DOCUMENT["paths"].items()
        for method, operation in methods.items()
    }


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"]
        for each in value.values():
            yield from references(each)
    elif isinstance(value, list):
        for each in value:
            yield from references(each)


def test_every_route_is_described_and_nothing_else() -> None:
    assert set(operations()) == {(route.method, public_path(route)) for route in ROUTES}


def test_no_route_is_declared_twice() -> None:
    assert len(operations()) == len(ROUTES)


def test_every_reference_leads_to_a_schema() -> None:
    schemas = DOCUMENT["components"]["schemas"]

    assert {reference.rpartition("/")[2] for reference in references(DOCUMENT)} <= set(schemas)


def test_operation_ids_are_unique() -> None:
    ids = [operation["operationId"] for operation in operations().values()]

    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_a_route_is_described_by_what_it_answers(route: Route) -> None:
    answer = operations()[route.method, public_path(route)]["responses"]["200"]["content"]

    if isinstance(route.answer, str):
        assert answer == {route.answer: {}}
    else:
        assert issubclass(route.answer, Struct)
        reference = f"#/components/schemas/{route.answer.__name__}"
        assert answer == {"application/json": {"schema": {"$ref": reference}}}


def test_parameters_of_path_and_query_are_described_with_their_limits() -> None:
    parameters = operations()["GET", "/api/sessions/{session}/log"]["parameters"]

    assert [(each["name"], each["in"], each["required"]) for each in parameters] == [
        ("session", "path", True),
        ("after", "query", False),
        ("limit", "query", False),
    ]
    assert parameters[2]["schema"] == {"type": "integer", "minimum": 1, "maximum": 1000, "default": 1000}


def test_a_query_says_what_it_must_have() -> None:
    of_graphql = operations()["GET", "/graphql"]["parameters"]
    of_resources = operations()["GET", "/api/usage/resources"]["parameters"]

    assert [each["name"] for each in of_graphql if each["required"]] == ["query"]
    assert [each["name"] for each in of_resources if each["required"]] == ["service"]


@pytest.mark.parametrize(
    ("path", "schema"),
    [
        ("/api/overview", "ProblemAnswer"),
        ("/readyz", "ProblemAnswer"),
        ("/status", "WebdriverAnswer"),
        ("/se/grid/newsessionqueue/queue", "WebdriverAnswer"),
    ],
)
def test_errors_have_the_form_that_their_clients_expect(path: str, schema: str) -> None:
    default = operations()["GET", path]["responses"]["default"]

    assert list(references(default)) == [f"#/components/schemas/{schema}"]


def test_every_operation_says_which_scope_its_token_needs() -> None:
    found = operations()

    assert found["GET", "/healthz"]["security"] == []
    assert found["GET", "/"]["security"] == [{"bearer": []}, {"basic": []}, {"query": []}]
    assert found["GET", "/metrics"]["security"][0] == {"bearer": ["admin"]}
    assert found["GET", "/api/sessions"]["security"] == [
        {"bearer": ["use"]},
        {"basic": ["use"]},
        {"query": ["use"]},
    ]
    assert set(DOCUMENT["components"]["securitySchemes"]) == {"bearer", "basic", "query"}
