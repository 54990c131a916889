"""Orchestrators that were not seen for longer than they are retained: all of their keys are purged.

One that left properly is no longer in `orchestrators`, so those are also taken that a search among the keys
has found. An orchestrator stays as long as a browser of it runs.
"""

from remuda.base.ids import OrchestratorId, SessionId, SlotId, is_uuid
from remuda.fleet.sweep import BATCH, DepartedSweep, Scan
from remuda.grid.model import State
from remuda.grid.sessions import Sessions
from remuda.grid.slots import Slots
from remuda.grid.sweeps.model import PATIENCE, Vitals
from remuda.grid.sweeps.sessions import survey
from remuda.keyspace import grid
from remuda.keyspace.key import ListName
from remuda.store import Store

MESSAGE = "Its orchestrator has been gone for too long"


class OrchestratorSweep(DepartedSweep):
    """Purges orchestrators that are gone for good."""

    def __init__(self, store: Store, *, patience: float = PATIENCE) -> None:
        super().__init__(
            store,
            grid.ORCHESTRATORS(),
            keys=grid.ORCHESTRATOR_KEYS,
            # 000: "If this key is not set, the orchestrator metadata can be purged". The beat is asked for as
            # well: 001 knows no `retain`, and its orchestrators have none.
            beats=[grid.ORCHESTRATOR_RETAIN, grid.ORCHESTRATOR_HEARTBEAT],
            pending=[grid.ORCHESTRATOR_BACKLOG, grid.ORCHESTRATOR_PENDING, grid.ORCHESTRATOR_HOLDERS],
            counted_as="orchestrators_purged",
            patience=patience,
        )
        self._sessions = Sessions(store)
        self._slots = Slots(store)

    async def settle(self, member: str) -> bool:
        own = OrchestratorId(member)
        if not await self._settle_slots(own):
            return False
        await self._settle_queue(grid.ORCHESTRATOR_BACKLOG(own))
        await self._settle_queue(grid.ORCHESTRATOR_PENDING(own))
        return True

    async def _settle_slots(self, own: OrchestratorId) -> bool:
        """Ends the sessions that still hold its slots and has them give these back; False if a node runs."""
        # Given back, not deleted: should the orchestrator return meanwhile, it finds them where they belong.
        async for pairs in Scan(self._store, grid.ORCHESTRATOR_HOLDERS(own)).batches():
            holders = dict(zip(map(SlotId, pairs[::2]), pairs[1::2], strict=True))
            surveyed = dict((await survey(self._store, holders.values()))[0])
            if any(vitals.does_node_beat for vitals in surveyed.values()):
                return False
            for slot, holder in holders.items():
                session = SessionId(holder)
                vitals = surveyed.get(session, Vitals())
                if vitals.slot != slot:  # It holds another one, or none: only our note is left.
                    await self._store.hdel(grid.ORCHESTRATOR_HOLDERS(own), slot)
                    continue
                await self._fail(session, vitals)
                await self._slots.release(session)
        return True

    async def _settle_queue(self, queue: ListName) -> None:
        """Fails the sessions that will never get a node. If there are too many, the purge waits."""
        entries = await self._store.lrange(queue, 0, BATCH - 1)
        surveyed, _ = await survey(self._store, filter(is_uuid, entries))
        for session, vitals in surveyed:
            if not vitals.does_node_beat:
                await self._fail(session, vitals)
        for entry in entries:
            await self._store.lrem(queue, entry)

    async def _fail(self, session: SessionId, vitals: Vitals) -> None:
        code = "TERM" if vitals.state is State.ALIVE else "STARTFAIL"
        await self._sessions.move(session, State.TERMINATED, code=code, message=MESSAGE)
