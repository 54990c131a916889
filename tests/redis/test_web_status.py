"""`/status` and the queue in the shape of Selenium Grid 4, key by key."""

import pytest

import servers
from remuda import __version__
from remuda.base.hosts import this_machine
from remuda.keyspace import grid
from remuda.store import Store
from waiting import eventually
from web_states import (
    CHROME,
    SessionWriter,
    get,
    herd_client,
    new_api,
    orchestrator,
    running,
    serving,
    visiting,
)

STEREOTYPE = {"browserName": "chrome", "browserVersion": CHROME.version, "platformName": "linux"}
SLOT = {**STEREOTYPE, "se:downloadsEnabled": True}
NEVER = "1970-01-01T00:00:00Z"


@pytest.mark.parametrize("path", ["/status", "/wd/hub/status"])
async def test_status_of_a_herd_with_a_session(store: Store, path: str) -> None:
    async with (
        running(orchestrator(store)),
        serving(new_api(store)) as uri,
        herd_client(store, uri) as client,
    ):
        session = await SessionWriter(store).serve(browserName="chrome", **{"se:name": "pay by card"})
        started = await store.hget(grid.SESSION_STATUS(session), "aliveAt")

        status, answer = await get(client, path)

        assert status == 200
        assert answer == {
            "value": {
                "ready": True,
                "message": "Selenium Grid ready.",
                "nodes": [
                    {
                        "id": "ranch",
                        "uri": uri,
                        "maxSessions": 2,
                        "osInfo": this_machine(),
                        "heartbeatPeriod": 60000,
                        "availability": "UP",
                        "version": __version__,
                        "sessionTimeout": 900000,
                        "slots": [
                            {
                                "id": {"hostId": "ranch", "id": "ranch/1"},
                                "lastStarted": started,
                                "session": {
                                    "capabilities": {**STEREOTYPE, "se:name": "pay by card"},
                                    "sessionId": session,
                                    "start": started,
                                    "stereotype": SLOT,
                                    "uri": uri,
                                },
                                "stereotype": SLOT,
                            },
                            {
                                "id": {"hostId": "ranch", "id": "ranch/2"},
                                "lastStarted": NEVER,
                                "session": None,
                                "stereotype": SLOT,
                            },
                        ],
                    }
                ],
            }
        }


async def test_status_of_an_empty_herd(store: Store) -> None:
    async with visiting(store) as client:
        _, answer = await get(client, "/status")

        assert answer == {"value": {"ready": False, "message": "Selenium Grid not ready.", "nodes": []}}


async def test_a_grid_without_a_free_slot_is_not_ready(store: Store) -> None:
    async with running(orchestrator(store, slots=1)), visiting(store) as client:
        session = await SessionWriter(store).serve(browserName="chrome")
        _, full = await get(client, "/status")

        await SessionWriter(store).end(session)
        _, free = await get(client, "/status")

        assert (full["value"]["ready"], full["value"]["message"]) == (False, "Selenium Grid not ready.")
        assert (free["value"]["ready"], free["value"]["message"]) == (True, "Selenium Grid ready.")


async def test_a_dead_orchestrator_is_down_and_makes_nothing_ready(store: Store) -> None:
    async with running(orchestrator(store)), visiting(store) as client:
        await store.delete(grid.ORCHESTRATOR_HEARTBEAT("ranch"))

        _, answer = await get(client, "/status")

        assert answer["value"]["ready"] is False
        assert answer["value"]["nodes"][0]["availability"] == "DOWN"


async def test_the_uri_is_that_of_the_front_door_the_client_came_through(store: Store) -> None:
    async with running(orchestrator(store)), visiting(store) as client:
        headers = {"X-Forwarded-Host": "grid.example:4444", "X-Forwarded-Proto": "https"}
        async with client.get("/status", headers=headers) as response:
            answer = await response.json()

        assert answer["value"]["nodes"][0]["uri"] == "https://grid.example:4444"


async def test_a_host_that_is_none_is_not_repeated(store: Store) -> None:
    async with running(orchestrator(store)), visiting(store) as client:
        async with client.get("/status", headers={"X-Forwarded-Host": "evil/<script>"}) as response:
            answer = await response.json()

        assert "evil" not in answer["value"]["nodes"][0]["uri"]


