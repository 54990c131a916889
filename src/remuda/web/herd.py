"""What the handlers look at: the herd as one process sees it."""

from remuda.grid.sessions import Sessions
from remuda.grid.timeouts import timeouts
from remuda.grid.view import SessionsView
from remuda.store import Store


class Herd:
    """The ways to the herd that handlers share."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.sessions = Sessions(store)
        self.view = SessionsView(store)
        self.timeouts = timeouts(store)
