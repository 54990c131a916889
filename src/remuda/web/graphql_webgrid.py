"""What /graphql answers in WebGrid's words. It only reads, also where the original moved a list to look."""

from collections.abc import Sequence
from typing import Any

from remuda.base.errors import SessionLost
from remuda.grid.view import OrchestratorView, SessionView
from remuda.grid.view.mask import mask
from remuda.keyspace import grid
from remuda.web.graphql_look import Look, to_json

MAX_SESSIONS = 500
"""Sessions that a list holds."""
PAGE = 500
MAX_PAGES = 10
"""Pages of ended sessions that are searched for metadata."""

Answer = dict[str, Any]
Entries = Sequence[dict[str, str]]


class Webgrid:
    """The resolvers of WebGrid's part of the schema."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self._store = look.herd.store

    async def sessions(
        self, _info: Any, state: str | None = None, metadata: Entries | None = None
    ) -> list[Answer]:
        wanted = (state or "").lower()
        found: list[SessionView] = []
        if wanted != "terminated":
            found += await self._with((await self._look.active()).sessions, metadata)
        if wanted != "active":
            found += await self._ended(MAX_SESSIONS - len(found), metadata)
        return [self._session(each) for each in found[:MAX_SESSIONS]]

    async def session(self, _info: Any, id: str) -> Answer | None:  # noqa: A002 - the argument's public name
        try:
            return self._session(await self._look.herd.view.session(id))
        except SessionLost:
            return None

    async def orchestrators(self, _info: Any) -> list[Answer]:
        return [_orchestrator(each) for each in await self._look.orchestrators()]

    async def orchestrator(self, _info: Any, id: str) -> Answer | None:  # noqa: A002 - as above
        return await self._find_orchestrator(id)

    async def timeouts(self, _info: Any) -> dict[str, float]:
        return await self._look.herd.timeouts.read()

    async def _find_orchestrator(self, name: str | None) -> Answer | None:
        found = [each for each in await self._look.orchestrators() if each.id == name]
        return _orchestrator(found[0]) if found else None

    async def _ended(self, wanted: int, metadata: Entries | None) -> list[SessionView]:
        found: list[SessionView] = []
        cursor: str | None = "0"
        for _ in range(MAX_PAGES):
            if cursor is None or len(found) >= wanted:
                break
            page = await self._look.herd.view.terminated(cursor=cursor, limit=PAGE)
            found += await self._with(page.sessions, metadata)
            cursor = page.cursor
        return found

    async def _with(self, sessions: Sequence[SessionView], metadata: Entries | None) -> list[SessionView]:
        """The sessions that have all of this metadata."""
        if not metadata:
            return list(sessions)
        wanted = [(entry["key"], entry["value"]) for entry in metadata]
        replies = [(each, self._store.hgetall(grid.SESSION_METADATA(each.id))) for each in sessions]
        found = [(each, await reply) for each, reply in replies]
        return [each for each, has in found if all(has.get(key) == value for key, value in wanted)]

    def _session(self, session: SessionView) -> Answer:
        """A session. What is not in the view is only read where it is asked for."""
        fields = _Fields(self._look, session)
        return {
            "id": session.id,
            "state": str(session.state),
            "alive": fields.alive,
            "slot": session.slot,
            "orchestrator": lambda _info: self._find_orchestrator(session.orchestrator),
            "storage": fields.storage,
            "videoURL": session.video_url,
            "metadata": fields.metadata,
            "status": {
                "queuedAt": session.queued_at,
                "pendingAt": session.pending_at,
                "aliveAt": session.alive_at,
                "terminatedAt": session.terminated_at,
            },
            "capabilities": {"requested": fields.requested, "actual": fields.actual},
            # WebGrid has the node's address here, which is nobody's business outside of the herd.
            "upstream": {"host": None, "port": None, "driverSessionID": None},
            "downstream": {
                "host": session.client.host or None,
                "userAgent": session.client.user_agent or None,
                "lastSeen": session.client.last_seen or None,
            },
        }


class _Fields:
    """The fields of a session that have a key of their own."""

    def __init__(self, look: Look, session: SessionView) -> None:
        self._look = look
        self._store = look.herd.store
        self._session = session

    async def alive(self, _info: Any) -> bool:
        return bool(await self._store.exists(grid.SESSION_HEARTBEAT_NODE(self._session.id)))

    async def storage(self, _info: Any) -> str | None:
        return await self._store.get(grid.SESSION_STORAGE(self._session.id))

    async def metadata(self, _info: Any) -> list[dict[str, str]]:
        found = mask(await self._store.hgetall(grid.SESSION_METADATA(self._session.id)))
        return [{"key": key, "value": value} for key, value in found.items()]

    async def requested(self, _info: Any) -> str | None:
        return to_json(await self._look.requested(self._session))

    async def actual(self, _info: Any) -> str | None:
        actual = await self._look.actual(self._session)
        return None if actual is None else to_json(actual)


def _orchestrator(view: OrchestratorView) -> Answer:
    return {
        "id": view.id,
        "type": view.type,
        "alive": view.alive,
        "backlog": view.backlog,
        "pending": view.pending,
        "slots": {
            "allocated": len(view.slots),
            "available": view.available,
            "reclaimed": view.reclaimed,
        },
        "capabilities": {
            "platformName": view.platform,
            "browsers": [{"name": each.name, "version": each.version} for each in view.browsers],
        },
    }
