"""The manager over HTTP: every client gets an answer, at once and with the cause; every session ends."""

import asyncio
import random
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

import servers
from clients import Client, Reply, running
from grids import (
    advertise,
    all_sessions,
    check_counters,
    check_slots,
    codes_of,
    new_session,
    own_slots,
)
from remuda.base.ids import OrchestratorId, SessionId
from remuda.fleet.queue import ReliableQueue
from remuda.grid.manager import Manager
from remuda.grid.model import State
from remuda.grid.sessions import Sessions, session_bell
from remuda.grid.slots import OwnSlots, Slots, freed_bell
from remuda.grid.timeouts import timeouts
from remuda.keyspace import grid, metrics
from remuda.store import Store
from remuda.store.census import take_census
from waiting import eventually

O1, O2 = OrchestratorId("o1"), OrchestratorId("o2")
ACTUAL = {"browserName": "chrome", "browserVersion": "81.0.4044.113"}


@pytest.fixture
async def client(store: Store) -> AsyncIterator[Client]:
    async with running(store) as (_, client):
        yield client


class Ranch:
    """An orchestrator's side of the protocol, step by step: what it takes up, and what its nodes write."""

    def __init__(self, store: Store, own: OwnSlots, name: OrchestratorId) -> None:
        self.own = own
        self._store = store
        self._name = name
        self._queue = ReliableQueue(
            store, waiting=grid.ORCHESTRATOR_BACKLOG(name), working=grid.ORCHESTRATOR_PENDING(name)
        )

    async def take(self) -> SessionId:
        """The next session that has got a slot here, now scheduled."""
        session = await self._queue.take(10)
        assert session is not None
        await Sessions(self._store).move(
            SessionId(session), State.PENDING, code="SCHED", orchestrator=self._name
        )
        await self._queue.done(session)
        return SessionId(session)

    async def bring(self, session: SessionId) -> None:
        """The session's node has its browser."""
        async with self._store.transaction() as transaction:
            transaction.hset(grid.SESSION_CAPABILITIES(session), {"actual": b'{"browserName": "chrome"}'})
            transaction.publish(session_bell(session))

    async def end(self, session: SessionId) -> None:
        """The session's node is gone, and its slot is free for the next."""
        await Sessions(self._store).move(session, State.TERMINATED, code="CLOSED")
        await Slots(self._store).release(session)
        await self.own.recycle()


async def open_ranch(store: Store, slots: int, name: OrchestratorId = O1) -> Ranch:
    await advertise(store, name)
    return Ranch(store, await own_slots(store, name, slots), name)


async def only_session(store: Store) -> SessionId:
    (session,) = await all_sessions(store)
    return session


async def has_logged(store: Store, code: str, count: int = 1) -> bool:
    """Whether so many sessions have this code in their log."""
    logs = [await codes_of(store, session) for session in await all_sessions(store)]
    return sum(code in codes for codes in logs) == count


# The straight way


async def test_a_client_gets_its_session(store: Store, client: Client) -> None:
    ranch = await open_ranch(store, 1)
    asking = client.asking()

    session = await ranch.take()
    await ranch.bring(session)

    assert await asking == Reply(200, {"sessionId": session, "capabilities": {"browserName": "chrome"}})
    assert await codes_of(store, session) == ["QUEUED", "NALLOC", "SCHED", "PENDING", "NALIVE"]
    assert await Sessions(store).state(session) is State.ALIVE
    assert await Sessions(store).requested(session) == [{"browserName": "chrome"}]
    assert await store.get(metrics.METRICS_STARTUP_COUNT()) == "1"
    assert await store.ttl_ms(grid.SESSION_HEARTBEAT_MANAGER(session)) <= 1000
    await check_counters(store)
    await check_slots(store, [O1])
    assert await take_census(store) == []


