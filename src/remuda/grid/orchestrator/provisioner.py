"""How nodes come into being. The orchestrator says what to start; a provisioner knows how."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from remuda.base.ids import SessionId
from remuda.grid.capabilities import Offer

Note = Callable[[str], Awaitable[None]]
"""Writes down how a session's node can be found again."""


class OnGone(Protocol):
    """Hears that a session's node is gone, and whether it is known to have had a browser: Redis may have lost
    that in a fail-over."""

    def __call__(self, session: SessionId, *, had_browser: bool = False) -> None: ...


class Provisioner(Protocol):
    """Starts and ends nodes, on this machine or elsewhere."""

    kind: str
    """The `type` of an orchestrator that uses it: `local`, `docker` or `k8s`."""

    async def start(self, on_gone: OnGone) -> list[Offer]:
        """Gets ready and says what it can start; calls back whenever a session's node is gone."""

    async def provision(self, session: SessionId, wanted: list[dict[str, Any]], note: Note) -> None:
        """Starts the session's node. What becomes of it, the node itself writes down.

        Noted before the node has the session: so a session without a note has no node, even after a crash.
        """

    async def adopt(self, session: SessionId, noted: str) -> bool:
        """Looks after a node that an earlier life has started, as if it were its own; False if it is gone."""

    def has_node(self, session: SessionId) -> bool:
        """Whether the session has a node here that still runs."""

    def find_stopped(self) -> list[SessionId]:
        """Sessions whose nodes a signal or a debugger has stopped, as far as it can tell."""

    async def end(self, session: SessionId) -> None:
        """Makes sure that the session's node is gone, browser and all."""

    async def stop(self) -> None:
        """Ends all nodes and gives back everything."""
