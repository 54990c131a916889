"""What /graphql answers: in Selenium Grid 4's words, to KEDA's scaler, exporters and Grid's own dashboard,
and in WebGrid's. It only reads, also where WebGrid moved a list to look.

One of Selenium's nodes is one of our orchestrators, as in `/status`. KEDA stops working at a `browserName`,
`browserVersion` or `platformName` that is not a string and at a `se:downloadsEnabled` that is not a boolean,
so those never leave here.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import to_builtins

from remuda import __version__
from remuda.base import clock
from remuda.base.errors import SessionLost
from remuda.base.ids import SlotId
from remuda.fleet.origin import Origin
from remuda.grid.capabilities import as_request, for_viewer, sets_of
from remuda.grid.http.selenium import availability, named, stereotype
from remuda.grid.model import State
from remuda.grid.slots import owner_of
from remuda.grid.timeouts import timeouts
from remuda.grid.view import (
    ActiveSessions,
    BrowserView,
    OrchestratorView,
    SessionDetail,
    SessionPage,
    SessionsView,
    SessionView,
    orchestrators,
)
from remuda.grid.view.mask import mask
from remuda.grid.view.sessions import MAX_CAPABILITIES
from remuda.keyspace import grid
from remuda.store import Store

MAX_ACTIVE = 2000
"""Active sessions that a query gets to see, the oldest ones."""
AT_ONCE = 32
"""Sessions whose capabilities are in memory at a time: they may carry whole extensions."""
MAX_SESSIONS = 500
"""Sessions that a list of WebGrid's holds."""
PAGE = 500
MAX_PAGES = 10
"""Pages of ended sessions that are searched for metadata."""

_KINDS = {"browserName": str, "browserVersion": str, "platformName": str, "se:downloadsEnabled": bool}

Answer = dict[str, Any]
Entries = Sequence[dict[str, str]]
T = TypeVar("T")


class Once(Generic[T]):
    """A read that is done when its result is first asked for. Further callers wait for the same read."""

    def __init__(self, read: Callable[[], Awaitable[T]]) -> None:
        self._read = read
        self._lock = asyncio.Lock()
        self._results: list[T] = []

    async def __call__(self) -> T:
        async with self._lock:
            if not self._results:
                self._results.append(await self._read())
        return self._results[0]


class Look:
    """The grid as one query sees it: each thing is read when it is first asked for, and only once.

    Sessions are only looked at through this, so that those of another account are not there for any resolver.
    """

    def __init__(self, store: Store, origin: Origin) -> None:
        self.store = store
        self.uri = origin.url
        self._view = SessionsView(store)
        self._limited_to = origin.limited_to
        self.active: Once[ActiveSessions] = Once(
            lambda: self._view.active(limited_to=self._limited_to, limit=MAX_ACTIVE)
        )
        self.orchestrators: Once[list[OrchestratorView]] = Once(lambda: orchestrators(store))
        self._gate = asyncio.Semaphore(AT_ONCE)

    async def session(self, name: str) -> SessionDetail | None:
        """The session of this id; None when there is none."""
        try:
            return await self._view.session(name, limited_to=self._limited_to)
        except SessionLost:
            return None

    async def terminated(self, cursor: str) -> SessionPage:
        """A page of the sessions that have ended."""
        return await self._view.terminated(limited_to=self._limited_to, cursor=cursor, limit=PAGE)

    async def requested(self, session: SessionView) -> list[Any]:
        """The capability sets that a session asked for, masked."""
        kept = await self._read(session.id, "requested")
        return mask(sets_of(kept)) if kept is not None else [named(each) for each in session.requested]

    async def actual(self, session: SessionView) -> dict[str, Any] | None:
        """The capabilities that a session was given, as others may see them; None before it was given any."""
        found = await self._read(session.id, "actual")
        if isinstance(found, dict):
            front_door = f"ws{self.uri.removeprefix('http')}"
            shown: dict[str, Any] = mask(for_viewer(found, session=session.id, front_door=front_door))
            return shown
        return None if session.actual is None else named(session.actual)

    async def _read(self, session: str, field: str) -> Any:
        """One field of a session's capabilities; None when it is not there, or too big to be shown."""
        key = grid.SESSION_CAPABILITIES(session)
        async with self._gate:
            if await self.store.send("HSTRLEN", key, field) > MAX_CAPABILITIES:
                return None
            text = await self.store.hget(key, field)
            try:
                return None if text is None else msgspec.json.decode(text)
            except msgspec.DecodeError:
                return None


