"""A manager under test: its clients, and an orchestrator of which a test takes every step itself."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from credentials import herd_headers
from grids import advertise, all_sessions, check_counters, codes_of, own_slots
from remuda.base.ids import OrchestratorId, SessionId
from remuda.grid.manager import Manager
from remuda.grid.model import State
from remuda.grid.orchestrator.placing import Backlog
from remuda.grid.sessions import Sessions, session_bell
from remuda.grid.slots import OwnSlots, Slots
from remuda.keyspace import grid, metrics
from remuda.store import Store

O1, O2 = OrchestratorId("o1"), OrchestratorId("o2")
CHROME = {"capabilities": {"alwaysMatch": {"browserName": "chrome"}}}


@dataclass(frozen=True)
class Reply:
    """What a client was answered."""

    status: int
    value: Any
    headers: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def error(self) -> str:
        assert self.value.keys() == {"error", "message", "stacktrace"}
        return f"{self.status} {self.value['error']}"

    @property
    def message(self) -> str:
        return str(self.value["message"])


class Client:
    """A WebDriver client that asks a manager for sessions."""

    def __init__(self, manager: Manager, http: aiohttp.ClientSession) -> None:
        self._url = f"http://{manager.address}/session"
        self._http = http

    async def ask(self, body: Any = CHROME, *, method: str = "POST", rest: str = "", **headers: str) -> Reply:
        options: dict[str, Any] = {"data": body} if isinstance(body, bytes) else {"json": body}
        async with self._http.request(method, self._url + rest, headers=headers, **options) as response:
            assert response.content_type == "application/json"
            assert response.headers["Cache-Control"] == "no-cache"
            return Reply(response.status, (await response.json())["value"], response.headers)

    def asking(self, body: Any = CHROME, **headers: str) -> "asyncio.Task[Reply]":
        return asyncio.create_task(self.ask(body, **headers), name="client")


@asynccontextmanager
async def running(store: Store, manager: Manager | None = None) -> AsyncIterator[tuple[Manager, Client]]:
    """A manager at work, and a client of it."""
    manager = manager or Manager(store)
    await manager.start()
    serving = asyncio.create_task(manager.serve(), name="serve")
    try:
        async with aiohttp.ClientSession(headers=await herd_headers(store)) as http:
            yield manager, Client(manager, http)
    finally:
        serving.cancel()
        await manager.stop()


class ScriptedOrchestrator:
    """An orchestrator's side of the protocol, step by step: what it takes up, and what its nodes write."""

    def __init__(self, store: Store, own: OwnSlots, name: OrchestratorId) -> None:
        self.own = own
        self._store = store
        self._name = name
        self._backlog = Backlog(store, name)

    async def take(self) -> SessionId:
        """The next session that has got a slot here, now scheduled."""
        session = await self._backlog.take(10)
        assert session is not None
        await Sessions(self._store).move(
            SessionId(session), State.PENDING, code="SCHED", orchestrator=self._name
        )
        await self._backlog.done(session)
        return SessionId(session)

    async def bring(self, session: SessionId) -> None:
        """The session's node has its browser."""
        async with self._store.transaction() as transaction:
            transaction.hset(grid.SESSION_CAPABILITIES(session), {"actual": b'{"browserName": "chrome"}'})
            transaction.publish(session_bell(session))

    async def end(self, session: SessionId) -> None:
        """The session's node is gone, and its slot is free for the next."""
        await Sessions(self._store).move(session, State.TERMINATED, code="CLOSED")
        await Slots(self._store).release(session)
        await self.own.recycle()


async def open_orchestrator(store: Store, slots: int, name: OrchestratorId = O1) -> ScriptedOrchestrator:
    await advertise(store, name)
    return ScriptedOrchestrator(store, await own_slots(store, name, slots), name)


async def only_session(store: Store) -> SessionId:
    (session,) = await all_sessions(store)
    return session


async def has_logged(store: Store, code: str, count: int = 1) -> bool:
    """Whether so many sessions have this code in their log."""
    logs = [await codes_of(store, session) for session in await all_sessions(store)]
    return sum(code in codes for codes in logs) == count


async def ended(store: Store, reply: Reply) -> tuple[str, str]:
    """How the only session ended and what its log says about that, which is what its client was told."""
    session = await only_session(store)
    assert await Sessions(store).state(session) is State.TERMINATED
    assert reply.error == "500 session not created"
    code, meta = await Sessions(store).last_words(session) or ("", {})
    assert meta["message"] == reply.message
    await check_counters(store)
    assert await store.exists(metrics.METRICS_STARTUP_COUNT()) == 0
    return code, reply.message
