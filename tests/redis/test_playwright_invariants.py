"""A model of the connections: whatever happens in whatever order, the active counter, the leases and the
connections there really are agree. Each step is one script, so every order of steps is every interleaving."""

import asyncio
from collections import Counter
from collections.abc import Awaitable
from typing import Any

import uvloop
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from registered_workers import CHROMIUM, active, check_registry, entry, lifetime, pick, reaper
from remuda.base.errors import NoWorker, VersionNotOffered
from remuda.base.ids import WorkerId
from remuda.keyspace import playwright
from remuda.playwright.leases import Leases
from remuda.playwright.model import Outcome, Place, WorkerLimits
from remuda.playwright.registry import Registry
from remuda.store import Store
from remuda.store.census import take_census

LIMITS = WorkerLimits(concurrent=3, lifetime=8, restart_share=34, lease=600)
VERSIONS = ["1.62", "1.65", ""]
WORKERS = playwright.PLAYWRIGHT_WORKERS(CHROMIUM)
LEASES = playwright.PLAYWRIGHT_LEASES(CHROMIUM)


class RegistryMachine(RuleBasedStateMachine):
    """Some workers and gateways, of which any may die, over a Redis that may forget everything."""

    redis_url = ""

    def __init__(self) -> None:
        super().__init__()
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self._store: Store
        self.number = 0
        self.workers: dict[WorkerId, Registry] = {}
        self.draining: set[WorkerId] = set()
        self.live: list[Place] = []
        self.abandoned: list[Place] = []
        """Connections of a gateway that was killed: gone, but counted until their lease is over."""
        self.is_lost = False
        """Whether Redis has forgotten connections that nobody has told it of again yet."""
        self.was_lost = False

    def _do(self, step: Awaitable[Any]) -> Any:
        async def run() -> Any:
            return await step

        return self._runner.run(run())

    @initialize()
    def begin(self) -> None:
        self._do(self._begin())

    async def _begin(self) -> None:
        self._store = await Store(self.redis_url).__aenter__()
        await self._store.send("FLUSHALL")
        await self._start("1.62")

    async def _start(self, version: str) -> None:
        self.number += 1
        name = WorkerId(f"w{self.number}")
        # Without patience: what it does not see connected, it takes off at once, unless that has a lease.
        self.workers[name] = entry(self._store, name, version=version, lease=0)
        await self.workers[name].register()

    # Workers

    @precondition(lambda self: len(self.workers) < 4)
    @rule(version=st.sampled_from(VERSIONS))
    def a_worker_comes(self, version: str) -> None:
        self._do(self._start(version))

    def _any_worker(self, choice: int) -> WorkerId:
        return sorted(self.workers)[choice % len(self.workers)]

    @precondition(lambda self: self.workers)
    @rule(choice=st.integers(0, 9))
    def a_worker_beats(self, choice: int) -> None:
        name = self._any_worker(choice)
        sockets = sum(place.worker == name for place in self.live)
        if self._do(self.workers[name].beat(sockets=sockets)):
            self._do(self.workers[name].drain())
            self.draining.add(name)

    @precondition(lambda self: self.workers)
    @rule(choice=st.integers(0, 9))
    def a_worker_leaves_and_its_connections_end(self, choice: int) -> None:
        name = self._any_worker(choice)
        self._do(self.workers[name].drain())
        self._do(self.workers[name].leave())
        self._forget(name)
        self.live = [place for place in self.live if place.worker != name]
        self.abandoned = [place for place in self.abandoned if place.worker != name]

    @precondition(lambda self: self.workers)
    @rule(choice=st.integers(0, 9))
    def a_worker_is_killed_and_its_key_expires(self, choice: int) -> None:
        name = self._any_worker(choice)
        self._do(self._expire(name))
        self._forget(name)

    async def _expire(self, name: WorkerId) -> None:
        await self._store.delete(playwright.WORKER(CHROMIUM, name))
        await self._store.send("ZADD", WORKERS, "XX", 1, name)

    def _forget(self, name: WorkerId) -> None:
        del self.workers[name]
        self.draining.discard(name)

    @precondition(lambda self: self.workers)
    @rule(choice=st.integers(0, 9))
    def a_workers_key_is_lost(self, choice: int) -> None:
        self._do(self._store.delete(playwright.WORKER(CHROMIUM, self._any_worker(choice))))

    # Connections

    @rule(version=st.sampled_from(VERSIONS))
    def a_client_comes(self, version: str) -> None:
        try:
            place = self._do(pick(self._store, version=version, limits=LIMITS))
        except (NoWorker, VersionNotOffered):
            return
        if place is not None:
            assert place.worker in self.workers
            assert place.worker not in self.draining
            self.live.append(place)

    @precondition(lambda self: self.live)
    @rule(choice=st.integers(0, 99), times=st.integers(1, 2), outcome=st.sampled_from(Outcome))
    def a_client_goes(self, choice: int, times: int, outcome: Outcome) -> None:
        place = self.live.pop(choice % len(self.live))
        for _ in range(times):
            self._do(Leases(self._store, LIMITS).give_back(place, outcome))

    @rule()
    def a_gateway_is_killed(self) -> None:
        half = len(self.live) // 2
        self.abandoned += self.live[:half]
        del self.live[:half]

    @rule()
    def the_leases_of_the_dead_run_out(self) -> None:
        self._do(self._run_out())
        self.abandoned = []

    async def _run_out(self) -> None:
        for place in self.abandoned:
            await self._store.send("ZADD", LEASES, "XX", 1, f"{place.worker}/{place.connection}")
        await Leases(self._store, LIMITS).sweep(CHROMIUM)

    @rule()
    def gateways_renew(self) -> None:
        self._do(Leases(self._store, LIMITS).renew(self.live))
        self.is_lost = False

    # What befalls everybody

    @rule()
    def the_reaper_runs(self) -> None:
        self._do(reaper(self._store, LIMITS).sweep())

    @rule()
    def redis_forgets_everything(self) -> None:
        self._do(self._store.send("FLUSHALL"))
        self.abandoned = []
        self.is_lost = self.was_lost = True

    # What always holds

    @invariant()
    def the_counters_tell_the_truth(self) -> None:
        if self.number:
            self._do(self._check())

    async def _check(self) -> None:
        shown = await check_registry(self._store)
        real = Counter(place.worker for place in [*self.live, *self.abandoned])
        ever = await lifetime(self._store)
        for name in {*shown, *real}:
            count = shown.get(name, 0)
            assert ever.get(f"{CHROMIUM}:{name}", 0) >= count
            assert 0 <= count <= real[WorkerId(name)]
            assert self.is_lost or count == real[WorkerId(name)]
            # Whoever is let in while Redis has forgotten the others comes on top of them.
            assert self.was_lost or count <= LIMITS.concurrent

    def teardown(self) -> None:
        if self.number:
            self._do(self._finish())
        self._runner.close()

    async def _finish(self) -> None:
        """Everybody goes, and nothing is left behind."""
        store = self._store
        for place in self.live:
            await Leases(store, LIMITS).give_back(place)
        await self._run_out()
        for worker in self.workers.values():
            await worker.leave()
        for member in await store.zrange(WORKERS):
            await store.zadd(WORKERS, {member: 1})
        await reaper(store, LIMITS).sweep()
        assert await active(store) == {}
        assert await lifetime(store) == {}
        for key in (WORKERS, LEASES, playwright.PLAYWRIGHT_SUSPECTS(CHROMIUM)):
            assert await store.zrange(key) == []
        assert await store.hgetall(playwright.PLAYWRIGHT_FAILURES(CHROMIUM)) == {}
        for version in ("1.62", "1.65", "any"):
            assert await store.zrange(playwright.PLAYWRIGHT_FREE(CHROMIUM, version)) == []
        assert await take_census(store) == []
        await store.__aexit__(None, None, None)


def test_after_any_interleaving_the_counters_tell_the_truth(redis_url: str) -> None:
    RegistryMachine.redis_url = redis_url
    steps = settings(max_examples=60, stateful_step_count=40, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(RegistryMachine, settings=steps)
