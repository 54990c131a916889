"""/graphql in Selenium Grid's words: KEDA's query byte for byte, and what dashboards and exporters ask."""

import json
import re
from typing import Any

import servers
from asking import ask, send
from remuda import __version__
from remuda.base.hosts import this_machine
from remuda.grid.capabilities import Offer
from remuda.keyspace import grid
from remuda.keyspace.key import ListName
from remuda.store import Store
from waiting import eventually
from web_states import (
    CHROME,
    FIREFOX,
    SessionWriter,
    herd_client,
    new_api,
    orchestrator,
    running,
    serving,
    visiting,
)

# What KEDA's Selenium Grid scaler sends, as Go's json.Marshal writes it.
KEDA = (
    b'{"query":"{ grid { sessionCount, maxSession, totalSlots }, nodesInfo { nodes { id, status, '
    b"sessionCount, maxSession, slotCount, stereotypes, sessions { id, capabilities, slot { id, stereotype "
    b'} } } }, sessionsInfo { sessionQueueRequests } }"}'
)
# What docker-selenium's video recorder sends for a session.
VIDEO = (
    "{ session (id: %s) { id, capabilities, startTime, uri, nodeId, nodeUri, sessionDurationMillis, "
    "slot { id, stereotype, lastStarted } } }"
)
# What Grid's own dashboard sends.
GRID = "query Summary { grid { uri totalSlots nodeCount maxSession sessionCount sessionQueueSize version } }"
NODES = (
    "query GetNodes { nodesInfo { nodes { id uri status maxSession slotCount stereotypes version "
    "sessionCount osInfo { version name arch } } } }"
)
SESSIONS = (
    "query Sessions { sessionsInfo { sessions { id capabilities startTime uri nodeId nodeUri "
    "sessionDurationMillis slot { id stereotype lastStarted } } sessionQueueRequests } }"
)


async def test_keda_is_answered(store: Store) -> None:
    writer = SessionWriter(store)
    async with running(orchestrator(store)), visiting(store) as client:
        session = await writer.serve(browserName="chrome", platformName="linux")
        await writer.queue(browserName="firefox", platformName="linux")

        status, answer = await send(client, KEDA)

    assert status == 200
    assert answer.keys() == {"data"}
    data = answer["data"]
    assert data["grid"] == {"sessionCount": 1, "maxSession": 2, "totalSlots": 2}
    (node,) = data["nodesInfo"]["nodes"]
    (seen,) = node.pop("sessions")
    stereotypes = json.loads(node.pop("stereotypes"))
    assert node == {"id": "ranch", "status": "UP", "sessionCount": 1, "maxSession": 2, "slotCount": 2}
    stereotype = {
        "browserName": "chrome",
        "browserVersion": CHROME.version,
        "platformName": "linux",
        "se:downloadsEnabled": True,
    }
    assert stereotypes == [{"slots": 2, "stereotype": stereotype}]
    assert seen["id"] == session
    assert json.loads(seen["capabilities"])["browserName"] == "chrome"
    assert seen["slot"]["id"] == "ranch/1"
    assert json.loads(seen["slot"]["stereotype"]) == {"browserName": "chrome", "platformName": "linux"}
    (request,) = data["sessionsInfo"]["sessionQueueRequests"]
    assert json.loads(request) == {"browserName": "firefox", "platformName": "linux"}


async def test_keda_is_answered_by_an_empty_herd(store: Store) -> None:
    async with visiting(store) as client:
        status, answer = await send(client, KEDA)

    assert status == 200
    assert answer["data"] == {
        "grid": {"sessionCount": 0, "maxSession": 0, "totalSlots": 0},
        "nodesInfo": {"nodes": []},
        "sessionsInfo": {"sessionQueueRequests": []},
    }


async def test_keda_must_not_take_a_herd_without_redis_for_an_idle_one(server: servers.Server) -> None:
    async with Store(server.url, timeout=servers.PATIENCE) as store, visiting(store) as client:
        server.kill()
        await eventually(lambda: not store.is_connected)

        status, answer = await send(client, KEDA)

    assert status == 503
    assert answer["data"] is None
    assert answer["errors"][0]["extensions"] == {"code": "store_unavailable"}


async def test_slots_count_once_for_each_browser_and_sessions_are_limited_by_all(store: Store) -> None:
    async with running(orchestrator(store, "ranch", CHROME, FIREFOX, slots=3)), visiting(store) as client:
        await SessionWriter(store).serve(browserName="firefox")

        data = await ask(
            client,
            "{ grid { maxSession totalSlots } nodesInfo { nodes { maxSession slotCount stereotypes } } }",
        )

    assert data["grid"] == {"maxSession": 3, "totalSlots": 6}
    (node,) = data["nodesInfo"]["nodes"]
    assert (node["maxSession"], node["slotCount"]) == (3, 6)
    browsers = [
        (each["stereotype"]["browserName"], each["slots"]) for each in json.loads(node["stereotypes"])
    ]
    assert browsers == [("chrome", 3), ("firefox", 3)]