async def test_the_client_is_remembered_as_the_front_door_saw_it(store: Store, client: Client) -> None:
    await client.ask(**{"X-Forwarded-For": "203.0.113.7, 10.0.0.1", "User-Agent": "selenium/4"})

    downstream = await store.hgetall(grid.SESSION_DOWNSTREAM(await only_session(store)))

    assert downstream.keys() == {"host", "userAgent", "lastSeen"}
    assert (downstream["host"], downstream["userAgent"]) == ("203.0.113.7", "selenium/4")


async def test_a_session_has_its_labels_from_the_first_moment(store: Store, client: Client) -> None:
    options = {"build": "17", "metadata": {"team": "qa"}}
    always = {"browserName": "chrome", "se:name": "checkout", "remuda:options": options}

    await client.ask({"capabilities": {"alwaysMatch": always}})

    labels = await store.hgetall(grid.SESSION_METADATA(await only_session(store)))
    assert labels == {"name": "checkout", "build": "17", "team": "qa"}
    assert await take_census(store) == []


async def test_a_manager_can_be_found_for_as_long_as_it_runs(store: Store) -> None:
    async with running(store) as (manager, _):
        host, _, port = manager.address.rpartition(":")

        assert await store.smembers(grid.MANAGERS()) == [manager.manager_id]
        assert await store.hgetall(grid.MANAGER(manager.manager_id)) == {"host": host, "port": port}
        assert await store.ttl_ms(grid.MANAGER_HEARTBEAT(manager.manager_id)) > 1000
        assert await take_census(store) == []

    assert await store.exists(grid.MANAGERS(), grid.MANAGER(manager.manager_id)) == 0
    assert await store.ttl_ms(grid.MANAGER_HEARTBEAT(manager.manager_id)) <= 1000


# Requests that are wrong


def with_options(**options: Any) -> dict[str, Any]:
    return {"capabilities": {"firstMatch": [{}, {"remuda:options": options}]}}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "The body is no JSON"),
        (b"{", "The body is no JSON"),
        (b"\xff", "The body is no JSON"),
        (b"[" * 100_000, "The body is no JSON"),
        ([], "'capabilities' must be inside a JSON object, not a list"),
        ({"desiredCapabilities": {}}, "The request has no 'capabilities'"),
        ({"capabilities": {"firstMatch": []}}, "'firstMatch' must be a list"),
        ({"capabilities": {"alwaysMatch": {"browser": "chrome"}}}, "unknown capability 'browser'"),
        (with_options(idleTimeout=0), "'idleTimeout' in remuda:options is '0'"),
        (with_options(idleTimeout="1 week"), "from 1 s to 24 h"),
        (with_options(metadata={"a key": "x"}), "'metadata' in remuda:options has the key 'a key'"),
        (with_options(name=["x"]), "'name' of remuda:options must be a plain value, not a list"),
    ],
)
async def test_a_request_that_cannot_be_used_is_refused_and_leaves_no_session(
    store: Store, client: Client, body: Any, message: str
) -> None:
    reply = await client.ask(body)

    assert reply.error == "400 invalid argument"
    assert message in reply.message
    assert await all_sessions(store) == []


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT"])
async def test_a_manager_does_nothing_but_create(client: Client, method: str) -> None:
    reply = await client.ask(method=method)

    assert reply.error == "405 unknown method"
    assert method in reply.message


# Failures on the way


async def ended(store: Store, reply: Reply) -> tuple[str, str]:
    """How the only session ended and what its log says about that, which is what its client was told."""
    session = await only_session(store)
    assert await Sessions(store).state(session) is State.TERMINATED
    assert reply.error == "500 session not created"
    code, meta = await Sessions(store).last_words(session) or ("", {})
    assert meta["message"] == reply.message
    await check_counters(store)
    assert await store.exists(metrics.METRICS_STARTUP_COUNT()) == 0
    return code, reply.message


