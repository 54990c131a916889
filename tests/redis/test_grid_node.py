"""A node whose driver is a fake: what it writes down about its session, and when."""

import asyncio

import pytest

from chaos import CHROME, FakeDriver
from grids import check_slots, own_slots
from remuda.base.ids import NodeId
from remuda.grid.node import node as node_module
from remuda.grid.node.assignment import Assignment
from remuda.grid.node.ending import Ending
from remuda.grid.node.node import Node
from remuda.keyspace import grid
from remuda.store import Store
from sweeping import O1, pending
from waiting import eventually


async def test_a_slot_is_free_only_when_the_browser_is_gone(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await own_slots(store, O1, 1)
    session = await pending(store)
    held: list[str | None] = []

    async def stop(_: FakeDriver) -> None:
        held.append(await store.get(grid.SESSION_SLOT(session)))

    monkeypatch.setattr(FakeDriver, "stop", stop)
    monkeypatch.setattr(node_module, "Driver", FakeDriver)
    node = Node(store, NodeId("node"), CHROME)
    node.warm_up()
    holding = asyncio.create_task(node.hold(Assignment(session, 0)))
    await eventually(lambda: store.exists(grid.SESSION_UPSTREAM(session)))

    node.end(Ending("CLOSED"))
    await holding

    assert held == [f"{O1}/1"]
    assert await store.lrange(grid.ORCHESTRATOR_SLOTS_RECLAIMED(O1)) == [f"{O1}/1"]
    await check_slots(store, [O1])
