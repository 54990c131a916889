"""What goes through the front door is metered for the account that sent it, once a second."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from unittest import mock

import aiohttp
import pytest

from granted import give_token
from relaying import Upstream
from remuda.base import clock
from remuda.base.errors import StoreUnavailable
from remuda.base.ids import SessionId, new_id
from remuda.cli.rooms import ROOMS
from remuda.fleet.origin import Origin
from remuda.fleet.relay import Address
from remuda.gateway.meter import Meter
from remuda.grid.model import State
from remuda.grid.omission import encode_request
from remuda.grid.sessions import Sessions
from remuda.keyspace import grid
from remuda.keyspace.metrics import METRICS_HTTP_BYTES
from remuda.metering.model import Level, Services
from remuda.metering.push import Event, Metering, Pushed
from remuda.metering.usage import TimeRange, UsageReader
from remuda.playwright.model import ServedBrowser
from remuda.store import Store
from scripted_workers import Door, ScriptedWorker, front_door, workers
from waiting import eventually

SERVICES = Services(service for room in ROOMS for service in room.services)


async def used(store: Store, service: str, account: str) -> dict[str, int]:
    now = clock.now_ms()
    reader = UsageReader(store, SERVICES[service], precision=15)
    (usage,) = await reader.read(Level.ACCOUNTS, [account], TimeRange(now - 1_800_000, now))
    return {name: count for name, count in usage.counts.items() if count}


@pytest.fixture
async def node() -> AsyncIterator[Address]:
    async with Upstream().listening() as address:
        yield address


@pytest.fixture
async def door(store: Store, tmp_path: Path) -> AsyncIterator[Door]:
    async with front_door(store, is_metered=True, auth="on", data=tmp_path) as door:
        yield door


async def session_of(store: Store, account: str, node: Address) -> SessionId:
    session, sessions = SessionId(new_id()), Sessions(store)
    origin = Origin(address="192.0.2.7", account=account)
    await sessions.create(session, requested=encode_request(({},)), origin=origin)
    upstream: dict[str, str | int] = {"host": node.host, "port": node.port, "driverSessionID": "d"}
    await sessions.open(session, upstream=upstream, actual={})
    await store.hset(grid.SESSION_STATUS(session), {State.ALIVE.stamp: clock.rfc3339()})
    return session


async def test_commands_and_their_bytes_count_for_the_account_that_sent_them(
    store: Store, door: Door, node: Address
) -> None:
    tokens = {account: await give_token(store, account) for account in ("ranch", "farm")}
    commands = {"ranch": 3, "farm": 1}

    async with aiohttp.ClientSession() as web:
        for account, token in tokens.items():
            url = f"http://127.0.0.1:{door.port}/session/{await session_of(store, account, node)}/url"
            for _ in range(commands[account]):
                headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
                async with web.post(url, data=b'{"url": "a"}', headers=headers) as response:
                    await response.read()

    async def is_metered() -> bool:
        usages = [await used(store, "grid", account) for account in commands]
        door_bytes = await store.hgetall(METRICS_HTTP_BYTES())
        return (
            [usage.get("commands") for usage in usages] == list(commands.values())
            and sum(usage["incomingBytes"] for usage in usages) == int(door_bytes["in"])
            and sum(usage["outgoingBytes"] for usage in usages) == int(door_bytes["out"])
        )

    await eventually(is_metered)


async def test_what_goes_through_a_websocket_is_metered_while_it_is_open(
    store: Store, tmp_path: Path
) -> None:
    token = await give_token(store, "ranch")

    async with (
        front_door(store, is_metered=True, auth="on", data=tmp_path) as door,
        workers(store, ScriptedWorker("w", browser=ServedBrowser.CHROMIUM_OWN)),
    ):
        socket = await door.connect(f"/?token={token}")
        await socket.send_str("x" * 1000)
        assert await socket.receive_str() == "x" * 1000

        async def is_metered() -> bool:
            usage = await used(store, "playwright", "ranch")
            return usage.get("incomingBytes", 0) > 0 and usage.get("outgoingBytes", 0) > 0

        await eventually(is_metered)
        await socket.close()


async def test_what_could_not_be_pushed_comes_with_the_next_and_counts_once(store: Store) -> None:
    metering = Metering(store, services=SERVICES)
    meter = Meter(metering)
    tally = meter.tally_for("grid", "ranch")
    tally.requests, tally.bytes_in, tally.bytes_out = 2, 30, 400

    push_all = metering.push_all

    async def lose_the_answer(events: Sequence[Event]) -> Pushed:
        await push_all(events)
        raise StoreUnavailable

    with mock.patch.object(metering, "push_all", side_effect=StoreUnavailable):
        await meter.flush()
    with mock.patch.object(metering, "push_all", side_effect=lose_the_answer):
        await meter.flush()
    tally.requests += 1
    await meter.flush()
    await asyncio.gather(meter.flush(), meter.finish())

    assert await used(store, "grid", "ranch") == {
        "commands": 3,
        "incomingBytes": 30,
        "outgoingBytes": 400,
    }


async def test_a_herd_that_does_not_meter_itself_counts_nothing(
    store: Store, node: Address, tmp_path: Path
) -> None:
    token = await give_token(store, "ranch")
    session = await session_of(store, "ranch", node)

    async with (
        front_door(store, auth="on", data=tmp_path) as door,
        aiohttp.ClientSession() as web,
        web.get(
            f"http://127.0.0.1:{door.port}/session/{session}/url?token={token}",
        ) as response,
    ):
        assert response.status == 200

    assert await used(store, "grid", "ranch") == {}
