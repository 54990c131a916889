"""The manager over HTTP: every client gets an answer, at once and with the cause; every session ends."""

import asyncio
from typing import Any

import pytest

from granted import give_token, id_of_token, revoke_token
from grids import advertise, all_sessions, check_counters, check_slots, codes_of, set_timeouts
from managers import O1, Client, Reply, ended, has_logged, only_session, open_orchestrator, running
from remuda.base.ids import ManagerId, SessionId, new_id
from remuda.fleet.origin import Origin
from remuda.grid.model import State
from remuda.grid.node.ending import Ending
from remuda.grid.sessions import Sessions, session_bell
from remuda.keyspace import grid, metrics
from remuda.keyspace.fleet import USES
from remuda.keyspace.key import Key
from remuda.store import Store
from remuda.store.census import take_census
from waiting import eventually


async def test_a_client_gets_its_session(store: Store, client: Client) -> None:
    orchestrator = await open_orchestrator(store, 1)
    asking = client.asking()

    session = await orchestrator.take()
    await orchestrator.bring(session)

    assert await asking == Reply(200, {"sessionId": session, "capabilities": {"browserName": "chrome"}})
    assert await codes_of(store, session) == ["QUEUED", "NALLOC", "SCHED", "PENDING", "NALIVE"]
    assert await Sessions(store).state(session) is State.ALIVE
    assert await Sessions(store).requested(session) == [{"browserName": "chrome"}]
    assert await store.get(metrics.METRICS_STARTUP_COUNT()) == "1"
    assert await store.ttl_ms(grid.SESSION_HEARTBEAT_MANAGER(session)) <= 1000
    await check_counters(store)
    await check_slots(store, [O1])
    assert await take_census(store) == []


async def test_a_session_gets_the_id_that_its_gateway_asks_for_once(store: Store, client: Client) -> None:
    orchestrator = await open_orchestrator(store, 1)
    wanted = new_id()
    asking = asyncio.create_task(client.ask(rest=f"/{wanted}"))
    await orchestrator.bring(await orchestrator.take())
    assert (await asking).value["sessionId"] == wanted

    while_it_runs = await client.ask(rest=f"/{wanted}")
    await orchestrator.end(SessionId(wanted))
    afterwards = await client.ask(rest=f"/{wanted}")
    nonsense = await client.ask(rest="/nonsense")

    assert while_it_runs.error == afterwards.error == nonsense.error == "409 session not created"
    assert await all_sessions(store) == [wanted]
    assert await take_census(store) == []


async def test_the_client_is_remembered_as_the_front_door_saw_it(store: Store, client: Client) -> None:
    await client.ask(**{"X-Forwarded-For": "203.0.113.7", "User-Agent": "selenium/4"})

    downstream = await store.hgetall(grid.SESSION_DOWNSTREAM(await only_session(store)))

    assert downstream.keys() == {"host", "userAgent", "lastSeen"}
    assert (downstream["host"], downstream["userAgent"]) == ("203.0.113.7", "selenium/4")


async def test_a_session_is_stamped_with_its_origin(store: Store, client: Client) -> None:
    await give_token(store, "ranch")
    asked = Origin(
        account="ranch",
        token="ci",
        token_id=await id_of_token(store, "ranch"),
        address="203.0.113.7",
        scheme="https",
        host="herd.example",
    )

    await client.ask(**dict(asked.headers()))

    assert await store.hgetall(grid.SESSION_ORIGIN(await only_session(store))) == asked.fields()


async def test_what_is_asked_for_after_the_token_was_revoked_is_not_created(
    store: Store, client: Client
) -> None:
    await give_token(store, "ranch")
    token_id = await id_of_token(store, "ranch")
    asked = Origin(account="ranch", token="ci", token_id=token_id, address="203.0.113.7")
    await revoke_token(store, "ranch")

    reply = await client.ask(**dict(asked.headers()))

    assert (reply.status, "revoked" in reply.message) == (401, True)
    assert await all_sessions(store) == []
    assert await store.zcard(USES("ranch")) == 0


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


@pytest.mark.parametrize(
    "what", [(grid.MANAGER,), (grid.MANAGER_HEARTBEAT,), (grid.MANAGER, grid.MANAGER_HEARTBEAT)]
)
async def test_a_manager_that_redis_has_lost_is_there_again_at_once(
    store: Store, what: tuple[Key[Any], ...]
) -> None:
    async with running(store) as (manager, _):
        own = manager.manager_id
        before = await store.hgetall(grid.MANAGER(own))

        await store.delete(*(key(own) for key in what))

        await eventually(lambda: is_registered(store, own))
        assert await store.hgetall(grid.MANAGER(own)) == before


async def is_registered(store: Store, own: ManagerId) -> bool:
    return await store.exists(grid.MANAGER(own), grid.MANAGER_HEARTBEAT(own)) == 2


# Requests that are wrong


def with_options(**options: Any) -> dict[str, Any]:
    return {"capabilities": {"firstMatch": [{}, {"remuda:options": options}]}}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "The body is not valid JSON"),
        (b"{", "The body is not valid JSON"),
        (b"\xff", "The body is not valid JSON"),
        (b"[" * 100_000, "The body is not valid JSON"),
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


