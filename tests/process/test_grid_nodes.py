"""Real nodes with real browsers: whatever is killed, the session ends, the slot returns, nothing is left."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import psutil
import pytest

from grids import all_sessions, check_counters, check_slots, codes_of, log_of
from installed import needs_browser
from processes import family, name_of
from ranches import (
    DEADLINE,
    SLOTS,
    Client,
    Ranch,
    Reply,
    assert_ended,
    has_ended,
    is_open,
    node_of,
    open_client,
    open_ranch,
)
from remuda.base import clock
from remuda.base.ids import SessionId
from remuda.fleet.role import running_roles
from remuda.grid.model import State
from remuda.grid.sessions import Sessions
from remuda.grid.timeouts import DEFAULTS, timeouts
from remuda.grid.view import orchestrators
from remuda.keyspace import grid
from remuda.store import Store
from remuda.store.census import take_census
from remuda.store.commands import stream_entries
from waiting import eventually

pytestmark = [
    pytest.mark.xdist_group("grid nodes"),
    needs_browser,
]

# What manager and orchestrator write in turn, and what the node writes meanwhile.
MANAGERS_CODES = ["QUEUED", "NALLOC", "SCHED", "PENDING", "NALIVE"]
NODES_CODES = ["BOOT", "DSTART", "DALIVE", "LSINIT"]
NODES_ENDS = ["DFAILURE", "TERM", "HALT"]


@pytest.fixture(scope="module")
def ranch() -> Iterator[Ranch]:
    """A gateway and a manager in one process and an orchestrator in another, for all tests together."""
    with open_ranch() as ranch:
        ranch.run("gateway", "manager")
        ranch.run("orchestrator")
        yield ranch
        ranch.stop()
        assert ranch.processes() == [], "something outlives the roles"
        assert list(ranch.temporary.iterdir()) == []


@pytest.fixture
async def store(ranch: Ranch) -> AsyncIterator[Store]:
    """The ranch's Redis; at the end of each test all is as it was."""
    async with Store(ranch.redis_url) as store:
        await eventually(lambda: is_open(store), DEADLINE)
        yield store
        await eventually(lambda: is_idle(store, ranch), DEADLINE)
        await check_counters(store)
        assert await take_census(store) == []


async def is_idle(store: Store, ranch: Ranch) -> bool:
    """Whether all slots are free, and only nodes that are kept warm are left."""
    if await store.llen(grid.ORCHESTRATOR_SLOTS_AVAILABLE(ranch.orchestrator)) != SLOTS:
        return False
    await check_slots(store, [ranch.orchestrator])
    names = [name_of(process) for process in ranch.processes()]
    drivers = names.count("chromedriver")
    return drivers <= 1 and len(list(ranch.temporary.iterdir())) == drivers and "chromium" not in names


@pytest.fixture
async def client(store: Store) -> AsyncIterator[Client]:
    async with open_client(store) as client:
        yield client


def driver_of(node: psutil.Process) -> psutil.Process:
    (driver,) = [each for each in node.children() if each.name() == "chromedriver"]
    return driver


def browser_of(node: psutil.Process) -> psutil.Process:
    (browser,) = driver_of(node).children()
    return browser


# The straight way


async def test_a_session_from_its_request_to_its_end(store: Store, client: Client, ranch: Ranch) -> None:
    session = await client.open()
    node = await node_of(store, session, ranch)
    was = family(node)
    codes = await codes_of(store, session)
    assert sorted(codes) == sorted(MANAGERS_CODES + NODES_CODES)
    assert [code for code in codes if code in MANAGERS_CODES] == MANAGERS_CODES
    assert [code for code in codes if code in NODES_CODES] == NODES_CODES
    assert await take_census(store) == []

    assert await client.close(session) == Reply(200, None)

    codes = await assert_ended(store, client, session, was)
    assert codes[-2:] == ["CLOSED", "HALT"]
    assert (await client.close(session)).error == "404 invalid session id"
    actual = json.loads(await store.hget(grid.SESSION_CAPABILITIES(session), "actual") or "")
    assert actual["browserName"] == "chrome"


async def test_closing_the_last_window_ends_the_session(store: Store, client: Client, ranch: Ranch) -> None:
    session = await client.open()
    was = family(await node_of(store, session, ranch))
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
    await timeouts(store).change(sessionTermination=limit)
    yield limit
    await timeouts(store).change(sessionTermination=DEFAULTS["sessionTermination"])


