"""The nine invariants of the grid, whoever is killed between whichever two steps.

To look for new accidents: CHAOS_SEEDS=500 make test ARGS="-k chaos".
"""

import asyncio
import os
from collections import Counter
from contextlib import suppress
from itertools import pairwise
from random import Random

import pytest

from chaos import Chaos
from grids import all_sessions, check_counters, check_slots, places
from remuda.base.clock import parse_rfc3339
from remuda.base.ids import OrchestratorId
from remuda.fleet.origin import DEFAULT_ACCOUNT
from remuda.fleet.uses import AccountUsage, Uses, usage_of
from remuda.grid.model import State, state_of
from remuda.grid.timeouts import timeouts
from remuda.keyspace import grid, metrics
from remuda.store import Store
from remuda.store.census import take_census
from sweeping import keys_with, silence, sweep_all
from waiting import eventually

SLOTS = {OrchestratorId("o1"): 2, OrchestratorId("o2"): 1}
CLIENTS = 8
LEAVING = 0.25
SEEDS = int(os.environ.get("CHAOS_SEEDS", "12"))
HURRY = {
    "queue": 2,
    "scheduling": 1,
    "nodeStartup": 1,
    "sessionTermination": 1,
    "slotReclaimInterval": 0.02,
}
ANSWER_WITHIN = 30.0
"""More than queue, scheduling and start-up may take together."""


async def check_lives(store: Store) -> None:
    """Each session is in one of the root sets, and its life only runs forwards."""
    active = set(await store.smembers(grid.SESSIONS_ACTIVE()))
    terminated = set(await store.smembers(grid.SESSIONS_TERMINATED()))
    assert not active & terminated
    for session in active | terminated:
        status = await store.hgetall(grid.SESSION_STATUS(session))
        stamps = [status[state.stamp] for state in State if state.stamp in status]
        assert stamps == sorted(stamps)
        assert (state_of(status) is State.TERMINATED) == (session in terminated)


async def check_totals(store: Store) -> None:
    """The totals of states, and of the time spent in each, say what the sessions themselves say."""
    counted = await store.hgetall(metrics.METRICS_SESSIONS_TOTAL())
    timed = await store.hgetall(metrics.METRICS_SESSIONS_DURATION())
    reached, spent = Counter[str](), Counter[str]()
    for session in await all_sessions(store):
        status = await store.hgetall(grid.SESSION_STATUS(session))
        states = [state for state in State if state.stamp in status]
        reached.update(states)
        for state, following in pairwise(states):
            spent[state] += round(
                1000 * (parse_rfc3339(status[following.stamp]) - parse_rfc3339(status[state.stamp]))
            )
    assert {state: int(count) for state, count in counted.items()} == reached
    assert {state: round(1000 * float(seconds)) for state, seconds in timed.items()} == spent


async def use(chaos: Chaos, dice: Random) -> None:
    """A client: asks for a session after a while, uses it for a while, and ends it, if nobody else does. Some
    lose their patience before they have it, and some simply go."""
    await asyncio.sleep(dice.random() / 5)
    if dice.random() < LEAVING:
        with suppress(TimeoutError):
            await asyncio.wait_for(chaos.ask(), dice.random() / 5)
        return
    async with asyncio.timeout(ANSWER_WITHIN):
        session = await chaos.ask()
    if session is not None:
        await asyncio.sleep(dice.random() / 10)
        await chaos.end_node(session)


async def is_nothing_used(store: Store) -> bool:
    return await usage_of(store, [DEFAULT_ACCOUNT]) == {DEFAULT_ACCOUNT: AccountUsage(0, 0)}


async def is_over(store: Store) -> bool:
    """Whether no session lives any more and every slot is free again."""
    free = [await store.llen(grid.ORCHESTRATOR_SLOTS_AVAILABLE(own)) for own in SLOTS]
    return not await store.scard(grid.SESSIONS_ACTIVE()) and free == list(SLOTS.values())


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_whoever_is_killed_no_slot_is_lost_and_every_client_has_an_answer(
    redis_url: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Uses.__init__, "__kwdefaults__", {"lease": 2.0})
    dice = Random(seed)
    async with Chaos(redis_url, dice, slots=SLOTS) as chaos:
        store = chaos.store
        await timeouts(store).write_defaults()
        await store.hset(grid.TIMEOUTS(), HURRY)

        await asyncio.gather(*(use(chaos, dice) for _ in range(CLIENTS)))
        await chaos.calm()

        await eventually(lambda: is_over(store), deadline=30.0)
        assert chaos.wrongs == []
        for own, count in SLOTS.items():
            assert await places(store, own) == {f"{own}/{n}": ["available"] for n in range(1, count + 1)}
        await check_slots(store, SLOTS)
        await check_lives(store)
        await check_counters(store)
        await check_totals(store)
        await eventually(lambda: is_nothing_used(store))
        assert await take_census(store) == []
        await check_nothing_is_left(store)


async def test_without_accidents_every_client_has_its_session(redis_url: str) -> None:
    # Or else the test above would prove nothing: sessions that never come about lose no slots.
    async with Chaos(redis_url, Random(0), slots=SLOTS, is_calm=True) as chaos:
        # Slots are there earlier: until both have registered, a client may hear that there is no browser.
        await eventually(lambda: are_registered(chaos.store))

        sessions = await asyncio.gather(*(chaos.ask() for _ in range(sum(SLOTS.values()))))

        assert None not in sessions


async def are_registered(store: Store) -> bool:
    return await store.scard(grid.ORCHESTRATORS()) == len(SLOTS)


async def check_nothing_is_left(store: Store) -> None:
    """When the last beats have run out and all are purged, no key tells of any session."""
    sessions = await all_sessions(store)
    for session in sessions:
        await silence(store, session)
    await sweep_all(store, retention=0)
    for session in sessions:
        assert await keys_with(store, session) == []
