"""A gc that is killed between any two of its steps leaves nothing worse than before, and the next one
finishes. So does one that others work against."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from grids import all_sessions, check_counters, check_slots, own_slots
from remuda.base.ids import OrchestratorId, SessionId
from remuda.grid.model import State, state_of
from remuda.grid.slots import Slots
from remuda.keyspace import grid
from remuda.store import Store
from remuda.store.census import take_census
from sweeping import (
    O1,
    Killed,
    Mortal,
    alive,
    backdate,
    ended,
    forsake,
    keys_with,
    pending,
    placed,
    queued,
    retain,
    silence,
    sweep_all,
)

O2 = OrchestratorId("o2")
RETENTION = 3600.0
MAX_STEPS = 300


@pytest.fixture
async def mortal(redis_url: str) -> AsyncIterator[Mortal]:
    Mortal.lives = 1000  # Enough to connect.
    async with Mortal(redis_url) as store:
        yield store


async def make_a_mess(store: Store) -> list[SessionId]:
    """One of everything that a sweep may meet; those of the sessions that are to survive as they are."""
    await store.send("FLUSHALL")
    await retain(store, O1, slots=6)
    await retain(store, O2, slots=2)
    silent = [await queued(store), await placed(store), await pending(store), await alive(store)]
    await silence(store, *silent)
    healthy = await new_at(store, O2)
    old = await ended(store)
    await backdate(store, old, 2 * RETENTION)
    recent = await ended(store)
    await store.sadd(grid.SESSIONS_ACTIVE(), recent)
    await store.srem(grid.ORCHESTRATORS(), O1)
    await forsake(store, O1)
    await store.hset(grid.MANAGER("m1"), {"host": "127.0.0.1", "port": 1})
    await store.sadd(grid.MANAGERS(), "m1")
    return [healthy, recent]


async def new_at(store: Store, orchestrator: OrchestratorId) -> SessionId:
    session = await queued(store)
    await Slots(store).claim(session, [orchestrator])
    return session


async def check_nothing_is_worse(store: Store, survivors: list[SessionId]) -> None:
    """Every session has all of its keys or none, every slot is in one place, every counter is right."""
    for session in await all_sessions(store):
        assert await store.exists(grid.SESSION_STATUS(session), grid.SESSION_CAPABILITIES(session)) == 2
    for session in survivors:
        assert await store.exists(grid.SESSION_STATUS(session))
    await check_slots(store, [O1, O2])
    assert await take_census(store) == []


async def check_all_is_swept(store: Store, survivors: list[SessionId]) -> None:
    healthy, recent = survivors
    active = await store.smembers(grid.SESSIONS_ACTIVE())
    assert active == [healthy]
    for session in await store.smembers(grid.SESSIONS_TERMINATED()):
        status = await store.hgetall(grid.SESSION_STATUS(session))
        assert state_of(status) is State.TERMINATED
        assert not await store.exists(grid.SESSION_SLOT(session))
    assert recent in await all_sessions(store)
    assert await keys_with(store, f"orchestrator:{O1}") == []
    assert await keys_with(store, "m1") == []
    await check_slots(store, [O2])


async def test_a_gc_may_be_killed_between_any_two_steps(store: Store, mortal: Mortal) -> None:
    for steps in range(MAX_STEPS):
        survivors = await make_a_mess(store)
        mortal.lives = steps
        was_killed = False
        try:
            await sweep_all(mortal, retention=RETENTION)
        except Killed:
            was_killed = True
        await check_nothing_is_worse(store, survivors)

        await sweep_all(store, retention=RETENTION)

        await check_all_is_swept(store, survivors)
        if not was_killed:
            assert steps > 20
            return
    raise AssertionError("it never comes to an end")


async def test_an_orchestrator_may_come_back_between_any_two_steps(store: Store, mortal: Mortal) -> None:
    for steps in range(MAX_STEPS):
        await store.send("FLUSHALL")
        await retain(store, O1, slots=3)
        await silence(store, await placed(store), await alive(store))
        await forsake(store, O1)
        mortal.lives = steps
        was_killed = True
        with suppress(Killed):
            await sweep_all(mortal, retention=RETENTION)
            was_killed = False

        own = await own_slots(store, O1, 3)
        await check_slots(store, [O1])
        for session in (await own.reclaim())[0]:
            await Slots(store).release(session)
        await own.recycle()

        assert await store.llen(grid.ORCHESTRATOR_SLOTS_AVAILABLE(O1)) == 3
        if not was_killed:
            return
    raise AssertionError("it never comes to an end")


async def test_two_gcs_that_both_believe_to_be_the_one_do_no_harm(store: Store, redis_url: str) -> None:
    async with Store(redis_url) as other:
        for _ in range(5):
            survivors = await make_a_mess(store)

            await asyncio.gather(
                *(sweep_all(each, retention=RETENTION) for each in (store, other, store, other))
            )

            await check_all_is_swept(store, survivors)
            await check_nothing_is_worse(store, survivors)


async def test_the_counters_say_what_the_logs_say(store: Store) -> None:
    await retain(store)
    await silence(store, await queued(store), await placed(store), await pending(store), await alive(store))
    await forsake(store)

    await sweep_all(store)

    await check_counters(store)
