"""A model of the grid's book-keeping: after any interleaving every slot is in exactly one place, and every
session in exactly one of the root sets with a life that only runs forwards."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import uvloop
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from grids import all_sessions, check_counters, check_slots, new_session, places
from remuda.base.ids import OrchestratorId, SessionId
from remuda.grid.model import State
from remuda.grid.sessions import Sessions, manager_beat, node_beat
from remuda.grid.slots import OwnSlots, Slots
from remuda.keyspace import grid, metrics
from remuda.store import Store
from remuda.store.census import take_census

ORCHESTRATORS = [OrchestratorId("o1"), OrchestratorId("o2")]

Step = Callable[["Grid", Store, SessionId, OrchestratorId], Awaitable[Any]]


async def _create(grid_: "Grid", store: Store, _session: SessionId, _own: OrchestratorId) -> None:
    grid_.sessions.append(await new_session(store))


async def _claim_anywhere(_grid: "Grid", store: Store, session: SessionId, _own: OrchestratorId) -> None:
    await Slots(store).claim(session, ORCHESTRATORS)


async def _claim_here(_grid: "Grid", store: Store, session: SessionId, own: OrchestratorId) -> None:
    await Slots(store).claim(session, [own])


async def _release(_grid: "Grid", store: Store, session: SessionId, _own: OrchestratorId) -> None:
    await Slots(store).release(session)


async def _schedule(_grid: "Grid", store: Store, session: SessionId, own: OrchestratorId) -> None:
    node_beat(session).write(store)
    await Sessions(store).move(session, State.PENDING, code="SCHED", orchestrator=own)


async def _serve(_grid: "Grid", store: Store, session: SessionId, _own: OrchestratorId) -> None:
    await Sessions(store).move(session, State.ALIVE, code="NALIVE")


async def _end(_grid: "Grid", store: Store, session: SessionId, _own: OrchestratorId) -> None:
    await Sessions(store).move(session, State.TERMINATED, code="TERM")


async def _lose_manager(_grid: "Grid", store: Store, session: SessionId, _own: OrchestratorId) -> None:
    await store.delete(manager_beat(session).key)


async def _lose_node(_grid: "Grid", store: Store, session: SessionId, _own: OrchestratorId) -> None:
    await store.delete(node_beat(session).key)


async def _recycle(grid_: "Grid", store: Store, _session: SessionId, own: OrchestratorId) -> None:
    await OwnSlots(store, own, count=grid_.counts[own]).recycle()


async def _reclaim(grid_: "Grid", store: Store, _session: SessionId, own: OrchestratorId) -> None:
    slots = OwnSlots(store, own, count=grid_.counts[own])
    dead, orphaned = await slots.reclaim()
    assert orphaned == [], "a slot was lost"
    for session in dead:
        await Sessions(store).move(session, State.TERMINATED, code="TERM")
        if await Slots(store).release(session):
            grid_.reclaimed += 1
            await slots.count_dead()


async def _restart(grid_: "Grid", store: Store, _session: SessionId, own: OrchestratorId) -> None:
    await OwnSlots(store, own, count=grid_.counts[own]).adjust()


STEPS: list[Step] = [
    _create,
    _claim_anywhere,
    _claim_here,
    _release,
    _schedule,
    _serve,
    _end,
    _lose_manager,
    _lose_node,
    _recycle,
    _reclaim,
    _restart,
]


class Grid(RuleBasedStateMachine):
    """Two orchestrators, and whoever else writes about their sessions, over two connections."""

    redis_url = ""

    def __init__(self) -> None:
        super().__init__()
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self.sessions: list[SessionId] = []
        self.counts = {ORCHESTRATORS[0]: 2, ORCHESTRATORS[1]: 1}
        self.reclaimed = 0

    @initialize()
    def begin(self) -> None:
        self._runner.run(self._begin())

    async def _begin(self) -> None:
        self._stores = [await Store(self.redis_url).__aenter__() for _ in range(2)]
        await self._stores[0].send("FLUSHALL")
        for own, count in self.counts.items():
            await OwnSlots(self._stores[0], own, count=count).adjust()
            await OwnSlots(self._stores[0], own, count=count).recycle()
        self.sessions.append(await new_session(self._stores[0]))

    @rule(
        steps=st.lists(
            st.tuples(st.sampled_from(STEPS), st.integers(0, 1), st.integers(0, 99), st.integers(0, 1)),
            min_size=1,
            max_size=8,
        )
    )
    def together(self, steps: list[tuple[Step, int, int, int]]) -> None:
        """Several steps at the same time."""
        self._runner.run(self._together(steps))

    async def _together(self, steps: list[tuple[Step, int, int, int]]) -> None:
        known = list(self.sessions)
        await asyncio.gather(
            *(
                step(self, self._stores[store], known[session % len(known)], ORCHESTRATORS[own])
                for step, store, session, own in steps
            )
        )

    @rule(own=st.sampled_from(ORCHESTRATORS), count=st.integers(0, 4))
    def resize(self, own: OrchestratorId, count: int) -> None:
        """The orchestrator comes back with another number of slots."""
        self.counts[own] = count
        self._runner.run(_restart(self, self._stores[0], self.sessions[0], own))

    @invariant()
    def every_slot_is_in_one_place(self) -> None:
        if self.sessions:
            self._runner.run(check_slots(self._stores[1], ORCHESTRATORS))

    @invariant()
    def every_life_runs_forwards(self) -> None:
        if self.sessions:
            self._runner.run(self._check_lives())

    async def _check_lives(self) -> None:
        store = self._stores[1]
        active = set(await store.smembers(grid.SESSIONS_ACTIVE()))
        terminated = set(await store.smembers(grid.SESSIONS_TERMINATED()))
        assert active | terminated == set(self.sessions)
        assert not active & terminated
        for session in self.sessions:
            status = await store.hgetall(grid.SESSION_STATUS(session))
            stamps = [status[state.stamp] for state in State if state.stamp in status]
            assert stamps == sorted(stamps)
            assert (State.TERMINATED.stamp in status) == (session in terminated)

    def teardown(self) -> None:
        if self.sessions:
            self._runner.run(self._finish())
        self._runner.close()

    async def _finish(self) -> None:
        """Everybody ends, and everything is as it was: no slot is lost, no counter wrong, no key strange."""
        store = self._stores[0]
        await check_counters(store)
        assert int(await store.hget(metrics.METRICS_SLOTS_RECLAIMED(), "dead") or 0) == self.reclaimed
        for session in await all_sessions(store):
            await _end(self, store, session, ORCHESTRATORS[0])
            await _release(self, store, session, ORCHESTRATORS[0])
        for own, count in self.counts.items():
            await _restart(self, store, self.sessions[0], own)
            await _recycle(self, store, self.sessions[0], own)
            assert await places(store, own) == {
                f"{own}/{number}": ["available"] for number in range(1, count + 1)
            }
        assert await take_census(store) == []
        for each in self._stores:
            await each.__aexit__(None, None, None)


def test_after_any_interleaving_every_slot_is_in_exactly_one_place(redis_url: str) -> None:
    Grid.redis_url = redis_url
    steps = settings(max_examples=40, stateful_step_count=25, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(Grid, settings=steps)
