"""What a gateway answers to load balancers and operators, whatever else runs or hangs."""

import asyncio
import socket
import time
from collections.abc import Sequence

import aiohttp
import pytest

import servers
from managers import CHROME, open_orchestrator
from remuda.cli.rooms import ROOMS
from remuda.gateway.probes import PATIENCE
from remuda.grid.manager import Manager
from remuda.keyspace.grid import ORCHESTRATOR_HEARTBEAT
from remuda.store import Store
from scripted_workers import Door, front_door
from servers import ENGINES, Server
from waiting import eventually
from web_states import orchestrator, running


async def test_a_gateway_lives_without_any_other_process(store: Store) -> None:
    async with front_door(store) as door:
        status, answer, headers = await door.get("/healthz")

    assert (status, answer) == (200, {"ready": True, "message": "This gateway takes requests."})
    assert headers["Cache-Control"] == "no-cache"


async def test_it_is_ready_when_a_session_could_be_created_also_without_an_api(store: Store) -> None:
    async with running(Manager(store), orchestrator(store)), front_door(store, rooms=ROOMS) as door:
        status, answer, _ = await door.get("/readyz")

    assert (status, answer["ready"], answer["message"]) == (200, True, "A session can be created.")
    assert {name: each["ready"] for name, each in answer["components"].items()} == {
        "redis": True,
        "grid": True,
        "api": False,
    }


async def test_what_is_in_the_way_is_told_by_component(store: Store) -> None:
    async with (
        running(orchestrator(store)),
        front_door(store, rooms=ROOMS) as door,
        aiohttp.ClientSession() as http,
        http.get(f"{door.url}/readyz") as response,
    ):
        answer = await response.json()

    missing = "No manager is running, so no session can be created."
    assert (response.status, answer["ready"]) == (503, False)
    assert answer["error"] == {"code": "unavailable", "message": missing}
    assert answer["components"]["redis"] == {"ready": True, "message": "Redis answers."}
    assert answer["components"]["grid"] == {"ready": False, "message": missing}


async def test_it_is_not_ready_once_its_only_orchestrator_was_killed(store: Store, redis_url: str) -> None:
    async with (
        running(Manager(store)),
        front_door(store, rooms=ROOMS) as door,
        Store(redis_url) as connection,
    ):
        killed = orchestrator(connection)
        await killed.start()
        assert (await door.get("/readyz"))[0] == 200

        await connection.__aexit__(None, None, None)  # As by kill -9: it says nothing.

        missing = "No orchestrator is running, so no node can be started."
        await eventually(lambda: answers(door, missing))
        assert await store.exists(ORCHESTRATOR_HEARTBEAT(killed.orchestrator_id))


async def answers(door: Door, message: str) -> bool:
    _, answer, _ = await door.get("/readyz")
    return bool(answer["message"] == message)


@pytest.mark.usefixtures("client")
async def test_an_orchestrator_of_webgrid_which_listens_nowhere_counts_while_it_beats(store: Store) -> None:
    await open_orchestrator(store, 1)
    async with front_door(store, rooms=ROOMS) as door:
        assert await answers(door, "A session can be created.")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (("REPLICAOF", "127.0.0.1", "1"), "READONLY"),
        (("CONFIG", "SET", "min-replicas-to-write", "1"), "NOREPLICAS"),
    ],
)
async def test_it_is_not_ready_while_redis_answers_but_takes_no_writes(
    engine: str, command: Sequence[str], reason: str
) -> None:
    with servers.server(engine=engine) as own:
        async with (
            Store(own.url) as store,
            front_door(store, rooms=ROOMS) as door,
            running(Manager(store), orchestrator(store)),
        ):
            assert (await door.get("/readyz"))[0] == 200

            await store.send(*command)

            status, answer, _ = await door.get("/readyz")
            assert status == 503
            assert answer["message"].startswith(f"No session can be created: Redis refuses work: {reason}")
            assert not answer["message"].endswith("..")

            await store.send("REPLICAOF", "NO", "ONE")
            await store.send("CONFIG", "SET", "min-replicas-to-write", "0")


async def test_a_redis_that_hangs_is_told_within_a_second(server: Server) -> None:
    async with Store(server.url) as store, front_door(store, rooms=ROOMS) as door:
        server.pause()
        try:
            began = time.monotonic()
            ready, answer, headers = await door.get("/readyz")
            took = time.monotonic() - began
            alive, _, _ = await door.get("/healthz")
        finally:
            server.resume()

    assert (alive, ready, answer["code"]) == (200, 503, "store_unavailable")
    assert int(headers["Retry-After"]) >= 1
    # On a machine of its own; on a busy one, much sooner than a command gives Redis up, after five seconds.
    assert PATIENCE < 1.0
    assert took < 4.0


@pytest.mark.usefixtures("client")
async def test_a_client_in_the_queue_is_told_to_try_again_when_its_gateway_leaves(store: Store) -> None:
    await open_orchestrator(store, 0)
    async with front_door(store, gateway_drain=1) as door, aiohttp.ClientSession() as http:

        async def ask() -> tuple[int, str, str]:
            async with http.post(f"{door.url}/session", json=CHROME) as response:
                value = (await response.json())["value"]
                return response.status, value["error"], response.headers["Retry-After"]

        asking = asyncio.create_task(ask())
        await eventually(lambda: door.clients == 1)

        await door.gateway.drain()

        assert await asyncio.wait_for(asking, 10) == (500, "session not created", "1")


async def test_a_client_that_is_connected_but_not_accepted_yet_is_answered_by_a_gateway_that_leaves(
    store: Store,
) -> None:
    async with front_door(store, gateway_drain=1) as door:
        with socket.create_connection(("127.0.0.1", door.port)) as client:
            client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")

            # Without a turn of the loop in between, in which it would be accepted.
            await door.gateway.drain()

            client.settimeout(10)
            assert client.recv(100).startswith(b"HTTP/1.1 ")
