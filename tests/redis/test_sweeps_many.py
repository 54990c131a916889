"""Many sessions, and those of others: a sweep takes bounded bites, and only of what is its own."""

from collections import Counter

import pytest

from remuda.base.ids import OrchestratorId, SessionId, new_id
from remuda.fleet.sweep import BATCH
from remuda.grid.model import State
from remuda.grid.sessions import Sessions
from remuda.grid.sweeps import SessionSweeps
from remuda.keyspace import grid
from remuda.store import Store
from remuda.store.census import take_census
from sweeping import Watched, backdate, ended, forsake, keys_with, retain, sweep_all


@pytest.fixture(autouse=True)
async def orchestrator(store: Store) -> None:
    await retain(store)


async def make_many(store: Store, count: int) -> None:
    """At least so many ended sessions, with the keys that matter; one by one it would take too long."""
    session = await ended(store)
    status = await store.hgetall(grid.SESSION_STATUS(session))
    for _ in range(0, count, BATCH):
        replies = []
        for each in [new_id() for _ in range(BATCH)]:
            replies += [
                store.hset(grid.SESSION_STATUS(each), status),
                store.hset(grid.SESSION_CAPABILITIES(each), {"requested": "[{}]", "actual": "{}"}),
                store.xadd(grid.SESSION_LOG(each), {"code": "CLOSED"}, about=1000),
                store.sadd(grid.SESSIONS_TERMINATED(), each),
            ]
        for reply in replies:
            await reply


async def test_ten_thousand_sessions_are_purged_in_bounded_bites(store: Store, redis_url: str) -> None:
    await make_many(store, 10_000)
    left = await store.scard(grid.SESSIONS_TERMINATED())
    assert left >= 10_000

    async with Watched(redis_url) as watched:
        sweeps = SessionSweeps(watched, retention=0, per_run=2_000)
        for _ in range(20):
            purged = (await sweeps.purge_old())["sessions_purged"]
            # A scan may give a few more than it is asked for.
            assert purged <= 3_000
            left -= purged
            assert await store.scard(grid.SESSIONS_TERMINATED()) == left

    assert left == 0
    assert await keys_with(store, "session:") == []
    assert await take_census(store) == []
    # Nothing that asks for everything at once, and nothing that works on more than a batch. INFO tells how
    # full Redis is.
    assert watched.lengths.keys() <= {"SSCAN", "EVALSHA", "EVAL", "INFO"}
    assert max(watched.lengths["EVALSHA"]) <= BATCH + 12


async def test_a_scan_takes_up_where_it_stopped(store: Store) -> None:
    await make_many(store, 1_000)
    sweeps = SessionSweeps(store, retention=3600, per_run=BATCH)
    for session in await store.smembers(grid.SESSIONS_TERMINATED()):
        await backdate(store, SessionId(session), 7200)

    runs = 0
    while await store.scard(grid.SESSIONS_TERMINATED()):
        assert (await sweeps.purge_old())["sessions_purged"] <= 4 * BATCH
        runs += 1

    assert 1_000 / (4 * BATCH) <= runs < 100


async def test_another_fleets_sessions_are_not_touched(store: Store, redis_url: str) -> None:
    theirs = await ended(store)
    before = await keys_with(store, "")

    async with Store(redis_url, prefix="other:") as other:
        await retain(other, OrchestratorId("o1"))
        ours = await ended(other)
        await forsake(other)
        done = await sweep_all(other, retention=0)

    assert done == Counter(sessions_purged=1, orchestrators_purged=1)
    assert await keys_with(store, ours) == []
    assert await keys_with(store, "other:orchestrator") == []
    assert [key for key in await keys_with(store, "") if not key.startswith("other:")] == before
    assert await Sessions(store).state(theirs) is State.TERMINATED
