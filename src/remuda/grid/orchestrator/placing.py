"""Sessions that an orchestrator has taken: each gets a node, and is settled once that is gone."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from remuda.base.errors import Unavailable
from remuda.base.ids import OrchestratorId, SessionId, is_uuid
from remuda.base.log import get_logger
from remuda.fleet.queue import ReliableQueue
from remuda.fleet.tracing import Kind, get_tracer
from remuda.grid.model import State
from remuda.grid.orchestrator.provisioner import Provisioner
from remuda.grid.sessions import Sessions
from remuda.grid.slots import Slots
from remuda.keyspace import grid
from remuda.store import Store

log = get_logger(__name__)
tracer = get_tracer("orchestrator")

RETRY_AFTER = 1.0
NODE_DIED = "The node died"


class Placing:
    """Leads the sessions of one orchestrator from its backlog to a node, and from there to their end."""

    def __init__(self, store: Store, provisioner: Provisioner, own: OrchestratorId) -> None:
        self._store = store
        self._provisioner = provisioner
        self._own = own
        self._sessions = Sessions(store)
        self._slots = Slots(store)
        self._queue = ReliableQueue(
            store, waiting=grid.ORCHESTRATOR_BACKLOG(own), working=grid.ORCHESTRATOR_PENDING(own)
        )
        self._nodes = grid.ORCHESTRATOR_NODES(own)
        self._retried: set[SessionId] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_leaving = False

    async def run(self) -> None:
        """Takes up what comes to the backlog, for ever."""
        while True:
            try:
                session = await self._queue.take()
            except Unavailable as error:
                log.warning("backlog unread", reason=error.message)
                await asyncio.sleep(RETRY_AFTER)
                continue
            if session is not None and is_uuid(session):
                self._spawn(self._provision(SessionId(session)), f"provision {session}")
            elif session is not None:
                self._spawn(self._set_aside(session), f"set aside {session}")

    def leave(self) -> None:
        """Starts no node any more."""
        self._is_leaving = True
        for task in list(self._tasks):
            task.cancel()

    async def refuse_all(self) -> None:
        """Tells those who still wait here that nobody will come, and forgets the nodes, which are gone."""
        await self._store.delete(self._nodes)
        while (session := await self._queue.take(timeout=0)) is not None:
            await self._fail(SessionId(session), "The orchestrator shuts down")

    # To a node

    async def _set_aside(self, entry: str) -> None:
        log.error("backlog entry is no session", entry=entry)
        await self._queue.done(entry)

    async def _provision(self, session: SessionId, *, startable: Sequence[State] = (State.QUEUED,)) -> None:
        """Starts the session's node. An entry that is taken up twice, or too late, starts none."""
        try:
            state = await self._sessions.state(session)
            if state in startable:
                await self._start_node(session, is_scheduled=state is State.PENDING)
            else:
                await self._release_if_over(session)
            await self._queue.done(session)
        except Unavailable as error:
            await self._fail(session, error.message)
        except Exception as error:  # Whatever makes us stumble must not be taken up again and again.
            log.error("session not started", session=session, reason=str(error), exc_info=True)
            await self._fail(session, f"The session cannot be started: {error}")

    async def _start_node(self, session: SessionId, *, is_scheduled: bool) -> None:
        wanted: list[dict[str, Any]] = await self._sessions.requested(session) or []
        trace = await self._sessions.trace(session)
        known = {"remuda.session.id": session, "remuda.orchestrator.id": self._own}
        with tracer.span("schedule node", trace, kind=Kind.CONSUMER, attributes=known):
            # Scheduled before it is started: were it the other way round, a crash in between would start two.
            if is_scheduled or await self._schedule(session):
                await self._provisioner.provision(session, wanted, partial(self._note, session))
                log.info("session placed", session=session)
            else:
                await self._release_if_over(session)

    async def _release_if_over(self, session: SessionId) -> None:
        """Frees the slot of a session that gets no node, unless it has one: its entry may come twice."""
        if await self._sessions.state(session) in (State.TERMINATED, None):
            await self._slots.release(session)

    async def _schedule(self, session: SessionId) -> bool:
        return await self._sessions.move(session, State.PENDING, code="SCHED", orchestrator=self._own)

    async def _note(self, session: SessionId, noted: str) -> None:
        await self._store.hset(self._nodes, {session: noted})

    async def _fail(self, session: SessionId, message: str) -> None:
        try:
            await self._sessions.move(session, State.TERMINATED, code="STARTFAIL", message=message)
            await self._slots.release(session)
            await self._store.hdel(self._nodes, session)
            await self._queue.done(session)
        except Unavailable as error:
            log.warning("failure not written down", session=session, reason=error.message)

    # To its end

    def on_gone(self, session: SessionId) -> None:
        """Hears that a session's node is gone."""
        self._spawn(self._lose(session), f"settle {session}")

    async def _lose(self, session: SessionId) -> None:
        """Ends a session whose node is gone; but if that had no browser for it yet, another is started."""
        if await self._stubbornly(partial(self._reschedule, session)):
            log.warning("node replaced", session=session)
            await self._provision(session, startable=(State.PENDING,))
        else:
            await self.settle(session, NODE_DIED)

    async def _reschedule(self, session: SessionId) -> bool:
        """Whether the session gets another node, as its log then says. Only once: some kill every node."""
        if self._is_leaving or session in self._retried:
            return False
        has_browser = await self._store.exists(grid.SESSION_UPSTREAM(session))
        # One whose manager is silent is being reclaimed, and its slot with it.
        is_awaited = await self._store.exists(grid.SESSION_HEARTBEAT_MANAGER(session))
        if has_browser or not is_awaited or await self._sessions.state(session) is not State.PENDING:
            return False
        await self._sessions.log(session, "RESCHED", message=NODE_DIED)
        self._retried.add(session)
        return True

    async def settle(self, session: SessionId, message: str) -> bool:
        """Ends a session whose node is gone; whether it still held its slot."""
        self._retried.discard(session)
        return await self._stubbornly(partial(self._settle, session, message))

    async def _settle(self, session: SessionId, message: str) -> bool:
        await self._sessions.move(session, State.TERMINATED, code="TERM", message=message)
        slot = await self._slots.release(session)
        # A note that is left by a crash in between says of a node that is gone, and is found so.
        await self._store.hdel(self._nodes, session)
        return slot is not None

    async def _stubbornly(self, step: Callable[[], Awaitable[bool]]) -> bool:
        """What the step gives, once Redis is there for it."""
        while True:
            try:
                return await step()
            except Unavailable:
                await asyncio.sleep(RETRY_AFTER)

    # What an earlier life has left

    async def adopt_nodes(self) -> None:
        """Looks after the nodes that still run, and settles what those leave that do not."""
        for entry, noted in (await self._store.hgetall(self._nodes)).items():
            session = SessionId(entry)
            if await self._provisioner.adopt(session, noted):
                log.info("node adopted", session=session)
            else:
                await self._lose(session)
            await self._queue.done(session)

    async def find_unstarted(self) -> list[SessionId]:
        """Sessions that wait here for a node that nobody has started; what cannot be one is set aside."""
        holders = await self._store.hgetall(grid.ORCHESTRATOR_HOLDERS(self._own))
        noted = await self._store.hgetall(self._nodes)
        # Those in the backlog are taken from there.
        backlog = await self._store.lrange(grid.ORCHESTRATOR_BACKLOG(self._own))
        unstarted = []
        for entry in {*await self._queue.taken(), *holders.values()} - {*noted, *backlog}:
            if not is_uuid(entry):
                await self._set_aside(entry)
            elif await self._sessions.state(SessionId(entry)) is State.ALIVE:
                await self.settle(SessionId(entry), NODE_DIED)
            else:
                unstarted.append(SessionId(entry))
        return unstarted

    def resume(self, sessions: Sequence[SessionId]) -> None:
        """Starts the nodes of those who were left without."""
        for session in sessions:
            resumed = self._provision(session, startable=(State.QUEUED, State.PENDING))
            self._spawn(resumed, f"resume {session}")

    def _spawn(self, work: Any, name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
