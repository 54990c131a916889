"""The herd in the words of Selenium Grid 4, whose `/status` many tools poll: one of its nodes is one of our
orchestrators, its slots are ours.

Grid wants an `X-REGISTRATION-SECRET` for what an operator does with a node; here that takes a token with the
scope `admin`. A client of an account sees its own sessions; slots of others are taken, and no more.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from starlette.requests import Request

from remuda import __version__
from remuda.accounts.audit import Audit
from remuda.base.errors import InvalidArgument, SessionLost
from remuda.base.ids import SessionId
from remuda.base.log import get_logger
from remuda.fleet.origin import Scope
from remuda.fleet.route import Route, origin_of
from remuda.grid.capabilities import keeps_downloads
from remuda.grid.draining import DrainOrders
from remuda.grid.http.api import SessionApi
from remuda.grid.model import State
from remuda.grid.orchestrator.role import HEARTBEAT_TTL
from remuda.grid.queue import positions
from remuda.grid.sessions import Sessions
from remuda.grid.timeouts import timeouts
from remuda.grid.view import (
    BrowserView,
    Machine,
    OrchestratorView,
    SessionsView,
    SessionView,
    SlotState,
    SlotView,
    orchestrators,
)
from remuda.grid.view.overview import why_unusable
from remuda.store import Store

log = get_logger(__name__)

Capabilities = dict[str, Any]

DRAINED = "Node status was successfully set to draining."
QUEUE_CLEARED = "Request queue was cleared"
NEVER = "1970-01-01T00:00:00Z"
RESERVED = "reserved"
"""What Selenium Grid calls the session in a slot that is taken, before the session has an id."""


class SlotName(Struct, rename="camel"):
    """A slot's id, with that of its node."""

    host_id: str
    id: str


class SlotSession(Struct, rename="camel"):
    """The session that holds a slot."""

    capabilities: Capabilities
    session_id: str
    start: str
    stereotype: Capabilities
    uri: str


class GridSlot(Struct, rename="camel"):
    """A slot of a node."""

    id: SlotName
    last_started: str
    session: SlotSession | None
    stereotype: Capabilities


class GridNode(Struct, rename="camel"):
    """What Grid calls a node: an orchestrator."""

    id: str
    uri: str
    max_sessions: int
    os_info: Machine
    heartbeat_period: int
    availability: str
    version: str
    session_timeout: int
    slots: list[GridSlot]


class GridStatus(Struct):
    """Whether sessions can be had, and where."""

    ready: bool
    message: str
    nodes: list[GridNode]


class GridStatusAnswer(Struct):
    """The answer to `/status`."""

    value: GridStatus


class DistributorStatus(Struct):
    """Where sessions can be had."""

    nodes: list[GridNode]


class DistributorAnswer(Struct):
    """The answer to `/se/grid/distributor/status`."""

    value: DistributorStatus


class GridSessionAnswer(Struct):
    """The answer to `/se/grid/session/{session}`."""

    value: SlotSession


class QueuedRequest(Struct, rename="camel"):
    """A session that waits for a slot: Grid's two fields, and for how long it waits and where."""

    capabilities: list[Capabilities]
    request_id: str
    position: int | None
    queued_at: str | None
    waited: float


class QueueAnswer(Struct):
    """The answer to `/se/grid/newsessionqueue/queue`."""

    value: list[QueuedRequest]


class ClearedAnswer(Struct):
    """The answer to `DELETE /se/grid/newsessionqueue/queue`: how many were sent away."""

    value: int
    message: str
    cleared_requests: int


class DrainAnswer(Struct):
    """The answer to `/se/grid/node/drain`."""

    value: bool
    message: str


class OwnerAnswer(Struct):
    """The answer to `/se/grid/node/owner/{session}`."""

    value: bool


class StopAnswer(Struct):
    """The answer to `DELETE /se/grid/node/session/{session}`."""

    value: None


