"""Connections of a revoked token: their gateways close them, and no others."""

import aiohttp

from registered_workers import check_registry
from remuda.base import clock
from remuda.fleet.origin import Origin
from remuda.playwright.revoked import Revoked, end_connections
from remuda.store import Store
from remuda.store.census import take_census
from scripted_workers import ScriptedWorker, front_door, workers
from waiting import eventually

BEN = Origin(account="web", token="ci", address="10.0.0.8")


async def test_the_connections_of_a_deleted_account_are_closed_with_the_reason(store: Store) -> None:
    async with workers(store, ScriptedWorker("w1")), front_door(store) as door:
        socket = await door.connect()

        assert await end_connections(store, "web", None) == 0
        assert await end_connections(store, "default", None) == 1

        closed = await socket.receive(timeout=10)
        assert (closed.type, closed.data) == (aiohttp.WSMsgType.CLOSE, 1001)
        assert closed.extra == "The account default was deleted"
        await eventually(lambda: is_given_back(store))


async def is_given_back(store: Store) -> bool:
    return await check_registry(store) == {"w1": 0}


async def test_a_connection_that_begins_later_stays(store: Store) -> None:
    await end_connections(store, "default", None)
    async with workers(store, ScriptedWorker("w1")), front_door(store) as door:
        socket = await door.connect()
        await socket.send_str("hello")

        assert await socket.receive_str() == "hello"
        await socket.close()


async def test_only_connections_of_the_revoked_token_are_ended(store: Store) -> None:
    revoked = Revoked(store)
    before = clock.now() - 1
    await end_connections(store, "web", "ci")
    await end_connections(store, "gone", None)
    await revoked._look()

    assert revoked.cause(BEN, before) == "The token ci was revoked"
    assert revoked.cause(BEN, clock.now() + 1) == ""
    assert revoked.cause(Origin(account="web", token="agent", address=""), before) == ""
    assert revoked.cause(Origin(account="app", token="ci", address=""), before) == ""
    assert (
        revoked.cause(Origin(account="gone", token="x", address=""), before) == "The account gone was deleted"
    )
    assert await take_census(store) == []
