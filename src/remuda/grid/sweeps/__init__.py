"""What the grid's dead leave behind: found in small bites, ended if need be, and purged without a trace.

A sweep does bounded work: it walks in batches, stops after `PER_RUN`, and takes up there the next time. It
trusts nobody's book-keeping: what no set names any more is found among the keys themselves.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping

from remuda.grid.sweeps.managers import ManagerSweep
from remuda.grid.sweeps.model import PATIENCE
from remuda.grid.sweeps.orchestrators import OrchestratorSweep
from remuda.grid.sweeps.sessions import SessionSweeps
from remuda.grid.sweeps.strays import StraySweep
from remuda.store import Store


def grid_sweeps(
    store: Store, *, retention: float, patience: float = PATIENCE
) -> Mapping[str, Callable[[], Awaitable[Counter[str]]]]:
    """The grid's sweeps by name, in the order in which one makes way for the next; each says what it did."""
    sessions = SessionSweeps(store, retention=retention, patience=patience)
    orchestrators = OrchestratorSweep(store, patience=patience)
    managers = ManagerSweep(store, patience=patience)
    strays = StraySweep(store, sessions, found_elsewhere=(orchestrators, managers))
    return {
        "active sessions": sessions.end_silent,
        "strays": strays.sweep,
        "orchestrators": orchestrators.sweep,
        "managers": managers.sweep,
        "ended sessions": sessions.purge_old,
    }


__all__ = ["ManagerSweep", "OrchestratorSweep", "SessionSweeps", "StraySweep", "grid_sweeps"]
