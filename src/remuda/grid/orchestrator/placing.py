"""Sessions that an orchestrator has taken: each gets a node, and is settled once that is gone."""

from collections.abc import Sequence
from functools import partial

from remuda.base.errors import Unavailable
from remuda.base.ids import OrchestratorId, SessionId, is_uuid
from remuda.base.log import get_logger
from remuda.fleet.bell import LOOK_EVERY, bell_of, wait_for
from remuda.fleet.tasks import Tasks, repeat, retry_until_redis_returns
from remuda.fleet.tracing import Kind, get_tracer
from remuda.grid.model import State
from remuda.grid.orchestrator.provisioner import Provisioner
from remuda.grid.sessions import Sessions
from remuda.grid.slots import Slots
from remuda.keyspace import grid
from remuda.store import Store

log = get_logger(__name__)
tracer = get_tracer("orchestrator")

NODE_DIED = "The node died"
NODE_HANGS = "The node hangs: it is stopped, or does not beat"


class Backlog:
    """Sessions that have a slot of one orchestrator and wait for their node. Loses none: one that is taken
    stays on a list of those in work until it is done, and taking it is one atomic move."""

    def __init__(self, store: Store, own: OrchestratorId) -> None:
        self._store = store
        self._waiting = grid.ORCHESTRATOR_BACKLOG(own)
        self._working = grid.ORCHESTRATOR_PENDING(own)

    async def take(self, timeout: float | None = None, *, look_every: float = LOOK_EVERY) -> str | None:
        """The entry that came first, now in work; None if none came in time."""

        async def move() -> str | None:
            return await self._store.rpoplpush(self._waiting, self._working)

        bell = bell_of(self._waiting)
        return await wait_for(self._store, bell, move, timeout=timeout, look_every=look_every)

    async def done(self, entry: str) -> bool:
        """Takes the entry out of those in work; False if it was not there (any more)."""
        return bool(await self._store.lrem(self._working, entry))

    async def taken(self) -> list[str]:
        """The entries in work, oldest first: after a restart, what must be finished or given back."""
        return (await self._store.lrange(self._working))[::-1]