async def test_a_browser_that_keeps_no_downloads_does_not_say_so(store: Store) -> None:
    webkit = Offer("MiniBrowser", "2.48.3", "linux")
    async with running(orchestrator(store, "ranch", webkit)), visiting(store) as client:
        data = await ask(client, "{ nodesInfo { nodes { stereotypes } } }")

    ((stereotype,),) = (json.loads(each["stereotypes"]) for each in data["nodesInfo"]["nodes"])
    assert "se:downloadsEnabled" not in stereotype["stereotype"]


async def test_a_slots_stereotype_is_what_its_session_got_with_the_version_it_asked_for(store: Store) -> None:
    writer = SessionWriter(store)
    async with running(orchestrator(store, slots=4)), visiting(store) as client:
        await writer.serve(browserName="chromium")
        await writer.serve(browserName="chrome", browserVersion="130", platformName="Linux")
        await writer.serve()
        await writer.schedule(browserName="chrome")

        data = await ask(client, "{ sessionsInfo { sessions { slot { id stereotype } } } }")

    slots = [each["slot"] for each in data["sessionsInfo"]["sessions"]]
    linux = {"browserName": "chrome", "platformName": "linux"}
    assert {slot["id"]: json.loads(slot["stereotype"]) for slot in slots} == {
        "ranch/1": linux,
        "ranch/2": {**linux, "browserVersion": "130"},
        "ranch/3": linux,
        "ranch/4": linux,
    }


async def test_no_address_inside_the_herd_is_shown(store: Store) -> None:
    writer = SessionWriter(store)
    inside = "127.0.0.1:40001"
    async with (
        running(orchestrator(store)),
        serving(new_api(store)) as uri,
        herd_client(store, uri) as client,
    ):
        session = await writer.serve(browserName="chrome")
        actual = {
            "browserName": "chrome",
            "platformName": "linux",
            "webSocketUrl": f"ws://{inside}/session/abc",
            "goog:chromeOptions": {"debuggerAddress": inside},
            "moz:debuggerAddress": inside,
        }
        await store.hset(grid.SESSION_CAPABILITIES(session), {"actual": json.dumps(actual)})
        await store.hset(grid.SESSION_UPSTREAM(session), {"host": "127.0.0.1", "port": "40001"})

        seen = await ask(client, VIDEO % json.dumps(session))
        webgrid = "{ sessions { capabilities { actual } upstream { host port driverSessionID } } }"
        views = [seen, await ask(client, webgrid)]
        paths = [f"/api/sessions/{session}", "/api/sessions", "/api/overview", "/status"]
        paths += [f"/se/grid/session/{session}", "/se/grid/distributor/status"]
        for path in paths:
            async with client.get(path) as response:
                views.append(await response.json())

    assert "40001" not in json.dumps(views)
    shown = json.loads(seen["session"]["capabilities"])
    assert shown["webSocketUrl"] == f"ws{uri.removeprefix('http')}/session/{session}"
    assert shown["se:cdp"] == f"ws{uri.removeprefix('http')}/session/{session}/se/cdp"
    assert views[2]["actualCapabilities"]["webSocketUrl"] == f"/session/{session}"


async def test_what_keda_would_stumble_over_is_left_out(store: Store) -> None:
    writer = SessionWriter(store)
    async with visiting(store) as client:
        odd: dict[str, Any] = {"browserName": 7, "platformName": None, "se:downloadsEnabled": "yes"}
        await writer.queue(browserVersion="130", **odd)
        await writer.queue(**{"browserName": "chrome", "se:downloadsEnabled": True, "my:lab": {"rack": 4}})
        for text in ("[]", "[7]", "{}", "nonsense"):
            session = await writer.queue()
            await store.hset(grid.SESSION_CAPABILITIES(session), {"requested": text})

        data = await ask(client, "{ sessionsInfo { sessionQueueRequests } }")

    requests = [json.loads(each) for each in data["sessionsInfo"]["sessionQueueRequests"]]
    assert sorted(requests, key=len) == [
        {},
        {},
        {},
        {},
        {"browserVersion": "130"},
        {"browserName": "chrome", "se:downloadsEnabled": True, "my:lab": {"rack": 4}},
    ]


async def test_a_request_of_several_sets_is_one_text(store: Store) -> None:
    writer = SessionWriter(store)
    async with visiting(store) as client:
        session = await writer.queue(browserName="chrome")
        sets = [{"browserName": "firefox"}, {"browserName": "chrome"}]
        await store.hset(grid.SESSION_CAPABILITIES(session), {"requested": json.dumps(sets)})

        data = await ask(client, "{ sessionsInfo { sessionQueueRequests } grid { sessionQueueSize } }")

    assert data["sessionsInfo"]["sessionQueueRequests"] == ['{"browserName":"firefox"}']
    assert data["grid"]["sessionQueueSize"] == 1


