"""Slots: never lost, never given twice, and back where they belong."""

import asyncio
from collections import Counter

import pytest

from grids import check_counters, check_slots, claim, codes_of, new_session, own_slots, places
from remuda.base.ids import OrchestratorId, SlotId
from remuda.fleet.bell import bell_of
from remuda.grid.model import State
from remuda.grid.sessions import Sessions
from remuda.grid.slots import Slots, freed_bell, owner_of
from remuda.keyspace import grid
from remuda.store import Store
from remuda.store.census import take_census

O1, O2, O3 = OrchestratorId("o1"), OrchestratorId("o2"), OrchestratorId("o3")


# Claiming


async def test_a_claim_hands_the_session_to_the_slots_orchestrator_in_one_step(store: Store) -> None:
    await own_slots(store, O1, 1)

    with store.subscribe(bell_of(grid.ORCHESTRATOR_BACKLOG(O1))) as rings:
        session, slot = await claim(store, O1)
        assert await rings.wait(10) == [""]

    assert slot == "o1/1"
    assert owner_of(slot) == O1
    assert await store.get(grid.SESSION_SLOT(session)) == slot
    assert await store.lrange(grid.ORCHESTRATOR_BACKLOG(O1)) == [session]
    assert await store.hgetall(grid.ORCHESTRATOR_HOLDERS(O1)) == {slot: session}
    assert await codes_of(store, session) == ["NALLOC"]
    await check_slots(store, [O1])
    await check_counters(store)
    assert await take_census(store) == []


async def test_a_claim_goes_where_most_is_free(store: Store) -> None:
    for orchestrator, count in ((O1, 1), (O2, 3), (O3, 2)):
        await own_slots(store, orchestrator, count)

    slots = [(await claim(store, O1, O2, O3))[1] for _ in range(6)]

    owners = [owner_of(slot) for slot in slots if slot is not None]
    assert owners[0] == O2
    assert set(owners[1:3]) == {O2, O3}
    assert Counter(owners) == {O1: 1, O2: 3, O3: 2}
    assert (await claim(store, O1, O2, O3))[1] is None


async def test_only_candidates_are_asked(store: Store) -> None:
    await own_slots(store, O1, 1)
    await own_slots(store, O2, 5)

    assert (await claim(store, O1))[1] == "o1/1"
    assert (await claim(store, O1))[1] is None


async def test_a_slot_of_webgrids_own_orchestrator_is_claimed_and_given_back(store: Store) -> None:
    own = "9ac2d277-57d4-4d1e-a1b7-5f1c1b4e8f0a"
    await store.sadd(grid.ORCHESTRATOR_SLOTS(O2), own)
    await store.rpush(grid.ORCHESTRATOR_SLOTS_AVAILABLE(O2), own)

    session, slot = await claim(store, O1, O2)

    assert slot == await store.get(grid.SESSION_SLOT(session)) == own
    assert await store.lrange(grid.ORCHESTRATOR_BACKLOG(O2)) == [session]
    await Sessions(store).move(session, State.PENDING, code="SCHED", orchestrator=O2)
    assert await Slots(store).release(session) == own
    assert await store.lrange(grid.ORCHESTRATOR_SLOTS_RECLAIMED(O2)) == [own]
    assert not await store.exists(grid.ORCHESTRATOR_HOLDERS(O2), grid.SESSION_SLOT(session))


async def test_a_slot_of_an_unknown_owner_is_left_to_its_search_for_lost_ones(store: Store) -> None:
    session = await new_session(store)
    await store.set(grid.SESSION_SLOT(session), "9ac2d277-57d4-4d1e-a1b7-5f1c1b4e8f0a")

    await Slots(store).release(session)

    assert not await store.exists(grid.SESSION_SLOT(session))


async def test_a_claim_that_finds_nothing_changes_nothing(store: Store) -> None:
    session, slot = await claim(store, O1)

    assert slot is None
    assert await store.exists(grid.SESSION_SLOT(session), grid.ORCHESTRATOR_BACKLOG(O1)) == 0
    assert await codes_of(store, session) == []


async def test_a_session_gets_one_slot_however_often_it_asks(store: Store) -> None:
    await own_slots(store, O1, 2)
    session, _ = await claim(store, O1)

    assert await Slots(store).claim(session, [O1]) is None
    assert await store.llen(grid.ORCHESTRATOR_BACKLOG(O1)) == 1


@pytest.mark.parametrize("state", [State.PENDING, State.TERMINATED, None])
async def test_a_session_that_is_not_queued_gets_no_slot(store: Store, state: State | None) -> None:
    await own_slots(store, O1, 1)
    session = await new_session(store)
    if state is None:
        await store.delete(grid.SESSION_STATUS(session))
    else:
        await Sessions(store).move(session, state, code="SCHED", orchestrator=O1)

    assert await Slots(store).claim(session, [O1]) is None
    assert await store.llen(grid.ORCHESTRATOR_SLOTS_AVAILABLE(O1)) == 1


