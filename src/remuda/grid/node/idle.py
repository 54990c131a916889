"""When a session has been left alone for too long. A command that is under way is not idleness."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from remuda.base import clock
from remuda.fleet.relay import Request


class Idleness:
    """Watches a node's requests, as the observer of its relay."""

    def __init__(self) -> None:
        self._under_way = 0
        self._websockets = 0
        self._all_done = asyncio.Event()
        self._was_connected = False
        self._on_hung_up: Callable[[], None] | None = None
        self._keep = 0.0
        self._waiting: asyncio.TimerHandle | None = None
        self.restart()

    def tie_to_websocket(self, on_hung_up: Callable[[], None], *, keep: float = 0.0) -> None:
        """Has an open WebSocket, even a silent one, count as under way, and says when the last one was closed
        and no other has come within `keep` seconds."""
        self._on_hung_up = on_hung_up
        self._keep = keep

    def restart(self) -> None:
        """Counts from now on: a warm node may have waited for hours before its session began."""
        self._quiet_since = clock.monotonic()
        self.seen_at = clock.now()
        """When the client was last heard of."""

    def seconds(self) -> float:
        """How long nothing has been under way."""
        return 0.0 if self._under_way or self._waiting else clock.monotonic() - self._quiet_since

    async def until_done(self, timeout: float) -> None:
        """Waits until no request is under way and no WebSocket is open, for so long at most."""
        if self._under_way or self._websockets:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._all_done.wait(), timeout)

    def request_started(self, request: Request) -> None:
        self._all_done.clear()
        self._under_way += self._counts(request)
        self._websockets += request.is_upgrade
        if request.is_upgrade and self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
        self.restart()

    def request_finished(self, request: Request, status: int, _bytes_in: int, _bytes_out: int) -> None:
        self._under_way -= self._counts(request)
        self._quiet_since = clock.monotonic()
        self._websockets -= request.is_upgrade
        self._was_connected |= status == 101
        if not (self._under_way or self._websockets):
            self._all_done.set()
        # One that was refused changes nothing, but has stopped the clock.
        if request.is_upgrade and self._was_connected and not self._websockets:
            self._await_return()

    def _await_return(self) -> None:
        if self._on_hung_up is None:
            return
        if not self._keep:
            self._on_hung_up()
            return
        self._waiting = asyncio.get_running_loop().call_later(self._keep, self._on_hung_up)

    def _counts(self, request: Request) -> bool:
        # A WebSocket may stay open and silent for ever: only what flows through it is a sign of life.
        return self._on_hung_up is not None or not request.is_upgrade

    def request_refused(self, _status: int, _bytes_in: int, _bytes_out: int) -> None: ...

    def bytes_flowed(self, _request: Request, _bytes_in: int, _bytes_out: int) -> None:
        self.restart()
