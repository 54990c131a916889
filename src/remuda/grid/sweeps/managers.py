"""Managers that stopped beating without a word: their address is forgotten."""

from remuda.base.ids import ManagerId
from remuda.grid.sweeps.departed import DepartedSweep
from remuda.grid.sweeps.model import PATIENCE
from remuda.keyspace import grid
from remuda.store import Store, load_script

_PURGE = load_script(
    __file__,
    "purge_manager.lua",
    keys=[grid.MANAGER, grid.MANAGER_HEARTBEAT, grid.MANAGERS],
    args=["manager"],
)


class ManagerSweep(DepartedSweep):
    """Forgets managers that are dead."""

    keys = (grid.MANAGER, grid.MANAGER_HEARTBEAT)

    def __init__(self, store: Store, *, patience: float = PATIENCE) -> None:
        super().__init__(store, grid.MANAGERS(), counted_as="managers_purged", patience=patience)

    async def _is_alive(self, entry: str) -> bool:
        return bool(await self._store.exists(grid.MANAGER_HEARTBEAT(entry)))

    async def _purge(self, entry: str) -> bool:
        manager = ManagerId(entry)
        keys = [grid.MANAGER(manager), grid.MANAGER_HEARTBEAT(manager), grid.MANAGERS()]
        return bool(await self._store.run(_PURGE, keys=keys, args=[manager]))
