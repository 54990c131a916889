"""What probes are told."""

import pytest

import servers
from remuda.base import descriptors
from remuda.base.ids import OrchestratorId
from remuda.grid.manager import Manager
from remuda.grid.orchestrator.role import Orchestrator
from remuda.keyspace import grid
from remuda.store import Store
from waiting import eventually
from web_states import NoBrowsers, get, orchestrator, running, visiting


async def test_it_is_ready_when_a_session_could_be_created(store: Store) -> None:
    async with running(Manager(store), orchestrator(store)), visiting(store) as client:
        assert await get(client, "/readyz") == (200, {"ready": True, "message": "A session can be created."})


async def test_it_lives_but_is_not_ready_without_a_manager(store: Store) -> None:
    async with running(orchestrator(store)), visiting(store) as client:
        alive, _ = await get(client, "/healthz")
        ready, answer = await get(client, "/readyz")

        assert (alive, ready) == (200, 503)
        assert answer["error"]["message"] == "No manager is running, so no session can be created."


async def test_it_is_not_ready_without_an_orchestrator(store: Store) -> None:
    async with running(Manager(store)), visiting(store) as client:
        status, answer = await get(client, "/readyz")

        assert status == 503
        assert answer["error"]["message"] == "No orchestrator is running, so no node can be started."


async def test_it_is_not_ready_when_the_only_orchestrator_is_dead(store: Store) -> None:
    async with running(Manager(store), orchestrator(store)), visiting(store) as client:
        await store.delete(grid.ORCHESTRATOR_HEARTBEAT("ranch"))

        status, _ = await get(client, "/readyz")

        assert status == 503


async def test_it_is_not_ready_when_every_orchestrator_drains(store: Store) -> None:
    async with running(Manager(store), orchestrator(store)), visiting(store) as client:
        await get(client, "/api/orchestrators/ranch/drain", method="POST")

        status, answer = await get(client, "/readyz")

        assert status == 503
        assert "is draining" in answer["error"]["message"]


async def test_it_is_not_ready_without_any_slot(store: Store) -> None:
    async with running(Manager(store), orchestrator(store, slots=0)), visiting(store) as client:
        status, answer = await get(client, "/readyz")

        assert status == 503
        assert answer["error"]["message"] == "No orchestrator has a slot."


async def test_it_is_not_ready_while_every_orchestrator_is_hindered(store: Store) -> None:
    full = Orchestrator(
        store,
        NoBrowsers(),
        orchestrator_id=OrchestratorId("ranch"),
        slots=1,
        find_obstacle=lambda: "low disk space",
    )
    async with running(Manager(store), full), visiting(store) as client:
        assert await get(client, "/readyz") == (
            503,
            {
                "error": {
                    "code": "unavailable",
                    "message": "No session can be created: low disk space.",
                }
            },
        )

        async with running(orchestrator(store, "meadow")):
            status, _ = await get(client, "/readyz")

        assert status == 200


async def test_without_redis_it_lives_and_says_that_redis_is_away(server: servers.Server) -> None:
    async with Store(server.url, timeout=servers.PATIENCE) as store, visiting(store) as client:
        server.kill()
        await eventually(lambda: not store.is_connected)

        alive, _ = await get(client, "/healthz")
        async with client.get("/readyz") as response:
            answer = await response.json()

        assert (alive, response.status) == (200, 503)
        assert answer["error"]["code"] == "store_unavailable"
        assert int(response.headers["Retry-After"]) >= 1


async def test_a_redis_that_hangs_does_not_make_a_probe_hang(server: servers.Server) -> None:
    async with Store(server.url) as store, visiting(store) as client:
        server.pause()
        try:
            status, answer = await get(client, "/readyz")
        finally:
            server.resume()

        assert (status, answer["error"]["code"]) == (503, "store_unavailable")


async def test_an_api_without_descriptors_says_so(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    async with visiting(store) as client:
        monkeypatch.setattr(descriptors, "in_use", descriptors.limit)
        async with client.get("/readyz") as response:
            answer = await response.json()

        assert (response.status, answer["error"]["code"]) == (503, "overloaded")
        assert int(response.headers["Retry-After"]) >= 1
