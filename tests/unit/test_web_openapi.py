"""The OpenAPI document says what the table of routes says, no more and no less."""

from collections.abc import Iterator
from typing import Any, get_args

import msgspec
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from remuda.fleet.route import Route
from remuda.web.openapi import describe, public_path
from web_states import all_groups

GROUPS = all_groups()
ROUTES = [route for _, routes in GROUPS for route in routes]
DOCUMENT = describe(GROUPS)


JSON = "application/json"


def name_of(route: Route) -> str:
    return f"{route.method} {route.path}"


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


def test_the_document_is_valid() -> None:
    document: Any = DOCUMENT

    assert list(OpenAPIV31SpecValidator(document).iter_errors()) == []


def test_every_reference_leads_to_a_schema() -> None:
    schemas = DOCUMENT["components"]["schemas"]

    # The validator does not look at schemas that no operation reaches.
    assert {reference.rpartition("/")[2] for reference in references(DOCUMENT)} == set(schemas)


def test_all_json_has_a_schema() -> None:
    found = operations()

    for operation in found.values():
        for answer in operation["responses"].values():
            assert answer["content"].get(JSON, {"schema": ""}).keys() >= {"schema"}
    assert found["POST", "/buckets"]["responses"]["200"]["content"][JSON]["schema"] == {
        "type": "array",
        "items": {"$ref": "#/components/schemas/ListedUsage"},
    }


def test_every_operation_has_the_tag_of_its_room() -> None:
    rooms = {(route.method, public_path(route)): room.name for room, routes in GROUPS for route in routes}

    assert {place: each["tags"] for place, each in operations().items()} == {
        place: [name] for place, name in rooms.items()
    }
    described = {tag["name"]: tag["description"] for tag in DOCUMENT["tags"]}
    assert set(described) == set(rooms.values())
    assert all(described.values())


def test_an_operation_says_how_it_refuses() -> None:
    def refusals(method: str, path: str) -> dict[str, str]:
        responses = operations()[method, path]["responses"]
        codes = {}
        for status, answer in responses.items():
            if status.startswith("4"):
                codes[status] = answer["content"][JSON]["example"]["error"]["code"]
        return codes

    assert refusals("GET", "/healthz") == {}
    assert refusals("GET", "/api/whoami") == {"401": "unauthorized"}
    assert refusals("PATCH", "/api/accounts/{account}") == {
        "400": "invalid_argument",
        "401": "unauthorized",
        "403": "scope_missing",
        "404": "lost",
    }


@pytest.mark.parametrize(
    "route", [route for route in ROUTES if route.body or route.read_by_handler], ids=name_of
)
def test_every_body_has_an_example_that_the_route_takes(route: Route) -> None:
    body = operations()[route.method, public_path(route)]["requestBody"]["content"][JSON]

    msgspec.convert(body["example"], route.body or route.read_by_handler)


def test_examples_have_no_field_that_is_not_described() -> None:
    for operation in operations().values():
        contents = [operation.get("requestBody", {"content": {}}), *operation["responses"].values()]
        for content in (each["content"].get(JSON, {}) for each in contents):
            if "example" in content and "$ref" in content["schema"]:
                schema = DOCUMENT["components"]["schemas"][content["schema"]["$ref"].rpartition("/")[2]]
                assert set(schema["required"]) <= content["example"].keys() <= schema["properties"].keys()


def test_operation_ids_are_unique() -> None:
    ids = [operation["operationId"] for operation in operations().values()]

    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("route", ROUTES, ids=name_of)
def test_a_route_is_described_by_what_it_answers(route: Route) -> None:
    answer = operations()[route.method, public_path(route)]["responses"][str(route.status)]["content"]

    if isinstance(route.answer, str):
        assert answer == {route.answer: {}}
    else:
        named = next(iter(get_args(route.answer)), route.answer)
        assert list(references(answer)) == [f"#/components/schemas/{named.__name__}"]


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
        ("/graphql", "GraphqlRefusal"),
        ("/buckets", "ListingFailure"),
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
