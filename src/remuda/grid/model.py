"""The life of a session. Pure.

    queued  ──>  pending  ──>  alive  ──>  terminated
      └────────────┴──────────────────────────^

A session is queued when its request comes in, pending once an orchestrator has scheduled its node, alive
once its client has been served, and terminated when it has ended for whatever reason. The hash
`session:{id}:status` holds the time of each; the latest state present is the state the session is in.
"""

from collections.abc import Mapping
from enum import StrEnum


class State(StrEnum):
    """Where a session is in its life."""

    QUEUED = "queued"
    PENDING = "pending"
    ALIVE = "alive"
    TERMINATED = "terminated"

    @property
    def stamp(self) -> str:
        """The field of `session:{id}:status` that says when this state was entered."""
        return f"{self}At"


LEGAL_ORIGINS: Mapping[State, tuple[State, ...]] = {
    State.QUEUED: (),
    State.PENDING: (State.QUEUED,),
    State.ALIVE: (State.PENDING,),
    State.TERMINATED: (State.QUEUED, State.PENDING, State.ALIVE),
}
"""State -> the states that it may be entered from."""


def state_of(status: Mapping[str, str]) -> State | None:
    """The state that a status hash tells of; None when there is no such session."""
    return next((state for state in reversed(State) if state.stamp in status), None)


# The original's buckets of the start-up histogram, in seconds; `+Inf` is counted too.
STARTUP_BUCKETS = (2, 4, 6, 8, 10, 12, 14, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)

KEPT_LOG_ENTRIES = 1000
"""About how many entries the log of a session keeps: the latest."""
