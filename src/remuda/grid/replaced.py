"""Orchestrators that were killed and came back under another id, as on a new machine: the old ones are dead.

Their last beats outlive them by a minute, in which sessions would be given their slots and wait in vain. Only
where another orchestrator offers the same: what is killed is mostly started again, and until then sessions
are to wait for it.
"""

from remuda.base.ids import OrchestratorId
from remuda.base.log import get_logger
from remuda.fleet.tasks import repeat
from remuda.grid.abandoned import LOOK_EVERY, Absences
from remuda.grid.registry import live_offers
from remuda.keyspace import grid
from remuda.store import Store

log = get_logger(__name__)


class Replaced:
    """Ends the beats of orchestrators that are gone and replaced. Run `run()` as a task of the owner's."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._absences = Absences(store, kind="orchestrator")

    async def run(self) -> None:
        """Looks for ever. Outlives any absence of Redis."""
        await repeat(self.look, every=LOOK_EVERY, failure="orchestrators not looked for")

    async def look(self) -> None:
        """Takes those out of service that turn out to be gone, if others offer all that they did."""
        known = [OrchestratorId(each) for each in await self._store.smembers(grid.ORCHESTRATORS_PRESENT())]
        gone = await self._absences.find(known)
        if not gone:
            return
        offers = await live_offers(self._store)
        offered = {offer for each, all_its in offers.items() if each not in gone for offer in all_its}
        for each in gone:
            if offered.issuperset(offers.get(each, ())):
                async with self._store.transaction() as transaction:
                    transaction.srem(grid.ORCHESTRATORS_PRESENT(), each)
                    transaction.expire(grid.ORCHESTRATOR_HEARTBEAT(each), 1)
                log.warning("orchestrator gone", orchestrator=each)
