"""The JSON API of sessions and orchestrators."""

import re
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Literal

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from remuda.accounts.audit import Audit
from remuda.base.errors import Lost, SessionLost
from remuda.base.ids import OrchestratorId, SessionId, is_uuid
from remuda.base.log import get_logger
from remuda.fleet.live import LogFollowers, event, numbered
from remuda.fleet.origin import Origin, Scope
from remuda.fleet.route import EVENT_STREAM, Route, origin_of
from remuda.grid.artifacts import SessionArtifacts
from remuda.grid.draining import DrainOrders
from remuda.grid.model import KEPT_LOG_ENTRIES, State
from remuda.grid.node.recording.subtitles import PLAYLISTS, recording_parts
from remuda.grid.sessions import Sessions, session_bell
from remuda.grid.view import (
    LogEntry,
    OrchestratorView,
    SessionDetail,
    SessionPage,
    SessionsView,
    orchestrators,
)
from remuda.keyspace import grid
from remuda.storage.cleanup import ask_deletion
from remuda.storage.model import SESSION, Owner, is_name
from remuda.storage.sharing import Share, ShareRequest, Sharing
from remuda.store import Store

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

    limit: Annotated[int, Meta(ge=1, le=KEPT_LOG_ENTRIES)] = KEPT_LOG_ENTRIES


class Ended(Struct):
    """The session's end; `ended` is false if it had already ended."""

    id: str
    ended: bool


class Deleted(Struct):
    """The session whose artifacts, such as its video, are deleted once it has ended."""

    id: str


class SessionLog(Struct):
    """The log of a session, oldest entry first."""

    entries: list[LogEntry]


class OrchestratorList(Struct):
    """Every orchestrator that is registered."""

    orchestrators: list[OrchestratorView]


class ServiceState(Struct):
    """Whether an orchestrator is out of service, and how many sessions it still has."""

    id: str
    draining: bool
    sessions: int


