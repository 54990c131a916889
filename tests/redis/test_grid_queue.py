"""The queue as it is seen and cleared: who waits, for what, at which position, for how long."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from grids import advertise, all_sessions, codes_of, own_slots
from managers import Client
from remuda.grid.queue import positions
from remuda.keyspace import grid
from remuda.store import Store
from remuda.store.census import take_census
from waiting import eventually
from web_states import get, visiting

QUEUE = "/se/grid/newsessionqueue/queue"


def request_for(browser: str) -> Any:
    return {"capabilities": {"alwaysMatch": {"browserName": browser}}}


@pytest.fixture
async def client(store: Store, client: Client) -> Client:
    """One whom somebody could serve who has no slots."""
    await advertise(store, "ranch", "chrome::130.0.6723.91", "firefox::128.3.1")
    await own_slots(store, "ranch", 0)
    return client


@pytest.fixture
async def visitor(store: Store) -> AsyncIterator[aiohttp.ClientSession]:
    async with visiting(store) as visitor:
        yield visitor


async def ask_in_turn(store: Store, client: Client, *browsers: str) -> "list[asyncio.Task[Any]]":
    """Clients that wait, each having come after the one before."""
    waiting = []
    for number, browser in enumerate(browsers, start=1):
        waiting.append(client.asking(request_for(browser)))

        async def is_in_line(number: int = number) -> bool:
            return len(await positions(store)) == number

        await eventually(is_in_line)
    return waiting


async def test_the_queue_tells_who_waits_for_what_where_and_for_how_long(
    store: Store, client: Client, visitor: aiohttp.ClientSession
) -> None:
    await ask_in_turn(store, client, "chrome", "firefox", "chrome")

    _, answer = await get(visitor, QUEUE)

    seen = [(each["capabilities"][0]["browserName"], each["position"]) for each in answer["value"]]
    assert seen == [("chrome", 1), ("firefox", 2), ("chrome", 3)]
    waits = [each["waited"] for each in answer["value"]]
    assert waits == sorted(waits, reverse=True)
    assert all(0 <= waited < 60 for waited in waits)
    assert {each["requestId"] for each in answer["value"]} == set(await all_sessions(store))


async def test_the_api_tells_the_same(store: Store, client: Client, visitor: aiohttp.ClientSession) -> None:
    await ask_in_turn(store, client, "chrome", "chrome")

    _, overview = await get(visitor, "/api/overview")
    _, page = await get(visitor, "/api/sessions")
    second = overview["queue"][1]
    _, session = await get(visitor, f"/api/sessions/{second['id']}")

    assert [each["position"] for each in overview["queue"]] == [1, 2]
    assert [each["position"] for each in page["sessions"]] == [1, 2]
    assert session["position"] == 2


async def test_clearing_the_queue_tells_everybody_who_waits(
    store: Store, client: Client, visitor: aiohttp.ClientSession
) -> None:
    waiting = await ask_in_turn(store, client, "chrome", "firefox", "chrome")

    status, answer = await get(visitor, QUEUE, method="DELETE")

    assert (status, answer["value"], answer["cleared_requests"]) == (200, 3, 3)
    async with asyncio.timeout(10):
        replies = await asyncio.gather(*waiting)
    assert {reply.error for reply in replies} == {"500 session not created"}
    assert {reply.message for reply in replies} == {"Request queue was cleared"}
    for session in await all_sessions(store):
        assert await codes_of(store, session) == ["QUEUED", "CLEFT"]
    assert await store.scard(grid.SESSIONS_ACTIVE()) == 0
    assert await positions(store) == {}
    assert await take_census(store) == []


async def test_an_empty_queue_is_cleared_of_nobody(visitor: aiohttp.ClientSession) -> None:
    status, answer = await get(visitor, QUEUE, method="DELETE")

    assert (status, answer["value"]) == (200, 0)