async def test_idleness_counts_from_the_sessions_start_and_ends_it(
    store: Store, client: Client, ranch: Ranch, limit: float
) -> None:
    await eventually(lambda: has_warm_node(ranch, older=limit), DEADLINE)

    reply = await client.ask(browserName="chrome")
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


def has_warm_node(ranch: Ranch, *, older: float) -> bool:
    drivers = [each for each in ranch.processes() if name_of(each) == "chromedriver"]
    return any(clock.now() - driver.create_time() > older for driver in drivers)


# What cannot work


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"nonsense": 1}, "400 invalid argument", "unrecognized chrome option: nonsense"),
        ({"binary": "/bin/sh"}, "400 invalid argument", "'binary' in goog:chromeOptions belongs to this"),
        ({"args": "-x"}, "400 invalid argument", "'args' in goog:chromeOptions must be a list of strings"),
        ({"args": ["--version"]}, "500 session not created", "Chrome instance exited"),
    ],
)
async def test_why_a_browser_does_not_start_reaches_the_client(
    store: Store, client: Client, options: dict[str, Any], error: str, words: str
) -> None:
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
    asking = asyncio.create_task(client.ask(browserName="chrome"))

    async def started() -> list[SessionId]:
        new = set(await all_sessions(store)) - before
        return [session for session in new if "BOOT" in await codes_of(store, session)]

    (session,) = await eventually(started)
    asking.cancel()

    await eventually(lambda: has_ended(store, session), DEADLINE)
    assert "CLEFT" in await codes_of(store, session)


# Deaths


async def test_a_killed_node_takes_its_browser_with_it(store: Store, client: Client, ranch: Ranch) -> None:
    session = await client.open()
    node = await node_of(store, session, ranch)
    was = family(node)

    node.kill()

    codes = await assert_ended(store, client, session, was)
    assert codes[-1] == "TERM"
    assert not list(ranch.temporary.glob(f"remuda-{node.pid}-*"))


@pytest.mark.parametrize("victim", [driver_of, browser_of])
async def test_a_driver_or_browser_that_dies_ends_its_session(
    store: Store, client: Client, ranch: Ranch, victim: Any
) -> None:
    session = await client.open()
    node = await node_of(store, session, ranch)
    was = family(node)

    victim(node).kill()

    codes = await assert_ended(store, client, session, was)
    assert codes[-3:] == NODES_ENDS


async def close_by_driver(client: Client, session: SessionId) -> None:
    command = {"cmd": "Browser.close", "params": {}}
    await client.call("POST", f"/session/{session}/goog/cdp/execute", command)


async def close_by_devtools(client: Client, session: SessionId) -> None:
    async with client.websocket(f"/session/{session}/se/cdp") as socket:
        await socket.send_json({"id": 1, "method": "Browser.close"})
        await socket.receive()


@pytest.mark.parametrize("close", [close_by_driver, close_by_devtools])
async def test_a_browser_that_is_told_to_close_has_not_failed(
    store: Store, client: Client, ranch: Ranch, close: Callable[[Client, SessionId], Awaitable[None]]
) -> None:
    session = await client.open()
    was = family(await node_of(store, session, ranch))

    await close(client, session)

    codes = await assert_ended(store, client, session, was)
    assert codes[-2:] == ["CLOSED", "HALT"]


async def test_a_warm_node_whose_driver_dies_is_replaced(store: Store, client: Client, ranch: Ranch) -> None:
    (driver,) = await eventually(lambda: warm_drivers(ranch), DEADLINE)

    driver.kill()
    await eventually(lambda: driver not in warm_drivers(ranch) and warm_drivers(ranch), DEADLINE)

    session = await client.open()
    await client.close(session)


def warm_drivers(ranch: Ranch) -> list[psutil.Process]:
    return [each for each in ranch.processes() if name_of(each) == "chromedriver"]


def nursery_of(ranch: Ranch) -> psutil.Process:
    """The process that bears the nodes: a child of an orchestrator's."""
    roles = [process.pid for process in ranch.running]
    (nursery,) = [each for each in ranch.processes() if each.ppid() in roles]
    return nursery


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGSTOP])
async def test_without_its_nursery_an_orchestrator_starts_another(
    store: Store, client: Client, ranch: Ranch, signum: signal.Signals
) -> None:
    nursery = nursery_of(ranch)
    kept = await client.open()

    nursery.send_signal(signum)
    sessions = [await client.open()]

    # The first may have had the warm node.
    assert await client.close(sessions[0]) == Reply(200, None)
    sessions.append(await client.open())
    assert nursery_of(ranch) != nursery
    assert await client.title(kept) == Reply(200, "corral")
    for session in (kept, sessions[1]):
        assert await client.close(session) == Reply(200, None)


