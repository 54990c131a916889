"""What a client tells of its test while it runs: `POST /session/<id>/se/event`, as Selenium Grid takes it.

Grid hands events on to whoever listens on its bus. Here they go where people look afterwards: into the
session's log, and as a message into its video.
"""

from typing import Any

import msgspec

from remuda.base import clock
from remuda.base.errors import InvalidArgument
from remuda.base.ids import SessionId
from remuda.fleet.relay import Answer, Handle, Request
from remuda.grid.node.recording.recorder import Recorder
from remuda.grid.sessions import Sessions
from remuda.grid.wire import answer_value, read_json

MAX_TYPE = 100
MAX_PAYLOAD = 4096
"""Bytes of JSON: a log keeps a thousand entries, and lies in Redis."""


class Events:
    """Takes the events of one session."""

    def __init__(self, sessions: Sessions, session: SessionId, recorder: Recorder | None) -> None:
        self._sessions = sessions
        self._session = session
        self._recorder = recorder

    def plans(self) -> dict[tuple[str, str], Handle]:
        """What becomes of each command about events, by its method and path."""
        return {("POST", "/se/event"): Handle(self._take)}

    async def _take(self, _request: Request, body: bytes) -> Answer:
        kind, payload = read_event(read_json(body))
        await self._sessions.log(self._session, "EVENT", type=kind, payload=payload)
        if self._recorder is not None:
            await self._recorder.say(kind)
        return answer_value({"success": True, "eventType": kind, "timestamp": clock.rfc3339()})


def read_event(body: Any) -> tuple[str, dict[str, Any]]:
    """Type and payload of an event; InvalidArgument when they cannot be kept."""
    given = body if isinstance(body, dict) else {}
    kind, payload = given.get("eventType"), given.get("payload") or {}
    if not isinstance(kind, str) or not 0 < len(kind) <= MAX_TYPE:
        raise InvalidArgument(f"'eventType' must be a text of at most {MAX_TYPE} characters")
    if not isinstance(payload, dict) or len(msgspec.json.encode(payload)) > MAX_PAYLOAD:
        raise InvalidArgument(f"'payload' must be an object of at most {MAX_PAYLOAD} bytes")
    return kind, payload
