"""/graphql over HTTP: the forms in which a query may come, and those in which it may not."""

import pytest

from asking import send
from remuda.grid.http import graphql
from remuda.store import Store
from web_states import orchestrator, running, visiting


async def test_a_query_may_come_in_the_url(store: Store) -> None:
    async with running(orchestrator(store)), visiting(store) as client:
        params = {
            "query": "query A { grid { nodeCount } } query B($o: String!) { orchestrator(id: $o) { id } }",
            "variables": '{"o": "ranch"}',
            "operationName": "B",
        }
        async with client.get("/graphql", params=params) as response:
            assert response.status == 200
            assert response.headers["Content-Type"] == "application/json; charset=utf-8"
            assert await response.json() == {"data": {"orchestrator": {"id": "ranch"}}}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"{grid{uri}}"',
        b"{}",
        b'{"query": 7}',
        b"\xff",
        b'{"query":"{grid{uri}}","variables":[]}',
    ],
)
async def test_what_is_no_request_is_refused_in_graphqls_form(store: Store, body: bytes) -> None:
    async with visiting(store) as client:
        status, answer = await send(client, body)

    assert status == 400
    assert answer["errors"][0]["extensions"] == {"code": "invalid_argument"}
    assert "not a valid GraphqlRequest" in answer["errors"][0]["message"]


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"query": "{grid{uri}}", "variables": "x"},
        {"query": "{grid{uri}}", "variables": '{"a":' + "[" * 5000},
    ],
    ids=["none", "no JSON", "nested"],
)
async def test_a_url_without_a_query_is_refused(store: Store, params: dict[str, str]) -> None:
    async with visiting(store) as client, client.get("/graphql", params=params) as response:
        assert response.status == 400
        assert "errors" in await response.json()


async def test_a_huge_body_is_refused(store: Store) -> None:
    async with visiting(store) as client:
        status, answer = await send(client, b" " * (1 << 20))

    assert status == 400
    assert "longer than 65536 bytes" in answer["errors"][0]["message"]


async def test_a_wrong_query_is_answered_with_its_mistake(store: Store) -> None:
    async with visiting(store) as client:
        status, answer = await send(client, b'{"query":"{ grid { colour } }"}')

    assert status == 200
    assert answer["errors"][0]["message"].startswith("Cannot query field 'colour'")
    assert answer["errors"][0]["locations"] == [{"line": 1, "column": 10}]
    assert "data" not in answer


async def test_an_answer_that_takes_too_long_is_given_up(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graphql, "DEADLINE", 0.0)
    async with visiting(store) as client:
        status, answer = await send(client, b'{"query":"{ grid { uri } }"}')

    assert status == 503
    assert answer["errors"][0]["extensions"] == {"code": "unavailable"}
