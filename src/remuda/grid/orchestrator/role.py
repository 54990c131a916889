"""The orchestrator's role: it says what it can start, has sessions placed, and looks after its slots."""

import asyncio
import math
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

from remuda.base import clock
from remuda.base.errors import RemudaError, Unavailable
from remuda.base.hosts import this_machine
from remuda.base.ids import OrchestratorId, new_id
from remuda.base.log import get_logger
from remuda.fleet.liveness import Beat, Heart, unix_seconds
from remuda.fleet.role import Role
from remuda.fleet.sweep import Patience
from remuda.fleet.tasks import repeat, run_until
from remuda.grid.abandoned import Abandoned, present
from remuda.grid.capabilities import Offer
from remuda.grid.draining import LEAVING, DrainOrders
from remuda.grid.orchestrator.placing import NODE_DIED, Placing
from remuda.grid.orchestrator.provisioner import Provisioner
from remuda.grid.slots import OwnSlots, freed_bell
from remuda.grid.timeouts import timeouts
from remuda.keyspace import grid
from remuda.store import Store

log = get_logger(__name__)

HEARTBEAT_TTL = 60
RETAIN_TTL = 604800
LOOK_EVERY = 1.0
PATIENCE = 10.0
# Longer than between two beats of a node: those of all may have been lost with the data of Redis.
NODE_PATIENCE = 30.0
# Longer than a session takes from its end in Redis to the return of its slot.
LOST_PATIENCE = 3.0
# When Redis has lost its data, nodes find their sessions gone within 10 s. Until they have ended, slots that
# are made anew would be too many.
FORGOTTEN_PATIENCE = 15.0
# Should it be killed, its last word about itself goes with its heartbeat, not much later.
OBSTACLE_TTL = 15


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
    """Owns slots and starts nodes.

    Alone in its process, it leaves once it has drained, and drains before it leaves. In company it does
    neither: a herd is to end when it is told to, and not because its slots were taken out of service.
    """

    name = "orchestrator"

    def __init__(
        self,
        store: Store,
        provisioner: Provisioner,
        *,
        orchestrator_id: OrchestratorId,
        slots: int,
        find_obstacle: Callable[[], str | None] = lambda: None,
        node_patience: float = NODE_PATIENCE,
    ) -> None:
        """`find_obstacle` says why the machine can take no session just now; it may block. A node whose beat
        has run out has `node_patience` to beat again, and one that is stopped has it to go on."""
        super().__init__()
        self._find_obstacle = find_obstacle
        self._node_patience = Patience(node_patience)
        self._lost_patience = Patience(LOST_PATIENCE)
        self._forgotten_patience = Patience(FORGOTTEN_PATIENCE)
        self._offers: list[Offer] = []
        # None: there is none. Empty: not known, as an earlier life may have left its word.
        self._obstacle: str | None = ""
        self.orchestrator_id = orchestrator_id
        self._store = store
        self._provisioner = provisioner
        self._own = OwnSlots(store, orchestrator_id, count=slots)
        self._placing = Placing(store, provisioner, orchestrator_id)
        self._draining = DrainOrders(store)
        self._heart = Heart(store)
        self._presence = ExitStack()
        self._beats = (
            Beat(grid.ORCHESTRATOR_HEARTBEAT(orchestrator_id), HEARTBEAT_TTL, unix_seconds),
            Beat(grid.ORCHESTRATOR_RETAIN(orchestrator_id), RETAIN_TTL, unix_seconds),
        )

    # Its life

    async def start(self) -> None:
        self._offers = await self._provisioner.start(self._placing.on_gone)
        # First of all: while these keys live, what an earlier process of ours has left is not purged.
        await self._heart.start(*self._beats)
        await self._own.adjust()
        await self._placing.adopt_nodes()
        unstarted = await self._placing.find_unstarted()
        await self._own.recycle()
        await self._draining.come_back(self.orchestrator_id)
        await self._look_for_obstacle()
        # Before it is registered: a process that finds it registered must find it present.
        self._presence.enter_context(present(self._store, self.orchestrator_id, kind=self.name))
        await self._register()
        self._placing.resume(unstarted)

    async def _register(self) -> None:
        own, offers = self.orchestrator_id, self._offers
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
            transaction.sadd(grid.ORCHESTRATORS_PRESENT(), own)
            transaction.publish(freed_bell())

    async def serve(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._heart.run(), name="heart")
            group.create_task(self._placing.run(), name="take sessions")
            group.create_task(self._recycle_slots(), name="recycle slots")
            group.create_task(self._reclaim_slots(), name="reclaim slots")
            group.create_task(Abandoned(self._store).run(), name="look for gone managers")
            look = repeat(self._look_for_obstacle, every=LOOK_EVERY, failure="obstacle not looked for")
            group.create_task(look, name="look for obstacles")
            end_hung = repeat(self._end_hung_nodes, every=LOOK_EVERY, failure="nodes not looked at")
            group.create_task(end_hung, name="end hung nodes")
            settle = repeat(self._settle_lost, every=LOOK_EVERY, failure="lost sessions not looked for")
            group.create_task(settle, name="settle lost sessions")
            keep = repeat(self.keep_books, every=LOOK_EVERY, failure="orchestrator not written down")
            group.create_task(keep, name="books of the orchestrator")
            if self.is_alone:
                group.create_task(self._watch_drain(), name="watch drain")

    async def keep_books(self) -> None:
        """Is in service again, with all its slots, some time after Redis has lost its data; at once if its
        connection was lost for so long that it was thought gone."""
        own = self.orchestrator_id
        is_forgotten = not await self._store.exists(grid.ORCHESTRATOR(own))
        is_over = is_forgotten and self._forgotten_patience.is_over(own, now=clock.monotonic())
        self._forgotten_patience.end_round()
        if is_over:
            await self._heart.start(*self._beats)
            await self._own.make_anew()
            await self._register()
            log.warning("orchestrator registered again", orchestrator=own)
        elif not (is_forgotten or await self._store.exists(grid.ORCHESTRATOR_HEARTBEAT(own))):
            await self._heart.start(self._beats[0])
            await self._register()

    async def _look_for_obstacle(self) -> None:
        """Says what keeps it from starting sessions; when that is over, calls waiting sessions."""
        key, before = grid.ORCHESTRATOR_OBSTACLE(self.orchestrator_id), self._obstacle
        found = await asyncio.to_thread(self._find_obstacle)
        if found is not None:
            await self._store.set(key, found, ex=OBSTACLE_TTL)
            if not before:
                log.warning("orchestrator takes no sessions", reason=found)
        elif before is not None:
            async with self._store.transaction() as transaction:
                transaction.delete(key)
                transaction.publish(freed_bell())
            if before:
                log.warning("orchestrator takes sessions again")
        self._obstacle = found

    async def _end_hung_nodes(self) -> None:
        """Ends nodes that are stopped or hang. Not left to the next search for lost slots, which may be
        minutes away: their clients wait for an answer."""
        # The last beat of one that was stopped lives on for a minute, so the kernel is asked too.
        silent = {*await self._placing.find_silent(), *self._provisioner.find_stopped()}
        hung = [each for each in silent if self._node_patience.is_over(each, now=clock.monotonic())]
        self._node_patience.end_round()
        await asyncio.gather(*map(self._placing.end_hung, hung))

    async def _settle_lost(self) -> None:
        """Frees the slots of sessions that are over without Redis knowing it. Not left to the search for lost
        slots either: that one believes in the beats of nodes, which outlive them."""
        lost = await self._placing.find_lost()
        over = [each for each in lost if self._lost_patience.is_over(each, now=clock.monotonic())]
        self._lost_patience.end_round()
        for session in over:
            log.warning("session settled late", session=session)
            await self._placing.settle(session, NODE_DIED)

    async def _watch_drain(self) -> None:
        own = self.orchestrator_id
        while True:
            with suppress(Unavailable):  # Not known, so it stays.
                if await self._draining.is_begun(own) and await self._draining.is_done(own):
                    break
            await asyncio.sleep(LOOK_EVERY)  # No bell rings when a slot is free.
        self.leave("it was drained")

    async def drain(self) -> None:
        if self.is_alone:
            log.info("orchestrator drains", orchestrator=self.orchestrator_id)
            await self._draining.begin(self.orchestrator_id, LEAVING)
            # Sessions that have just got a slot still get a node, and the heartbeat goes on.
            await run_until(self.wants_to_leave.wait(), self.serve(), name="serve while draining")
        await self._store.srem(grid.ORCHESTRATORS(), self.orchestrator_id)

    async def stop(self) -> None:
        await self._store.srem(grid.ORCHESTRATORS(), self.orchestrator_id)
        await self._store.srem(grid.ORCHESTRATORS_PRESENT(), self.orchestrator_id)
        self._placing.leave()
        await self._provisioner.stop()
        await self._heart.stop(self._beats[0])
        await self._placing.refuse_all()
        await self._own.recycle()
        await self._draining.end(self.orchestrator_id)
        self._presence.close()

    # Slots

    async def _recycle_slots(self) -> None:
        with self._store.subscribe(self._own.reclaimed_bell) as rings:
            await repeat(self._own.recycle, every=LOOK_EVERY, failure="slots not recycled", rings=rings)

    async def _reclaim_slots(self) -> None:
        settings = timeouts(self._store)
        swept_at = patient_until = -math.inf
        connection = self._store.connection_number
        while True:
            pause = LOOK_EVERY
            if connection != self._store.connection_number:  # Redis was away, and may be another one now.
                connection = self._store.connection_number
                swept_at, patient_until = -math.inf, clock.monotonic() + PATIENCE
            try:
                interval = (await settings.read()).slot_reclaim_interval
                if clock.monotonic() >= max(swept_at + interval, patient_until):
                    swept_at = clock.monotonic()
                    await self._reclaim()
                pause = min(pause, interval)
            except RemudaError as error:
                log.warning("slots not reclaimed", reason=error.message)
                # While Redis was away, beats of live processes may have expired: wait until they are back.
                patient_until = clock.monotonic() + PATIENCE
            # Never for the whole interval: a new one is to be in force at once.
            await asyncio.sleep(pause)

    async def _reclaim(self) -> None:
        dead, orphaned = await self._own.reclaim()
        for session in dead:
            await self._provisioner.end(session)
            if await self._placing.settle(session, "Its manager or its node stopped beating"):
                await self._own.count_dead()
        if dead or orphaned:
            log.warning("slots reclaimed", dead=len(dead), orphaned=len(orphaned))
