"""Executes GraphQL queries. The only importer of graphql-core, and itself imported with the first query: it
takes some 0.3 s and 7 MB, which a herd that nobody asks in GraphQL need not pay."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from graphql import (
    DocumentNode,
    ExecutionResult,
    FieldNode,
    FragmentDefinitionNode,
    FragmentSpreadNode,
    GraphQLError,
    GraphQLSchema,
    InlineFragmentNode,
    OperationDefinitionNode,
    SelectionSetNode,
    build_schema,
    execute,
    parse,
    validate,
)

from remuda.base.errors import Broken, RemudaError
from remuda.base.log import get_logger
from remuda.web.graphql_look import Look
from remuda.web.graphql_schema import SELENIUM_SDL, WEBGRID_SDL
from remuda.web.graphql_selenium import Selenium
from remuda.web.graphql_webgrid import Webgrid

log = get_logger(__name__)

MAX_TOKENS = 1000
# The introspection that GraphiQL and its like send has 15 levels.
MAX_DEPTH = 16
MAX_FIELDS = 100
"""Fields of a query once its fragments are filled in. A list multiplies them by its length."""
MAX_ERRORS = 10

_SELENIUM = build_schema(SELENIUM_SDL)
_WEBGRID = build_schema(WEBGRID_SDL)


@dataclass(frozen=True)
class Question:
    """What a client asks."""

    query: str
    variables: Mapping[str, Any]
    operation: str | None


@dataclass(frozen=True)
class Answer:
    """What it is told, and what went wrong with the herd meanwhile."""

    body: dict[str, Any]
    failure: RemudaError | None = None


async def run(question: Question, look: Look) -> Answer:
    """The answer to a question, in GraphQL's form."""
    try:
        document = parse(question.query, max_tokens=MAX_TOKENS)
        schema, errors = _choose(document)
        errors = errors or list(_too_much(document))
    except GraphQLError as error:
        errors = [error]
    except RecursionError:
        errors = [GraphQLError("The query is nested too deeply.")]
    if errors:
        return Answer({"errors": [error.formatted for error in errors]})
    return _answer(await _execute(schema, document, question=question, look=look))


def _choose(document: DocumentNode) -> tuple[GraphQLSchema, list[GraphQLError]]:
    """The schema that the query fits best, and what is wrong with it there."""
    judged = ((schema, validate(schema, document, max_errors=MAX_ERRORS)) for schema in (_SELENIUM, _WEBGRID))
    return min(judged, key=lambda each: len(each[1]))


async def _execute(
    schema: GraphQLSchema, document: DocumentNode, *, question: Question, look: Look
) -> ExecutionResult:
    selenium, webgrid = Selenium(look), Webgrid(look)
    roots = {
        "grid": selenium.grid,
        "nodesInfo": selenium.nodes_info,
        "sessionsInfo": selenium.sessions_info,
        "session": selenium.session if schema is _SELENIUM else webgrid.session,
        "sessions": webgrid.sessions,
        "orchestrators": webgrid.orchestrators,
        "orchestrator": webgrid.orchestrator,
        "timeouts": webgrid.timeouts,
    }
    result = execute(
        schema,
        document,
        root_value=roots,
        variable_values=dict(question.variables),
        operation_name=question.operation,
    )
    return result if isinstance(result, ExecutionResult) else await result


def _answer(result: ExecutionResult) -> Answer:
    if not result.errors:
        return Answer({"data": result.data})
    failures = [_failure(error) for error in result.errors]
    faces = [_face(error, failure) for error, failure in zip(result.errors, failures, strict=True)]
    body: dict[str, Any] = {"errors": faces}
    # "If an error was raised before execution begins, the data entry must not be present" (GraphQL 7.1).
    if any(error.path for error in result.errors):
        body["data"] = result.data
    return Answer(body, next(filter(None, failures), None))


def _failure(error: GraphQLError) -> RemudaError | None:
    """What went wrong on our side; None when it was the question."""
    cause = error.original_error
    if cause is None or isinstance(cause, GraphQLError):
        return None
    if isinstance(cause, RemudaError):
        return cause
    try:
        raise cause
    except Exception:
        log.exception("query failed", path=error.path)
        return Broken()


def _face(error: GraphQLError, failure: RemudaError | None) -> dict[str, Any]:
    face: dict[str, Any] = dict(error.formatted)
    if failure is not None:
        face |= {"message": failure.message, "extensions": {"code": failure.api_code}}
    return face


# How much a query asks for


def _too_much(document: DocumentNode) -> Iterator[GraphQLError]:
    fragments = {
        each.name.value: each for each in document.definitions if isinstance(each, FragmentDefinitionNode)
    }
    sizes = _Sizes(fragments)
    for each in document.definitions:
        if isinstance(each, OperationDefinitionNode):
            fields, depth = sizes.of(each.selection_set)
            if fields > MAX_FIELDS:
                yield GraphQLError(f"The query has {fields} fields; it may have {MAX_FIELDS}.", each)
            if depth > MAX_DEPTH:
                yield GraphQLError(f"The query is {depth} levels deep; it may be {MAX_DEPTH}.", each)


class _Sizes:
    """Measures selections with their fragments filled in, each fragment once: they may nest, not turn."""

    def __init__(self, fragments: Mapping[str, FragmentDefinitionNode]) -> None:
        self._fragments = fragments
        self._known: dict[str, tuple[int, int]] = {}

    def of(self, selections: SelectionSetNode | None) -> tuple[int, int]:
        """Fields and levels."""
        if selections is None:
            return 0, 0
        sizes = [self._of_one(each) for each in selections.selections]
        return sum(fields for fields, _ in sizes), max((depth for _, depth in sizes), default=0)

    def _of_one(self, selection: Any) -> tuple[int, int]:
        if isinstance(selection, FragmentSpreadNode):
            name = selection.name.value
            if name not in self._known:
                self._known[name] = self.of(self._fragments[name].selection_set)
            return self._known[name]
        if isinstance(selection, InlineFragmentNode):
            return self.of(selection.selection_set)
        assert isinstance(selection, FieldNode)
        fields, depth = self.of(selection.selection_set)
        if selection.name.value.startswith("__"):
            return 0, depth + 1  # The schema is no work for the herd, and the engine has rules of its own.
        return fields + 1, depth + 1