async def test_a_browser_that_nobody_offers_is_refused_at_once_with_what_there_is(
    store: Store, client: Client
) -> None:
    await advertise(store, O1, "chrome::81.0", "firefox::74.0.1")

    reply = await client.ask({"capabilities": {"alwaysMatch": {"browserName": "safari"}}})

    assert await ended(store, reply) == (
        "QUNAVAILABLE",
        "Nothing here can satisfy these capabilities; "
        "on offer: chrome 81.0 on linux, firefox 74.0.1 on linux",
    )


async def test_an_empty_grid_says_so(store: Store, client: Client) -> None:
    code, message = await ended(store, await client.ask())

    assert code == "QUNAVAILABLE"
    assert message.endswith("on offer: nothing")


async def test_a_client_that_waited_too_long_for_a_slot_is_told(store: Store, client: Client) -> None:
    await open_ranch(store, 0)
    await timeouts(store).change(queue=0.05)

    code, message = await ended(store, await client.ask())
    assert code == "QTIMEOUT"
    assert message == "No browser became free within 0.05 s; it was number 1 in line"


async def test_without_patience_a_free_slot_is_still_taken(store: Store, client: Client) -> None:
    ranch = await open_ranch(store, 1)
    await timeouts(store).change(queue=0)
    asking = client.asking()

    session = await ranch.take()
    await ranch.bring(session)

    assert (await asking).status == 200
    assert (await client.ask()).message.startswith("No browser became free within 0 s")


async def test_an_orchestrator_that_does_not_take_its_backlog_up_is_given_up(
    store: Store, client: Client
) -> None:
    await open_ranch(store, 1)
    await timeouts(store).change(scheduling=0.05)

    assert await ended(store, await client.ask()) == (
        "OTIMEOUT",
        "No orchestrator started a node within 0.05 s",
    )


async def test_a_node_that_does_not_come_up_is_given_up(store: Store, client: Client) -> None:
    ranch = await open_ranch(store, 1)
    await timeouts(store).change(nodeStartup=0.05)
    asking = client.asking()

    await ranch.take()

    assert await ended(store, await asking) == (
        "NTIMEOUT",
        "The node had no browser ready within 0.05 s",
    )


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("DFAILURE", "session not created: unrecognized Chrome option: x"),
        ("STARTFAIL", "No browser of this machine satisfies the capabilities"),
    ],
)
async def test_what_made_a_node_fail_reaches_the_client_in_its_own_words(
    store: Store, client: Client, code: str, message: str
) -> None:
    ranch = await open_ranch(store, 1)
    asking = client.asking()

    session = await ranch.take()
    await Sessions(store).move(session, State.TERMINATED, code=code, message=message)

    assert await ended(store, await asking) == (code, message)


async def test_a_failure_before_the_node_is_scheduled_reaches_the_client_too(
    store: Store, client: Client
) -> None:
    await open_ranch(store, 1)
    asking = client.asking()
    await eventually(lambda: has_logged(store, "NALLOC"))

    session = await only_session(store)
    await Sessions(store).move(session, State.TERMINATED, code="STARTFAIL", message="It shuts down")

    assert await ended(store, await asking) == ("STARTFAIL", "It shuts down")


async def test_a_session_that_ends_the_moment_it_comes_up_is_not_handed_out(
    store: Store, client: Client
) -> None:
    ranch = await open_ranch(store, 1)
    asking = client.asking()

    session = await ranch.take()
    async with store.transaction() as transaction:
        transaction.hset(grid.SESSION_CAPABILITIES(session), {"actual": "{}"})
        transaction.hset(grid.SESSION_STATUS(session), {"terminatedAt": "2026-01-02T03:04:05.678Z"})
        transaction.publish(session_bell(session))

    assert (await asking).error == "500 session not created"


