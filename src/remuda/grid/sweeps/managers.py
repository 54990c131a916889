"""Managers that stopped beating without a word: their address is forgotten."""

from collections import Counter
from collections.abc import Iterable

from remuda.base import clock
from remuda.base.ids import ManagerId
from remuda.fleet.scan import Scan, work_on
from remuda.grid.sweeps.model import PATIENCE, Patience
from remuda.keyspace import grid
from remuda.store import Store, load_script

_PURGE = load_script(
    __file__,
    "purge_manager.lua",
    keys=[grid.MANAGER, grid.MANAGER_HEARTBEAT, grid.MANAGERS],
    args=["manager"],
)


class ManagerSweep:
    """Forgets managers that are dead."""

    keys = (grid.MANAGER, grid.MANAGER_HEARTBEAT)

    def __init__(self, store: Store, *, patience: float = PATIENCE) -> None:
        self._store = store
        self._patience = Patience(patience)
        self._listed = Scan(store, grid.MANAGERS())
        self._found: set[str] = set()

    def find(self, ids: Iterable[str]) -> None:
        """Has those looked at, too, who are in no set."""
        self._found.update(ids)

    async def sweep(self) -> Counter[str]:
        """Forgets every manager that stays without a beat."""
        counts = Counter[str]()
        async for batch in self._listed.batches():
            self._found.update(batch)
        counts["managers_purged"] = await work_on(sorted(self._found), self._purge_if_gone)
        self._patience.end_round()
        return counts

    async def _purge_if_gone(self, entry: str) -> bool:
        self._found.discard(entry)
        manager = ManagerId(entry)
        if await self._store.exists(grid.MANAGER_HEARTBEAT(manager)):
            return False
        if not self._patience.is_over(manager, now=clock.monotonic()):
            self._found.add(entry)
            return False
        keys = [grid.MANAGER(manager), grid.MANAGER_HEARTBEAT(manager), grid.MANAGERS()]
        return bool(await self._store.run(_PURGE, keys=keys, args=[manager]))