async def test_a_platform_is_all_that_other_orchestrators_tell_of_their_machine(store: Store) -> None:
    async with running(orchestrator(store)), visiting(store) as client:
        await store.delete(grid.ORCHESTRATOR_MACHINE("ranch"))

        _, answer = await get(client, "/status")

        assert answer["value"]["nodes"][0]["osInfo"] == {"arch": "", "name": "linux", "version": ""}


async def test_the_distributors_status_are_the_nodes_of_the_grids(store: Store) -> None:
    async with running(orchestrator(store)), visiting(store) as client:
        await SessionWriter(store).serve(browserName="chrome")
        _, whole = await get(client, "/status")

        status, answer = await get(client, "/se/grid/distributor/status")

        assert (status, answer) == (200, {"value": {"nodes": whole["value"]["nodes"]}})


async def test_the_session_map_knows_a_session_until_it_ends(store: Store) -> None:
    writer = SessionWriter(store)
    async with (
        running(orchestrator(store)),
        serving(new_api(store)) as uri,
        herd_client(store, uri) as client,
    ):
        session = await writer.serve(browserName="chrome", **{"se:name": "pay by card"})
        started = await store.hget(grid.SESSION_STATUS(session), "aliveAt")

        status, answer = await get(client, f"/se/grid/session/{session}")
        await writer.end(session)
        lost = await get(client, f"/se/grid/session/{session}")

        assert (status, answer["value"]) == (
            200,
            {
                "capabilities": {**STEREOTYPE, "se:name": "pay by card"},
                "sessionId": session,
                "start": started,
                "stereotype": SLOT,
                "uri": uri,
            },
        )
        assert (lost[0], lost[1]["value"]["error"]) == (404, "invalid session id")


@pytest.mark.parametrize("name", ["nonsense", "00000000-0000-4000-8000-000000000000"])
async def test_the_session_map_knows_no_session_that_never_was(store: Store, name: str) -> None:
    async with visiting(store) as client:
        status, answer = await get(client, f"/se/grid/session/{name}")

        assert (status, answer["value"]["error"]) == (404, "invalid session id")


async def test_the_queue_lists_sessions_that_wait_for_a_slot(store: Store) -> None:
    writer = SessionWriter(store)
    async with running(orchestrator(store)), visiting(store) as client:
        await writer.serve(browserName="chrome")
        await writer.claim(browserName="chrome")
        waiting = await writer.queue(browserName="firefox", proxy={"httpProxy": "bob:hush@proxy"})

        status, answer = await get(client, "/se/grid/newsessionqueue/queue")

        assert status == 200
        (entry,) = answer["value"]
        assert entry["capabilities"] == [{"browserName": "firefox"}]
        assert entry["requestId"] == waiting


@pytest.mark.parametrize(
    "path", ["/graphql?query={grid{uri}}", "/se/grid/newsessionqueue/queue", "/readyz", "/ping", "/ui/", "/"]
)
async def test_every_path_is_also_there_below_the_hub(store: Store, path: str) -> None:
    async with visiting(store) as client:
        for prefix in ("", "/wd/hub"):
            async with client.get(prefix + path) as response:
                assert response.status != 404, prefix


@pytest.mark.parametrize("path", ["/se/nothing", "/wd/hub/nothing", "/se/grid/newsessionqueue/queue/x"])
async def test_an_unknown_path_of_seleniums_is_refused_in_its_words(store: Store, path: str) -> None:
    async with visiting(store) as client:
        status, answer = await get(client, path)

        assert status == 404
        assert answer == {
            "value": {"error": "unknown command", "message": f"There is nothing at {path}.", "stacktrace": ""}
        }


async def test_a_wrong_method_on_status_is_refused_in_w3c_words(store: Store) -> None:
    async with visiting(store) as client:
        status, answer = await get(client, "/status", method="POST")

        assert (status, answer["value"]["error"]) == (405, "unknown method")


async def test_without_redis_status_is_unavailable_in_w3c_words(server: servers.Server) -> None:
    async with Store(server.url, timeout=servers.PATIENCE) as store, visiting(store) as client:
        server.kill()
        await eventually(lambda: not store.is_connected)

        status, answer = await get(client, "/status")

        assert (status, answer["value"]["error"]) == (503, "unknown error")
        assert "does not answer" in answer["value"]["message"]