async def test_a_session_that_ends_in_the_moment_of_its_hand_over_is_not_handed_out(
    store: Store, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranch = await open_ranch(store, 1)
    asking = client.asking()
    session = await ranch.take()
    move = Sessions.move

    async def end_first(sessions: Sessions, *args: Any, **meta: Any) -> bool:
        await move(sessions, session, State.TERMINATED, code="DFAILURE", message="It crashed")
        return await move(sessions, *args, **meta)

    monkeypatch.setattr(Sessions, "move", end_first)
    await ranch.bring(session)

    assert await ended(store, await asking) == ("DFAILURE", "It crashed")


async def test_a_client_whose_session_is_ended_while_it_waits_is_told(store: Store, client: Client) -> None:
    await open_ranch(store, 0)
    first = client.asking()
    await eventually(lambda: has_logged(store, "QUEUED"))
    kept = await only_session(store)
    second = client.asking()
    await eventually(lambda: has_logged(store, "QUEUED", 2))
    (killed,) = set(await all_sessions(store)) - {kept}

    await Sessions(store).move(killed, State.TERMINATED, code="TERM", message="An operator ended it")

    assert (await second).message == "An operator ended it"
    assert not first.done()


# Clients that leave


async def test_a_client_that_leaves_the_queue_gives_its_place_up(store: Store, client: Client) -> None:
    ranch = await open_ranch(store, 0)
    leaving = client.asking()
    await eventually(lambda: has_logged(store, "QUEUED"))
    session = await only_session(store)
    staying = client.asking()
    await eventually(lambda: has_logged(store, "QUEUED", 2))

    leaving.cancel()
    await eventually(lambda: has_logged(store, "CLEFT"))
    ranch = await open_ranch(store, 1)
    await ranch.bring(await ranch.take())

    assert (await staying).status == 200
    assert await Sessions(store).state(session) is State.TERMINATED
    assert await codes_of(store, session) == ["QUEUED", "CLEFT"]


async def test_a_client_that_leaves_while_its_node_starts_has_its_session_ended(
    store: Store, client: Client
) -> None:
    ranch = await open_ranch(store, 1)
    leaving = client.asking()
    session = await ranch.take()
    await eventually(lambda: has_logged(store, "PENDING"))

    leaving.cancel()
    await eventually(lambda: has_logged(store, "CLEFT"))

    assert await Sessions(store).state(session) is State.TERMINATED


async def test_clients_that_leave_at_any_moment_leave_nothing_behind(store: Store, client: Client) -> None:
    await open_ranch(store, 3)
    chance = random.Random(7)

    async def drop_in() -> None:
        asking = client.asking()
        for _ in range(chance.randrange(60)):
            await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait([asking])

    for _ in range(15):
        await asyncio.gather(*(drop_in() for _ in range(4)))

    async def all_ended() -> bool:
        return not await store.scard(grid.SESSIONS_ACTIVE())

    await eventually(all_ended)
    for session in await store.lrange(grid.ORCHESTRATOR_BACKLOG(O1)):
        await Slots(store).release(SessionId(session))
    await check_slots(store, [O1])
    assert await store.exists(grid.ORCHESTRATOR_HOLDERS(O1)) == 0


# The queue


async def test_those_who_wait_are_served_in_the_order_they_came(store: Store, client: Client) -> None:
    ranch = await open_ranch(store, 1)
    first = await new_session(store)
    await Slots(store).claim(first, [O1])
    await ranch.take()
    waiting = []
    for number in range(1, 7):
        waiting.append(client.asking())
        await eventually(partial(has_logged, store, "QUEUED", number))

    session = first
    for asking in waiting:
        await ranch.end(session)
        session = await ranch.take()
        await ranch.bring(session)
        served, _ = await asyncio.wait(waiting, timeout=10, return_when=asyncio.FIRST_COMPLETED)
        assert served == {asking}
        waiting = [each for each in waiting if each is not asking]


async def test_the_order_holds_across_managers(store: Store, redis_url: str) -> None:
    ranch = await open_ranch(store, 0)
    async with (
        Store(redis_url) as other,
        running(store) as (_, one),
        running(other) as (_, two),
    ):
        waiting = []
        for number in range(6):
            waiting.append((one, two)[number % 2].asking())
            await eventually(partial(has_logged, store, "QUEUED", number + 1))
        # One leaves from each manager, so that both the head and the middle move up.
        for leaving in (waiting.pop(3), waiting.pop(0)):
            leaving.cancel()
        await eventually(lambda: has_logged(store, "CLEFT", 2))
        ranch = await open_ranch(store, 1)

        for asking in waiting:
            session = await ranch.take()
            await ranch.bring(session)
            served, _ = await asyncio.wait(waiting, timeout=10, return_when=asyncio.FIRST_COMPLETED)
            assert served == {asking}
            waiting = [each for each in waiting if each is not asking]
            await ranch.end(session)


async def test_a_crowd_costs_what_its_members_cost(store: Store, client: Client) -> None:
    await open_ranch(store, 0)
    crowd = [client.asking() for _ in range(100)]
    await eventually(lambda: has_logged(store, "QUEUED", 100))
    await store.send("CONFIG", "RESETSTAT")

    for _ in range(10):
        await OwnSlots(store, O1, count=0).recycle()
        await store.publish(freed_bell())
    stats = await store.send("INFO", "commandstats")

    # A ring makes the head of the line look, and nobody else.
    scripts = [line for line in stats.splitlines() if line.startswith("cmdstat_evalsha:")]
    assert all(int(line.split("calls=")[1].split(",")[0]) <= 3 * 10 for line in scripts)
    for asking in crowd:
        asking.cancel()
    await eventually(lambda: has_logged(store, "CLEFT", 100))


async def test_a_client_with_other_wishes_does_not_wait_behind_those_who_cannot_be_served(
    store: Store, client: Client
) -> None:
    await advertise(store, O2, "firefox::74.0.1")
    ranch = await open_ranch(store, 1)
    stuck = client.asking({"capabilities": {"alwaysMatch": {"browserName": "firefox"}}})
    await eventually(lambda: has_logged(store, "QUEUED"))

    asking = client.asking()
    await ranch.bring(await ranch.take())

    assert (await asking).status == 200
    assert not stuck.done()


async def test_an_orchestrator_that_comes_later_serves_those_who_wait(store: Store, client: Client) -> None:
    await open_ranch(store, 0)
    asking = client.asking()
    await eventually(lambda: has_logged(store, "QUEUED"))

    late = await open_ranch(store, 1, O2)
    await late.bring(await late.take())

    assert (await asking).status == 200


async def test_an_orchestrator_that_died_gets_nobody(store: Store, client: Client) -> None:
    await open_ranch(store, 5)
    await store.delete(grid.ORCHESTRATOR_HEARTBEAT(O1))
    living = await open_ranch(store, 1, O2)
    asking = client.asking()

    await living.bring(await living.take())

    assert (await asking).status == 200
    assert await store.llen(grid.ORCHESTRATOR_BACKLOG(O1)) == 0


async def test_many_clients_on_few_slots_all_get_their_turn(store: Store, client: Client) -> None:
    ranch = await open_ranch(store, 3)

    async def work() -> None:
        while True:
            session = await ranch.take()
            await ranch.bring(session)
            await eventually(partial(is_alive, session))
            assert len(await store.hgetall(grid.ORCHESTRATOR_HOLDERS(O1))) <= 3
            await ranch.end(session)

    async def is_alive(session: SessionId) -> bool:
        return await Sessions(store).state(session) is State.ALIVE

    hands = [asyncio.create_task(work()) for _ in range(3)]
    replies = await asyncio.gather(*(client.ask() for _ in range(40)))
    for hand in hands:
        hand.cancel()

    assert {reply.status for reply in replies} == {200}
    assert len({reply.value["sessionId"] for reply in replies}) == 40
    await check_slots(store, [O1])
    await check_counters(store)
    assert await store.get(metrics.METRICS_STARTUP_COUNT()) == "40"


# Bad weather


async def test_a_redis_that_is_away_is_an_error_that_clients_understand(server: servers.Server) -> None:
    async with Store(server.url, timeout=0.2) as store, running(store) as (_, client):
        server.kill()

        reply = await client.ask()

        assert reply.error == "503 unknown error"
        assert "Redis" in reply.message
        server.start()
        await eventually(lambda: store.is_connected)
        assert (await client.ask()).message.endswith("on offer: nothing")


async def test_those_who_wait_outlast_a_redis_that_goes_away(server: servers.Server) -> None:
    async with Store(server.url, timeout=0.2) as store, running(store) as (_, client):
        await open_ranch(store, 0)
        asking = client.asking()
        await eventually(lambda: has_logged(store, "QUEUED"))
        await store.send("SAVE")

        server.kill()
        await eventually(lambda: not store.is_connected)
        server.start()
        await eventually(lambda: store.is_connected)

        ranch = await open_ranch(store, 1)
        await ranch.bring(await ranch.take())
        assert (await asking).status == 200


async def test_those_who_wait_outlast_a_redis_that_loses_everything(server: servers.Server) -> None:
    async with Store(server.url, timeout=0.2) as store, running(store) as (_, client):
        await open_ranch(store, 0)
        waiting = []
        for number in (1, 2):
            waiting.append(client.asking())
            await eventually(partial(has_logged, store, "QUEUED", number))

        server.kill()
        await eventually(lambda: not store.is_connected)
        server.start()
        await eventually(lambda: has_logged(store, "QUEUED", 2))

        ranch = await open_ranch(store, 1)
        await ranch.bring(await ranch.take())
        assert (await waiting[0]).status == 200
        assert not waiting[1].done()
        assert await take_census(store) == []


async def test_a_slot_that_was_claimed_when_redis_went_away_is_used(store: Store, client: Client) -> None:
    ranch = await open_ranch(store, 0)
    asking = client.asking()
    await eventually(lambda: has_logged(store, "QUEUED"))

    # The claim is done, but its manager has not heard of it.
    await OwnSlots(store, O1, count=1).adjust()
    await store.rpoplpush(grid.ORCHESTRATOR_SLOTS_RECLAIMED(O1), grid.ORCHESTRATOR_SLOTS_AVAILABLE(O1))
    await Slots(store).claim(await only_session(store), [O1])
    await ranch.bring(await ranch.take())

    assert (await asking).status == 200


async def test_a_manager_that_drains_finishes_what_is_under_way(store: Store) -> None:
    ranch = await open_ranch(store, 1)
    async with running(store) as (manager, client):
        asking = client.asking()
        session = await ranch.take()

        draining = asyncio.create_task(manager.drain())
        await eventually(lambda: is_gone(store, manager))
        late = await client.ask()
        await ranch.bring(session)
        await draining

        assert (await asking).status == 200
        assert late.error == "503 unknown error"
        assert await store.smembers(grid.SESSIONS_ACTIVE()) == [session]


async def is_gone(store: Store, manager: Manager) -> bool:
    return not await store.sismember(grid.MANAGERS(), manager.manager_id)


async def test_a_manager_that_leaves_tells_those_who_still_wait(store: Store) -> None:
    await open_ranch(store, 0)
    async with running(store) as (manager, client):
        asking = client.asking()
        await eventually(lambda: has_logged(store, "QUEUED"))

        await manager.stop()

        assert await ended(store, await asking) == ("QTIMEOUT", "The manager is shutting down")


async def test_a_drain_that_takes_too_long_is_cut_short(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remuda.grid.manager.DRAIN_SHARE", 0.05)
    ranch = await open_ranch(store, 1)
    async with running(store) as (manager, client):
        asking = client.asking()
        await ranch.take()

        await manager.drain()

        assert await ended(store, await asking) == ("NTIMEOUT", "The manager is shutting down")
