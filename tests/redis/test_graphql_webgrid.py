"""/graphql in WebGrid's words."""

import json
from typing import Any

import msgspec
import pytest

from asking import ask
from grids import set_timeouts
from remuda.base import clock
from remuda.grid.timeouts import Timeouts
from remuda.keyspace import grid
from remuda.store import Store
from web_states import CHROME, SessionWriter, orchestrator, running, visiting

SESSION = (
    "id alive slot storage videoURL orchestrator { id alive } metadata { key value } "
    "status { queuedAt pendingAt aliveAt terminatedAt } capabilities { requested actual } "
    "upstream { host port driverSessionID } downstream { host userAgent lastSeen }"
)


async def test_a_session_with_all_its_fields(store: Store) -> None:
    async with running(orchestrator(store)), visiting(store) as client:
        session = await SessionWriter(store).serve(
            browserName="chrome", proxy={"httpProxy": "bob:hush@proxy"}
        )
        await store.set(grid.SESSION_STORAGE(session), "barn")
        video = f"/storage/barn/{session}/video.m3u8"
        await record(store, session, video)
        await store.hset(grid.SESSION_METADATA(session), {"name": "pay by card", "build": "42"})
        upstream = {"host": "10.0.0.9", "port": "40001", "driverSessionID": "abc"}
        await store.hset(grid.SESSION_UPSTREAM(session), upstream)

        query = f"query ($id: String!) {{ session(id: $id) {{ {SESSION} }} }}"
        found = (await ask(client, query, id=session))["session"]

    capabilities = found.pop("capabilities")
    status = found.pop("status")
    downstream = found.pop("downstream")
    assert found == {
        "id": session,
        "alive": True,
        "slot": "ranch/1",
        "storage": "barn",
        "videoURL": video,
        "orchestrator": {"id": "ranch", "alive": True},
        "metadata": [{"key": "name", "value": "pay by card"}, {"key": "build", "value": "42"}],
        "upstream": {"host": None, "port": None, "driverSessionID": None},
    }
    assert json.loads(capabilities["requested"]) == {
        "alwaysMatch": {"browserName": "chrome", "proxy": {"httpProxy": "***@proxy"}},
        "firstMatch": [{}],
    }
    assert json.loads(capabilities["actual"])["browserVersion"] == CHROME.version
    assert clock.parse_rfc3339(status["queuedAt"]) <= clock.parse_rfc3339(status["aliveAt"])
    assert status["terminatedAt"] is None
    assert downstream["host"] == "10.0.0.7"
    assert clock.parse_rfc3339(downstream["lastSeen"]) > 0


async def record(store: Store, session: str, url: str) -> None:
    """Has the session's node say where its video is."""
    key = grid.SESSION_CAPABILITIES(session)
    actual = json.loads(await store.hget(key, "actual") or "")
    await store.hset(key, {"actual": json.dumps({**actual, "remuda:video": {"url": url}})})


async def test_a_video_that_was_evicted_has_no_url(store: Store) -> None:
    async with running(orchestrator(store)), visiting(store) as client:
        session = await SessionWriter(store).serve(browserName="chrome")
        await record(store, session, "/storage/barn/x/video.m3u8")

        (found,) = (await ask(client, "{ sessions { videoURL } }"))["sessions"]

    assert found["videoURL"] is None