async def test_a_browser_that_nobody_offers_is_refused_at_once_with_what_there_is(
    store: Store, client: Client
) -> None:
    await advertise(store, O1, "chrome::81.0", "firefox::74.0.1")

    reply = await client.ask({"capabilities": {"alwaysMatch": {"browserName": "safari"}}})

    assert await ended(store, reply) == (
        "QUNAVAILABLE",
        "No browser matches safari; on offer: chrome 81.0 on linux, firefox 74.0.1 on linux",
    )


async def test_a_browser_that_keeps_no_downloads_is_not_asked_for_them(store: Store, client: Client) -> None:
    await advertise(store, O1, "MiniBrowser::2.50")

    reply = await client.ask({"capabilities": {"alwaysMatch": {"se:downloadsEnabled": True}}})

    assert await ended(store, reply) == (
        "QUNAVAILABLE",
        "No browser matches any browser with downloads; on offer: MiniBrowser 2.50 on linux",
    )


async def test_an_empty_grid_says_so(store: Store, client: Client) -> None:
    code, message = await ended(store, await client.ask())

    assert code == "QUNAVAILABLE"
    assert message.endswith("on offer: none, because no orchestrator is in service")


async def test_a_client_that_waited_too_long_for_a_slot_is_told(store: Store, client: Client) -> None:
    await open_orchestrator(store, 0)
    await set_timeouts(store, queue=0.05)

    code, message = await ended(store, await client.ask())
    assert code == "QTIMEOUT"
    assert message == "No browser became free within 0.05 s; it was number 1 in the queue"


async def test_without_patience_a_free_slot_is_still_taken(store: Store, client: Client) -> None:
    orchestrator = await open_orchestrator(store, 1)
    await set_timeouts(store, queue=0)
    asking = client.asking()

    session = await orchestrator.take()
    await orchestrator.bring(session)

    assert (await asking).status == 200
    assert (await client.ask()).message.startswith("No browser became free within 0 s")


async def test_an_orchestrator_that_does_not_take_its_backlog_up_is_given_up(
    store: Store, client: Client
) -> None:
    await open_orchestrator(store, 1)
    await set_timeouts(store, scheduling=0.05)

    assert await ended(store, await client.ask()) == (
        "OTIMEOUT",
        "No orchestrator started a node within 0.05 s",
    )


async def test_a_node_that_does_not_come_up_is_given_up(store: Store, client: Client) -> None:
    orchestrator = await open_orchestrator(store, 1)
    await set_timeouts(store, nodeStartup=0.05)
    asking = client.asking()

    await orchestrator.take()

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
    orchestrator = await open_orchestrator(store, 1)
    asking = client.asking()

    session = await orchestrator.take()
    await Sessions(store).move(session, State.TERMINATED, code=code, message=message)

    assert await ended(store, await asking) == (code, message)


async def test_capabilities_that_a_driver_does_not_understand_are_an_invalid_argument(
    store: Store, client: Client
) -> None:
    orchestrator = await open_orchestrator(store, 1)
    asking = client.asking()

    session = await orchestrator.take()
    told = Ending("DFAILURE", "'nope' must be a valid device", error="invalid argument")
    await Sessions(store).move(session, State.TERMINATED, code=told.code, **told.meta)

    reply = await asking
    assert (reply.error, reply.message) == ("400 invalid argument", "'nope' must be a valid device")


async def test_a_failure_before_the_node_is_scheduled_reaches_the_client_too(
    store: Store, client: Client
) -> None:
    await open_orchestrator(store, 1)
    asking = client.asking()
    await eventually(lambda: has_logged(store, "NALLOC"))

    session = await only_session(store)
    await Sessions(store).move(session, State.TERMINATED, code="STARTFAIL", message="It shuts down")

    assert await ended(store, await asking) == ("STARTFAIL", "It shuts down")


async def test_a_session_that_ends_the_moment_it_comes_up_is_not_handed_out(
    store: Store, client: Client
) -> None:
    orchestrator = await open_orchestrator(store, 1)
    asking = client.asking()

    session = await orchestrator.take()
    async with store.transaction() as transaction:
        transaction.hset(grid.SESSION_CAPABILITIES(session), {"actual": "{}"})
        transaction.hset(grid.SESSION_STATUS(session), {"terminatedAt": "2026-01-02T03:04:05.678Z"})
        transaction.publish(session_bell(session))

    assert (await asking).error == "500 session not created"


async def test_a_session_that_ends_in_the_moment_of_its_hand_over_is_not_handed_out(
    store: Store, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    orchestrator = await open_orchestrator(store, 1)
    asking = client.asking()
    session = await orchestrator.take()
    move = Sessions.move

    async def end_first(sessions: Sessions, *args: Any, **meta: Any) -> bool:
        await move(sessions, session, State.TERMINATED, code="DFAILURE", message="It crashed")
        return await move(sessions, *args, **meta)

    monkeypatch.setattr(Sessions, "move", end_first)
    await orchestrator.bring(session)

    assert await ended(store, await asking) == ("DFAILURE", "It crashed")


async def test_a_client_whose_session_is_ended_while_it_waits_is_told(store: Store, client: Client) -> None:
    await open_orchestrator(store, 0)
    first = client.asking()
    await eventually(lambda: has_logged(store, "QUEUED"))
    kept = await only_session(store)
    second = client.asking()
    await eventually(lambda: has_logged(store, "QUEUED", 2))
    (killed,) = set(await all_sessions(store)) - {kept}

    await Sessions(store).move(killed, State.TERMINATED, code="TERM", message="An operator ended it")

    assert (await second).message == "An operator ended it"
    assert not first.done()
