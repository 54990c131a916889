"""When a session has been left alone for too long. A command that is under way is not idleness."""

from collections.abc import Callable

from remuda.base import clock
from remuda.fleet.relay import Request


class Idleness:
    """Watches a node's requests, as the observer of its relay."""

    def __init__(self) -> None:
        self._under_way = 0
        self._on_hung_up: Callable[[], None] | None = None
        self.restart()

    def tie_to_websocket(self, on_hung_up: Callable[[], None]) -> None:
        """Has an open WebSocket, even a silent one, count as under way, and says when one was closed."""
        self._on_hung_up = on_hung_up

    def restart(self) -> None:
        """Counts from now on: a warm node may have waited for hours before its session began."""
        self._quiet_since = clock.monotonic()
        self.seen_at = clock.now()
        """When the client was last heard of."""

    def seconds(self) -> float:
        """How long nothing has been under way."""
        return 0.0 if self._under_way else clock.monotonic() - self._quiet_since

    def request_started(self, request: Request) -> None:
        self._under_way += self._counts(request)
        self.restart()

    def request_finished(self, request: Request, status: int, _bytes_in: int, _bytes_out: int) -> None:
        self._under_way -= self._counts(request)
        self._quiet_since = clock.monotonic()
        if self._on_hung_up is not None and status == 101:
            self._on_hung_up()

    def _counts(self, request: Request) -> bool:
        # A WebSocket may stay open and silent for ever: only what flows through it is a sign of life.
        return self._on_hung_up is not None or not request.is_upgrade

    def request_refused(self, _status: int, _bytes_in: int, _bytes_out: int) -> None: ...

    def bytes_flowed(self, _request: Request, _bytes_in: int, _bytes_out: int) -> None:
        self.restart()
