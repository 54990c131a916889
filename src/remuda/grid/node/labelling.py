"""Labels that a client gives its session while it runs: `POST /session/<id>/remuda/metadata`."""

import asyncio

from remuda.base.ids import SessionId
from remuda.fleet.relay import Answer, Handle, Request
from remuda.grid.options import Labels, check_count, read_labels
from remuda.grid.sessions import Sessions
from remuda.grid.wire import answer_value, read_json


class Labelling:
    """Adds to the labels of one session."""

    def __init__(self, sessions: Sessions, session: SessionId) -> None:
        self._sessions = sessions
        self._session = session
        self._adding = asyncio.Lock()

    def plans(self) -> dict[tuple[str, str], Handle]:
        """What becomes of each command about labels, by its method and path."""
        write = Handle(self._write)
        return {("POST", "/remuda/metadata"): write, ("POST", "/webgrid/metadata"): write}

    async def _write(self, _request: Request, body: bytes) -> Answer:
        return await self.add(read_labels(read_json(body), "The body"))

    async def add(self, labels: Labels) -> Answer:
        """Writes the labels down, beside those that are there."""
        async with self._adding:  # Only this process writes them while the session runs, so the count holds.
            check_count(await self._sessions.labels(self._session) | labels)
            if labels:
                await self._sessions.add_labels(self._session, labels)
        return answer_value(None)
