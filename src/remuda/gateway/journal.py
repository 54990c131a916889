"""What the gateway has to say in the logs of sessions: that a client or a node was lost on the way.

It is noted in memory and written down with the counters, once a second and out of every command's way; a
client that hangs up a thousand times in that second makes one entry.
"""

from remuda.base.errors import Unavailable
from remuda.base.ids import SessionId
from remuda.base.log import get_logger
from remuda.fleet.relay import Request
from remuda.gateway.destinations import session_of
from remuda.grid.model import State
from remuda.grid.sessions import Sessions

log = get_logger(__name__)

MAX_NOTES = 1000
"""Of one second: clients may name sessions that never were, as many as they like."""


class Journal:
    """Notes what happened to which session, and how often."""

    def __init__(self) -> None:
        self._notes: dict[tuple[SessionId, str], int] = {}

    def client_lost(self, request: Request) -> None:
        """Notes that a client left before it had its answer."""
        self._note(request, "CLOST")

    def node_lost(self, request: Request) -> None:
        """Notes that the node for a request did not take it."""
        self._note(request, "NLOST")

    def _note(self, request: Request, code: str) -> None:
        session = session_of(request.target)
        if session is not None and len(self._notes) < MAX_NOTES:
            self._notes[session, code] = self._notes.get((session, code), 0) + 1

    def take(self) -> dict[tuple[SessionId, str], int]:
        """What was noted since the last time."""
        notes, self._notes = self._notes, {}
        return notes

    async def write(self, sessions: Sessions) -> None:
        """Writes the notes to the logs of those sessions that have not ended."""
        try:
            for (session, code), times in self.take().items():
                # The node of a session that has ended is gone for good reason.
                if await sessions.state(session) not in (State.TERMINATED, None):
                    await sessions.log(session, code, times=times)
        except Unavailable as error:
            log.warning("notes lost", reason=error.message)
