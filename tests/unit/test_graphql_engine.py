"""What the GraphQL engine refuses before it asks the herd anything."""

import subprocess
import sys
from typing import Any, cast

import pytest
from graphql import build_schema, get_introspection_query

from remuda.base.errors import Broken
from remuda.grid.http.graphql import GraphqlRequest
from remuda.grid.http.graphql_engine import (
    MAX_FIELDS,
    MAX_TOKENS,
    SELENIUM_SDL,
    WEBGRID_SDL,
    GraphqlAnswer,
    run,
)
from remuda.grid.http.graphql_resolvers import Look

NOBODY = cast(Look, object())
"""A herd that must not be asked."""


class Ruin:
    """A look at a herd in which something is wrong that nobody has thought of."""

    store = None

    async def orchestrators(self) -> None:
        raise RuntimeError("the key to the barn is under the mat")


RUIN = cast(Look, Ruin())


async def ask(query: str, look: Look = NOBODY, **variables: Any) -> GraphqlAnswer:
    return await run(GraphqlRequest(query, variables, None), look)


def messages(answer: GraphqlAnswer) -> str:
    return "\n".join(error["message"] for error in answer.body["errors"])


def test_the_schemas_differ_in_one_field() -> None:
    selenium, webgrid = build_schema(SELENIUM_SDL), build_schema(WEBGRID_SDL)

    def fields(schema: Any) -> dict[tuple[str, str], str]:
        return {
            (name, field): str(kind.type)
            for name, each in schema.type_map.items()
            if hasattr(each, "fields") and not name.startswith("__")
            for field, kind in each.fields.items()
        }

    different = {name for name, kind in fields(selenium).items() if fields(webgrid)[name] != kind}
    assert different == {("Query", "session")}
    assert fields(selenium).keys() == fields(webgrid).keys()


def test_the_engine_is_not_imported_with_the_api() -> None:
    program = "import sys, remuda.web.api, remuda.grid.http; sys.exit('graphql' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


async def test_the_schema_can_be_asked_for() -> None:
    answer = await ask(get_introspection_query(), RUIN)

    assert "errors" not in answer.body
    names = {each["name"] for each in answer.body["data"]["__schema"]["types"]}
    assert {"Grid", "Node", "Session", "Orchestrator", "Timeouts"} <= names


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("", "Unexpected <EOF>"),
        ("{ grid { ", "Expected Name"),
        ("{ grid { color } }", "Cannot query field 'color'"),
        ("{ herd }", "Cannot query field 'herd'"),
        ("mutation { grid { uri } }", "mutation"),
        ("query ($id: Int!) { session(id: $id) { id } }", "expecting type 'String!'"),
        ("{ sessions(state: Sleeping) { id } }", "Sleeping"),
        ("{ ...a } fragment a on Query { ...a }", "Cannot spread fragment 'a' within itself"),
        ('{ session(id: "a") { startTime status { queuedAt } } }', "Cannot query field 'status'"),
        ('{ session(id: "a") { capabilities { wanted } status { queuedAt } } }', "'wanted'"),
    ],
)
async def test_a_wrong_query_is_told_what_is_wrong(query: str, message: str) -> None:
    answer = await ask(query)

    assert answer.failure is None
    assert "data" not in answer.body
    assert message in messages(answer)


async def test_a_long_query_is_refused_before_it_is_read_to_its_end() -> None:
    answer = await ask("{" + "grid{uri}" * 1000 + "}")

    assert f"{MAX_TOKENS} tokens" in messages(answer)


async def test_too_many_fields_are_refused() -> None:
    aliases = " ".join(f"a{number}: grid {{ uri }}" for number in range(MAX_FIELDS // 2 + 1))

    answer = await ask("{" + aliases + "}")

    assert f"{MAX_FIELDS + 2} fields" in messages(answer)


async def test_fragments_do_not_hide_how_much_is_asked_for() -> None:
    levels = [
        f"fragment f{number} on Query {{ a{number}: grid {{ uri }} ...f{number + 1} ...f{number + 1} }}"
        for number in range(12)
    ]
    last = "fragment f12 on Query { grid { version } }"

    answer = await ask("{ ...f0 }" + " ".join(levels) + last)

    assert "fields; it may have" in messages(answer)


@pytest.mark.parametrize("query", ["{" + "a{" * 240, "{ sessions(metadata: " + "[" * 480])
async def test_deep_nesting_is_refused(query: str) -> None:
    answer = await ask(query)

    assert "nested too deeply" in messages(answer)


async def test_many_mistakes_are_not_all_told() -> None:
    answer = await ask("{" + " ".join(f"a{number}: b{number}" for number in range(100)) + "}")

    assert len(answer.body["errors"]) <= 11


async def test_a_bug_is_told_as_one_and_its_details_are_not() -> None:
    answer = await ask("{ __typename orchestrators { id } }", RUIN)

    assert isinstance(answer.failure, Broken)
    assert answer.body["data"] is None
    assert "mat" not in messages(answer)
    assert answer.body["errors"][0]["path"] == ["orchestrators"]


async def test_a_wrong_variable_is_the_clients_mistake() -> None:
    answer = await ask("query ($id: String!) { orchestrator(id: $id) { id } }", RUIN, id=7)

    assert answer.failure is None
    assert "data" not in answer.body
    assert "String cannot represent" in messages(answer)
