"""What a view of the grid is made of. Pure; times are RFC 3339, and names are camel case in JSON."""

from enum import StrEnum
from typing import Any

from msgspec import Struct

from remuda.grid.model import State


class BrowserView(Struct):
    """A browser on a platform; an empty text means any."""

    name: str
    version: str
    platform: str


class ClientView(Struct, rename="camel"):
    """The client of a session, and when it sent its last command."""

    host: str
    user_agent: str
    last_seen: str


class SessionView(Struct, rename="camel", kw_only=True):
    """A session, as a list shows it: what was asked for in the client's order, and what it got.

    Its age is the seconds from its request to its end, or until now. While it waits for a slot it has a
    position: the first of those that the same slots can serve is served next.
    """

    id: str
    account: str
    """Whose it is; empty if the writer of another make did not say."""
    state: State
    name: str
    build: str
    requested: list[BrowserView]
    actual: BrowserView | None
    client: ClientView
    position: int | None
    slot: str | None
    orchestrator: str | None
    queued_at: str | None
    pending_at: str | None
    alive_at: str | None
    terminated_at: str | None
    age: float
    video_url: str | None
    """Where its recording can be watched, from the root of the front door."""


class LogEntry(Struct):
    """An entry of a session's log, with the meaning of its code."""

    id: str
    time: str
    component: str
    level: str
    code: str
    meaning: str
    meta: Any


class SessionDetail(SessionView, rename="camel", kw_only=True):
    """A session with all details; values that look secret are masked."""

    labels: dict[str, str]
    """All of its labels, with name and build."""
    requested_capabilities: Any
    actual_capabilities: Any
    log: list[LogEntry]


class ActiveSessions(Struct):
    """The sessions that have not ended, oldest first; the counts by state also hold those not shown."""

    sessions: list[SessionView]
    counts: dict[str, int]


class SessionPage(Struct):
    """Some sessions, and the cursor of the next page; null when this is the last."""

    sessions: list[SessionView]
    cursor: str | None


class SlotState(StrEnum):
    """The state of a slot: free, being returned, or held by a session."""

    AVAILABLE = "available"
    RECLAIMED = "reclaimed"
    HELD = "held"


class SlotView(Struct):
    """The right to start one node, and the session that holds it."""

    id: str
    state: SlotState
    session: str | None


class Machine(Struct, frozen=True):
    """A machine; unknown fields are empty."""

    arch: str = ""
    name: str = ""
    version: str = ""


class OrchestratorView(Struct, kw_only=True):
    """An orchestrator, its browsers, and its slots with the sessions that hold them.

    The backlog counts sessions that have a slot and wait for their node to be scheduled, pending those
    whose node is being scheduled.
    """

    id: str
    type: str
    alive: bool
    draining: bool = False
    """Whether it is out of service and gets no new sessions."""
    obstacle: str = ""
    """Why it cannot start sessions now, such as a full disk; empty while it can."""
    platform: str
    machine: Machine = Machine()
    browsers: list[BrowserView]
    slots: list[SlotView]
    available: int
    reclaimed: int
    held: int
    backlog: int
    pending: int

    @property
    def in_service(self) -> bool:
        """Whether new sessions may get here."""
        return self.alive and not self.draining and not self.obstacle