async def test_no_slot_is_given_twice_however_many_ask_at_once(store: Store, redis_url: str) -> None:
    await own_slots(store, O1, 7)
    await own_slots(store, O2, 5)
    sessions = [await new_session(store) for _ in range(100)]
    async with Store(redis_url) as one, Store(redis_url) as two, Store(redis_url) as three:
        managers = [Slots(each) for each in (store, one, two, three)]

        claims = [
            managers[(index + turn) % 4].claim(session, [O1, O2])
            for turn in range(3)
            for index, session in enumerate(sessions)
        ]
        slots = [slot for slot in await asyncio.gather(*claims) if slot is not None]

    assert len(slots) == len(set(slots)) == 12
    assert await store.llen(grid.ORCHESTRATOR_BACKLOG(O1)) == 7
    assert await store.llen(grid.ORCHESTRATOR_BACKLOG(O2)) == 5
    await check_slots(store, [O1, O2])
    await check_counters(store)


async def test_a_busy_grid_never_holds_more_sessions_than_slots(store: Store, redis_url: str) -> None:
    owns = {O1: await own_slots(store, O1, 3), O2: await own_slots(store, O2, 2)}
    held: Counter[SlotId] = Counter()
    served = 0

    async def visit(own_store: Store) -> None:
        nonlocal served
        session = await new_session(own_store)
        while (slot := await Slots(own_store).claim(session, [O1, O2])) is None:
            await owns[O1].recycle()
            await owns[O2].recycle()
        held[slot] += 1
        assert held[slot] == 1, "two sessions hold one slot"
        await store.exists(grid.SESSION_SLOT(session))
        held[slot] -= 1
        served += 1
        await asyncio.gather(*(Slots(each).release(session) for each in (store, own_store)))

    async with Store(redis_url) as one, Store(redis_url) as two:
        await asyncio.gather(*(visit(each) for each in (one, two) for _ in range(40)))

    assert served == 80
    await check_slots(store, [O1, O2])


# Giving back


async def test_a_released_slot_returns_to_its_owner_and_rings_there(store: Store) -> None:
    await own_slots(store, O1, 1)
    await own_slots(store, O2, 1)
    session, slot = await claim(store, O2)

    with store.subscribe(bell_of(grid.ORCHESTRATOR_SLOTS_RECLAIMED(O2))) as rings:
        assert await Slots(store).release(session) == slot
        assert await rings.wait(10) == [""]

    assert await places(store, O2) == {slot: ["reclaimed"]}
    assert await store.exists(grid.SESSION_SLOT(session), grid.ORCHESTRATOR_HOLDERS(O2)) == 0
    await check_slots(store, [O1, O2])


async def test_a_slot_is_released_once_however_many_try(store: Store, redis_url: str) -> None:
    await own_slots(store, O1, 1)
    session, slot = await claim(store, O1)
    async with Store(redis_url) as other:
        releases = [Slots(each).release(session) for _ in range(10) for each in (store, other)]

        assert Counter(await asyncio.gather(*releases)) == {slot: 1, None: 19}

    assert await places(store, O1) == {slot: ["reclaimed"]}


async def test_a_session_without_a_slot_gives_none_back(store: Store) -> None:
    await own_slots(store, O1, 1)

    assert await Slots(store).release(await new_session(store)) is None
    await check_slots(store, [O1])


async def test_recycling_wakes_those_who_wait(store: Store) -> None:
    own = await own_slots(store, O1, 1)
    session, slot = await claim(store, O1)
    await Slots(store).release(session)

    with store.subscribe(freed_bell()) as rings:
        assert await own.recycle() == 1
        assert await rings.wait(10) == [""]
        assert await own.recycle() == 0

    assert (await claim(store, O1))[1] == slot


async def test_an_owner_with_dots_and_dashes_gets_its_slot_back(store: Store) -> None:
    owner = OrchestratorId("node-7.example.org_a")
    await own_slots(store, owner, 1)
    session, slot = await claim(store, owner)

    assert slot == f"{owner}/1"
    assert await Slots(store).release(session) == slot
    await check_slots(store, [owner])


# How many there are


async def test_an_orchestrator_that_restarts_finds_its_slots_again(store: Store) -> None:
    await own_slots(store, O1, 3)
    session, slot = await claim(store, O1)

    await own_slots(store, O1, 3)

    where = await places(store, O1)
    assert sorted(where) == ["o1/1", "o1/2", "o1/3"]
    assert slot is not None
    assert where[slot] == [session]
    await check_slots(store, [O1])


async def test_an_orchestrator_may_have_more_slots_than_before(store: Store) -> None:
    await own_slots(store, O1, 1)
    await claim(store, O1)

    await own_slots(store, O1, 4)

    assert len(await places(store, O1)) == 4
    assert await store.llen(grid.ORCHESTRATOR_SLOTS_AVAILABLE(O1)) == 3
    await check_slots(store, [O1])


async def test_an_orchestrator_may_have_fewer_slots_than_before(store: Store) -> None:
    await own_slots(store, O1, 4)

    await own_slots(store, O1, 1)

    assert await places(store, O1) == {SlotId("o1/1"): ["available"]}


async def test_a_slot_that_is_one_too_many_goes_when_its_session_has_ended(store: Store) -> None:
    await own_slots(store, O1, 2)
    sessions = [(await claim(store, O1))[0] for _ in range(2)]

    fewer = await own_slots(store, O1, 1)
    assert len(await places(store, O1)) == 2
    for session in sessions:
        await Slots(store).release(session)
    await fewer.recycle()

    assert await places(store, O1) == {SlotId("o1/1"): ["available"]}


async def test_no_slots_at_all_are_possible(store: Store) -> None:
    await own_slots(store, O1, 2)

    await own_slots(store, O1, 0)

    assert await places(store, O1) == {}
    assert (await claim(store, O1))[1] is None
