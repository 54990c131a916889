"""Which sessions are dead, and which are old enough to be purged. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from remuda.base import clock
from remuda.base.errors import Broken
from remuda.base.ids import SlotId
from remuda.grid.model import State, state_of

# Longer than the longest pause between two beats, a manager's 40 s. When Redis was away, or the machine
# asleep, all heartbeats are gone at once. Live processes must get the time to beat again.
PATIENCE = 45.0


@dataclass(frozen=True)
class Vitals:
    """What tells of a session's life, read in one moment."""

    status: Mapping[str, str] = field(default_factory=dict)
    does_manager_beat: bool = False
    does_node_beat: bool = False
    slot: SlotId | None = None
    is_metered_on: bool = False
    """Whether its time goes on being counted although it has ended."""

    @property
    def state(self) -> State | None:
        return state_of(self.status)


def is_silent(vitals: Vitals) -> bool:
    """Whether a session has not ended, and yet has no heartbeat: first its manager's, then its node's."""
    if vitals.state is State.ALIVE:
        return not vitals.does_node_beat
    return vitals.state in (State.QUEUED, State.PENDING) and not vitals.does_manager_beat


def code_of_silence(vitals: Vitals) -> str:
    """The log code of a silent session's end: what its manager would have said at the step it had reached,
    or, once it is alive, what its node would have said."""
    match vitals.state:
        case State.QUEUED:
            return "QTIMEOUT" if vitals.slot is None else "OTIMEOUT"
        case State.PENDING:
            return "NTIMEOUT"
        case State.ALIVE:
            return "TERM"
    raise Broken(f"A session that is {vitals.state} does not need a heartbeat")


def is_old(vitals: Vitals, *, now: float, retention: float) -> bool:
    """Whether the session ended so long ago that it may be forgotten; ValueError if it is unclear when."""
    ended = vitals.status.get(State.TERMINATED.stamp)
    return ended is not None and now - clock.parse_rfc3339(ended) >= retention
