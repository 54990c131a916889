"""How nodes come into being. The orchestrator says what to start; a provisioner knows how."""

from collections.abc import Callable
from typing import Any, Protocol

from remuda.base.ids import SessionId
from remuda.grid.capabilities import Offer

OnGone = Callable[[SessionId], None]


class Provisioner(Protocol):
    """Starts and ends nodes, on this machine or elsewhere."""

    kind: str
    """The `type` of an orchestrator that uses it: `local`, `docker` or `k8s`."""

    async def start(self, on_gone: OnGone) -> list[Offer]:
        """Gets ready and says what it can start; calls back whenever a session's node is gone."""

    async def provision(self, session: SessionId, wanted: list[dict[str, Any]]) -> None:
        """Starts the session's node. What becomes of it, the node itself writes down."""

    async def end(self, session: SessionId) -> None:
        """Makes sure that the session's node is gone, browser and all."""

    async def stop(self) -> None:
        """Ends all nodes and gives back everything."""