class SeleniumGrid:
    """Answers what Selenium Grid's tools ask."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._sessions = Sessions(store)
        self._view = SessionsView(store)
        self._draining = DrainOrders(store)
        self._timeouts = timeouts(store)
        self._end_session = SessionApi(store).end_session
        self._audit = Audit(store)

    async def status(self, request: Request) -> GridStatusAnswer:
        """`GET /status`."""
        found = await orchestrators(self._store)
        # As Selenium Grid decides it: a node that is up and has a free slot.
        ready = any(each.in_service and each.available + each.reclaimed for each in found)
        message = "Selenium Grid ready." if ready else "Selenium Grid not ready."
        if reason := await why_unusable(self._store, found):
            ready, message = False, f"Selenium Grid not ready: {reason}."
        return GridStatusAnswer(GridStatus(ready, message, await self._nodes(request, found)))

    async def distributor_status(self, request: Request) -> DistributorAnswer:
        """`GET /se/grid/distributor/status`: the nodes of `/status`, and nothing else."""
        nodes = await self._nodes(request, await orchestrators(self._store))
        return DistributorAnswer(DistributorStatus(nodes))

    async def _nodes(self, request: Request, found: Sequence[OrchestratorView]) -> list[GridNode]:
        origin = origin_of(request)
        active = await self._view.active(limited_to=origin.limited_to)
        idle_ms = int((await self._timeouts.read()).session_termination * 1000)
        sessions = {session.id: session for session in active.sessions}
        return [
            _node(each, sessions, uri=origin.url, idle_ms=idle_ms, sees_all=origin.limited_to is None)
            for each in found
        ]

    async def get_session(self, request: Request) -> GridSessionAnswer:
        """`GET /se/grid/session/{session}`; as Grid's session map, it knows sessions until they end."""
        origin = origin_of(request)
        found = await self._view.session(request.path_params["session"], limited_to=origin.limited_to)
        if found.state is State.TERMINATED:
            raise SessionLost(f"Session {found.id} ended at {found.terminated_at}")
        asked = next((named(each) for each in found.requested), {})
        return GridSessionAnswer(_holder(found, uri=origin.url, free=asked))

    async def owns_session(self, request: Request) -> OwnerAnswer:
        """`GET /se/grid/node/owner/{session}`."""
        try:
            limited_to = origin_of(request).limited_to
            found = await self._view.session(request.path_params["session"], limited_to=limited_to)
        except SessionLost:
            return OwnerAnswer(value=False)
        return OwnerAnswer(value=found.state is not State.TERMINATED)

    async def stop_session(self, request: Request) -> StopAnswer:
        """`DELETE /se/grid/node/session/{session}`."""
        await self._end_session(request)
        return StopAnswer(None)

    async def drain_node(self, request: Request) -> DrainAnswer:
        """`POST /se/grid/distributor/node/{node}/drain`, or without a name where there is but one node."""
        node = request.path_params.get("node")
        if not node:
            names = [each.id for each in await orchestrators(self._store)]
            if len(names) != 1:
                told = f"there are {', '.join(names)}" if names else "there is none"
                raise InvalidArgument(f"Name one, at /se/grid/distributor/node/<id>/drain; {told}.")
            node = names[0]
        await self._draining.begin(await self._draining.find(node))
        log.info("orchestrator taken out of service", orchestrator=node)
        await self._audit.record(origin_of(request), "orchestrator.drain", node)
        return DrainAnswer(value=True, message=DRAINED)

    async def list_queue(self, request: Request) -> QueueAnswer:
        """`GET /se/grid/newsessionqueue/queue`."""
        active = await self._view.active(limited_to=origin_of(request).limited_to)
        return QueueAnswer(
            [
                QueuedRequest(
                    capabilities=[_called(each, session.name) for each in session.requested],
                    request_id=session.id,
                    position=session.position,
                    queued_at=session.queued_at,
                    waited=session.age,
                )
                for session in active.sessions
                if session.slot is None and session.pending_at is None
            ]
        )

    async def clear_queue(self, request: Request) -> ClearedAnswer:
        """`DELETE /se/grid/newsessionqueue/queue`: all of the client's account that wait are told so, as by
        Selenium Grid; an operator's clears the whole queue."""
        origin = origin_of(request)
        waiting = [SessionId(each) for each in await positions(self._store)]
        if origin.limited_to is not None:
            own = await self._view.active_ids(limited_to=origin.limited_to)
            waiting = [each for each in waiting if each in own]
        ends = [
            self._sessions.move(each, State.TERMINATED, code="CLEFT", message=QUEUE_CLEARED)
            for each in waiting
        ]
        cleared = sum(await asyncio.gather(*ends))
        log.info("queue cleared", sessions=cleared)
        await self._audit.record(origin, "queue.clear", "queue", sessions=cleared)
        message = (
            "Cleared the new session request queue" if cleared else "The new session request queue is empty"
        )
        return ClearedAnswer(cleared, message, cleared)

    def routes(self) -> Sequence[Route]:
        return [
            Route(
                "GET",
                "/status",
                "The status of the herd in the format of Selenium Grid 4",
                self.status,
                GridStatusAnswer,
                scope=Scope.USE,
            ),
            Route(
                "GET",
                "/se/grid/distributor/status",
                "The nodes of the herd in the format of Selenium Grid 4",
                self.distributor_status,
                DistributorAnswer,
                scope=Scope.USE,
            ),
            Route(
                "GET",
                "/se/grid/session/{session}",
                "A session, as in Selenium Grid's session map",
                self.get_session,
                GridSessionAnswer,
                scope=Scope.USE,
            ),
            Route(
                "POST",
                "/se/grid/distributor/node/{node}/drain",
                "Take an orchestrator out of service, at Selenium Grid's path",
                self.drain_node,
                DrainAnswer,
            ),
            Route(
                "POST",
                "/se/grid/node/drain",
                "Take the herd's only orchestrator out of service",
                self.drain_node,
                DrainAnswer,
            ),
            Route(
                "GET",
                "/se/grid/node/owner/{session}",
                "Whether a session runs here",
                self.owns_session,
                OwnerAnswer,
                scope=Scope.USE,
            ),
            Route(
                "DELETE",
                "/se/grid/node/session/{session}",
                "End a session",
                self.stop_session,
                StopAnswer,
                scope=Scope.USE,
            ),
            Route(
                "GET",
                "/se/grid/newsessionqueue/queue",
                "The queue of sessions that wait for a slot",
                self.list_queue,
                QueueAnswer,
                scope=Scope.USE,
            ),
            Route(
                "DELETE",
                "/se/grid/newsessionqueue/queue",
                "Clear the queue of sessions that wait for a slot",
                self.clear_queue,
                ClearedAnswer,
                scope=Scope.USE,
            ),
        ]


