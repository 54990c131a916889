"""A manager in bad weather: Redis goes away, or the manager itself has to."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

import servers
from managers import O1, Client, ended, has_logged, only_session, open_orchestrator, running
from remuda.base.ids import SessionId
from remuda.grid import manager as manager_module
from remuda.grid.manager import Manager
from remuda.grid.model import State
from remuda.grid.sessions import Sessions, session_bell
from remuda.grid.slots import OwnSlots, Slots
from remuda.keyspace import grid
from remuda.store import Store
from remuda.store.census import take_census
from remuda.store.url import parse_url
from waiting import eventually


async def test_a_redis_that_is_away_is_an_error_that_clients_understand(server: servers.Server) -> None:
    async with Store(server.url, timeout=servers.PATIENCE) as store, running(store) as (_, client):
        server.kill()

        reply = await client.ask()

        assert reply.error == "500 session not created"
        assert reply.message.startswith(f"Redis at {parse_url(server.url)} ")
        assert reply.message.endswith("Ask for the session again when Redis is back.")
        assert reply.headers["Retry-After"] == "1"
        server.start()
        await eventually(lambda: store.is_connected)
        assert (await client.ask()).message.endswith("no orchestrator is in service")


async def test_those_who_wait_outlast_a_redis_that_goes_away(server: servers.Server) -> None:
    async with Store(server.url, timeout=servers.PATIENCE) as store, running(store) as (_, client):
        await open_orchestrator(store, 0)
        asking = client.asking()
        await eventually(lambda: has_logged(store, "QUEUED"))
        await store.send("SAVE")

        server.kill()
        await eventually(lambda: not store.is_connected)
        server.start()
        await eventually(lambda: store.is_connected)

        orchestrator = await open_orchestrator(store, 1)
        await orchestrator.bring(await orchestrator.take())
        assert (await asking).status == 200


async def test_those_who_wait_outlast_a_redis_that_loses_everything(server: servers.Server) -> None:
    async with Store(server.url, timeout=servers.PATIENCE) as store, running(store) as (_, client):
        await open_orchestrator(store, 0)
        waiting = []
        for number in (1, 2):
            waiting.append(client.asking())
            await eventually(partial(has_logged, store, "QUEUED", number))

        server.kill()
        await eventually(lambda: not store.is_connected)
        server.start()
        await eventually(lambda: has_logged(store, "QUEUED", 2))

        orchestrator = await open_orchestrator(store, 1)
        await orchestrator.bring(await orchestrator.take())
        assert (await waiting[0]).status == 200
        assert not waiting[1].done()
        assert await take_census(store) == []


async def test_a_slot_that_was_claimed_when_redis_went_away_is_used(store: Store, client: Client) -> None:
    orchestrator = await open_orchestrator(store, 0)
    asking = client.asking()
    await eventually(lambda: has_logged(store, "QUEUED"))

    # The claim is done, but its manager has not heard of it.
    await OwnSlots(store, O1, count=1).adjust()
    await store.rpoplpush(grid.ORCHESTRATOR_SLOTS_RECLAIMED(O1), grid.ORCHESTRATOR_SLOTS_AVAILABLE(O1))
    await Slots(store).claim(await only_session(store), [O1])
    await orchestrator.bring(await orchestrator.take())

    assert (await asking).status == 200


# Going


async def test_a_manager_that_drains_finishes_what_is_under_way(store: Store) -> None:
    orchestrator = await open_orchestrator(store, 1)
    async with running(store) as (manager, client):
        asking = client.asking()
        session = await orchestrator.take()

        draining = asyncio.create_task(manager.drain())
        await eventually(lambda: is_gone(store, manager))
        late = await client.ask()
        await orchestrator.bring(session)
        await draining

        assert (await asking).status == 200
        assert late.error == "503 unknown error"
        assert await store.smembers(grid.SESSIONS_ACTIVE()) == [session]


async def is_gone(store: Store, manager: Manager) -> bool:
    return not await store.sismember(grid.MANAGERS(), manager.manager_id)


async def test_a_manager_that_leaves_tells_those_who_still_wait(store: Store) -> None:
    await open_orchestrator(store, 0)
    async with running(store) as (manager, client):
        asking = client.asking()
        await eventually(lambda: has_logged(store, "QUEUED"))

        await manager.stop()

        assert await ended(store, await asking) == ("QTIMEOUT", "The manager is shutting down")


async def test_a_drain_that_takes_too_long_is_cut_short(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remuda.grid.manager.DRAIN_SHARE", 0.05)
    orchestrator = await open_orchestrator(store, 1)
    async with running(store) as (manager, client):
        asking = client.asking()
        await orchestrator.take()

        await manager.drain()

        assert await ended(store, await asking) == ("NTIMEOUT", "The manager is shutting down")


async def lose_claim(store: Store, session: SessionId) -> None:
    await store.delete(grid.SESSION_SLOT(session))
    await store.hdel(grid.SESSION_STATUS(session), State.PENDING.stamp)


async def lose_schedule(store: Store, session: SessionId) -> None:
    await store.hdel(grid.SESSION_STATUS(session), State.PENDING.stamp)


async def lose_all(store: Store, session: SessionId) -> None:
    await store.delete(grid.SESSION_STATUS(session))


@pytest.mark.parametrize("lose", [lose_claim, lose_schedule, lose_all])
async def test_a_session_that_redis_loses_in_a_fail_over_is_created_anew(
    store: Store, client: Client, lose: Callable[[Store, SessionId], Awaitable[None]]
) -> None:
    orchestrator = await open_orchestrator(store, 2)
    asking = client.asking()
    first = await orchestrator.take()
    await eventually(lambda: has_logged(store, "PENDING"))

    # What was written last is not known to the new master.
    await lose(store, first)
    await store.publish(session_bell(first))
    second = await orchestrator.take()
    await orchestrator.bring(second)

    assert (await asking).value["sessionId"] == second != first
    assert await Sessions(store).state(first) in (State.TERMINATED, None)


async def test_a_redis_that_loses_sessions_again_and_again_is_an_error(store: Store, client: Client) -> None:
    orchestrator = await open_orchestrator(store, 2)
    asking = client.asking()
    for count in (1, 2):
        session = await orchestrator.take()
        await eventually(partial(has_logged, store, "PENDING", count))
        await lose_schedule(store, session)
        await store.publish(session_bell(session))

    reply = await asking
    assert reply.error == "500 session not created"
    assert "Redis has lost what was written" in reply.message


async def test_a_manager_that_is_replaced_takes_sessions_until_gateways_know(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manager_module, "UNTIL_GATEWAYS_KNOW", 60.0)
    orchestrator = await open_orchestrator(store, 1)
    async with running(store) as (old, client), running(store):
        draining = asyncio.create_task(old.drain())

        async def is_out() -> bool:
            return not await store.sismember(grid.MANAGERS(), old.manager_id)

        await eventually(is_out)
        asking = client.asking()
        await orchestrator.bring(await orchestrator.take())

        assert (await asking).status == 200
        draining.cancel()
