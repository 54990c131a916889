"""Slots of sessions whose end Redis was not told of, or has lost: it was full, or another one took over."""

import asyncio
from typing import Any

import pytest

from grids import check_slots, claim
from provisioners import O1, FakeProvisioner, is_settled, orchestrating, placed
from remuda.base.errors import DriverUnavailable
from remuda.base.ids import SessionId
from remuda.grid.model import State
from remuda.grid.orchestrator import role as role_module
from remuda.grid.orchestrator.provisioner import Note
from remuda.grid.sessions import Sessions, node_beat
from remuda.grid.slots import Slots
from remuda.keyspace import grid
from remuda.store import Store
from servers import Server
from waiting import eventually

DEADLINE = 20.0


async def holding(store: Store, state: State) -> SessionId:
    """A session that holds a slot and beats, though it has no node here."""
    session, _ = await claim(store, O1)
    sessions = Sessions(store)
    await store.delete(grid.ORCHESTRATOR_BACKLOG(O1))
    if state is not State.QUEUED:
        await sessions.move(session, State.PENDING, code="SCHED", orchestrator=O1)
    if state in (State.ALIVE, State.TERMINATED):
        await sessions.move(session, State.ALIVE, code="NALIVE")
    if state is State.TERMINATED:
        await sessions.move(session, State.TERMINATED, code="CLOSED")
    node_beat(session).write(store)
    return session


async def holds_slot(store: Store, session: SessionId) -> bool:
    return bool(await store.exists(grid.SESSION_SLOT(session)))


@pytest.mark.parametrize("state", list(State))
async def test_the_slot_of_a_session_without_a_node_comes_back_in_seconds(
    store: Store, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(role_module, "LOST_PATIENCE", 0.5)
    paper = FakeProvisioner()
    async with orchestrating(store, paper, slots=1):
        await eventually(lambda: store.llen(grid.ORCHESTRATOR_SLOTS_AVAILABLE(O1)))
        lost = await holding(store, state)
        paper.dead = {lost}

        async def is_free() -> bool:
            return bool(await store.llen(grid.ORCHESTRATOR_SLOTS_AVAILABLE(O1)))

        await eventually(is_free, DEADLINE)

        assert await Sessions(store).state(lost) is State.TERMINATED
        assert not await holds_slot(store, lost)
        await check_slots(store, [O1])


async def test_a_session_whose_node_runs_keeps_its_slot(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(role_module, "LOST_PATIENCE", 0.0)
    monkeypatch.setattr(role_module, "LOOK_EVERY", 0.01)
    paper = FakeProvisioner()
    async with orchestrating(store, paper, slots=2) as orchestrator:
        await eventually(lambda: store.llen(grid.ORCHESTRATOR_SLOTS_AVAILABLE(O1)))
        runs, lost = await holding(store, State.ALIVE), await holding(store, State.ALIVE)
        paper.dead = {lost}

        async def is_over() -> bool:
            return not await holds_slot(store, lost)

        await eventually(is_over, DEADLINE)
        await orchestrator._settle_lost()

        assert await holds_slot(store, runs)
        await Slots(store).release(runs)


class FullDisk(FakeProvisioner):
    """Cannot start a node; and from then on Redis, which is read as before, takes no write."""

    def __init__(self, redis: Store) -> None:
        super().__init__()
        self._redis = redis
        self.has_failed = asyncio.Event()

    async def provision(self, session: SessionId, wanted: list[dict[str, Any]], note: Note) -> None:
        await self._redis.send("CONFIG", "SET", "min-replicas-to-write", "1")
        self.has_failed.set()
        raise DriverUnavailable("The disk is full")


async def test_a_failure_to_start_is_written_down_once_redis_takes_writes_again(server: Server) -> None:
    async with Store(server.url) as redis, Store(server.url, timeout=0.2) as own:
        paper = FullDisk(redis)
        async with orchestrating(own, paper, slots=1):
            await eventually(lambda: redis.llen(grid.ORCHESTRATOR_SLOTS_AVAILABLE(O1)))
            session = await placed(redis)
            await asyncio.wait_for(paper.has_failed.wait(), DEADLINE)

            await redis.send("CONFIG", "SET", "min-replicas-to-write", "0")

            await eventually(lambda: is_settled(redis, session, slots=1), DEADLINE)
