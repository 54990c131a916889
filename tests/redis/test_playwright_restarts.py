"""Restarts are staggered for real: in a simulation with the real scripts, under loads that made
the original's staggering collapse, never more than the share of the workers is out at the same time."""

from collections.abc import Iterator
from itertools import count
from random import Random

import pytest

from registered_workers import CHROMIUM, check_registry, entry, give_back, lifetime, placed, register
from remuda.base.ids import ConnectionId, WorkerId, new_id
from remuda.keyspace.playwright import PLAYWRIGHT_VACANT, PLAYWRIGHT_WORKERS, WORKER, WORKER_COMMAND
from remuda.playwright.leases import Leases
from remuda.playwright.model import Place, WorkerLimits
from remuda.playwright.registry import Registry
from remuda.playwright.selector import Selector
from remuda.store import Store

TICKS = 300
SESSION_TICKS = (5, 15)
RESTART_TICKS = 20


class Fleet:
    """Workers that obey, gateways that keep so many sessions going, and a clock of ticks."""

    def __init__(self, store: Store, limits: WorkerLimits, *, workers: int, sessions: int) -> None:
        self._store = store
        self._wanted = sessions
        self._random = Random(workers)
        self._selector, self._leases = Selector(store, limits), Leases(store, limits)
        self._names: Iterator[str] = (f"w{number}" for number in count())
        self._workers: dict[WorkerId, Registry] = {}
        self._draining: set[WorkerId] = set()
        self._restarting: list[int] = [0] * workers
        self._sessions: list[tuple[int, Place]] = []
        self.restarts = 0
        self.refused = 0

    @property
    def out(self) -> int:
        """Workers that take no connections: those that drain and those that restart."""
        return len(self._draining) + len(self._restarting)

    async def tick(self, now: int) -> None:
        await self._start_workers(now)
        await self._end_sessions(now)
        await self._drain_workers(now)
        await self._begin_sessions(now)
        await self._leases.sweep(CHROMIUM)

    async def _start_workers(self, now: int) -> None:
        due = [tick for tick in self._restarting if tick <= now]
        self._restarting = [tick for tick in self._restarting if tick > now]
        for name in [next(self._names) for _ in due]:
            self._workers[WorkerId(name)] = worker = entry(self._store, name)
            await worker.register()

    async def _end_sessions(self, now: int) -> None:
        over = [place for ends, place in self._sessions if ends <= now]
        self._sessions = [(ends, place) for ends, place in self._sessions if ends > now]
        for place in over:
            assert await self._leases.give_back(place)

    async def _drain_workers(self, now: int) -> None:
        for name, worker in list(self._workers.items()):
            if name not in self._draining and await worker.beat():
                await worker.drain()
                self._draining.add(name)
            if name in self._draining and await worker.active() == 0:
                await worker.leave()
                del self._workers[name]
                self._draining.discard(name)
                self._restarting.append(now + RESTART_TICKS)
                self.restarts += 1

    async def _begin_sessions(self, now: int) -> None:
        while len(self._sessions) < self._wanted:
            place = await self._selector.pick(CHROMIUM, ConnectionId(new_id()), version="1.62")
            if place is None:
                self.refused += 1
                return
            assert place.worker not in self._draining
            self._sessions.append((now + self._random.randint(*SESSION_TICKS), place))


@pytest.mark.parametrize(("workers", "sessions", "share", "allowed"), [(4, 10, 25, 1), (8, 36, 25, 2)])
async def test_the_lifetime_limit_never_takes_more_than_the_share_out(
    store: Store, workers: int, sessions: int, share: int, allowed: int
) -> None:
    limits = WorkerLimits(concurrent=5, lifetime=50, restart_share=share, lease=600)
    fleet = Fleet(store, limits, workers=workers, sessions=sessions)
    worst = 0

    for now in range(TICKS):
        await fleet.tick(now)
        worst = max(worst, fleet.out)

    assert worst == allowed
    assert fleet.restarts >= 3, "the limit was reached again and again"
    assert sum((await check_registry(store)).values()) <= sessions


class Handover:
    """One worker that is replaced while it still drains, as `remuda up` does, and its clients in turn."""

    def __init__(self, store: Store, limits: WorkerLimits) -> None:
        self._store = store
        self._selector, self._leases = Selector(store, limits), Leases(store, limits)
        self._names: Iterator[str] = (f"w{number}" for number in count())
        self._current: Registry
        self._drained: Registry | None = None
        self.most = 0
        self.restarts = 0

    async def start(self) -> None:
        self._current = entry(self._store, next(self._names))
        await self._current.register()

    async def serve_a_client(self) -> None:
        place = await self._selector.pick(CHROMIUM, ConnectionId(new_id()), version="1.62")
        assert place is not None
        assert await self._leases.give_back(place)
        self.most = max(self.most, *(await lifetime(self._store)).values())

    async def obey(self) -> None:
        """What the worker does with its next beat, and its herd with what it says."""
        if self._drained is not None:
            await self._drained.leave()
            self._drained = None
        if await self._current.beat():
            await self._current.drain()
            self._drained = self._current
            await self.start()
            self.restarts += 1


async def test_a_worker_that_was_replaced_before_it_left_holds_up_no_restart(store: Store) -> None:
    limits = WorkerLimits(lifetime=5, lease=600)
    fleet = Handover(store, limits)
    await fleet.start()

    for _ in range(60):
        await fleet.serve_a_client()
        await fleet.obey()

    assert fleet.most == limits.lifetime
    assert fleet.restarts == 12


async def test_a_vacancy_that_is_over_is_not_the_one_that_a_new_worker_fills(store: Store) -> None:
    limits = WorkerLimits(lifetime=1, restart_share=25, lease=600)
    (leaver,) = await register(store, "w1")
    await leaver.leave()
    await store.zadd(PLAYWRIGHT_VACANT(CHROMIUM), {"long ago": 1})
    await register(store, "w2")

    await give_back(store, await placed(store, limits=limits), limits=limits)

    assert await store.get(WORKER_COMMAND(CHROMIUM, "w2")) == "shutdown", "it is its turn: nobody is out"


async def test_a_worker_that_comes_back_fills_nobodys_vacancy(store: Store) -> None:
    limits = WorkerLimits(lifetime=1, restart_share=25, lease=600)
    leaver, own = await register(store, "w1", "w2")
    await leaver.leave()
    await store.delete(WORKER(CHROMIUM, "w2"))
    await store.zrem(PLAYWRIGHT_WORKERS(CHROMIUM), "w2")
    await own.beat()

    await give_back(store, await placed(store, limits=limits), limits=limits)

    assert await store.get(WORKER_COMMAND(CHROMIUM, "w2")) is None, "the first one is still missed"
