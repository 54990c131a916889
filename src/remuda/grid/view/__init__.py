"""The read model of the grid: sessions, orchestrators and logs as a person or a tool wants to see them.

Everything is read in a few pipelined rounds on the one connection, and every list is bounded. A view is not
a transaction: a session may move on between two rounds, and then shows up as it was in one of them.
"""

from remuda.grid.view.model import (
    ActiveSessions,
    BrowserView,
    ClientView,
    LogEntry,
    Machine,
    OrchestratorView,
    SessionDetail,
    SessionPage,
    SessionView,
    SlotState,
    SlotView,
)
from remuda.grid.view.orchestrators import live_managers, orchestrators
from remuda.grid.view.sessions import SessionsView

__all__ = [
    "ActiveSessions",
    "BrowserView",
    "ClientView",
    "LogEntry",
    "Machine",
    "OrchestratorView",
    "SessionDetail",
    "SessionPage",
    "SessionView",
    "SessionsView",
    "SlotState",
    "SlotView",
    "live_managers",
    "orchestrators",
]
