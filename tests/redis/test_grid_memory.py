"""What sessions take of Redis' memory, and what still works when there is none left."""

import asyncio
import json
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from grids import check_slots, own_slots
from managers import Client, has_logged, only_session, open_orchestrator, running
from remuda.base import clock
from remuda.base.errors import StoreFull
from remuda.base.ids import SessionId
from remuda.fleet.liveness import Beat, FieldBeat, Heart
from remuda.grid.admission import Admission
from remuda.grid.manager import Manager
from remuda.grid.model import State
from remuda.grid.omission import encode_request
from remuda.grid.sessions import Sessions, node_beat
from remuda.grid.slots import Slots
from remuda.keyspace import grid
from remuda.keyspace.fleet import ROLE
from remuda.store import Store
from remuda.store.memory import NEARLY_FULL, read_memory
from servers import ENGINES, server
from sweeping import O1, WEEK, alive, backdate, ended, sweep_all
from waiting import eventually

MEGABYTE = 1_000_000


def asking_for(extension: str) -> dict[str, Any]:
    options = {"extensions": [extension]}
    return {"capabilities": {"alwaysMatch": {"browserName": "chrome", "goog:chromeOptions": options}}}


async def requested(store: Store, session: SessionId) -> str:
    return await store.hget(grid.SESSION_CAPABILITIES(session), "requested") or ""


@pytest.mark.parametrize("end", ["alive", "ended"])
async def test_large_capabilities_stay_only_as_long_as_the_node_needs_them(
    store: Store, client: Client, end: str
) -> None:
    orchestrator = await open_orchestrator(store, 1)
    asking = client.asking(asking_for("x" * MEGABYTE))
    session = await orchestrator.take()
    assert len(await requested(store, session)) > MEGABYTE
    (wanted,) = await Sessions(store).requested(session) or []
    assert wanted["goog:chromeOptions"]["extensions"] == ["x" * MEGABYTE]

    if end == "alive":
        await orchestrator.bring(session)
    else:
        await orchestrator.end(session)
    await asking

    kept = json.loads(await requested(store, session))
    assert kept["alwaysMatch"]["browserName"] == "chrome"
    assert kept["alwaysMatch"]["goog:chromeOptions"]["extensions"][0]["omitted"]["bytes"] == MEGABYTE
    assert not await store.exists(grid.SESSION_REQUESTED_SHORT(session), grid.REQUESTS_LARGE())


@pytest.fixture
async def modest(store: Store) -> AsyncIterator[Client]:
    """A client of a manager that has room for two and a half megabytes."""
    async with running(store, Manager(store, waiting_bytes=2_500_000)) as (_, client):
        yield client


async def test_there_is_a_limit_for_all_that_wait(store: Store, modest: Client) -> None:
    await open_orchestrator(store, 0)
    waiting = []
    for number in range(2):
        waiting.append(modest.asking(asking_for("x" * MEGABYTE)))
        await eventually(partial(has_logged, store, "QUEUED", number + 1))

    refused = await modest.ask(asking_for("x" * MEGABYTE))
    small = modest.asking()
    await eventually(lambda: has_logged(store, "QUEUED", 3))

    assert refused.error == "503 session not created"
    assert "take 2 of 2 MB" in refused.message
    assert "waiting_megabytes" in refused.message
    # Those who leave make room for others.
    waiting.pop().cancel()
    await eventually(lambda: has_logged(store, "CLEFT"))
    waiting.append(modest.asking(asking_for("x" * MEGABYTE)))
    await eventually(lambda: has_logged(store, "QUEUED", 4))
    for asking in (*waiting, small):
        asking.cancel()
    await asyncio.gather(*waiting, small, return_exceptions=True)
    await eventually(lambda: has_logged(store, "CLEFT", 4))


async def test_requests_wait_unread_until_a_manager_has_memory_for_their_bodies(store: Store) -> None:
    manager = Manager(store, body_bytes=2 * MEGABYTE)
    bodies = manager._relay.bodies
    async with running(store, manager) as (_, client):
        await open_orchestrator(store, 0)
        first = client.asking(asking_for("x" * MEGABYTE))
        await eventually(lambda: has_logged(store, "QUEUED"))

        second = client.asking(asking_for("x" * MEGABYTE))

        await eventually(lambda: bodies._large._lines)
        assert MEGABYTE < bodies.held < 2 * MEGABYTE
        await only_session(store)
        first.cancel()
        await eventually(lambda: has_logged(store, "QUEUED", 2))
        second.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
        await eventually(lambda: has_logged(store, "CLEFT", 2))
        await eventually(lambda: bodies.held == 0)


