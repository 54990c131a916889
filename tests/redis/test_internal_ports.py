"""Internal ports answer their own herd, and nothing else."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import aiohttp
import msgspec
import pytest

from chaos import CHROME, FakeDriver
from credentials import herd_headers
from grids import all_sessions, own_slots
from managers import running as running_manager
from remuda.base import clock
from remuda.base.ids import NodeId
from remuda.fleet import secret as secret_module
from remuda.fleet.relay import CREDENTIAL_HEADER
from remuda.fleet.secret import HerdSecret
from remuda.grid.node import node as node_module
from remuda.grid.node.assignment import Assignment
from remuda.grid.node.ending import Ending
from remuda.grid.node.node import Node
from remuda.keyspace import grid
from remuda.keyspace.fleet import SECRET
from remuda.store import Store
from storages import running_storage
from sweeping import O1, pending
from waiting import eventually
from web_states import new_api, serving

Server = Callable[[Store, Path], AbstractAsyncContextManager[str]]

REBOUND = {"Host": "evil.example"}
STRANGERS = [
    {},
    REBOUND,
    {"Origin": "http://evil.example"},
    {"Origin": "http://localhost:8099", "Content-Type": "text/plain"},
    {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    | {"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="},
    {CREDENTIAL_HEADER: ""},
    {CREDENTIAL_HEADER: "0" * 64},
]
WANTED = msgspec.json.encode({"capabilities": {}})


@asynccontextmanager
async def manager(store: Store, _: Path) -> AsyncIterator[str]:
    async with running_manager(store) as (role, _client):
        yield f"http://{role.address}/session"


@asynccontextmanager
async def api(store: Store, _: Path) -> AsyncIterator[str]:
    async with serving(new_api(store)) as url:
        yield f"{url}/api/sessions"


@asynccontextmanager
async def storage(store: Store, directory: Path) -> AsyncIterator[str]:
    async with running_storage(store, directory) as role:
        yield f"http://{role.address}/storage/{role.storage_id}/"


@asynccontextmanager
async def node(store: Store, _: Path) -> AsyncIterator[str]:
    async with holding(store) as (url, _node):
        yield f"{url}/status"


@asynccontextmanager
async def holding(store: Store) -> AsyncIterator[tuple[str, Node]]:
    """A node that holds a session, and its URL."""
    await own_slots(store, O1, 1)
    session = await pending(store)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node_module, "Driver", FakeDriver)
        node = Node(store, NodeId("node"), CHROME)
        node.warm_up()
        holding = asyncio.create_task(node.hold(Assignment(session, 0)))
        try:
            await eventually(lambda: store.exists(grid.SESSION_UPSTREAM(session)))
            host, port = await store.hmget(grid.SESSION_UPSTREAM(session), "host", "port")
            yield f"http://{host}:{port}", node
        finally:
            node.end(Ending("CLOSED"))
            await holding


SERVERS: list[Server] = [manager, api, storage, node]


@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
@pytest.mark.parametrize("server", SERVERS, ids=lambda server: server.__name__)
async def test_a_stranger_is_refused_whatever_it_asks_for(
    store: Store, tmp_path: Path, server: Server, method: str
) -> None:
    async with server(store, tmp_path) as url, aiohttp.ClientSession() as stranger:
        before = sorted(await all_sessions(store))
        secret = await store.get(SECRET()) or ""
        for headers in STRANGERS:
            if "Upgrade" in headers and method != "GET":
                continue
            body = None if "Upgrade" in headers else WANTED
            async with stranger.request(method, url, headers=headers, data=body) as answer:
                told = await answer.text()

            assert answer.status == 403, headers
            assert "answers only processes of its own herd" in told
            assert secret not in told + str(answer.headers)
            assert not any(session in told for session in before)

        assert sorted(await all_sessions(store)) == before


@pytest.mark.parametrize("server", SERVERS, ids=lambda server: server.__name__)
async def test_the_herd_is_answered_on_every_request(store: Store, tmp_path: Path, server: Server) -> None:
    async with server(store, tmp_path) as url, aiohttp.ClientSession() as client:
        for _ in range(2):
            async with client.get(url, headers=await herd_headers(store)) as answer:
                assert answer.status != 403

        # A connection that was once believed gives no right to the next request on it.
        async with client.get(url) as answer:
            assert answer.status == 403


async def test_two_secrets_are_not_one(store: Store, tmp_path: Path) -> None:
    ours = await herd_headers(store)
    for server in (manager, api):
        async with server(store, tmp_path) as url, aiohttp.ClientSession() as client:
            both = [*ours.items(), (CREDENTIAL_HEADER, "0" * 64)]
            async with client.get(url, headers=both) as answer:
                assert answer.status == 403


async def test_to_a_strangers_request_a_session_is_still_idle(store: Store) -> None:
    async with holding(store) as (url, node), aiohttp.ClientSession() as stranger:
        seen_at = node._idleness.seen_at

        async with stranger.get(f"{url}/status") as answer:
            assert answer.status == 403

        assert node._idleness.seen_at == seen_at


async def test_all_who_start_at_once_have_one_secret(store: Store) -> None:
    known = [HerdSecret(store) for _ in range(20)]

    await asyncio.gather(*(each.read() for each in known))

    assert {each.header for each in known} == {(CREDENTIAL_HEADER, await store.get(SECRET()))}
    assert len(known[0].header[1]) == 64
    assert await store.ttl_ms(SECRET()) == -1


async def test_when_redis_loses_it_a_process_that_knows_it_writes_it_down_again(store: Store) -> None:
    known = HerdSecret(store)
    await known.read()
    before = known.header

    await store.delete(SECRET())
    await known.read()

    assert known.header == before == (CREDENTIAL_HEADER, await store.get(SECRET()))


@pytest.mark.parametrize("server", SERVERS, ids=lambda server: server.__name__)
async def test_a_new_secret_is_believed_at_once_and_the_old_one_no_more(
    store: Store, tmp_path: Path, server: Server
) -> None:
    async with server(store, tmp_path) as url, aiohttp.ClientSession() as client:
        old = await herd_headers(store)
        await store.set(SECRET(), "1" * 64)

        async with client.get(url, headers=await herd_headers(store)) as answer:
            assert answer.status != 403
        async with client.get(url, headers=old) as answer:
            assert answer.status == 403


async def test_a_caller_learns_of_a_new_secret_by_itself(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secret_module, "KEEP_EVERY", 0.01)
    caller = HerdSecret(store)
    await caller.read()
    keeping = asyncio.create_task(caller.keep())
    try:
        await store.set(SECRET(), "1" * 64)

        await eventually(lambda: caller.header[1] == "1" * 64)
    finally:
        keeping.cancel()


async def test_strangers_cost_redis_one_look_a_second(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    monkeypatch.setattr(clock, "monotonic", lambda: 1000.0)
    secret = HerdSecret(store)
    read = secret.read

    async def count() -> None:
        nonlocal looks
        looks += 1
        await read()

    monkeypatch.setattr(secret, "read", count)
    answered = 0

    def answer() -> None:
        nonlocal answered
        answered += 1

    for _ in range(100):
        secret.look_again(answer)
        await asyncio.sleep(0)
    await eventually(lambda: answered == 100)

    assert looks == 1