async def test_a_session_that_waits_has_little_to_tell(store: Store) -> None:
    async with visiting(store) as client:
        session = await SessionWriter(store).queue(browserName="chrome")

        (found,) = (await ask(client, f"{{ sessions {{ state {SESSION} }} }}"))["sessions"]

    assert (found["id"], found["state"], found["alive"]) == (session, "queued", False)
    assert found["metadata"] == []
    for name in ("slot", "storage", "videoURL", "orchestrator"):
        assert found[name] is None
    assert found["capabilities"]["actual"] is None
    assert found["upstream"] == {"host": None, "port": None, "driverSessionID": None}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("", ["active", "ended"]),
        ("(state: Active)", ["active"]),
        ("(state: Terminated)", ["ended"]),
        ("(state: ACTIVE)", ["active"]),
        ("(state: TERMINATED)", ["ended"]),
        ("(state: null)", ["active", "ended"]),
    ],
)
async def test_sessions_by_state(store: Store, arguments: str, expected: list[str]) -> None:
    writer = SessionWriter(store)
    async with running(orchestrator(store)), visiting(store) as client:
        names = {await writer.serve(browserName="chrome"): "active"}
        ended = await writer.serve(browserName="chrome")
        await writer.end(ended)
        names[ended] = "ended"

        data = await ask(client, f"{{ sessions{arguments} {{ id }} }}")

    assert [names[each["id"]] for each in data["sessions"]] == expected


async def test_sessions_by_metadata(store: Store) -> None:
    writer = SessionWriter(store)
    query = "query ($m: [InputDictionaryEntry!]) { sessions(metadata: $m) { id } }"

    async def find(**metadata: str) -> set[Any]:
        entries = [{"key": key, "value": value} for key, value in metadata.items()]
        return {each["id"] for each in (await ask(client, query, m=entries))["sessions"]}

    async with running(orchestrator(store, slots=3)), visiting(store) as client:
        one, two, three = [await writer.serve(browserName="chrome") for _ in range(3)]
        await store.hset(grid.SESSION_METADATA(one), {"name": "pay", "build": "1"})
        await store.hset(grid.SESSION_METADATA(two), {"name": "pay", "build": "2"})
        await writer.end(two)

        assert await find(name="pay") == {one, two}
        assert await find(name="pay", build="2") == {two}
        assert await find(name="pa") == set()
        assert await find() == {one, two, three}


async def test_orchestrators(store: Store) -> None:
    writer = SessionWriter(store)
    fields = (
        "id type alive backlog pending slots { allocated available reclaimed } "
        "capabilities { platformName browsers { name version } }"
    )
    async with running(orchestrator(store, slots=3)), visiting(store) as client:
        await writer.claim(browserName="chrome")

        data = await ask(
            client,
            f'{{ orchestrators {{ {fields} }} orchestrator(id: "ranch") {{ {fields} }} '
            'none: orchestrator(id: "farm") { id } }',
        )

    assert data["orchestrators"] == [data["orchestrator"]]
    assert data["orchestrator"] == {
        "id": "ranch",
        "type": "local",
        "alive": True,
        "backlog": 1,
        "pending": 0,
        "slots": {"allocated": 3, "available": 2, "reclaimed": 0},
        "capabilities": {
            "platformName": "linux",
            "browsers": [{"name": "chrome", "version": CHROME.version}],
        },
    }
    assert data["none"] is None


async def test_timeouts_are_the_live_ones(store: Store) -> None:
    async with visiting(store) as client:
        await set_timeouts(store, queue=7.5)

        defaults = msgspec.to_builtins(Timeouts())
        names = " ".join(defaults)
        data = await ask(client, f"{{ timeouts {{ {names} }} }}")

    assert data["timeouts"] == {**defaults, "queue": 7.5}


async def test_asking_changes_nothing(store: Store) -> None:
    async with running(orchestrator(store)), visiting(store) as client:
        session = await SessionWriter(store).serve(browserName="chrome")
        before = await store.send("DUMP", grid.SESSION_ORCHESTRATOR(session))

        await ask(client, f"{{ sessions {{ {SESSION} }} }}")

        assert await store.send("DUMP", grid.SESSION_ORCHESTRATOR(session)) == before


async def test_capabilities_that_are_too_big_are_shown_by_their_browser(store: Store) -> None:
    async with visiting(store) as client:
        session = await SessionWriter(store).queue(
            browserName="chrome", **{"my:extension": "x" * (300 << 10)}
        )

        (found,) = (await ask(client, "{ sessions { id capabilities { requested } } }"))["sessions"]

    assert found["id"] == session
    assert len(found["capabilities"]["requested"]) < 1000
