"""The orchestrator's role, with nodes on paper only: what it takes up, gives back and comes back to."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import servers
from grids import advertise, check_counters, check_slots, codes_of, log_of, new_session, own_slots
from remuda.base.errors import DriverUnavailable
from remuda.base.ids import OrchestratorId, SessionId, new_id
from remuda.grid.capabilities import Offer
from remuda.grid.model import State
from remuda.grid.orchestrator import role
from remuda.grid.orchestrator.provisioner import Note, OnGone
from remuda.grid.orchestrator.role import Orchestrator, keep_id
from remuda.grid.registry import live_offers
from remuda.grid.sessions import Sessions, node_beat
from remuda.grid.slots import OwnSlots, Slots
from remuda.grid.timeouts import timeouts
from remuda.keyspace import grid, metrics
from remuda.store import Store
from remuda.store.census import take_census
from waiting import eventually

O1 = OrchestratorId("o1")
CHROME = Offer("chrome", "81.0", "linux")


class Paper:
    """A provisioner whose nodes are names on a list."""

    kind = "local"

    def __init__(self, *offers: Offer) -> None:
        self._offers = list(offers or (CHROME,))
        self.provisioned: list[SessionId] = []
        self.asked_to_end: list[SessionId] = []
        self.adopted: list[SessionId] = []
        self.dead: set[SessionId] = set()
        self.failure: Exception | None = None
        self.ending = asyncio.Event()
        self.ending.set()
        self.on_gone: OnGone = lambda session: None

    async def start(self, on_gone: OnGone) -> list[Offer]:
        self.on_gone = on_gone
        return self._offers

    async def provision(self, session: SessionId, wanted: list[dict[str, Any]], note: Note) -> None:
        if self.failure is not None:
            raise self.failure
        assert wanted == [{}]
        await note(f"the node of {session}")
        self.provisioned.append(session)

    async def adopt(self, session: SessionId, noted: str) -> bool:
        assert noted == f"the node of {session}"
        self.adopted.append(session)
        return session not in self.dead

    async def end(self, session: SessionId) -> None:
        self.asked_to_end.append(session)
        await self.ending.wait()

    async def stop(self) -> None:
        return


@asynccontextmanager
async def orchestrating(store: Store, paper: Paper, slots: int = 2) -> AsyncIterator[Orchestrator]:
    """An orchestrator at work; it goes without a word, as if it were killed."""
    orchestrator = Orchestrator(store, paper, orchestrator_id=O1, slots=slots)
    await orchestrator.start()
    serving = asyncio.create_task(orchestrator.serve(), name="serve")
    try:
        yield orchestrator
    finally:
        serving.cancel()
        await asyncio.wait([serving])


@pytest.fixture
def paper() -> Paper:
    return Paper()


@pytest.fixture
async def orchestrator(store: Store, paper: Paper) -> AsyncIterator[Orchestrator]:
    async with orchestrating(store, paper) as orchestrator:
        yield orchestrator


async def placed(store: Store) -> SessionId:
    """A session that has got a slot."""
    session = await new_session(store)
    assert await Slots(store).claim(session, [O1]) is not None
    return session


async def is_settled(store: Store, session: SessionId, *, slots: int = 2) -> bool:
    """Whether the session has ended, is in no queue any more, and all slots are free."""
    return (
        await Sessions(store).state(session) is State.TERMINATED
        and not await store.exists(grid.ORCHESTRATOR_BACKLOG(O1), grid.ORCHESTRATOR_PENDING(O1))
        and await store.llen(grid.ORCHESTRATOR_SLOTS_AVAILABLE(O1)) == slots
    )


# Who it is


@pytest.mark.usefixtures("orchestrator")
async def test_an_orchestrator_says_who_it_is_and_what_it_has(store: Store) -> None:
    assert await store.hgetall(grid.ORCHESTRATOR(O1)) == {"type": "local"}
    assert await live_offers(store) == {O1: [CHROME]}
    assert await store.smembers(grid.ORCHESTRATOR_BROWSERS(O1)) == ["chrome::81.0"]
    assert await store.ttl_ms(grid.ORCHESTRATOR_HEARTBEAT(O1)) > 59_000
    assert await store.ttl_ms(grid.ORCHESTRATOR_RETAIN(O1)) > 604_700_000
    assert await store.llen(grid.ORCHESTRATOR_SLOTS_AVAILABLE(O1)) == 2
    assert await take_census(store) == []


async def test_a_browser_that_was_removed_is_no_longer_offered(store: Store) -> None:
    async with orchestrating(store, Paper(CHROME, Offer("firefox", "74.0.1", "linux"))):
        assert await store.scard(grid.ORCHESTRATOR_BROWSERS(O1)) == 2

    async with orchestrating(store, Paper(CHROME)):
        assert await live_offers(store) == {O1: [CHROME]}


def test_an_orchestrator_keeps_its_id(tmp_path: Path) -> None:
    file = tmp_path / "data" / "orchestrator-id"

    assert keep_id(file) == keep_id(file)


def test_an_id_that_was_never_written_down_is_made_up_again(tmp_path: Path) -> None:
    file = tmp_path / "orchestrator-id"
    file.write_text("\n")

    assert keep_id(file)
    assert keep_id(file) == keep_id(file)


# Sessions


@pytest.mark.usefixtures("orchestrator")
async def test_a_session_with_a_slot_gets_a_node(store: Store, paper: Paper) -> None:
    session = await placed(store)

    await eventually(lambda: paper.provisioned == [session])

    await eventually(lambda: is_empty(store))
    assert await Sessions(store).state(session) is State.PENDING
    assert await store.lrange(grid.SESSION_ORCHESTRATOR(session)) == [O1]
    assert await codes_of(store, session) == ["NALLOC", "SCHED"]
    await check_counters(store)


async def is_empty(store: Store) -> bool:
    return not await store.exists(grid.ORCHESTRATOR_BACKLOG(O1), grid.ORCHESTRATOR_PENDING(O1))


@pytest.mark.usefixtures("orchestrator")
async def test_an_entry_that_comes_twice_starts_one_node(store: Store, paper: Paper) -> None:
    session = await placed(store)
    await store.lpush(grid.ORCHESTRATOR_BACKLOG(O1), session, session)
    await eventually(lambda: paper.provisioned == [session])
    await store.lpush(grid.ORCHESTRATOR_BACKLOG(O1), session)
    last = await placed(store)

    await eventually(lambda: last in paper.provisioned)

    await eventually(lambda: is_empty(store))
    assert paper.provisioned == [session, last]
    held = await store.hgetall(grid.ORCHESTRATOR_HOLDERS(O1))
    assert sorted(held.values()) == sorted([session, last]), "who has a node keeps its slot"
    await check_slots(store, [O1])


async def test_a_session_that_ended_in_the_backlog_starts_no_node(store: Store, paper: Paper) -> None:
    await own_slots(store, O1, 2)
    session = await placed(store)
    await Sessions(store).move(session, State.TERMINATED, code="CLEFT")

    async with orchestrating(store, paper):
        await eventually(lambda: is_settled(store, session))

    assert paper.provisioned == []
    await check_slots(store, [O1])


@pytest.mark.usefixtures("orchestrator")
async def test_a_node_that_cannot_be_started_is_a_failure_with_its_cause(store: Store, paper: Paper) -> None:
    paper.failure = DriverUnavailable("The disk is full")
    session = await placed(store)

    await eventually(lambda: is_settled(store, session))

    assert (await log_of(store, session))[-1] == ("STARTFAIL", {"message": "The disk is full"})
    await check_slots(store, [O1])


@pytest.mark.usefixtures("orchestrator")
async def test_an_entry_that_nobody_can_work_on_is_set_aside(store: Store, paper: Paper) -> None:
    poisoned = await new_session(store)
    await store.hset(grid.SESSION_CAPABILITIES(poisoned), {"requested": "{"})
    await Slots(store).claim(poisoned, [O1])
    await store.lpush(grid.ORCHESTRATOR_BACKLOG(O1), "no session at all")

    await eventually(lambda: is_settled(store, poisoned))

    assert (await codes_of(store, poisoned))[-1] == "STARTFAIL"
    session = await placed(store)
    await eventually(lambda: paper.provisioned == [session])


@pytest.mark.usefixtures("orchestrator")
async def test_a_session_whose_node_dies_before_it_has_a_browser_gets_one_other(
    store: Store, paper: Paper
) -> None:
    session = await placed(store)
    await eventually(lambda: paper.provisioned == [session])
    await Sessions(store).boot(session, is_warm=False)

    paper.on_gone(session)
    await eventually(lambda: paper.provisioned == [session, session])
    assert await Sessions(store).state(session) is State.PENDING
    assert (await log_of(store, session))[-1] == ("RESCHED", {"message": "The node died"})
    await check_slots(store, [O1])
    paper.on_gone(session)  # Once is enough: what kills every node must not have them started for ever.

    await eventually(lambda: is_settled(store, session))
    assert (await log_of(store, session))[-1] == ("TERM", {"message": "The node died"})
    assert paper.provisioned == [session, session]


@pytest.mark.usefixtures("orchestrator")
async def test_a_session_whose_node_dies_with_its_browser_has_ended(store: Store, paper: Paper) -> None:
    session = await placed(store)
    await eventually(lambda: paper.provisioned == [session])
    await Sessions(store).open(session, upstream={"host": "127.0.0.1", "port": 1}, actual={})

    paper.on_gone(session)

    await eventually(lambda: is_settled(store, session))
    assert (await log_of(store, session))[-1] == ("TERM", {"message": "The node died"})
    assert paper.provisioned == [session]


@pytest.mark.usefixtures("orchestrator")
async def test_a_session_that_nobody_waits_for_gets_no_other_node(store: Store, paper: Paper) -> None:
    session = await placed(store)
    await eventually(lambda: paper.provisioned == [session])
    await store.delete(grid.SESSION_HEARTBEAT_MANAGER(session))

    paper.on_gone(session)

    await eventually(lambda: is_settled(store, session))
    assert paper.provisioned == [session]


# Lost slots


@pytest.mark.usefixtures("orchestrator")
async def test_a_dead_sessions_slot_is_free_only_when_its_node_is_gone(store: Store, paper: Paper) -> None:
    await timeouts(store).change(slotReclaimInterval=0.01)
    paper.ending.clear()
    session = await placed(store)
    await eventually(lambda: paper.provisioned == [session])

    await store.delete(grid.SESSION_HEARTBEAT_MANAGER(session))
    await eventually(lambda: paper.asked_to_end == [session])
    assert await store.exists(grid.SESSION_SLOT(session))
    paper.ending.set()

    await eventually(lambda: is_settled(store, session))
    await eventually(lambda: has_reclaimed(store, "dead", 1))
    assert (await log_of(store, session))[-1][0] == "TERM"
    await check_slots(store, [O1])


@pytest.mark.usefixtures("orchestrator")
async def test_a_slot_that_came_back_by_itself_was_not_dead(store: Store, paper: Paper) -> None:
    await timeouts(store).change(slotReclaimInterval=0.01)
    paper.ending.clear()
    session = await placed(store)
    await eventually(lambda: paper.provisioned == [session])
    await store.delete(grid.SESSION_HEARTBEAT_MANAGER(session))
    await eventually(lambda: paper.asked_to_end == [session])

    await Slots(store).release(session)  # As a node does that was just leaving.
    paper.ending.set()

    await eventually(lambda: is_settled(store, session))
    assert not await store.exists(metrics.METRICS_SLOTS_RECLAIMED())


@pytest.mark.usefixtures("orchestrator")
async def test_a_shorter_interval_between_sweeps_is_in_force_at_once(store: Store) -> None:
    await store.send("LPOP", grid.ORCHESTRATOR_SLOTS_AVAILABLE(O1))

    await timeouts(store).change(slotReclaimInterval=0.01)

    await eventually(lambda: has_reclaimed(store, "orphaned", 1))


async def has_reclaimed(store: Store, why: str, count: int) -> bool:
    return await store.hget(metrics.METRICS_SLOTS_RECLAIMED(), why) == str(count)


# Coming back


async def scheduled(store: Store) -> SessionId:
    """A session whose node an orchestrator has scheduled and finished with."""
    session = await placed(store)
    await store.delete(grid.ORCHESTRATOR_BACKLOG(O1))
    await Sessions(store).move(session, State.PENDING, code="SCHED", orchestrator=O1)
    return session


async def test_what_an_earlier_life_had_taken_up_is_finished(store: Store, paper: Paper) -> None:
    await own_slots(store, O1, 2)
    queued = await placed(store)
    await store.rpoplpush(grid.ORCHESTRATOR_BACKLOG(O1), grid.ORCHESTRATOR_PENDING(O1))

    async with orchestrating(store, paper):
        await eventually(lambda: paper.provisioned == [queued])
        await eventually(lambda: is_empty(store))

    await check_slots(store, [O1])


async def test_a_node_that_an_earlier_life_had_scheduled_and_not_started_is_started(
    store: Store, paper: Paper
) -> None:
    await own_slots(store, O1, 2)
    session = await scheduled(store)
    await store.lpush(grid.ORCHESTRATOR_PENDING(O1), session)

    async with orchestrating(store, paper):
        await eventually(lambda: paper.provisioned == [session])
        await eventually(lambda: is_empty(store))

    assert await codes_of(store, session) == ["NALLOC", "SCHED"]
    await check_slots(store, [O1])


async def note(store: Store, session: SessionId) -> None:
    await store.hset(grid.ORCHESTRATOR_NODES(O1), {session: f"the node of {session}"})


@pytest.mark.parametrize("state", [State.PENDING, State.ALIVE])
async def test_a_node_that_an_earlier_life_had_started_is_adopted(
    store: Store, paper: Paper, state: State
) -> None:
    await own_slots(store, O1, 2)
    session = await scheduled(store)
    node_beat(session).write(store)
    await Sessions(store).open(session, upstream={"host": "127.0.0.1", "port": 1}, actual={})
    if state is State.ALIVE:
        await Sessions(store).move(session, State.ALIVE, code="NALIVE")
    await note(store, session)
    await store.lpush(grid.ORCHESTRATOR_PENDING(O1), session)

    async with orchestrating(store, paper):
        await eventually(lambda: is_empty(store))
        assert (paper.provisioned, paper.adopted) == ([], [session])
        assert await Sessions(store).state(session) is state
        await check_slots(store, [O1])

        paper.on_gone(session)
        await eventually(lambda: is_settled(store, session))

    assert await store.exists(grid.ORCHESTRATOR_NODES(O1)) == 0


async def test_a_session_whose_node_never_got_it_gets_another(store: Store, paper: Paper) -> None:
    await own_slots(store, O1, 2)
    early, late = await scheduled(store), await scheduled(store)
    for session in (early, late):
        await note(store, session)
    paper.dead = {early}

    async with orchestrating(store, paper):
        assert paper.provisioned == [early]
        paper.on_gone(late)
        await eventually(lambda: paper.provisioned == [early, late])
        paper.on_gone(late)  # Once is enough: a node that cannot start must not be started for ever.
        await eventually(lambda: has_ended(store, late))

    assert await Sessions(store).state(early) is State.PENDING


async def has_ended(store: Store, session: SessionId) -> bool:
    return await Sessions(store).state(session) is State.TERMINATED


async def test_an_adopted_node_ends_when_its_session_is_reclaimed(store: Store, paper: Paper) -> None:
    await own_slots(store, O1, 2)
    session = await scheduled(store)
    await note(store, session)
    await store.delete(grid.SESSION_HEARTBEAT_MANAGER(session))
    await timeouts(store).change(slotReclaimInterval=0.01)

    async with orchestrating(store, paper):
        await eventually(lambda: is_settled(store, session))

    assert paper.asked_to_end == [session]


@pytest.mark.parametrize("is_noted", [True, False])
async def test_a_session_whose_node_did_not_survive_is_ended(
    store: Store, paper: Paper, is_noted: bool
) -> None:
    await own_slots(store, O1, 2)
    session = await scheduled(store)
    await Sessions(store).move(session, State.ALIVE, code="NALIVE")
    paper.dead = {session}
    if is_noted:
        await note(store, session)

    async with orchestrating(store, paper):
        assert await is_settled(store, session)

    assert (await codes_of(store, session))[-1] == "TERM"
    assert await store.exists(grid.ORCHESTRATOR_NODES(O1)) == 0


async def test_what_an_earlier_life_had_taken_and_is_no_session_is_set_aside(
    store: Store, paper: Paper
) -> None:
    await store.lpush(grid.ORCHESTRATOR_PENDING(O1), "poison")

    async with orchestrating(store, paper):
        await eventually(lambda: is_empty(store))

    assert paper.provisioned == []


async def test_sessions_in_the_backlog_outlive_a_restart(store: Store, paper: Paper) -> None:
    await own_slots(store, O1, 2)
    sessions = [await placed(store), await placed(store)]

    async with orchestrating(store, paper):
        await eventually(lambda: paper.provisioned == sessions)


# Leaving


async def test_an_orchestrator_that_leaves_tells_those_who_wait_there(store: Store, paper: Paper) -> None:
    async with orchestrating(store, paper) as orchestrator:
        await orchestrator.drain()
        assert await live_offers(store) == {}
    session = await placed(store)

    await orchestrator.stop()

    assert await is_settled(store, session)
    assert (await log_of(store, session))[-1] == ("STARTFAIL", {"message": "The orchestrator shuts down"})
    assert await store.ttl_ms(grid.ORCHESTRATOR_HEARTBEAT(O1)) <= 1000
    await check_slots(store, [O1])


async def test_an_orchestrator_outlives_an_absence_of_redis(server: servers.Server, paper: Paper) -> None:
    async with Store(server.url, timeout=0.2) as store, orchestrating(store, paper) as orchestrator:
        await store.send("SAVE")

        server.kill()
        await eventually(lambda: not store.is_connected)
        server.start()
        await eventually(lambda: store.is_connected)

        session = await placed(store)
        await eventually(lambda: paper.provisioned == [session])
        await orchestrator.stop()


async def test_after_an_absence_of_redis_the_beats_may_come_back_first(
    server: servers.Server,
    paper: Paper,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(role, "PATIENCE", 3600.0)
    async with Store(server.url, timeout=0.2) as store, orchestrating(store, paper):
        session = await placed(store)
        await eventually(lambda: paper.provisioned == [session])
        await timeouts(store).change(slotReclaimInterval=0.01)
        await store.send("SAVE")

        server.kill()
        await eventually(lambda: "slots not reclaimed" in caplog.text)
        server.start()
        await eventually(lambda: store.is_connected)
        await store.delete(grid.SESSION_HEARTBEAT_MANAGER(session))

        looks = await reads_of_settings(store)
        await eventually(partial(has_read_settings, store, looks + 20))
        assert paper.asked_to_end == []


async def reads_of_settings(store: Store) -> int:
    """How often the orchestrator has looked whether it is time for a sweep."""
    stats = str(await store.send("INFO", "commandstats"))
    calls = (line.split("calls=")[1].split(",")[0] for line in stats.split() if "_hgetall:" in line)
    return int(next(calls, 0))


async def has_read_settings(store: Store, times: int) -> bool:
    return await reads_of_settings(store) >= times


async def test_nobody_purges_what_a_returning_orchestrator_needs(
    store: Store, paper: Paper, monkeypatch: pytest.MonkeyPatch
) -> None:
    retained: list[int] = []

    async def look(own: OwnSlots) -> None:
        retained.append(await store.exists(grid.ORCHESTRATOR_RETAIN(O1)))

    monkeypatch.setattr(OwnSlots, "adjust", look)

    async with orchestrating(store, paper):
        assert retained == [1]


async def test_two_orchestrators_do_not_touch_each_others_sessions(store: Store, paper: Paper) -> None:
    other = OrchestratorId(new_id())
    await advertise(store, other)
    await own_slots(store, other, 1)
    theirs = await new_session(store)
    await Slots(store).claim(theirs, [other])
    await store.delete(grid.SESSION_HEARTBEAT_MANAGER(theirs))
    await timeouts(store).change(slotReclaimInterval=0.01)

    async with orchestrating(store, paper):
        ours = await placed(store)
        await eventually(lambda: paper.provisioned == [ours])
        await store.delete(grid.SESSION_HEARTBEAT_MANAGER(ours))
        await eventually(partial(has_reclaimed, store, "dead", 1))

    assert await Sessions(store).state(theirs) is State.QUEUED
    await check_slots(store, [O1, other])
