"""What dead processes of the grid leave in Redis: found, ended if it still runs, and purged.

A sweep does bounded work: it walks in batches, stops after `PER_RUN`, and goes on from there the next time.
It does not rely on the sets alone: what is in no set is found among the keys themselves.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from remuda.fleet.sweep import DepartedSweep, Scan, Sweep
from remuda.grid.sweeps.model import PATIENCE
from remuda.grid.sweeps.orchestrators import OrchestratorSweep
from remuda.grid.sweeps.sessions import SessionSweeps
from remuda.keyspace import grid
from remuda.keyspace.key import Key
from remuda.store import Store

# A million keys in eight hours, for a thousandth of a core. Strays are not urgent.
STRAYS_PER_RUN = 2_000


def grid_sweeps(store: Store, *, retention: float, patience: float = PATIENCE) -> Mapping[str, Sweep]:
    """The grid's sweeps by name, in the order in which one makes way for the next; each says what it did."""
    sessions = SessionSweeps(store, retention=retention, patience=patience)
    orchestrators = OrchestratorSweep(store, patience=patience)
    managers = DepartedSweep(
        store,
        grid.MANAGERS(),
        keys=[grid.MANAGER, grid.MANAGER_SCHEME, grid.MANAGER_HEARTBEAT],
        beats=[grid.MANAGER_HEARTBEAT],
        counted_as="managers_purged",
        patience=patience,
    )
    strays = StraySweep(store, sessions, found_elsewhere=(orchestrators, managers))
    return {
        "active sessions": sessions.end_silent,
        "strays": strays.sweep,
        "orchestrators": orchestrators.sweep,
        "managers": managers.sweep,
        "ended sessions": sessions.purge_old,
    }


class StraySweep:
    """Finds keys whose owner is in no set: what a foreign writer wrote after a purge, and owners that left
    without a trace. It walks through all keys, and tells the other sweeps their owners.

    An index of keys would have to be kept by every writer, and a process that writes too late is exactly one
    that does not keep it.
    """

    def __init__(
        self,
        store: Store,
        sessions: SessionSweeps,
        *,
        found_elsewhere: Sequence[DepartedSweep],
        per_run: int = STRAYS_PER_RUN,
    ) -> None:
        self._store = store
        self._sessions = sessions
        self._finders = found_elsewhere
        self._per_run = per_run
        self._keys = Scan(store)

    async def sweep(self) -> Counter[str]:
        """Puts the sessions among the next keys right, and has the others looked at."""
        counts = Counter[str]()
        prefix = self._store.prefix
        async for batch in self._keys.batches(limit=self._per_run):
            names = [name.removeprefix(prefix) for name in batch if name.startswith(prefix)]
            counts += (await self._sessions.mend(owners(names, grid.SESSION_KEYS)))[1]
            for finder in self._finders:
                finder.find(owners(names, finder.keys))
        return counts


def owners(names: Iterable[str], keys: Sequence[Key[Any]]) -> list[str]:
    """The owners in those names that are names of these keys; each key has one placeholder."""
    found: dict[str, None] = {}
    patterns: list[re.Pattern[str]] = [key.regex for key in keys]
    for name in names:
        match = next((match for pattern in patterns if (match := pattern.fullmatch(name))), None)
        if match is not None:
            found[match[1]] = None
    return list(found)


__all__ = ["OrchestratorSweep", "SessionSweeps", "StraySweep", "grid_sweeps", "owners"]
