"""An orchestrator under test whose nodes exist only as names."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from grids import new_session
from remuda.base.ids import OrchestratorId, SessionId
from remuda.grid.capabilities import Offer
from remuda.grid.model import State
from remuda.grid.orchestrator.provisioner import Note, OnGone
from remuda.grid.orchestrator.role import NODE_PATIENCE, Orchestrator
from remuda.grid.sessions import Sessions
from remuda.grid.slots import Slots
from remuda.keyspace import grid, metrics
from remuda.store import Store

O1 = OrchestratorId("o1")
CHROME = Offer("chrome", "81.0", "linux")


class FakeProvisioner:
    """A provisioner whose nodes are names on a list."""

    kind = "local"

    def __init__(self, *offers: Offer) -> None:
        self._offers = list(offers or (CHROME,))
        self.provisioned: list[SessionId] = []
        self.asked_to_end: list[SessionId] = []
        self.adopted: list[SessionId] = []
        self.dead: set[SessionId] = set()
        self.stopped: list[SessionId] = []
        self.looked_for_stopped = 0
        self.failure: Exception | None = None
        self.ending = asyncio.Event()
        self.ending.set()
        self.on_gone: OnGone

    async def start(self, on_gone: OnGone) -> list[Offer]:
        self.on_gone = on_gone
        return self._offers

    async def provision(self, session: SessionId, wanted: list[dict[str, Any]], note: Note) -> None:
        if self.failure is not None:
            raise self.failure
        assert wanted == [{}]
        await note(f"the node of {session}")
        self.provisioned.append(session)

    async def adopt(self, session: SessionId, noted: str) -> bool:
        assert noted == f"the node of {session}"
        self.adopted.append(session)
        return session not in self.dead

    def has_node(self, session: SessionId) -> bool:
        return session not in self.dead

    def find_stopped(self) -> list[SessionId]:
        self.looked_for_stopped += 1
        return self.stopped

    async def end(self, session: SessionId) -> None:
        self.asked_to_end.append(session)
        await self.ending.wait()

    async def stop(self) -> None:
        return


@asynccontextmanager
async def orchestrating(
    store: Store, provisioner: FakeProvisioner, slots: int = 2, *, node_patience: float = NODE_PATIENCE
) -> AsyncIterator[Orchestrator]:
    """An orchestrator at work; it goes without a word, as if it were killed."""
    orchestrator = Orchestrator(
        store, provisioner, orchestrator_id=O1, slots=slots, node_patience=node_patience
    )
    await orchestrator.start()
    serving = asyncio.create_task(orchestrator.serve(), name="serve")
    try:
        yield orchestrator
    finally:
        serving.cancel()
        await asyncio.wait([serving])


async def placed(store: Store) -> SessionId:
    """A session that has got a slot."""
    session = await new_session(store)
    assert await Slots(store).claim(session, [O1]) is not None
    return session


async def is_settled(store: Store, session: SessionId, *, slots: int = 2) -> bool:
    """Whether the session has ended, is in no queue any more, and all slots are free."""
    return (
        await Sessions(store).state(session) is State.TERMINATED
        and not await store.exists(grid.ORCHESTRATOR_BACKLOG(O1), grid.ORCHESTRATOR_PENDING(O1))
        and await store.llen(grid.ORCHESTRATOR_SLOTS_AVAILABLE(O1)) == slots
    )


async def is_empty(store: Store) -> bool:
    return not await store.exists(grid.ORCHESTRATOR_BACKLOG(O1), grid.ORCHESTRATOR_PENDING(O1))


async def has_reclaimed(store: Store, why: str, count: int) -> bool:
    return await store.hget(metrics.METRICS_SLOTS_RECLAIMED(), why) == str(count)