@pytest.fixture(params=ENGINES)
async def small_store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    """A Redis of the test's own, to be filled."""
    with server(engine=request.param) as own:
        async with Store(own.url) as store:
            yield store


async def limit_memory(store: Store, *, share: float) -> None:
    """Has Redis use this share of what it may."""
    used = (await read_memory(store)).used
    await store.send("CONFIG", "SET", "maxmemory", int(used / share))


async def test_a_nearly_full_redis_gets_no_new_sessions(small_store: Store) -> None:
    async with running(small_store) as (_, client):

        async def words(status: int) -> str:
            reply = await client.ask()
            return reply.message if reply.error == f"{status} session not created" else ""

        await limit_memory(small_store, share=0.95)
        message = await eventually(lambda: words(503))
        assert "Redis is full" in message
        assert "redis_megabytes" in message

        # It comes back by itself.
        await small_store.send("CONFIG", "SET", "maxmemory", 0)
        assert "no orchestrator is in service" in await eventually(lambda: words(500))


async def test_a_request_that_fills_redis_on_its_way_in_is_refused_before(small_store: Store) -> None:
    used = (await read_memory(small_store)).used
    await small_store.send("CONFIG", "SET", "maxmemory", used + 10 * MEGABYTE)
    admission = Admission(small_store, waiting_bytes=100 * MEGABYTE)
    await admission.look()

    await admission.admit(encode_request([{"se:name": "x" * MEGABYTE}]))
    with pytest.raises(StoreFull, match="redis_megabytes"):
        await admission.admit(encode_request([{"se:name": "x" * (4 * MEGABYTE)}]))


async def test_sessions_end_in_a_redis_that_is_full(small_store: Store) -> None:
    await own_slots(small_store, O1, 1)
    session = await alive(small_store)
    await small_store.send("CONFIG", "SET", "maxmemory", 1)
    with pytest.raises(StoreFull):
        await small_store.set(grid.SESSION_STORAGE(session), "x")

    assert await Sessions(small_store).move(session, State.TERMINATED, code="CLOSED")
    assert await Slots(small_store).release(session) is not None

    await check_slots(small_store, [O1])
    assert await Sessions(small_store).last_words(session) == ("CLOSED", {})


async def test_whoever_lives_still_beats_in_a_redis_that_is_full(small_store: Store) -> None:
    await own_slots(small_store, O1, 1)
    session = await alive(small_store)
    beat = Beat(node_beat(session).key, ttl=3, value=clock.rfc3339)
    record = FieldBeat(ROLE("gateway"), lambda: {"beatAt": clock.rfc3339()}, every=1.0, ttl=3)
    heart = Heart(small_store)
    await heart.start(beat, record)
    beating = asyncio.create_task(heart.run())
    await small_store.send("CONFIG", "SET", "maxmemory", 1)
    value, fields = await small_store.get(beat.key), await small_store.hgetall(record.key)
    await small_store.send("PEXPIRE", beat.key, 60_000)
    await small_store.send("PEXPIRE", record.key, 60_000)

    async def are_prolonged() -> bool:
        return max(await small_store.ttl_ms(beat.key), await small_store.ttl_ms(record.key)) <= 3000

    await eventually(are_prolonged)
    assert await small_store.get(beat.key) == value
    assert await small_store.hgetall(record.key) == fields
    beating.cancel()


async def test_history_makes_way_when_memory_is_short(small_store: Store) -> None:
    await own_slots(small_store, O1, 2)
    old, recent = await ended(small_store), await ended(small_store)
    await backdate(small_store, old, 0.6 * WEEK)
    await backdate(small_store, recent, 0.4 * WEEK)
    assert (await sweep_all(small_store))["sessions_purged"] == 0

    await limit_memory(small_store, share=(NEARLY_FULL + 1) / 2)
    done = await sweep_all(small_store)

    assert done["sessions_purged"] == 1
    assert await only_session(small_store) == recent
