"""The orchestrator's role: it advertises what it can start, takes sessions from its backlog, and looks
after its slots."""

import asyncio
import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from remuda.base import clock
from remuda.base.errors import RemudaError, Unavailable
from remuda.base.hosts import this_machine
from remuda.base.ids import OrchestratorId, SessionId, is_uuid, new_id
from remuda.base.log import get_logger
from remuda.fleet.liveness import Beat, Heart, unix_seconds
from remuda.fleet.queue import ReliableQueue
from remuda.fleet.role import Role
from remuda.fleet.tracing import Kind, get_tracer
from remuda.grid.capabilities import Offer
from remuda.grid.model import State
from remuda.grid.orchestrator.provisioner import Provisioner
from remuda.grid.sessions import Sessions
from remuda.grid.slots import OwnSlots, Slots, freed_bell
from remuda.grid.timeouts import timeouts
from remuda.keyspace import grid
from remuda.store import Store

log = get_logger(__name__)
tracer = get_tracer("orchestrator")

HEARTBEAT_TTL = 60
RETAIN_TTL = 604800
RETRY_AFTER = 1.0
LOOK_EVERY = 1.0
PATIENCE = 10.0
NODE_DIED = "The node died"


def keep_id(file: Path) -> OrchestratorId:
    """The id that this file holds, made up the first time: an orchestrator that restarts is the same one,
    with the same slots."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    # Empty also when an earlier life ended before it could write.
    if not file.read_text().strip():
        file.write_text(new_id())
    return OrchestratorId(file.read_text().strip())


class Orchestrator(Role):
    """Owns slots and starts nodes."""

    name = "orchestrator"

    def __init__(
        self, store: Store, provisioner: Provisioner, *, orchestrator_id: OrchestratorId, slots: int
    ) -> None:
        super().__init__()
        self.orchestrator_id = orchestrator_id
        self._store = store
        self._provisioner = provisioner
        self._sessions = Sessions(store)
        self._slots = Slots(store)
        self._own = OwnSlots(store, orchestrator_id, count=slots)
        self._queue = ReliableQueue(
            store,
            waiting=grid.ORCHESTRATOR_BACKLOG(orchestrator_id),
            working=grid.ORCHESTRATOR_PENDING(orchestrator_id),
        )
        self._heart = Heart(store)
        self._beats = (
            Beat(grid.ORCHESTRATOR_HEARTBEAT(orchestrator_id), HEARTBEAT_TTL, unix_seconds),
            Beat(grid.ORCHESTRATOR_RETAIN(orchestrator_id), RETAIN_TTL, unix_seconds),
        )
        self._nodes = grid.ORCHESTRATOR_NODES(orchestrator_id)
        self._adopted: set[SessionId] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    # Its life

    async def start(self) -> None:
        offers = await self._provisioner.start(self._on_gone)
        # First of all: while these keys live, nobody purges what an earlier life has left us.
        await self._heart.start(*self._beats)
        await self._own.adjust()
        await self._adopt_nodes()
        unstarted = await self._find_unstarted()
        await self._own.recycle()
        await self._register(offers)
        for session in unstarted:
            resumed = self._provision(session, startable=(State.QUEUED, State.PENDING))
            self._spawn(resumed, f"resume {session}")

    async def _register(self, offers: list[Offer]) -> None:
        own = self.orchestrator_id
        async with self._store.transaction() as transaction:
            transaction.hset(grid.ORCHESTRATOR(own), {"type": self._provisioner.kind})
            transaction.hset(grid.ORCHESTRATOR_MACHINE(own), this_machine())
            transaction.set(grid.ORCHESTRATOR_PLATFORM_NAME(own), offers[0].platform)
            # Replaced, not added to: a browser that was removed must not be offered for ever.
            transaction.delete(grid.ORCHESTRATOR_BROWSERS(own))
            transaction.sadd(
                grid.ORCHESTRATOR_BROWSERS(own), *(f"{offer.browser}::{offer.version}" for offer in offers)
            )
            transaction.sadd(grid.ORCHESTRATORS(), own)
            transaction.publish(freed_bell())

    async def serve(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._heart.run(), name="heart")
            group.create_task(self._take_sessions(), name="take sessions")
            group.create_task(self._recycle_slots(), name="recycle slots")
            group.create_task(self._reclaim_slots(), name="reclaim slots")

    async def drain(self) -> None:
        await self._store.srem(grid.ORCHESTRATORS(), self.orchestrator_id)

    async def stop(self) -> None:
        await self._store.srem(grid.ORCHESTRATORS(), self.orchestrator_id)
        for task in list(self._tasks):
            task.cancel()
        await self._provisioner.stop()
        await self._store.delete(self._nodes)
        await self._heart.stop(self._beats[0])
        await self._refuse_backlog()
        await self._own.recycle()

    async def _refuse_backlog(self) -> None:
        """Tells those who still wait here that nobody will come."""
        while (session := await self._queue.take(timeout=0)) is not None:
            await self._fail(SessionId(session), "The orchestrator shuts down")

    # Sessions

    async def _take_sessions(self) -> None:
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

    async def _set_aside(self, entry: str) -> None:
        log.error("backlog entry is no session", entry=entry)
        await self._queue.done(entry)

    async def _provision(self, session: SessionId, *, startable: Sequence[State] = (State.QUEUED,)) -> None:
        """Starts the session's node. An entry that is taken up twice, or too late, starts none."""
        try:
            state = await self._sessions.state(session)
            if state in startable:
                await self._start_node(session, is_scheduled=state is State.PENDING)
            elif state in (State.TERMINATED, None):
                await self._slots.release(session)
            await self._queue.done(session)
        except Unavailable as error:
            await self._fail(session, error.message)
        except Exception as error:  # Whatever makes us stumble must not be taken up again and again.
            log.error("session not started", session=session, reason=str(error), exc_info=True)
            await self._fail(session, f"The session cannot be started: {error}")

    async def _start_node(self, session: SessionId, *, is_scheduled: bool) -> None:
        wanted: list[dict[str, Any]] = await self._sessions.requested(session) or []
        trace = await self._sessions.trace(session)
        known = {"remuda.session.id": session, "remuda.orchestrator.id": self.orchestrator_id}
        with tracer.span("schedule node", trace, kind=Kind.CONSUMER, attributes=known):
            # Scheduled before it is started: were it the other way round, a crash in between would start two.
            if is_scheduled or await self._schedule(session):
                await self._provisioner.provision(session, wanted, partial(self._note, session))
                log.info("session placed", session=session)
            else:
                await self._slots.release(session)

    async def _schedule(self, session: SessionId) -> bool:
        own = self.orchestrator_id
        return await self._sessions.move(session, State.PENDING, code="SCHED", orchestrator=own)

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

    def _on_gone(self, session: SessionId) -> None:
        after = self._lose_adopted(session) if session in self._adopted else self._settle(session, NODE_DIED)
        self._spawn(after, f"settle {session}")

    async def _settle(self, session: SessionId, message: str) -> bool:
        """Ends a session whose node is gone; whether it still held its slot."""
        while True:
            try:
                await self._sessions.move(session, State.TERMINATED, code="TERM", message=message)
                slot = await self._slots.release(session)
                # A note that is left by a crash in between says of a node that is gone, and is found so.
                await self._store.hdel(self._nodes, session)
                return slot is not None
            except Unavailable:
                await asyncio.sleep(RETRY_AFTER)

    # What an earlier life has left

    async def _adopt_nodes(self) -> None:
        """Looks after the nodes that still run, and settles what those leave that do not."""
        for entry, noted in (await self._store.hgetall(self._nodes)).items():
            session = SessionId(entry)
            if await self._provisioner.adopt(session, noted):
                self._adopted.add(session)
                log.info("node adopted", session=session)
            else:
                await self._lose_adopted(session)
            await self._queue.done(session)

    async def _lose_adopted(self, session: SessionId) -> None:
        """Ends the session of a node that is gone; but if that never had the session, another is started."""
        self._adopted.discard(session)
        while True:
            try:
                is_pending = await self._sessions.state(session) is State.PENDING
                has_booted = await self._store.exists(grid.SESSION_HEARTBEAT_NODE(session))
                break
            except Unavailable:
                await asyncio.sleep(RETRY_AFTER)
        if is_pending and not has_booted:
            await self._provision(session, startable=(State.PENDING,))
        else:
            await self._settle(session, NODE_DIED)

    async def _find_unstarted(self) -> list[SessionId]:
        """Sessions that wait here for a node that nobody has started; what cannot be one is set aside."""
        holders = await self._store.hgetall(grid.ORCHESTRATOR_HOLDERS(self.orchestrator_id))
        noted = await self._store.hgetall(self._nodes)
        # Those in the backlog are taken from there.
        backlog = await self._store.lrange(grid.ORCHESTRATOR_BACKLOG(self.orchestrator_id))
        unstarted = []
        for entry in {*await self._queue.taken(), *holders.values()} - {*noted, *backlog}:
            if not is_uuid(entry):
                await self._set_aside(entry)
            elif await self._sessions.state(SessionId(entry)) is State.ALIVE:
                await self._settle(SessionId(entry), NODE_DIED)
            else:
                unstarted.append(SessionId(entry))
        return unstarted

    # Slots

    async def _recycle_slots(self) -> None:
        with self._store.subscribe(self._own.reclaimed_bell) as rings:
            while True:
                try:
                    await self._own.recycle()
                except Unavailable as error:
                    log.warning("slots not recycled", reason=error.message)
                await rings.wait(RETRY_AFTER)

    async def _reclaim_slots(self) -> None:
        settings = timeouts(self._store)
        swept_at = patient_until = -math.inf
        while True:
            pause = LOOK_EVERY
            try:
                interval = (await settings.read())["slotReclaimInterval"]
                if clock.monotonic() >= max(swept_at + interval, patient_until):
                    swept_at = clock.monotonic()
                    await self._reclaim()
                pause = min(pause, interval)
            except RemudaError as error:
                log.warning("slots not reclaimed", reason=error.message)
                # All beats may have run out while Redis was away, though everybody lives: let them come back.
                patient_until = clock.monotonic() + PATIENCE
            # Never for the whole interval: a new one is to be in force at once.
            await asyncio.sleep(pause)

    async def _reclaim(self) -> None:
        dead, orphaned = await self._own.reclaim()
        for session in dead:
            await self._reclaim_dead(session)
        if dead or orphaned:
            log.warning("slots reclaimed", dead=len(dead), orphaned=len(orphaned))

    async def _reclaim_dead(self, session: SessionId) -> None:
        await self._provisioner.end(session)
        if await self._settle(session, "Its manager or its node stopped beating"):
            await self._own.count_dead()

    def _spawn(self, work: Any, name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
