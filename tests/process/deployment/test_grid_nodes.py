"""Real nodes with real browsers, from the request to the end, and what cannot work."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from deployments import (
    DEADLINE,
    Client,
    Deployment,
    Reply,
    assert_ended,
    has_ended,
    node_of,
    working_deployment,
)
from grids import all_sessions, codes_of, log_of, set_timeouts
from installed import LIGHTEST, needs_browser
from processes import family, is_alive, name_of
from remuda.base import clock
from remuda.base.ids import SessionId
from remuda.grid.model import State
from remuda.grid.sessions import Sessions
from remuda.grid.timeouts import Timeouts
from remuda.keyspace import grid
from remuda.store import Store
from remuda.store.census import take_census
from remuda.store.commands import stream_entries
from waiting import eventually

pytestmark = [pytest.mark.xdist_group("grid nodes"), pytest.mark.usefixtures("calm_after"), needs_browser]

# What manager and orchestrator write in turn, and what the node writes meanwhile.
MANAGERS_CODES = ["QUEUED", "NALLOC", "SCHED", "PENDING", "NALIVE"]
NODES_CODES = ["BOOT", "DSTART", "DALIVE", "LSINIT"]
NODES_ENDS = ["DFAILURE", "TERM", "HALT"]


@pytest.fixture(scope="module")
def deployment() -> Iterator[Deployment]:
    """As the others have it; its operator allows a switch with which no browser starts."""
    allowed = {"REMUDA_ALLOW_BROWSER_ARGS": "version"}
    with working_deployment(["gateway", "manager"], ["orchestrator"], environ=allowed) as deployment:
        yield deployment


async def test_a_session_from_its_request_to_its_end(
    store: Store, client: Client, deployment: Deployment
) -> None:
    session = await client.open("chrome")
    node = await node_of(store, session, deployment)
    was = family(node)
    codes = await codes_of(store, session)
    assert sorted(codes) == sorted(MANAGERS_CODES + NODES_CODES)
    assert [code for code in codes if code in MANAGERS_CODES] == MANAGERS_CODES
    assert [code for code in codes if code in NODES_CODES] == NODES_CODES
    assert await take_census(store) == []

    assert await client.close(session) == Reply(200, None)

    codes = await assert_ended(store, client, session, was)
    assert codes[-2:] == ["CLOSED", "HALT"]
    assert await client.close(session) == Reply(200, None)  # Once more does no harm.
    actual = json.loads(await store.hget(grid.SESSION_CAPABILITIES(session), "actual") or "")
    assert actual["browserName"] == "chrome"


@pytest.mark.parametrize("other", ["windows", "LINUX"])
async def test_a_browser_is_started_with_the_capability_set_that_was_matched(
    client: Client, other: str
) -> None:
    sets = [
        {"platformName": other, "pageLoadStrategy": "none"},
        {"platformName": "linux", "pageLoadStrategy": "eager"},
    ]

    reply = await client.call("POST", "/session", {"capabilities": {"firstMatch": sets}})

    assert reply.status == 200, reply.value
    assert reply.value["capabilities"]["pageLoadStrategy"] == "eager"
    assert await client.close(reply.value["sessionId"]) == Reply(200, None)


async def test_closing_the_last_window_ends_the_session(
    store: Store, client: Client, deployment: Deployment
) -> None:
    session = await client.open()
    was = family(await node_of(store, session, deployment))
    await client.call("POST", f"/session/{session}/window/new", {"type": "tab"})

    first = await client.call("DELETE", f"/session/{session}/window")
    (handle,) = first.value
    await client.call("POST", f"/session/{session}/window", {"handle": handle})
    assert await Sessions(store).state(session) is State.ALIVE
    last = await client.call("DELETE", f"/session/{session}/window")

    assert last == Reply(200, [])
    assert (await assert_ended(store, client, session, was))[-2:] == ["CLOSED", "HALT"]


@pytest.fixture
async def limit(store: Store) -> AsyncIterator[float]:
    """How long a session may be idle, for the time of a test."""
    limit = 4.0
    await set_timeouts(store, sessionTermination=limit)
    yield limit
    await set_timeouts(store, sessionTermination=Timeouts().session_termination)


async def test_idleness_counts_from_the_sessions_start_and_ends_it(
    store: Store, client: Client, deployment: Deployment, limit: float
) -> None:
    await eventually(lambda: has_warm_node(deployment, older=limit), DEADLINE)

    reply = await client.ask(browserName=LIGHTEST)
    session = SessionId(reply.value["sessionId"])

    codes = await assert_ended(store, client, session, [])
    assert codes[-2:] == ["STIMEOUT", "HALT"]
    at = {code: await logged_at(store, session, code) for code in ("LSINIT", "STIMEOUT")}
    assert at["STIMEOUT"] - at["LSINIT"] > limit / 2, "a node's age was taken for its session's"


async def logged_at(store: Store, session: SessionId, code: str) -> float:
    """When the code was logged, by the clock of Redis."""
    entries = stream_entries(await store.xrange(grid.SESSION_LOG(session)))
    (number,) = [number for number, entry in entries if entry["code"] == code]
    return int(number.partition("-")[0]) / 1000


def has_warm_node(deployment: Deployment, *, older: float) -> bool:
    drivers = [each for each in deployment.processes() if name_of(each) == "chromedriver"]
    return any(is_alive(driver) and clock.now() - driver.create_time() > older for driver in drivers)


# What cannot work


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"perfLoggingPrefs": {"nonsense": 1}}, "400 invalid argument", "nonsense"),
        ({"extensions": ["nonsense"]}, "400 invalid argument", "An extension in goog:chromeOptions is not"),
        ({"args": ["--version"]}, "500 session not created", "Chrome instance exited"),
    ],
)
async def test_why_a_browser_does_not_start_reaches_the_client(
    store: Store, client: Client, options: dict[str, Any], error: str, words: str
) -> None:
    # ChromeDriver by itself would wait a minute for a browser that has exited.
    async with asyncio.timeout(DEADLINE / 2):
        reply = await client.ask(**{"goog:chromeOptions": options})

    assert reply.error == error
    assert words in reply.value["message"]
    (session,) = [each for each in await all_sessions(store) if await ended_so(store, each, words)]
    await eventually(lambda: has_ended(store, session), DEADLINE)
    assert [code for code in await codes_of(store, session) if code in NODES_ENDS] == NODES_ENDS


async def ended_so(store: Store, session: SessionId, words: str) -> bool:
    return any(words in meta.get("message", "") for _, meta in await log_of(store, session))


async def test_a_client_that_leaves_while_its_browser_starts_leaves_nothing(
    store: Store, client: Client
) -> None:
    before = set(await all_sessions(store))
    asking = asyncio.create_task(client.ask(browserName=LIGHTEST))

    async def started() -> list[SessionId]:
        new = set(await all_sessions(store)) - before
        return [session for session in new if "BOOT" in await codes_of(store, session)]

    (session,) = await eventually(started)
    asking.cancel()

    await eventually(lambda: has_ended(store, session), DEADLINE)
    assert "CLEFT" in await codes_of(store, session)
