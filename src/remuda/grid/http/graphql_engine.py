"""Executes GraphQL queries. The only importer of graphql-core, and itself imported with the first query: it
takes some 0.3 s and 7 MB, which a herd that is never asked in GraphQL need not pay."""

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
from remuda.grid.http.graphql import GraphqlRequest
from remuda.grid.http.graphql_resolvers import Look, Selenium, Webgrid

log = get_logger(__name__)

# The introspection has 183. Validating takes the square of their number.
MAX_TOKENS = 500
# The introspection that GraphiQL and its like send has 15 levels.
MAX_DEPTH = 16
MAX_FIELDS = 100
"""Fields of a query once its fragments are filled in. A list multiplies them by its length."""
MAX_ERRORS = 10

# Selenium Grid 4's schema, as far as its tools ask, and WebGrid's. Both call a field `session(id)`, and the
# two sessions contradict each other: `capabilities` is a text in one and an object in the other. So there are
# two schemas that differ in that field alone, and a query is answered by the one in which it is valid; where
# both would do, Selenium's goes first, since its tools are in use.
_SDL = '''
"""All queries. There are no mutations."""
type Query {
  """Selenium Grid: the herd in numbers"""
  grid: Grid!
  """Selenium Grid: its nodes, which are our orchestrators"""
  nodesInfo: NodesInfo!
  """Selenium Grid: sessions that hold a slot, and requests that wait for one"""
  sessionsInfo: SessionsInfo!
  """A session; null if there is none with this id"""
  session(id: String!): SESSION
  """WebGrid: sessions with all of this metadata, at most 500; without a state, the active ones come first"""
  sessions(state: SessionState, metadata: [InputDictionaryEntry!]): [Session!]!
  """WebGrid: every orchestrator, alive or not"""
  orchestrators: [Orchestrator!]!
  """WebGrid: an orchestrator; null if there is none with this id"""
  orchestrator(id: String!): Orchestrator
  """WebGrid: how long each step of a session may take"""
  timeouts: Timeouts!
}

type Grid {
  uri: String!
  version: String!
  nodeCount: Int!
  sessionCount: Int!
  sessionQueueSize: Int!
  """How many sessions there can be at a time"""
  maxSession: Int!
  """Slots, counted once for each browser that they can start"""
  totalSlots: Int!
}

type NodesInfo { nodes: [Node!]! }

type Node {
  id: String!
  uri: String!
  """`UP` or `DOWN`"""
  status: String!
  version: String!
  maxSession: Int!
  sessionCount: Int!
  slotCount: Int!
  """JSON: `[{"slots": 4, "stereotype": {...}}]`"""
  stereotypes: String!
  osInfo: OsInfo!
  sessions: [GridSession!]!
}

type OsInfo { arch: String!, name: String!, version: String! }

type SessionsInfo {
  """JSON, one text for each request: the first of its capability sets"""
  sessionQueueRequests: [String!]!
  sessions: [GridSession!]!
}

"""A session in Selenium Grid's words; its times are `31/12/2026 23:59:59` in UTC"""
type GridSession {
  id: String!
  """JSON; secrets are masked"""
  capabilities: String!
  startTime: String!
  uri: String!
  nodeId: String!
  nodeUri: String!
  sessionDurationMillis: String!
  slot: GridSlot!
}

type GridSlot {
  id: String!
  """JSON: what the session asked this slot for"""
  stereotype: String!
  lastStarted: String!
}

enum SessionState { Active, Terminated, ACTIVE, TERMINATED }

input InputDictionaryEntry { key: String!, value: String! }

type DictionaryEntry { key: String!, value: String! }

"""A session in WebGrid's words; its times are RFC 3339"""
type Session {
  id: String!
  """`queued`, `pending`, `alive` or `terminated`"""
  state: String!
  """Whether its node beats"""
  alive: Boolean!
  slot: String
  orchestrator: Orchestrator
  storage: String
  videoURL: String
  metadata: [DictionaryEntry!]!
  status: Status!
  capabilities: Capabilities!
  upstream: Upstream!
  downstream: Downstream!
}

type Status { queuedAt: String, pendingAt: String, aliveAt: String, terminatedAt: String }

"""JSON; secrets are masked"""
type Capabilities { requested: String, actual: String }

"""always null: addresses inside the herd are not shown"""
type Upstream { host: String, port: Int, driverSessionID: String }

type Downstream { host: String, userAgent: String, lastSeen: String }

type Orchestrator {
  id: String!
  type: String!
  alive: Boolean!
  """Sessions that have a slot and wait for their node to be scheduled"""
  backlog: Int!
  """Sessions whose node is being scheduled"""
  pending: Int!
  slots: Slots!
  capabilities: OrchestratorCapabilities!
}

type Slots { allocated: Int!, available: Int!, reclaimed: Int! }

type OrchestratorCapabilities { platformName: String!, browsers: [Browser!]! }

type Browser { name: String!, version: String! }

"""Seconds"""
type Timeouts {
  queue: Float!
  scheduling: Float!
  nodeStartup: Float!
  driverStartup: Float!
  sessionTermination: Float!
  slotReclaimInterval: Float!
}
'''