class Placing:
    """Leads the sessions of one orchestrator from its backlog to a node, and from there to their end."""

    def __init__(self, store: Store, provisioner: Provisioner, own: OrchestratorId) -> None:
        self._store = store
        self._provisioner = provisioner
        self._own = own
        self._sessions = Sessions(store)
        self._slots = Slots(store)
        self._backlog = Backlog(store, own)
        self._nodes = grid.ORCHESTRATOR_NODES(own)
        self._retried: set[SessionId] = set()
        self._starting: set[SessionId] = set()
        """Sessions that are being given a node."""
        self._tasks = Tasks()
        self._is_leaving = False

    async def run(self) -> None:
        """Takes up what comes to the backlog, for ever."""
        await repeat(self._take_up_next, every=0.0, failure="backlog unread")

    async def _take_up_next(self) -> None:
        session = await self._backlog.take()
        if session is not None and is_uuid(session):
            self._tasks.spawn(self._provision(SessionId(session)), name=f"provision {session}")
        elif session is not None:
            self._tasks.spawn(self._set_aside(session), name=f"set aside {session}")

    def leave(self) -> None:
        """Starts no node any more."""
        self._is_leaving = True
        self._tasks.cancel()

    async def refuse_all(self) -> None:
        """Refuses the sessions that still wait here, and forgets the nodes, which are gone."""
        await self._store.delete(self._nodes)
        while (session := await self._backlog.take(timeout=0)) is not None:
            await self._fail(SessionId(session), "The orchestrator is shutting down")

    # To a node

    async def _set_aside(self, entry: str) -> None:
        log.error("backlog entry is not a session", entry=entry)
        await self._backlog.done(entry)

    async def _provision(self, session: SessionId, *, startable: Sequence[State] = (State.QUEUED,)) -> None:
        """Starts the session's node. An entry that is taken up twice, or too late, starts none."""
        self._starting.add(session)
        try:
            state = await self._sessions.state(session)
            if state in startable:
                await self._note_holder(session)
                await self._start_node(session, is_scheduled=state is State.PENDING)
            else:
                await self._release_if_over(session)
            await self._backlog.done(session)
        except Unavailable as error:
            await self._fail(session, error.message)
        except Exception as error:  # Whatever makes us stumble must not be taken up again and again.
            log.error("session not started", session=session, reason=str(error), exc_info=True)
            await self._fail(session, f"The session cannot be started: {error}")
        finally:
            self._starting.discard(session)

    async def _start_node(self, session: SessionId, *, is_scheduled: bool) -> None:
        wanted = await self._sessions.requested(session) or []
        trace = await self._sessions.trace(session)
        known = {"remuda.session.id": session, "remuda.orchestrator.id": self._own}
        with tracer.span("schedule node", trace, kind=Kind.CONSUMER, attributes=known):
            # Scheduled before it is started: were it the other way round, a crash in between would start two.
            if is_scheduled or await self._sessions.move(
                session, State.PENDING, code="SCHED", orchestrator=self._own
            ):
                await self._provisioner.provision(session, wanted, partial(self._note, session))
                log.info("session placed", session=session)
            else:
                await self._release_if_over(session)

    async def _note_holder(self, session: SessionId) -> None:
        """Notes the slot of a session that WebGrid's manager has handed over: the next search for lost slots
        would give it away. One that holds no slot, or whose slot is noted, is left."""
        slot = await self._store.get(grid.SESSION_SLOT(session))
        if slot is not None:
            await self._store.hsetnx(grid.ORCHESTRATOR_HOLDERS(self._own), slot, session)

    async def _release_if_over(self, session: SessionId) -> None:
        """Frees the slot of a session that gets no node, unless it has one: its entry may come twice."""
        if await self._sessions.state(session) in (State.TERMINATED, None):
            await self._slots.release(session)

    async def _note(self, session: SessionId, noted: str) -> None:
        await self._store.hset(self._nodes, {session: noted})

    async def _fail(self, session: SessionId, message: str) -> None:
        async def write_down() -> None:
            await self._sessions.move(session, State.TERMINATED, code="STARTFAIL", message=message)
            await self._slots.release(session)
            await self._store.hdel(self._nodes, session)
            await self._backlog.done(session)

        await retry_until_redis_returns(write_down, failure="failure not written down", session=session)

    # To its end

    def on_gone(self, session: SessionId, *, had_browser: bool = False) -> None:
        """Hears that a session's node is gone."""
        self._tasks.spawn(self._lose(session, had_browser=had_browser), name=f"settle {session}")

    async def _lose(self, session: SessionId, *, had_browser: bool = False) -> None:
        """Ends a session whose node is gone; but if that had no browser for it yet, another is started."""
        reschedule = partial(self._reschedule, session)
        # A fail-over may have lost that there was a browser, and a client that has finished with it: another
        # node would wait for that client, and hold the slot.
        if not had_browser and await retry_until_redis_returns(
            reschedule, failure="node not replaced", session=session
        ):
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
        settle = partial(self._settle, session, message)
        return await retry_until_redis_returns(settle, failure="session not settled", session=session)

    async def _settle(self, session: SessionId, message: str) -> bool:
        await self._sessions.move(session, State.TERMINATED, code="TERM", message=message)
        slot = await self._slots.release(session)
        # A note that is left by a crash in between says of a node that is gone, and is found so.
        await self._store.hdel(self._nodes, session)
        return slot is not None

    async def find_lost(self) -> list[SessionId]:
        """Sessions that hold a slot here, or are noted to have a node here, although they are over or their
        node is gone: Redis has lost what was written about their end, for instance in a fail-over."""
        holders = await self._store.hgetall(grid.ORCHESTRATOR_HOLDERS(self._own))
        noted = await self._store.hgetall(self._nodes)
        held = [SessionId(each) for each in {*holders.values(), *noted} if is_uuid(each)]
        absent = [
            each for each in held if each not in self._starting and not self._provisioner.has_node(each)
        ]
        # Those are still to get a node.
        waiting = await self._store.lrange(grid.ORCHESTRATOR_BACKLOG(self._own))
        lost = [each for each in absent if each not in waiting]
        # Of one whose slot other software has given back, only a note is left. The next reclaim removes it.
        return [each for each in lost if each in noted or await self._store.exists(grid.SESSION_SLOT(each))]

    async def find_silent(self) -> list[SessionId]:
        """Sessions whose nodes do not beat. Those that are pending are left to their managers."""
        sessions = [SessionId(entry) for entry in await self._store.hgetall(self._nodes)]
        beats = [self._store.exists(grid.SESSION_HEARTBEAT_NODE(session)) for session in sessions]
        silent = [session for session, beat in zip(sessions, beats, strict=True) if not await beat]
        past_pending = (State.ALIVE, State.TERMINATED)
        return [session for session in silent if await self._sessions.state(session) in past_pending]

    async def end_hung(self, session: SessionId) -> None:
        """Ends a session with its node, which hears nothing any more. Only then is its slot free.

        One that has no browser yet gets another node, as if its node had died.
        """
        log.warning("node hangs", session=session)
        if await self._sessions.state(session) is State.PENDING:
            await self._provisioner.end(session)
            return
        await self._sessions.move(session, State.TERMINATED, code="TERM", message=NODE_HANGS)
        await self._provisioner.end(session)
        await self.settle(session, NODE_HANGS)

    # What an earlier life has left

    async def adopt_nodes(self) -> None:
        """Looks after the nodes that still run, and settles what those leave that do not."""
        for entry, noted in (await self._store.hgetall(self._nodes)).items():
            session = SessionId(entry)
            if await self._provisioner.adopt(session, noted):
                log.info("node adopted", session=session)
            else:
                await self._lose(session)
            await self._backlog.done(session)

    async def find_unstarted(self) -> list[SessionId]:
        """Sessions that wait here and whose node was not started; other entries are set aside."""
        holders = await self._store.hgetall(grid.ORCHESTRATOR_HOLDERS(self._own))
        noted = await self._store.hgetall(self._nodes)
        # Those in the backlog are taken from there.
        backlog = await self._store.lrange(grid.ORCHESTRATOR_BACKLOG(self._own))
        unstarted = []
        for entry in {*await self._backlog.taken(), *holders.values()} - {*noted, *backlog}:
            if not is_uuid(entry):
                await self._set_aside(entry)
            elif await self._sessions.state(SessionId(entry)) is State.ALIVE:
                await self.settle(SessionId(entry), NODE_DIED)
            else:
                unstarted.append(SessionId(entry))
        return unstarted

    def resume(self, sessions: Sequence[SessionId]) -> None:
        """Starts nodes for these sessions, which were left without one."""
        for session in sessions:
            resumed = self._provision(session, startable=(State.QUEUED, State.PENDING))
            self._tasks.spawn(resumed, name=f"resume {session}")
