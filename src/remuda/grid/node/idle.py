"""When a session has been left alone for too long. A command that is under way is not idleness."""

from remuda.base import clock
from remuda.fleet.relay import Request


class Idleness:
    """Watches a node's requests, as the observer of its relay."""

    def __init__(self) -> None:
        self._under_way = 0
        self.restart()

    def restart(self) -> None:
        """Counts from now on: a warm node may have waited for hours before its session began."""
        self._quiet_since = clock.monotonic()
        self.seen_at = clock.now()
        """When the client was last heard of."""

    def seconds(self) -> float:
        """How long nothing has been under way."""
        return 0.0 if self._under_way else clock.monotonic() - self._quiet_since

    def request_started(self, request: Request) -> None:
        # A WebSocket may stay open and silent for ever: only what flows through it is a sign of life.
        self._under_way += not request.is_upgrade
        self.restart()

    def request_finished(self, request: Request, _status: int, _bytes_in: int, _bytes_out: int) -> None:
        self._under_way -= not request.is_upgrade
        self._quiet_since = clock.monotonic()

    def request_refused(self, _status: int, _bytes_in: int, _bytes_out: int) -> None: ...

    def bytes_flowed(self, _request: Request, _bytes_in: int, _bytes_out: int) -> None:
        self.restart()
