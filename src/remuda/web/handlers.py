"""What each route of the API does."""

import re
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from remuda.base.errors import SessionLost
from remuda.base.ids import OrchestratorId, SessionId, is_uuid
from remuda.base.log import get_logger
from remuda.fleet.logbook import KEEP
from remuda.grid.model import State
from remuda.grid.view import LogEntry, OrchestratorView, SessionDetail, SessionPage, orchestrators
from remuda.playwright.view import (
    ConnectionView,
    WaitingView,
    WorkerView,
    read_connections,
    read_waiting,
    read_workers,
)
from remuda.storage.removal import ask_deletion
from remuda.web.faces import json_response
from remuda.web.herd import Herd
from remuda.web.overview import Overview, RoleView, read_roles
from remuda.web.route import read_query

log = get_logger(__name__)

ENDED_BY_API = "Ended through the API"
NUMBER = r"\d{1,19}-\d{1,19}"


class SessionsQuery(Struct):
    """Which sessions, about how many, and from where on."""

    state: Literal["active", "terminated"] = "active"
    limit: Annotated[int, Meta(ge=1, le=500)] = 50
    cursor: Annotated[str, Meta(pattern=r"^\d{1,20}$")] = "0"


class AfterQuery(Struct):
    """Which entries of a log: those after this one."""

    after: Annotated[str, Meta(pattern=f"^({NUMBER})?$")] = ""


class LogQuery(AfterQuery):
    """Which entries of a log: at most so many after this one."""

    limit: Annotated[int, Meta(ge=1, le=KEEP)] = KEEP


class Ended(Struct):
    """The session's end; `ended` is false when it had ended before."""

    id: str
    ended: bool


class Deleted(Struct):
    """The session whose artifacts, its video among them, will be deleted as soon as it has ended."""

    id: str


class SessionLog(Struct):
    """What happened to a session, oldest first."""

    entries: list[LogEntry]


class OrchestratorList(Struct):
    """Every orchestrator that is registered."""

    orchestrators: list[OrchestratorView]


class ServiceState(Struct):
    """Whether an orchestrator is out of service, and how many sessions it still has."""

    id: str
    draining: bool
    sessions: int


class WorkerList(Struct):
    """Every Playwright worker that is registered."""

    workers: list[WorkerView]


class ConnectionList(Struct):
    """Playwright connections that are open, oldest first."""

    connections: list[ConnectionView]


class WaitingList(Struct):
    """Playwright clients that wait for a place, line by line."""

    queue: list[WaitingView]


class RoleList(Struct):
    """Every role that runs."""

    roles: list[RoleView]


async def get_overview(herd: Herd, _request: Request) -> Overview:
    return await herd.overview()


async def list_sessions(herd: Herd, request: Request) -> SessionPage:
    query = read_query(request, SessionsQuery)
    if query.state == "terminated":
        return await herd.view.terminated(cursor=query.cursor, limit=query.limit)
    start = int(query.cursor)
    active = await herd.view.active(start=start, limit=query.limit)
    following = start + query.limit
    is_last = following >= sum(active.counts.values())
    return SessionPage(active.sessions, None if is_last else str(following))


async def get_session(herd: Herd, request: Request) -> SessionDetail:
    return await herd.view.session(request.path_params["session"])


async def end_session(herd: Herd, request: Request) -> Ended:
    """Ends the session; its node hears of it, closes the browser and gives the slot back."""
    name = request.path_params["session"]
    session = SessionId(name)
    state = await herd.sessions.state(session) if is_uuid(name) else None
    if state is None:
        raise SessionLost(f"There is no session {name[:100]!r}.")
    # Both documented codes say that it was the client's side that wanted no more.
    code = "CLOSED" if state is State.ALIVE else "CLEFT"
    ended = await herd.sessions.move(session, State.TERMINATED, code=code, message=ENDED_BY_API)
    if ended:
        log.info("session ended", session=session, by="api")
    return Ended(session, ended)


async def delete_artifacts(herd: Herd, request: Request) -> Deleted:
    name = request.path_params["session"]
    if not is_uuid(name):
        raise SessionLost(f"There is no session {name[:100]!r}.")
    await ask_deletion(herd.store, SessionId(name))
    return Deleted(name)


async def get_session_log(herd: Herd, request: Request) -> SessionLog:
    query = read_query(request, LogQuery)
    session = request.path_params["session"]
    return SessionLog(await herd.view.log(session, after=query.after, limit=query.limit))


async def watch_session_log(herd: Herd, request: Request) -> Response:
    query = read_query(request, AfterQuery)
    session = request.path_params["session"]
    told = request.headers.get("Last-Event-ID", "")
    after = told if re.fullmatch(NUMBER, told) else query.after
    if not is_uuid(session):
        raise SessionLost(f"There is no session {session[:100]!r}.")
    messages = await herd.live_logs.follow(SessionId(session), after=after)
    # HTML 9.2.3: after a 204 an EventSource does not come back.
    return Response(status_code=204) if messages is None else _stream(request, messages)


async def list_orchestrators(herd: Herd, _request: Request) -> OrchestratorList:
    return OrchestratorList(await orchestrators(herd.store))


async def drain_orchestrator(herd: Herd, request: Request) -> ServiceState:
    found = await herd.draining.find(request.path_params["orchestrator"])
    await herd.draining.begin(found)
    log.info("orchestrator taken out of service", orchestrator=found)
    return await _service(herd, found)


async def resume_orchestrator(herd: Herd, request: Request) -> ServiceState:
    found = await herd.draining.find(request.path_params["orchestrator"])
    await herd.draining.end(found)
    log.info("orchestrator put back in service", orchestrator=found)
    return await _service(herd, found)


async def _service(herd: Herd, orchestrator: OrchestratorId) -> ServiceState:
    views = {view.id: view for view in await orchestrators(herd.store)}
    if orchestrator not in views:  # It had nothing left to do, and has gone meanwhile.
        return ServiceState(orchestrator, draining=True, sessions=0)
    return ServiceState(orchestrator, views[orchestrator].draining, views[orchestrator].held)


async def list_workers(herd: Herd, _request: Request) -> WorkerList:
    return WorkerList(await read_workers(herd.store))


async def list_connections(herd: Herd, _request: Request) -> ConnectionList:
    return ConnectionList(await read_connections(herd.store))


async def list_waiting(herd: Herd, _request: Request) -> WaitingList:
    return WaitingList(await read_waiting(herd.store))


async def list_roles(herd: Herd, _request: Request) -> RoleList:
    return RoleList(await read_roles(herd.store))


async def watch(herd: Herd, request: Request) -> Response:
    return _stream(request, herd.live.watch())


def _stream(request: Request, messages: AsyncIterator[bytes]) -> Response:
    # Proxies between us and the browser must not hold events back.
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    if request.method == "HEAD":  # Else it would stream for ever to somebody who wants no body.
        return Response(media_type="text/event-stream", headers=headers)
    return StreamingResponse(messages, media_type="text/event-stream", headers=headers)


async def get_openapi(herd: Herd, _request: Request) -> Any:
    return json_response(herd.openapi)


async def get_docs(herd: Herd, request: Request) -> Response:
    return herd.files.answer("docs.html", request)


async def get_dashboard(herd: Herd, request: Request) -> Response:
    return herd.files.answer("index.html", request)


async def get_file(herd: Herd, request: Request) -> Response:
    return herd.files.answer(request.path_params["path"], request)