async def test_a_session_that_has_a_slot_waits_no_longer(store: Store) -> None:
    writer = SessionWriter(store)
    async with running(orchestrator(store)), visiting(store) as client:
        await writer.claim(browserName="chrome")
        await writer.schedule(browserName="chrome")

        data = await ask(
            client, "{ grid { sessionQueueSize sessionCount } nodesInfo { nodes { sessions { id } } } }"
        )

    assert data["grid"] == {"sessionQueueSize": 0, "sessionCount": 2}
    assert len(data["nodesInfo"]["nodes"][0]["sessions"]) == 2


async def test_credentials_are_masked(store: Store) -> None:
    writer = SessionWriter(store)
    secret: dict[str, Any] = {
        "proxy": {"httpProxy": "bob:hush@proxy:8080"},
        "my:options": {"accessKey": "hush"},
    }
    async with running(orchestrator(store)), visiting(store) as client:
        session = await writer.serve(browserName="chrome", **secret)
        actual = json.dumps({"browserName": "chrome", **secret})
        await store.hset(grid.SESSION_CAPABILITIES(session), {"actual": actual})
        await writer.queue(browserName="chrome", **secret)

        status, answer = await send(client, KEDA)
        detail = await ask(client, VIDEO % json.dumps(session))

    assert status == 200
    assert "hush" not in json.dumps(answer)
    assert "hush" not in json.dumps(detail)
    assert "***" in answer["data"]["sessionsInfo"]["sessionQueueRequests"][0]


async def test_a_dead_orchestrators_node_is_down_and_its_slots_are_none(store: Store) -> None:
    async with running(orchestrator(store)), visiting(store) as client:
        await store.delete(grid.ORCHESTRATOR_HEARTBEAT("ranch"))

        _, answer = await send(client, KEDA)

    assert answer["data"]["grid"] == {"sessionCount": 0, "maxSession": 0, "totalSlots": 0}
    assert answer["data"]["nodesInfo"]["nodes"][0]["status"] == "DOWN"


async def test_the_recorder_of_docker_selenium_finds_a_session(store: Store) -> None:
    async with (
        running(orchestrator(store)),
        serving(new_api(store)) as uri,
        herd_client(store, uri) as client,
    ):
        session = await SessionWriter(store).serve(browserName="chrome", **{"se:name": "pay by card"})

        found = (await ask(client, VIDEO % json.dumps(session)))["session"]

    assert found["id"] == session
    assert (found["uri"], found["nodeUri"], found["nodeId"]) == (uri, uri, "ranch")
    assert re.fullmatch(r"\d\d/\d\d/20\d\d \d\d:\d\d:\d\d", found["startTime"])
    assert found["slot"]["lastStarted"] == found["startTime"]
    assert 0 <= int(found["sessionDurationMillis"]) < 60_000
    assert isinstance(found["sessionDurationMillis"], str)
    assert json.loads(found["capabilities"])["browserVersion"] == CHROME.version


async def test_a_session_that_has_ended_or_never_was_is_null(store: Store) -> None:
    writer = SessionWriter(store)
    async with running(orchestrator(store)), visiting(store) as client:
        ended = await writer.serve(browserName="chrome")
        await writer.end(ended)

        for name in (ended, "00000000-0000-4000-8000-000000000000", "no id", ""):
            assert (await ask(client, VIDEO % json.dumps(name)))["session"] is None


async def test_grids_own_dashboard_is_answered(store: Store) -> None:
    async with (
        running(orchestrator(store)),
        serving(new_api(store)) as uri,
        herd_client(store, uri) as client,
    ):
        session = await SessionWriter(store).serve(browserName="chrome")

        summary = (await ask(client, GRID))["grid"]
        (node,) = (await ask(client, NODES))["nodesInfo"]["nodes"]
        (seen,) = (await ask(client, SESSIONS))["sessionsInfo"]["sessions"]

    assert summary == {
        "uri": uri,
        "totalSlots": 2,
        "nodeCount": 1,
        "maxSession": 2,
        "sessionCount": 1,
        "sessionQueueSize": 0,
        "version": __version__,
    }
    assert node["osInfo"] == this_machine()
    assert seen["id"] == session


async def test_what_cannot_be_read_is_a_failure_and_not_an_answer(store: Store) -> None:
    async with visiting(store) as client:
        await store.sadd(grid.ORCHESTRATORS(), "ranch")
        await store.rpush(ListName(grid.ORCHESTRATOR_HOLDERS("ranch")), "what?")

        status, answer = await send(client, KEDA)

    assert status == 500
    assert answer["errors"][0]["extensions"] == {"code": "command_refused"}