async def test_an_orchestrator_that_is_killed_comes_back_to_its_slots_and_nodes(
    store: Store, client: Client, ranch: Ranch
) -> None:
    kept, lost = await client.open(), await client.open()
    node = await node_of(store, lost, ranch)
    was = family(node)
    old = ranch.running.pop()

    old.kill()
    old.wait()
    node.kill()
    ranch.run("orchestrator")

    codes = await assert_ended(store, client, lost, was)
    assert codes[-1] == "TERM"
    assert await client.title(kept) == Reply(200, "corral")
    session = await client.open()
    assert await store.scard(grid.ORCHESTRATOR_SLOTS(ranch.orchestrator)) == SLOTS
    await check_slots(store, [ranch.orchestrator])
    for each in (session, kept):
        assert await client.close(each) == Reply(200, None)


async def kill_orchestrator(store: Store, ranch: Ranch) -> None:
    """A new life for the orchestrator, after a sudden end."""
    old = ranch.running.pop()
    old.kill()
    old.wait()
    new = ranch.run("orchestrator")
    await eventually(lambda: runs(store, new.pid), DEADLINE)


async def runs(store: Store, pid: int) -> bool:
    return str(pid) in {role["pid"] for role in await running_roles(store)}


async def test_an_adopted_node_that_dies_is_noticed_at_once(
    store: Store, client: Client, ranch: Ranch
) -> None:
    session = await client.open()
    node = await node_of(store, session, ranch)
    was = family(node)
    await kill_orchestrator(store, ranch)
    assert await client.title(session) == Reply(200, "corral")

    node.kill()

    # Long before its beat runs out, and before anybody looks for lost slots.
    codes = await assert_ended(store, client, session, was)
    assert codes[-1] == "TERM"


async def test_an_adopted_node_ends_with_its_new_orchestrator(
    store: Store, client: Client, ranch: Ranch
) -> None:
    session = await client.open()
    was = family(await node_of(store, session, ranch))
    await kill_orchestrator(store, ranch)

    leaving = ranch.running.pop()
    leaving.terminate()
    await eventually(lambda: count_draining(store))
    leaving.terminate()  # It waits for nobody any more.
    await asyncio.to_thread(leaving.wait, DEADLINE)
    ranch.run("orchestrator")

    await assert_ended(store, client, session, was)


@pytest.mark.parametrize("step", ["SCHED", "BOOT"])
async def test_a_session_comes_though_its_orchestrator_is_killed_while_it_starts(
    store: Store, client: Client, ranch: Ranch, step: str
) -> None:
    before = set(await all_sessions(store))
    asking = asyncio.create_task(client.ask(browserName="chrome"))

    async def is_under_way() -> bool:
        new = set(await all_sessions(store)) - before
        return any([step in await codes_of(store, session) for session in new])

    await eventually(is_under_way)
    await kill_orchestrator(store, ranch)

    reply = await asking
    assert reply.status == 200
    assert await client.close(reply.value["sessionId"]) == Reply(200, None)


async def test_two_orchestrators_share_the_work_and_one_may_leave(
    store: Store, client: Client, ranch: Ranch
) -> None:
    other = ranch.run("orchestrator", data="other", slots=SLOTS)
    await eventually(lambda: has_orchestrators(store, 2), DEADLINE)

    sessions = [await client.open(), await client.open()]
    owners = [await store.lrange(grid.SESSION_ORCHESTRATOR(session)) for session in sessions]
    assert owners[0] != owners[1]
    other.terminate()
    await eventually(lambda: count_draining(store))

    # Its session goes on to its end, and then it leaves by itself.
    for session in sessions:
        assert (await client.call("GET", f"/session/{session}/title")).status == 200
        assert await client.close(session) == Reply(200, None)
    await asyncio.to_thread(other.wait, DEADLINE)
    ranch.running.remove(other)
    assert await has_orchestrators(store, 1)


async def count_draining(store: Store) -> int:
    return len([each for each in await orchestrators(store) if each.draining])


async def has_orchestrators(store: Store, count: int) -> bool:
    return await store.scard(grid.ORCHESTRATORS()) == count
