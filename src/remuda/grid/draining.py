"""Taking an orchestrator out of service: it gets no new sessions, and those that it has go on to their end.

What says so is a key of its own. An operator's word survives a crash of the orchestrator, but not its proper
end. Its own word that it leaves does not even survive a crash: it may be killed before its last session has
ended, and is to be in service when it comes back.
"""

from remuda.base.errors import Lost
from remuda.base.ids import OrchestratorId
from remuda.grid.slots import freed_bell
from remuda.keyspace import grid
from remuda.store import Store

ASKED = "asked"
LEAVING = "leaving"


class DrainOrders:
    """The orchestrators of a fleet, as an operator takes them out of service and puts them back."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def find(self, name: str) -> OrchestratorId:
        """The orchestrator of this name; Lost when none is registered."""
        if name not in await self._store.smembers(grid.ORCHESTRATORS()):
            raise Lost(f"There is no orchestrator {name[:100]!r}.")
        return OrchestratorId(name)

    async def begin(self, orchestrator: OrchestratorId, reason: str = ASKED) -> None:
        """Takes it out of service; nothing changes if it is already."""
        await self._store.send("SET", grid.ORCHESTRATOR_DRAIN(orchestrator), reason, "NX")

    async def come_back(self, orchestrator: OrchestratorId) -> None:
        """Puts it back in service if it was leaving in an earlier life."""
        if await self._store.get(grid.ORCHESTRATOR_DRAIN(orchestrator)) == LEAVING:
            await self.end(orchestrator)

    async def end(self, orchestrator: OrchestratorId) -> None:
        """Puts it back in service, and calls those who wait."""
        async with self._store.transaction() as transaction:
            transaction.delete(grid.ORCHESTRATOR_DRAIN(orchestrator))
            transaction.publish(freed_bell())

    async def is_begun(self, orchestrator: OrchestratorId) -> bool:
        """Whether it is out of service."""
        return bool(await self._store.exists(grid.ORCHESTRATOR_DRAIN(orchestrator)))

    async def is_done(self, orchestrator: OrchestratorId) -> bool:
        """Whether no session holds a slot of it any more."""
        return not await self._store.exists(grid.ORCHESTRATOR_HOLDERS(orchestrator))