class Selenium:
    """The resolvers of Selenium Grid's part of the schema."""

    def __init__(self, look: Look) -> None:
        self._look = look

    async def grid(self, _info: Any) -> Answer:
        """The herd in numbers. A dead orchestrator's slots are none, and its node is only shown as down."""
        found = await self._look.orchestrators()
        alive = [each for each in found if each.alive]
        return {
            "uri": self._look.uri,
            "version": __version__,
            "nodeCount": len(alive),
            "sessionCount": sum(each.held for each in alive),
            "maxSession": sum(len(each.slots) for each in alive),
            "totalSlots": sum(_slot_count(each) for each in alive),
            "sessionQueueSize": len(await self._waiting()),
        }

    async def nodes_info(self, _info: Any) -> Answer:
        found = await self._look.orchestrators()
        sessions = {each.id: each for each in (await self._look.active()).sessions}
        return {"nodes": [self._node(each, sessions) for each in found]}

    async def sessions_info(self, _info: Any) -> Answer:
        return {"sessionQueueRequests": self._requests, "sessions": self._sessions}

    async def session(self, _info: Any, id: str) -> Answer | None:  # noqa: A002 - the argument's public name
        found = await self._look.session(id)
        # Grid forgets a session when it ends.
        if found is None or found.slot is None or found.state is State.TERMINATED:
            return None
        return self._session(found)

    async def _requests(self, _info: Any) -> list[str]:
        sets = await asyncio.gather(*(self._look.requested(each) for each in await self._waiting()))
        # Grid shows one set a request, and KEDA counts the texts.
        return [to_json(_plain(next(iter(each), {}))) for each in sets]

    async def _sessions(self, _info: Any) -> list[Answer]:
        return [self._session(each) for each in (await self._look.active()).sessions if each.slot]

    async def _waiting(self) -> list[SessionView]:
        active = await self._look.active()
        return [each for each in active.sessions if each.slot is None and each.state is State.QUEUED]

    def _node(self, orchestrator: OrchestratorView, sessions: dict[str, SessionView]) -> Answer:
        holders = (sessions.get(slot.session or "") for slot in orchestrator.slots)
        stereotypes = [
            {"slots": len(orchestrator.slots), "stereotype": stereotype(browser)}
            for browser in orchestrator.browsers
        ]
        return {
            "id": orchestrator.id,
            "uri": self._look.uri,
            "status": availability(orchestrator),
            "version": __version__,
            "maxSession": len(orchestrator.slots),
            "sessionCount": orchestrator.held,
            "slotCount": _slot_count(orchestrator),
            "stereotypes": to_json(stereotypes),
            "osInfo": to_builtins(orchestrator.machine),
            "sessions": [self._session(each) for each in holders if each is not None],
        }

    def _session(self, session: SessionView) -> Answer:
        async def capabilities(_info: Any) -> str:
            actual = await self._look.actual(session)
            return to_json(_plain(actual if actual is not None else await held()))

        async def slot_stereotype(_info: Any) -> str:
            return to_json(await held())

        async def held() -> Answer:
            owners = await self._look.orchestrators()
            return _held(session, next((each for each in owners if each.id == owner), None))

        slot = session.slot or ""
        owner = owner_of(SlotId(slot))
        started = _moment(session.alive_at or session.queued_at)
        return {
            "id": session.id,
            "capabilities": capabilities,
            "startTime": _grid_time(started),
            "uri": self._look.uri,
            "nodeId": owner,
            "nodeUri": self._look.uri,
            "sessionDurationMillis": str(int(max(0.0, clock.now() - started) * 1000)),
            "slot": {
                "id": slot,
                "stereotype": slot_stereotype,
                "lastStarted": _grid_time(started),
            },
        }


