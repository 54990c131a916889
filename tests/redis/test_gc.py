"""The gc role: one of many works, another takes over, and a sweep that fails does not stop the rest."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import servers
from remuda.base.errors import Broken, StoreUnavailable
from remuda.fleet.sweep import Sweep
from remuda.grid.sweeps import grid_sweeps
from remuda.keyspace.fleet import LEASE
from remuda.ops.gc import Gc
from remuda.store import Store
from remuda.store.census import take_census
from sweeping import backdate, ended, keys_with, retain
from waiting import eventually


@asynccontextmanager
async def serving(gc: Gc) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(gc.serve(), name="serve gc")
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])


def gc_of(store: Store, *sweeps: Sweep) -> Gc:
    named = {str(number): sweep for number, sweep in enumerate(sweeps)}
    return Gc(store, named, interval=0.005, ask_every=0.005)


class Swept:
    """A sweep that only counts its runs."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.runs = 0
        self._failure = failure

    async def __call__(self) -> Counter[str]:
        self.runs += 1
        if self._failure is not None:
            raise self._failure
        return Counter(things_swept=2)


async def test_the_gc_sweeps_again_and_again(store: Store) -> None:
    swept = Swept()

    async with serving(gc_of(store, swept)):
        await eventually(lambda: swept.runs >= 3)

    assert await store.get(LEASE("gc")) is None


async def test_of_two_gcs_one_works(store: Store, redis_url: str) -> None:
    one, two = Swept(), Swept()

    async with Store(redis_url) as other, serving(gc_of(store, one)):
        await eventually(lambda: one.runs)
        async with serving(gc_of(other, two)):
            seen = one.runs
            await eventually(lambda: one.runs >= seen + 20)

    assert two.runs == 0


async def test_another_takes_over_when_it_leaves(store: Store, redis_url: str) -> None:
    one, two = Swept(), Swept()

    async with Store(redis_url) as other:
        async with serving(gc_of(store, one)):
            await eventually(lambda: one.runs)
        seen = one.runs
        async with serving(gc_of(other, two)):
            await eventually(lambda: two.runs)

    assert one.runs == seen


async def test_another_takes_over_when_it_is_killed(store: Store) -> None:
    swept = Swept()
    await store.set(LEASE("gc"), "a gc that was killed", ex=60)

    async with serving(gc_of(store, swept)):
        await eventually(lambda: store.exists(LEASE("gc")))
        assert swept.runs == 0
        await store.delete(LEASE("gc"))

        await eventually(lambda: swept.runs)


@pytest.mark.parametrize("failure", [Broken("It broke"), StoreUnavailable(), KeyError("oops")])
async def test_a_sweep_that_fails_does_not_stop_the_rest(
    store: Store, failure: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    failing, swept = Swept(failure), Swept()

    async with serving(gc_of(store, failing, swept)) as task:
        await eventually(lambda: swept.runs >= 2)
        assert not task.done()

    assert failing.runs >= 2
    assert "sweep failed" in caplog.text


async def test_what_was_swept_is_logged_with_counts(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    assert await gc_of(store, Swept(), Swept()).run_once() == Counter(things_swept=4)

    (record,) = [record for record in caplog.records if record.message == "swept"]
    assert "'things_swept': 4" in str(record.__dict__)


async def test_nothing_to_sweep_is_nothing_to_tell(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    sweeps = grid_sweeps(store, retention=60)

    assert await Gc(store, sweeps, interval=60).run_once() == Counter()

    assert caplog.records == []


async def test_the_grids_sweeps_run_under_the_gc(store: Store) -> None:
    await retain(store)
    session = await ended(store)
    await backdate(store, session, 61)

    async with serving(Gc(store, grid_sweeps(store, retention=60), interval=60)):

        async def is_gone() -> bool:
            return await keys_with(store, session) == []

        await eventually(is_gone)

    assert await take_census(store) == []


async def test_the_gc_outlives_an_absence_of_redis(server: servers.Server) -> None:
    swept = Swept()
    async with Store(server.url, timeout=servers.PATIENCE) as store, serving(gc_of(store, swept)) as task:
        await eventually(lambda: swept.runs)

        server.kill()
        await eventually(lambda: not store.is_connected)
        server.start()
        await eventually(lambda: store.is_connected)

        seen = swept.runs
        await eventually(lambda: swept.runs > seen)
        assert not task.done()
