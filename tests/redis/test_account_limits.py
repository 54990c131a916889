"""Limits and turns of accounts, as the clients of a manager and of a gateway meet them; and what is left of a
session's or a connection's use, whichever way it ends."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from chaos import CHROME, FakeDriver
from grids import advertise, all_sessions, own_slots, set_timeouts
from managers import O1, Client, Reply, has_logged, only_session, open_orchestrator, running
from provisioners import FakeProvisioner, orchestrating
from registered_workers import register
from remuda.base.ids import ManagerId, NodeId, SessionId, new_id
from remuda.fleet.line import who_waits
from remuda.fleet.origin import DEFAULT_ACCOUNT, Origin
from remuda.fleet.uses import AccountUsage, Uses, usage_of
from remuda.grid.abandoned import Abandoned
from remuda.grid.model import State
from remuda.grid.node import node as node_module
from remuda.grid.node.assignment import Assignment
from remuda.grid.node.ending import Ending
from remuda.grid.node.node import Node
from remuda.grid.omission import encode_request
from remuda.grid.sessions import Sessions
from remuda.grid.slots import Slots, freed_bell
from remuda.keyspace import grid
from remuda.keyspace.accounts import ACCOUNT
from remuda.keyspace.fleet import HELD, USES
from remuda.playwright.connections import Connections
from remuda.playwright.model import Outcome, Place, ServedBrowser, WorkerLimits
from remuda.playwright.waiting import WaitingRoom
from remuda.playwright.wish import PlaywrightWish
from remuda.store import Store
from remuda.store.census import take_census
from scripted_workers import Door, ScriptedWorker, front_door, workers
from sweeping import pending
from waiting import eventually

QA, CI = {"X-Remuda-Account": "qa"}, {"X-Remuda-Account": "ci"}
NOTHING = AccountUsage(0, 0)


async def usage(store: Store, account: str = "qa") -> AccountUsage:
    return (await usage_of(store, [account]))[account]


async def usage_is(store: Store, expected: AccountUsage, account: str = "qa") -> bool:
    return await usage(store, account) == expected


async def limit(store: Store, account: str = "qa", **limits: int) -> None:
    await store.hset(ACCOUNT(account), limits)


# Sessions


async def test_a_session_over_the_limit_is_refused_before_it_is_written_down(
    store: Store, client: Client
) -> None:
    await limit(store, sessions=1)
    orchestrator = await open_orchestrator(store, 2)
    first = client.asking(**QA)
    session = await orchestrator.take()
    await orchestrator.bring(session)
    assert (await first).status == 200

    refused = await client.ask(**QA)

    assert refused.status == 429
    assert refused.headers["Retry-After"] == "1"
    assert refused.value == {
        "error": "session not created",
        "message": "Account qa has 1 sessions and connections, which is its limit",
        "stacktrace": "",
        "data": {"retryAfter": 1},
    }
    assert await all_sessions(store) == [session]


async def test_another_account_is_not_limited(store: Store, client: Client) -> None:
    await limit(store, sessions=0)
    orchestrator = await open_orchestrator(store, 1)
    assert (await client.ask(**QA)).status == 429

    asking = client.asking(**CI)
    await orchestrator.bring(await orchestrator.take())

    assert (await asking).status == 200


async def test_an_account_over_its_rate_hears_when_it_may_come_back(store: Store, client: Client) -> None:
    await limit(store, rate=1)
    await advertise(store, O1)
    await set_timeouts(store, queue=0)
    assert (await client.ask(**QA)).error == "500 session not created"

    refused = await client.ask(**QA)

    assert refused.status == 429
    assert 50 <= int(refused.headers["Retry-After"]) <= 60


async def test_an_id_that_was_refused_can_be_asked_for_again(store: Store, client: Client) -> None:
    await limit(store, sessions=0)
    orchestrator = await open_orchestrator(store, 1)
    wanted = new_id()
    assert (await client.ask(rest=f"/{wanted}", **QA)).status == 429
    assert not await store.exists(grid.SESSION_STATUS(wanted))
    await store.delete(ACCOUNT("qa"))

    asking = asyncio.create_task(client.ask(rest=f"/{wanted}", **QA))
    await orchestrator.bring(await orchestrator.take())

    assert (await asking).value["sessionId"] == wanted


async def test_asking_for_the_id_of_a_session_that_runs_leaves_its_use(store: Store, client: Client) -> None:
    orchestrator = await open_orchestrator(store, 1)
    asking = client.asking(**QA)
    session = await orchestrator.take()
    await orchestrator.bring(session)
    await asking

    assert (await client.ask(rest=f"/{session}", **QA)).status == 409

    assert await usage(store) == AccountUsage(1, 1)


async def test_a_session_is_used_from_its_request_to_its_end(store: Store, client: Client) -> None:
    orchestrator = await open_orchestrator(store, 0)
    asking = client.asking(**QA)
    await eventually(lambda: usage_is(store, AccountUsage(1, 0)))

    orchestrator = await open_orchestrator(store, 1)
    await store.publish(freed_bell())
    session = await orchestrator.take()
    assert await usage(store) == AccountUsage(1, 1)
    await orchestrator.bring(session)
    assert (await asking).status == 200
    await orchestrator.end(session)

    assert not await store.exists(USES("qa"), HELD("qa"))
    assert await take_census(store) == []


async def times_out(store: Store, asking: "asyncio.Task[Reply]") -> None:
    assert (await asking).status == 500


async def leaves(store: Store, asking: "asyncio.Task[Reply]") -> None:
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)


async def is_ended_by_another(store: Store, asking: "asyncio.Task[Reply]") -> None:
    await Sessions(store).move(await only_session(store), State.TERMINATED, code="CLOSED")
    assert (await asking).status == 500


@pytest.mark.parametrize("end", [times_out, leaves, is_ended_by_another])
async def test_a_session_that_never_gets_a_slot_uses_nothing_afterwards(
    end: Callable[[Store, "asyncio.Task[Reply]"], Awaitable[None]], store: Store, client: Client
) -> None:
    await open_orchestrator(store, 0)
    await set_timeouts(store, queue=1 if end is times_out else 60)
    asking = client.asking(**QA)
    await eventually(lambda: has_logged(store, "QUEUED"))
    assert await usage(store) == AccountUsage(1, 0)

    await end(store, asking)

    await eventually(lambda: usage_is(store, NOTHING))


async def test_a_session_whose_node_never_comes_is_used_until_its_slot_is_free(
    store: Store, client: Client
) -> None:
    await set_timeouts(store, queue=60, scheduling=60, nodeStartup=0.2)
    orchestrator = await open_orchestrator(store, 1)
    asking = client.asking(**QA)
    session = await orchestrator.take()

    assert (await asking).status == 500
    assert await usage(store) == AccountUsage(1, 1)
    await orchestrator.end(session)

    assert await usage(store) == NOTHING


async def test_a_waiting_session_of_a_killed_manager_uses_nothing(store: Store) -> None:
    session, killed = SessionId(new_id()), ManagerId("killed")
    await Uses(store).take("qa", session)
    origin = Origin(address="", account="qa")

    await Sessions(store).create(session, requested=encode_request([{}]), origin=origin, manager=killed)

    await Abandoned(store)._end_all(killed)

    assert await usage(store) == NOTHING


async def test_a_node_keeps_its_sessions_use_until_its_browser_is_gone(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[AccountUsage] = []

    async def stop(_: FakeDriver) -> None:
        seen.append(await usage(store, DEFAULT_ACCOUNT))

    monkeypatch.setattr(FakeDriver, "stop", stop)
    monkeypatch.setattr(node_module, "Driver", FakeDriver)
    await own_slots(store, O1, 1)
    session = await pending(store)
    node = Node(store, NodeId("node"), CHROME)
    node.warm_up()
    holding = asyncio.create_task(node.hold(Assignment(session, 0)))
    await eventually(lambda: usage_is(store, AccountUsage(1, 1), DEFAULT_ACCOUNT))

    node.end(Ending("CLOSED"))
    await holding

    assert seen == [AccountUsage(1, 1)]
    assert not await store.exists(USES(DEFAULT_ACCOUNT), HELD(DEFAULT_ACCOUNT))


async def test_the_use_of_a_killed_node_ends_with_its_session(store: Store) -> None:
    provisioner = FakeProvisioner()
    async with orchestrating(store, provisioner, slots=1):
        session = SessionId(new_id())

        origin = Origin(address="", account="qa")
        await Sessions(store).create(session, requested=encode_request([{}]), origin=origin)
        await Uses(store).adopt("qa", session)
        await Slots(store).claim(session, [O1])
        await eventually(lambda: session in provisioner.provisioned)
        await Sessions(store).move(session, State.ALIVE, code="NALIVE")

        provisioner.on_gone(session)

        await eventually(lambda: usage_is(store, NOTHING))


async def test_one_account_with_many_waiting_delays_another_by_one_session(
    store: Store, client: Client
) -> None:
    orchestrator = await open_orchestrator(store, 1)
    crowd = [client.asking(**QA)]
    first = await orchestrator.take()
    crowd += [client.asking(**QA) for _ in range(20)]
    await eventually(lambda: usage_is(store, AccountUsage(21, 1)))
    await eventually(lambda: has_logged(store, "QUEUED", 21))
    single = client.asking(**CI)
    await eventually(lambda: has_logged(store, "QUEUED", 22))

    await orchestrator.end(first)
    second = await orchestrator.take()
    await orchestrator.bring(second)

    assert (await single).value["sessionId"] == second
    for each in crowd:
        each.cancel()
    await asyncio.gather(*crowd, return_exceptions=True)
    await eventually(lambda: usage_is(store, NOTHING))


async def test_two_managers_keep_one_limit(store: Store, redis_url: str) -> None:
    await limit(store, sessions=3)
    await open_orchestrator(store, 0)
    await set_timeouts(store, queue=1)
    async with Store(redis_url) as other, running(store) as (_, one), running(other) as (_, two):
        asking = [client.asking(**QA) for client in (one, two) for _ in range(5)]

        statuses = [(await each).status for each in asking]

    assert sorted(statuses) == [429] * 7 + [500] * 3


# By CDP and BiDi


async def test_a_cdp_client_over_the_limit_hears_so(store: Store, client: Client) -> None:
    await limit(store, DEFAULT_ACCOUNT, rate=0)
    await open_orchestrator(store, 1)
    async with front_door(store) as door:
        status, error, headers = await door.refusal("/cdp")

    assert status == 429
    assert headers["Retry-After"] == "60"
    assert error["message"].startswith("Account default has started 0 sessions and connections")


async def test_a_bidi_client_over_the_limit_hears_so(store: Store, client: Client) -> None:
    await limit(store, DEFAULT_ACCOUNT, sessions=0)
    await open_orchestrator(store, 1)
    async with front_door(store) as door:
        socket = await door.connect("/session")
        capabilities = {"capabilities": {"alwaysMatch": {"browserName": "chrome"}}}
        await socket.send_json({"id": 1, "method": "session.new", "params": capabilities})
        answer = await socket.receive_json(timeout=20)

    assert answer["error"] == "session not created"
    assert "which is its limit" in answer["message"]


# Playwright connections


async def is_used(store: Store, uses: int, held: int) -> bool:
    return await usage_is(store, AccountUsage(uses, held), DEFAULT_ACCOUNT)


async def test_a_connection_over_the_limit_is_refused_before_the_upgrade(store: Store) -> None:
    await limit(store, DEFAULT_ACCOUNT, sessions=1)
    async with workers(store, ScriptedWorker("w1")), front_door(store) as door:
        socket = await door.connect()
        await eventually(lambda: is_used(store, 1, 1))

        status, error, headers = await door.refusal()

        assert (status, headers["Retry-After"]) == (429, "1")
        assert error["message"] == "Account default has 1 sessions and connections, which is its limit"
        await socket.close()
        await eventually(lambda: is_used(store, 0, 0))
        await (await door.connect()).close()


async def test_a_client_that_waits_is_used_and_one_that_gives_up_is_not(store: Store) -> None:
    async with workers(store, ScriptedWorker("w1")), front_door(store, playwright_concurrent=1) as door:
        socket = await door.connect()
        waiting = asyncio.create_task(door.connect())
        await eventually(lambda: is_used(store, 2, 1))

        waiting.cancel()
        await eventually(lambda: is_used(store, 1, 1))
        await socket.close()

        await eventually(lambda: is_used(store, 0, 0))
    assert not await store.exists(USES(DEFAULT_ACCOUNT), HELD(DEFAULT_ACCOUNT))


async def no_worker(door: Door) -> int:
    return (await door.refusal("/?browser=firefox"))[0]


async def in_vain(door: Door) -> int:
    return (await door.refusal())[0]


@pytest.mark.parametrize(("ask", "status"), [(no_worker, 404), (in_vain, 503)])
async def test_a_client_that_gets_no_browser_uses_nothing_afterwards(
    ask: Callable[[Door], Awaitable[int]], status: int, store: Store
) -> None:
    async with (
        workers(store, ScriptedWorker("w1")),
        front_door(store, playwright_concurrent=1, playwright_wait=1) as door,
    ):
        socket = await door.connect()

        assert await ask(door) == status

        await eventually(lambda: is_used(store, 1, 1))
        await socket.close()


async def test_a_client_whose_worker_does_not_answer_uses_one_connection(store: Store) -> None:
    deaf = ScriptedWorker("deaf")
    deaf.port = 1
    await deaf.register(store)
    async with workers(store, ScriptedWorker("w1")), front_door(store) as door:
        sockets = [await door.connect() for _ in range(3)]

        await eventually(lambda: is_used(store, 3, 3))
        for socket in sockets:
            await socket.close()
        await eventually(lambda: is_used(store, 0, 0))


async def test_connections_of_accounts_take_turns(store: Store) -> None:
    await register(store, "w1")
    limits, uses = WorkerLimits(concurrent=1, lease=60), Uses(store)
    connections = Connections(store, limits)
    room = WaitingRoom(store, connections, uses, patience=30, longest=100)
    keeping = asyncio.create_task(room.run())
    served: list[tuple[str, Place]] = []

    async def connect(account: str, use: str) -> None:
        wish = PlaywrightWish(ServedBrowser.CHROMIUM, "", origin=Origin(address="", account=account))
        served.append((use, await room.find(wish, use, came=asyncio.get_running_loop().time())))

    async def end(use: str, account: str) -> None:
        (place,) = [place for each, place in served if each == use]
        await uses.give_back(account, use)
        connections.close(place, Outcome.SERVED)

    await connect("qa", "q0")
    crowd = [asyncio.create_task(connect("qa", f"q{number}")) for number in range(1, 20)]
    await eventually(lambda: usage_is(store, AccountUsage(20, 1)))
    single = asyncio.create_task(connect("ci", "c0"))
    await eventually(lambda: usage_is(store, AccountUsage(1, 0), "ci"))
    await eventually(partial(waits, store, 20))

    await end("q0", "qa")
    await single
    assert await usage(store, "ci") == AccountUsage(1, 1)
    await end("c0", "ci")
    await eventually(lambda: len(served) == 3)

    assert [use for use, _ in served][:2] == ["q0", "c0"]
    for task in (keeping, *crowd):
        task.cancel()
    await asyncio.gather(keeping, *crowd, return_exceptions=True)


async def waits(store: Store, count: int) -> bool:
    return len(await who_waits(store, "playwright:")) == count
