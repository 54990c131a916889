"""A session's log as it grows, as Server-Sent Events, until the session is over and its node has left."""

import asyncio
from collections.abc import AsyncIterator, Callable

from remuda.base import clock
from remuda.base.errors import Unavailable
from remuda.base.ids import SessionId
from remuda.grid.model import State
from remuda.grid.sessions import Sessions, session_bell
from remuda.grid.view import LogEntry, SessionsView
from remuda.keyspace import grid
from remuda.store import Store, Subscription
from remuda.web.faces import Problem
from remuda.web.live import BEAT_EVERY, LOOK_EVERY, MAX_VIEWERS, RECONNECT, event


class LiveLogs:
    """Shows logs to those who follow them. Looks when the session's bell rings, and else every `LOOK_EVERY`
    seconds: not every entry rings, since that would wake all who wait for the session."""

    def __init__(self, store: Store, view: SessionsView, *, is_closed: Callable[[], bool]) -> None:
        self._store = store
        self._view = view
        self._sessions = Sessions(store)
        self._is_closed = is_closed
        self._followers = 0

    async def follow(self, session: SessionId, *, after: str) -> AsyncIterator[bytes] | None:
        """What one follower is sent, from the entry after this one on; None when nothing will ever come.

        SessionLost when there is no such session, Unavailable when there are too many followers.
        """
        if self._followers >= MAX_VIEWERS:
            raise Unavailable(f"{MAX_VIEWERS} follow a log already.")
        is_over = await self._is_over(session)
        entries = await self._view.log(session, after=after)
        return None if is_over and not entries else self._messages(session, after)

    async def _messages(self, session: SessionId, after: str) -> AsyncIterator[bytes]:
        self._followers += 1
        try:
            with self._store.subscribe(session_bell(session)) as rings:
                yield RECONNECT
                async for message in self._tell(session, after, rings):
                    yield message
        finally:
            self._followers -= 1

    async def _tell(self, session: SessionId, after: str, rings: Subscription) -> AsyncIterator[bytes]:
        told_at = clock.monotonic()
        while not self._is_closed():
            try:
                # Asked before the log is read: whatever was written before the end is in it.
                is_over = await self._is_over(session)
                for entry in await self._view.log(session, after=after):
                    after, told_at = entry.id, clock.monotonic()
                    yield _entry(entry)
                if is_over:
                    yield event("end", {"at": clock.rfc3339()})
                    return
            except Unavailable as error:
                told_at = clock.monotonic()
                yield event("problem", Problem(error.api_code, error.message))
                await asyncio.sleep(LOOK_EVERY)
            if clock.monotonic() - told_at > BEAT_EVERY:
                told_at = clock.monotonic()
                yield event("beat", {"at": clock.rfc3339()})
            await rings.wait(LOOK_EVERY)

    async def _is_over(self, session: SessionId) -> bool:
        """Whether nobody will write any more: a node keeps its slot until it has said its last word."""
        state = await self._sessions.state(session)
        return state in (State.TERMINATED, None) and not await self._store.exists(grid.SESSION_SLOT(session))


def _entry(entry: LogEntry) -> bytes:
    # With its number: a browser that comes back says with Last-Event-ID where it was.
    return b"id: %b\n%b" % (entry.id.encode(), event("entry", entry))