SELENIUM_SDL = _SDL.replace("SESSION\n", "GridSession\n", 1)
WEBGRID_SDL = _SDL.replace("SESSION\n", "Session\n", 1)

_SELENIUM = build_schema(SELENIUM_SDL)
_WEBGRID = build_schema(WEBGRID_SDL)


@dataclass(frozen=True)
class GraphqlAnswer:
    """What the client is told, and what went wrong with the herd meanwhile."""

    body: dict[str, Any]
    failure: RemudaError | None = None


async def run(request: GraphqlRequest, look: Look) -> GraphqlAnswer:
    """The answer to a request, in GraphQL's form."""
    try:
        document = parse(request.query, max_tokens=MAX_TOKENS)
        schema, errors = _choose(document)
        errors = errors or list(_too_much(document))
    except GraphQLError as error:
        errors = [error]
    except RecursionError:
        errors = [GraphQLError("The query is nested too deeply.")]
    if errors:
        return GraphqlAnswer({"errors": [error.formatted for error in errors]})
    return _answer(await _execute(schema, document, request=request, look=look))


def _choose(document: DocumentNode) -> tuple[GraphQLSchema, list[GraphQLError]]:
    """The schema that the query fits best, and what is wrong with it there."""
    judged = ((schema, validate(schema, document, max_errors=MAX_ERRORS)) for schema in (_SELENIUM, _WEBGRID))
    return min(judged, key=lambda each: len(each[1]))


async def _execute(
    schema: GraphQLSchema, document: DocumentNode, *, request: GraphqlRequest, look: Look
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
        variable_values=request.variables or {},
        operation_name=request.operation_name,
    )
    return result if isinstance(result, ExecutionResult) else await result


def _answer(result: ExecutionResult) -> GraphqlAnswer:
    if not result.errors:
        return GraphqlAnswer({"data": result.data})
    failures = [_failure(error) for error in result.errors]
    faces: list[dict[str, Any]] = [dict(error.formatted) for error in result.errors]
    for face, failure in zip(faces, failures, strict=True):
        if failure is not None:
            face |= {"message": failure.message, "extensions": {"code": failure.api_code}}
    body: dict[str, Any] = {"errors": faces}
    # "If an error was raised before execution begins, the data entry must not be present" (GraphQL 7.1).
    if any(error.path for error in result.errors):
        body["data"] = result.data
    return GraphqlAnswer(body, next(filter(None, failures), None))


def _failure(error: GraphQLError) -> RemudaError | None:
    """What went wrong on our side; None when the request was wrong."""
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
            return (
                0,
                depth + 1,
            )  # Questions about the schema cost the herd nothing, and the engine limits them.
        return fields + 1, depth + 1