def named(browser: BrowserView) -> Capabilities:
    """A browser as capabilities; what may be anything is left out."""
    capabilities = {
        "browserName": browser.name,
        "browserVersion": browser.version,
        "platformName": browser.platform,
    }
    return {name: value for name, value in capabilities.items() if value}


def stereotype(browser: BrowserView) -> Capabilities:
    """What a slot offers with this browser, in the words that Selenium's tools match capabilities by."""
    offered = named(browser)
    return {**offered, "se:downloadsEnabled": True} if keeps_downloads(browser.name) else offered


def _node(
    orchestrator: OrchestratorView,
    sessions: dict[str, SessionView],
    *,
    uri: str,
    idle_ms: int,
    sees_all: bool,
) -> GridNode:
    free = stereotype(orchestrator.browsers[0]) if orchestrator.browsers else {}
    return GridNode(
        id=orchestrator.id,
        uri=uri,
        max_sessions=len(orchestrator.slots),
        os_info=orchestrator.machine,
        heartbeat_period=HEARTBEAT_TTL * 1000,
        availability=availability(orchestrator),
        version=__version__,
        session_timeout=idle_ms,
        slots=[
            _slot(slot, orchestrator.id, sessions, uri=uri, free=free, sees_all=sees_all)
            for slot in orchestrator.slots
        ],
    )


def availability(orchestrator: OrchestratorView) -> str:
    """The state of a node, in Grid's words."""
    if not orchestrator.alive:
        return "DOWN"
    return "UP" if orchestrator.in_service else "DRAINING"


def _slot(
    slot: SlotView,
    node: str,
    sessions: dict[str, SessionView],
    *,
    uri: str,
    free: Capabilities,
    sees_all: bool,
) -> GridSlot:
    name = SlotName(node, slot.id)
    session = sessions.get(slot.session or "")
    if session is not None:
        holder = _holder(session, uri=uri, free=free)
        return GridSlot(name, holder.start, holder, holder.stereotype)
    if slot.state is SlotState.HELD and not sees_all:
        # A session of another account holds it: tools that count free slots must not count it.
        return GridSlot(name, NEVER, SlotSession({}, RESERVED, NEVER, free, uri), free)
    return GridSlot(name, NEVER, None, free)


def _holder(session: SessionView, *, uri: str, free: Capabilities) -> SlotSession:
    return SlotSession(
        capabilities=_called(session.actual or BrowserView("", "", ""), session.name),
        session_id=session.id,
        start=session.alive_at or session.queued_at or NEVER,
        stereotype=stereotype(session.actual) if session.actual else free,
        uri=uri,
    )


def _called(browser: BrowserView, name: str) -> Capabilities:
    return {**named(browser), "se:name": name} if name else named(browser)
