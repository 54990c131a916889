"""A manager in bad weather: Redis goes away, or the manager itself has to."""

import asyncio
from functools import partial

import pytest

import servers
from managers import O1, Client, ended, has_logged, only_session, open_ranch, running
from remuda.grid.manager import Manager
from remuda.grid.slots import OwnSlots, Slots
from remuda.keyspace import grid
from remuda.store import Store
from remuda.store.census import take_census
from waiting import eventually


async def test_a_redis_that_is_away_is_an_error_that_clients_understand(server: servers.Server) -> None:
    async with Store(server.url, timeout=servers.PATIENCE) as store, running(store) as (_, client):
        server.kill()

        reply = await client.ask()

        assert reply.error == "503 unknown error"
        assert "Redis" in reply.message
        server.start()
        await eventually(lambda: store.is_connected)
        assert (await client.ask()).message.endswith("no orchestrator is in service")


async def test_those_who_wait_outlast_a_redis_that_goes_away(server: servers.Server) -> None:
    async with Store(server.url, timeout=servers.PATIENCE) as store, running(store) as (_, client):
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
    async with Store(server.url, timeout=servers.PATIENCE) as store, running(store) as (_, client):
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


# Going


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
