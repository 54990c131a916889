"""What the handlers look at: the herd as one process sees it."""

from typing import Any

from remuda.base import clock
from remuda.grid.draining import Draining
from remuda.grid.sessions import Sessions
from remuda.grid.timeouts import timeouts
from remuda.grid.view import SessionsView
from remuda.store import Store
from remuda.web.files import Files
from remuda.web.live import Live
from remuda.web.live_log import LiveLogs
from remuda.web.overview import Overview, read_overview


class Herd:
    """The ways to the herd that handlers share, and the document that describes them."""

    def __init__(self, store: Store, *, openapi: dict[str, Any]) -> None:
        self.began = clock.monotonic()
        self.store = store
        self.sessions = Sessions(store)
        self.view = SessionsView(store)
        self.draining = Draining(store)
        self.timeouts = timeouts(store)
        self.live = Live(self.overview)
        self.live_logs = LiveLogs(store, self.view, is_closed=lambda: self.live.is_closed)
        self.files = Files()
        self.openapi = openapi

    async def overview(self) -> Overview:
        """The herd as it is now."""
        return await read_overview(self.store, self.view)
