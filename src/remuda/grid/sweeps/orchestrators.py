"""Orchestrators that were not seen for so long that nobody retains them: all of their keys are purged.

One that left properly is no longer in `orchestrators`, so those are also taken that a search among the keys
has found. An orchestrator stays as long as a browser of it runs.
"""

from collections import Counter
from collections.abc import Iterable

from remuda.base import clock
from remuda.base.ids import OrchestratorId, SessionId, SlotId, is_uuid
from remuda.fleet.scan import BATCH, Scan, work_on
from remuda.grid.model import State
from remuda.grid.sessions import Sessions
from remuda.grid.slots import Slots
from remuda.grid.sweeps.model import PATIENCE, Patience, Vitals
from remuda.grid.sweeps.sessions import survey
from remuda.keyspace import grid
from remuda.keyspace.key import ListName
from remuda.store import Store, load_script

_PURGE = load_script(
    __file__,
    "purge_orchestrator.lua",
    keys=[*grid.ORCHESTRATOR_KEYS, grid.ORCHESTRATORS],
    args=["orchestrator"],
)
MESSAGE = "Its orchestrator has been gone for too long"


class OrchestratorSweep:
    """Purges orchestrators that are gone for good."""

    keys = grid.ORCHESTRATOR_KEYS

    def __init__(self, store: Store, *, patience: float = PATIENCE) -> None:
        self._store = store
        self._sessions = Sessions(store)
        self._slots = Slots(store)
        self._patience = Patience(patience)
        self._listed = Scan(store, grid.ORCHESTRATORS())
        self._found: set[str] = set()

    def find(self, ids: Iterable[str]) -> None:
        """Has those looked at, too, who are in no set."""
        self._found.update(ids)

    async def sweep(self) -> Counter[str]:
        """Purges every orchestrator that nobody retains."""
        counts = Counter[str]()
        async for batch in self._listed.batches():
            self._found.update(batch)
        counts["orchestrators_purged"] = await work_on(sorted(self._found), self._purge_if_gone)
        self._patience.end_round()
        return counts

    async def _purge_if_gone(self, entry: str) -> bool:
        self._found.discard(entry)
        own = OrchestratorId(entry)
        # 000: "If this key is not set, the orchestrator metadata can be purged". The beat is asked for as
        # well: 001 knows no `retain`, and its orchestrators have none.
        if await self._store.exists(grid.ORCHESTRATOR_RETAIN(own), grid.ORCHESTRATOR_HEARTBEAT(own)):
            return False
        self._found.add(entry)
        if not self._patience.is_over(own, now=clock.monotonic()) or not await self._settle_slots(own):
            return False
        await self._settle_queue(grid.ORCHESTRATOR_BACKLOG(own))
        await self._settle_queue(grid.ORCHESTRATOR_PENDING(own))
        keys = [*(key(own) for key in grid.ORCHESTRATOR_KEYS), grid.ORCHESTRATORS()]
        if not await self._store.run(_PURGE, keys=keys, args=[own]):
            return False
        self._found.discard(entry)
        return True

    async def _settle_slots(self, own: OrchestratorId) -> bool:
        """Ends the sessions that still hold its slots and has them give these back; False if a node runs."""
        # Given back, not deleted: should the orchestrator return meanwhile, it finds them where they belong.
        async for pairs in Scan(self._store, grid.ORCHESTRATOR_HOLDERS(own)).batches():
            holders = dict(zip(map(SlotId, pairs[::2]), pairs[1::2], strict=True))
            surveyed = dict((await survey(self._store, holders.values()))[0])
            if any(vitals.does_node_beat for vitals in surveyed.values()):
                return False
            for slot, session in holders.items():
                await self._let_go(own, slot, SessionId(session), surveyed.get(SessionId(session), Vitals()))
        return True

    async def _let_go(self, own: OrchestratorId, slot: SlotId, session: SessionId, vitals: Vitals) -> None:
        if vitals.slot != slot:  # It holds another one, or none: only our note is left.
            await self._store.hdel(grid.ORCHESTRATOR_HOLDERS(own), slot)
            return
        await self._fail(session, vitals)
        await self._slots.release(session)

    async def _settle_queue(self, queue: ListName) -> None:
        """Fails the sessions that nobody will take up any more. If there are too many, the purge waits."""
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