class Webgrid:
    """The resolvers of WebGrid's part of the schema."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self._store = look.store

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
        found = await self._look.session(id)
        return None if found is None else self._session(found)

    async def orchestrators(self, _info: Any) -> list[Answer]:
        return [_orchestrator(each) for each in await self._look.orchestrators()]

    async def orchestrator(self, _info: Any, id: str) -> Answer | None:  # noqa: A002 - as above
        return await self._find_orchestrator(id)

    async def timeouts(self, _info: Any) -> Any:
        return to_builtins(await timeouts(self._store).read())

    async def _find_orchestrator(self, name: str | None) -> Answer | None:
        found = [each for each in await self._look.orchestrators() if each.id == name]
        return _orchestrator(found[0]) if found else None

    async def _ended(self, wanted: int, metadata: Entries | None) -> list[SessionView]:
        found: list[SessionView] = []
        cursor: str | None = "0"
        for _ in range(MAX_PAGES):
            if cursor is None or len(found) >= wanted:
                break
            page = await self._look.terminated(cursor)
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
            # WebGrid has the node's address here, which is not shown outside of the herd.
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
        self._store = look.store
        self._session = session

    async def alive(self, _info: Any) -> bool:
        return bool(await self._store.exists(grid.SESSION_HEARTBEAT_NODE(self._session.id)))

    async def storage(self, _info: Any) -> str | None:
        return await self._store.get(grid.SESSION_STORAGE(self._session.id))

    async def metadata(self, _info: Any) -> list[dict[str, str]]:
        found = mask(await self._store.hgetall(grid.SESSION_METADATA(self._session.id)))
        return [{"key": key, "value": value} for key, value in found.items()]

    async def requested(self, _info: Any) -> str | None:
        sets = await self._look.requested(self._session)
        return to_json(as_request(sets or [{}]))

    async def actual(self, _info: Any) -> str | None:
        actual = await self._look.actual(self._session)
        return None if actual is None else to_json(actual)


def to_json(value: Mapping[str, Any] | list[Any]) -> str:
    """A text that holds JSON."""
    return msgspec.json.encode(value).decode()


def _slot_count(orchestrator: OrchestratorView) -> int:
    """Its slots as Grid counts them: once for each browser, while `maxSession` says how many at a time."""
    return len(orchestrator.slots) * len(orchestrator.browsers)


def _held(session: SessionView, owner: OrchestratorView | None) -> Answer:
    """What a session's slot stands for: the browser and platform that it got, the version that it asked for.

    KEDA counts a session for a trigger only if their platforms are the same and the session's version begins
    the trigger's, or neither has one. Selenium Grid always names the platform of a slot, so triggers
    do. The version that a session got is too exact for any trigger.
    """
    got = session.actual or BrowserView("", "", owner.platform if owner else "")
    sets = session.requested or [BrowserView("", "", "")]
    asked = next((each for each in sets if each.name == got.name), sets[0])
    return named(BrowserView(got.name or asked.name, asked.version, got.platform or asked.platform))


def _plain(capabilities: Any) -> Answer:
    if not isinstance(capabilities, dict):
        return {}
    return {
        name: value
        for name, value in capabilities.items()
        if name not in _KINDS or isinstance(value, _KINDS[name])
    }


def _moment(stamp: str | None) -> float:
    try:
        return clock.parse_rfc3339(stamp or "")
    except ValueError:
        return 0.0  # Another program wrote it, in another form.


def _grid_time(timestamp: float) -> str:
    return datetime.fromtimestamp(timestamp, UTC).strftime("%d/%m/%Y %H:%M:%S")


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