class SessionApi:
    """Shows sessions, ends them, and deletes what is stored of them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._sessions = Sessions(store)
        self._view = SessionsView(store)
        self._artifacts = SessionArtifacts(store)
        self._sharing = Sharing(store)
        self._audit = Audit(store)
        self._followers = LogFollowers()

    async def list_sessions(self, request: Request, query: SessionsQuery) -> SessionPage:
        limited_to = origin_of(request).limited_to
        if query.state == "terminated":
            return await self._view.terminated(limited_to=limited_to, cursor=query.cursor, limit=query.limit)
        start = int(query.cursor)
        active = await self._view.active(limited_to=limited_to, start=start, limit=query.limit)
        following = start + query.limit
        is_last = following >= sum(active.counts.values())
        return SessionPage(active.sessions, None if is_last else str(following))

    async def get_session(self, request: Request) -> SessionDetail:
        session = request.path_params["session"]
        return await self._view.session(session, limited_to=origin_of(request).limited_to)

    async def end_session(self, request: Request) -> Ended:
        """Ends the session; its node hears of it, closes the browser and gives the slot back."""
        session, origin = _session_of(request), origin_of(request)
        is_seen = await self._sessions.is_seen(session, limited_to=origin.limited_to)
        state = await self._sessions.state(session)
        if state is None or not is_seen:
            raise _unknown(session)
        # Both documented codes say that it was the client's side that wanted no more.
        code = "CLOSED" if state is State.ALIVE else "CLEFT"
        ended = await self._sessions.move(session, State.TERMINATED, code=code, message=ENDED_BY_API)
        if ended:
            log.info("session ended", session=session, by="api")
            await self._audit.record(origin, "session.end", session)
        return Ended(session, ended)

    async def delete_artifacts(self, request: Request) -> Deleted:
        return await self.delete_artifacts_of(_session_of(request), origin_of(request))

    async def delete_artifacts_of(self, session: SessionId, origin: Origin) -> Deleted:
        """Has what is stored of a session deleted; Lost when there is nothing."""
        await self._find_storage(session, origin)
        await ask_deletion(self._store, self._artifacts, session)
        await self._audit.record(origin, "artifacts.delete", session)
        return Deleted(session)

    async def share_artifact(self, request: Request, wanted: ShareRequest) -> Share:
        """A URL that reads an artifact without a token. A playlist comes with all that it names."""
        session, origin = _session_of(request), origin_of(request)
        name = request.path_params["name"]
        if not is_name(name):
            raise Lost("There is no such artifact")
        storage = await self._find_storage(session, origin)
        names = [name]
        if name in PLAYLISTS:  # Its player asks for the others, too.
            parts = recording_parts(await self._view.video_file(session))
            names += [each for each in parts if each != name]
        owner = Owner(SESSION, session)
        return await self._sharing.share(origin, wanted, storage=storage, owner=owner, names=names)

    async def _find_storage(self, session: SessionId, origin: Origin) -> str:
        """Which storage holds what there is of a session; Lost when none does."""
        is_seen = await self._sessions.is_seen(session, limited_to=origin.limited_to)
        storage = await self._artifacts.find_storage(session)
        if storage is None or not is_seen:
            raise Lost(f"Session {session} has no artifacts")
        return storage

    async def get_log(self, request: Request, query: LogQuery) -> SessionLog:
        session, limited_to = request.path_params["session"], origin_of(request).limited_to
        return SessionLog(
            await self._view.log(session, limited_to=limited_to, after=query.after, limit=query.limit)
        )

    async def follow_log(self, request: Request, query: AfterQuery) -> AsyncIterator[bytes] | Response:
        """The log as it grows, until the session is over and its node has left."""
        session, limited_to = _session_of(request), origin_of(request).limited_to
        self._followers.check(limited_to)
        told = request.headers.get("Last-Event-ID", "")
        after = told if re.fullmatch(NUMBER, told) else query.after
        is_over = await self._is_over(session)
        if not await self._view.log(session, limited_to=limited_to, after=after) and is_over:
            # HTML 9.2.3: after a 204 an EventSource does not come back.
            return Response(status_code=204)

        async def read() -> tuple[list[bytes], bool]:
            nonlocal after
            # Asked before the log is read: whatever was written before the end is in it.
            is_over = await self._is_over(session)
            # Whose it is does not change, and was looked at when the client came.
            entries = await self._view.log(session, limited_to=None, after=after)
            after = entries[-1].id if entries else after
            return [numbered(entry.id, event("entry", entry)) for entry in entries], is_over

        return self._followers.follow(self._store, session_bell(session), read, limited_to=limited_to)

    async def _is_over(self, session: SessionId) -> bool:
        """Whether nothing more will be written: a node keeps its slot until it has written its last entry."""
        state = await self._sessions.state(session)
        return state in (State.TERMINATED, None) and not await self._store.exists(grid.SESSION_SLOT(session))

    def routes(self) -> Sequence[Route]:
        return [
            Route(
                "GET",
                "/api/sessions",
                "Sessions: the active ones oldest first, or a page of the terminated ones",
                self.list_sessions,
                SessionPage,
                query=SessionsQuery,
                scope=Scope.USE,
            ),
            Route(
                "GET",
                "/api/sessions/{session}",
                "One session with its capabilities and log; secrets are masked",
                self.get_session,
                SessionDetail,
                scope=Scope.USE,
            ),
            Route(
                "DELETE",
                "/api/sessions/{session}",
                "End a session",
                self.end_session,
                Ended,
                scope=Scope.USE,
            ),
            Route(
                "DELETE",
                "/api/sessions/{session}/artifacts",
                "Delete the artifacts of a session, once it has ended",
                self.delete_artifacts,
                Deleted,
                scope=Scope.USE,
            ),
            Route(
                "POST",
                "/api/sessions/{session}/artifacts/{name}/share",
                "A URL under which anybody can read an artifact, and the parts of a playlist, for a while",
                self.share_artifact,
                Share,
                body=ShareRequest,
                example={"expires": "7d"},
                scope=Scope.USE,
            ),
            Route(
                "GET",
                "/api/sessions/{session}/log",
                "The log of a session",
                self.get_log,
                SessionLog,
                query=LogQuery,
                scope=Scope.USE,
            ),
            Route(
                "GET",
                "/api/sessions/{session}/log/live",
                "The log of a session, live, as Server-Sent Events; 204 if the log is complete",
                self.follow_log,
                EVENT_STREAM,
                query=AfterQuery,
                scope=Scope.USE,
            ),
        ]


class OrchestratorApi:
    """Shows orchestrators, and takes them out of service."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._draining = DrainOrders(store)
        self._audit = Audit(store)

    async def list_orchestrators(self, _request: Request) -> OrchestratorList:
        return OrchestratorList(await orchestrators(self._store))

    async def drain(self, request: Request) -> ServiceState:
        found = await self._draining.find(request.path_params["orchestrator"])
        await self._draining.begin(found)
        log.info("orchestrator taken out of service", orchestrator=found)
        await self._audit.record(origin_of(request), "orchestrator.drain", found)
        return await self._service(found)

    async def resume(self, request: Request) -> ServiceState:
        found = await self._draining.find(request.path_params["orchestrator"])
        await self._draining.end(found)
        log.info("orchestrator put back in service", orchestrator=found)
        await self._audit.record(origin_of(request), "orchestrator.resume", found)
        return await self._service(found)

    async def _service(self, orchestrator: OrchestratorId) -> ServiceState:
        views = {view.id: view for view in await orchestrators(self._store)}
        if orchestrator not in views:  # It had nothing left to do, and has gone meanwhile.
            return ServiceState(orchestrator, draining=True, sessions=0)
        return ServiceState(orchestrator, views[orchestrator].draining, views[orchestrator].held)

    def routes(self) -> Sequence[Route]:
        return [
            Route(
                "GET",
                "/api/orchestrators",
                "Orchestrators with their browsers and slots",
                self.list_orchestrators,
                OrchestratorList,
            ),
            Route(
                "POST",
                "/api/orchestrators/{orchestrator}/drain",
                "Take an orchestrator out of service: no new sessions, its sessions continue",
                self.drain,
                ServiceState,
            ),
            Route(
                "DELETE",
                "/api/orchestrators/{orchestrator}/drain",
                "Put an orchestrator back in service",
                self.resume,
                ServiceState,
            ),
        ]


def _session_of(request: Request) -> SessionId:
    name: str = request.path_params["session"]
    # Checked before it becomes part of a key.
    if not is_uuid(name):
        raise _unknown(name)
    return SessionId(name)


def _unknown(name: str) -> SessionLost:
    return SessionLost(f"There is no session {name[:100]!r}.")
