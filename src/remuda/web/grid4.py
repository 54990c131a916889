"""The herd in the words of Selenium Grid 4, whose `/status` many tools poll: one of its nodes is one of our
orchestrators, its slots are ours."""

import asyncio
import re
from collections.abc import Sequence

from msgspec import Struct
from starlette.requests import Request

from remuda import __version__
from remuda.base.errors import SessionLost
from remuda.base.ids import SessionId
from remuda.base.log import get_logger
from remuda.grid.model import State
from remuda.grid.orchestrator.role import HEARTBEAT_TTL
from remuda.grid.queue import positions
from remuda.grid.view import Browser, Machine, OrchestratorView, SessionView, SlotView, orchestrators
from remuda.web.health import why_unusable
from remuda.web.herd import Herd
from remuda.web.stereotypes import Capabilities, named, stereotype

log = get_logger(__name__)

QUEUE_CLEARED = "Request queue was cleared"
NEVER = "1970-01-01T00:00:00Z"
_HOST = re.compile(r"[A-Za-z0-9.:\[\]-]{1,255}")


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


async def grid_status(herd: Herd, request: Request) -> GridStatusAnswer:
    """`GET /status`."""
    found = await orchestrators(herd.store)
    # As Selenium Grid decides it: a node that is up and has a free slot.
    ready = any(each.in_service and each.available + each.reclaimed for each in found)
    message = "Selenium Grid ready." if ready else "Selenium Grid not ready."
    if reason := await why_unusable(herd.store, found):
        ready, message = False, f"Selenium Grid not ready: {reason}."
    return GridStatusAnswer(GridStatus(ready, message, await _nodes(herd, request, found)))


async def distributor_status(herd: Herd, request: Request) -> DistributorAnswer:
    """`GET /se/grid/distributor/status`: the nodes of `/status`, and nothing else."""
    nodes = await _nodes(herd, request, await orchestrators(herd.store))
    return DistributorAnswer(DistributorStatus(nodes))


async def grid_session(herd: Herd, request: Request) -> GridSessionAnswer:
    """`GET /se/grid/session/{session}`; as Grid's session map, it knows sessions until they end."""
    found = await herd.view.session(request.path_params["session"])
    if found.state is State.TERMINATED:
        raise SessionLost(f"Session {found.id} ended at {found.terminated_at}")
    asked = next((named(each) for each in found.requested), {})
    return GridSessionAnswer(_holder(found, uri=front_door(request), free=asked))


async def grid_queue(herd: Herd, _request: Request) -> QueueAnswer:
    """`GET /se/grid/newsessionqueue/queue`."""
    return QueueAnswer(
        [
            QueuedRequest(
                capabilities=[_called(each, session.name) for each in session.requested],
                request_id=session.id,
                position=session.position,
                queued_at=session.queued_at,
                waited=session.age,
            )
            for session in (await herd.view.active()).sessions
            if session.slot is None and session.pending_at is None
        ]
    )


async def clear_queue(herd: Herd, _request: Request) -> ClearedAnswer:
    """`DELETE /se/grid/newsessionqueue/queue`: everybody who waits is told so, as by Selenium Grid."""
    waiting = [SessionId(each) for each in await positions(herd.store)]
    ends = [
        herd.sessions.move(each, State.TERMINATED, code="CLEFT", message=QUEUE_CLEARED) for each in waiting
    ]
    cleared = sum(await asyncio.gather(*ends))
    log.info("queue cleared", sessions=cleared)
    message = "Cleared the new session request queue" if cleared else "The new session request queue is empty"
    return ClearedAnswer(cleared, message, cleared)


def front_door(request: Request) -> str:
    """The URL under which the client knows us: it came through a gateway, which passes that on."""
    scheme = "https" if request.headers.get("x-forwarded-proto") == "https" else "http"
    hosts = (request.headers.get(name, "") for name in ("x-forwarded-host", "host"))
    host = next((host for host in hosts if _HOST.fullmatch(host)), "127.0.0.1")
    return f"{scheme}://{host}"


async def _nodes(herd: Herd, request: Request, found: Sequence[OrchestratorView]) -> list[GridNode]:
    active = await herd.view.active()
    idle_ms = int((await herd.timeouts.read())["sessionTermination"] * 1000)
    sessions = {session.id: session for session in active.sessions}
    return [_node(each, sessions, uri=front_door(request), idle_ms=idle_ms) for each in found]


def _node(
    orchestrator: OrchestratorView, sessions: dict[str, SessionView], *, uri: str, idle_ms: int
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
            _slot(slot, orchestrator.id, session=sessions.get(slot.session or ""), uri=uri, free=free)
            for slot in orchestrator.slots
        ],
    )


def availability(orchestrator: OrchestratorView) -> str:
    """The state of a node, in Grid's words."""
    if not orchestrator.alive:
        return "DOWN"
    return "UP" if orchestrator.in_service else "DRAINING"


def _slot(
    slot: SlotView, node: str, *, session: SessionView | None, uri: str, free: Capabilities
) -> GridSlot:
    name = SlotName(node, slot.id)
    if session is None:
        return GridSlot(name, NEVER, None, free)
    holder = _holder(session, uri=uri, free=free)
    return GridSlot(name, holder.start, holder, holder.stereotype)


def _holder(session: SessionView, *, uri: str, free: Capabilities) -> SlotSession:
    return SlotSession(
        capabilities=_called(session.actual or Browser("", "", ""), session.name),
        session_id=session.id,
        start=session.alive_at or session.queued_at or NEVER,
        stereotype=stereotype(session.actual) if session.actual else free,
        uri=uri,
    )


def _called(browser: Browser, name: str) -> Capabilities:
    return {**named(browser), "se:name": name} if name else named(browser)
