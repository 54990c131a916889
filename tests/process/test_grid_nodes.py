"""Real nodes with real browsers: whatever is killed, the session ends, the slot returns, nothing is left."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest

import servers
from grids import all_sessions, check_counters, check_slots, codes_of, log_of
from remuda.base import clock
from remuda.base.ids import SessionId
from remuda.base.processes import die_with_parent
from remuda.fleet.role import running_roles
from remuda.grid.browsers import find_browsers
from remuda.grid.model import State
from remuda.grid.sessions import Sessions
from remuda.grid.timeouts import DEFAULTS, timeouts
from remuda.keyspace import grid
from remuda.store import Store
from remuda.store.census import take_census
from remuda.store.commands import stream_entries
from waiting import eventually

pytestmark = [
    pytest.mark.xdist_group("grid nodes"),
    pytest.mark.skipif(not find_browsers(), reason="no browser here: run make setup"),
]

MARK = "REMUDA_TEST_RANCH"
DEADLINE = 60.0
SLOTS = 2
PAGE = "data:text/html,<title>corral</title>"
# What manager and orchestrator write in turn, and what the node writes meanwhile.
MANAGERS_CODES = ["QUEUED", "NALLOC", "SCHED", "PENDING", "NALIVE"]
NODES_CODES = ["BOOT", "DSTART", "DALIVE", "LSINIT"]
NODES_ENDS = ["DFAILURE", "TERM", "HALT"]


@dataclass
class Ranch:
    """Roles as processes of their own, on a Redis and with temporary files of their own."""

    redis_url: str
    home: Path
    mark: str = field(default_factory=lambda: str(uuid.uuid4()))
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def run(self, *roles: str, data: str = "data", slots: int = SLOTS) -> subprocess.Popen[bytes]:
        """A process with these roles."""
        options = ["--redis", self.redis_url, "--data", str(self.home / data), "--port", "0", "--warm", "1"]
        with (self.home / "ranch.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "remuda.cli.main", "run", *roles, *options, "--slots", str(slots)],
                env={**os.environ, "TMPDIR": str(self.temporary), MARK: self.mark},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent(signal.SIGKILL),
            )
        self.running.append(process)
        return process

    @property
    def temporary(self) -> Path:
        """Where nodes keep their files."""
        directory = self.home / "tmp"
        directory.mkdir(exist_ok=True)
        return directory

    @property
    def orchestrator(self) -> str:
        return (self.home / "data" / "orchestrator-id").read_text()

    def log(self) -> str:
        return (self.home / "ranch.log").read_text()

    def processes(self) -> list[psutil.Process]:
        """Everything that was started here, at whatever remove, and still runs."""
        return [each for each in psutil.process_iter() if _mark_of(each) == self.mark]

    def stop(self) -> None:
        for process in self.running:
            process.terminate()
        for process in self.running:
            process.wait(DEADLINE)

    def kill(self) -> None:
        for process in self.processes():
            process.kill()
        for child in self.running:
            child.wait()


def _mark_of(process: psutil.Process) -> str:
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return ""
        return process.environ().get(MARK, "")
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return ""


@contextmanager
def _ranch() -> Iterator[Ranch]:
    # A short path: Chromium puts a socket below it.
    with tempfile.TemporaryDirectory(prefix="remuda-test-") as home, servers.server() as server:
        ranch = Ranch(server.url, Path(home))
        try:
            yield ranch
        finally:
            ranch.kill()


@pytest.fixture(scope="module")
def ranch() -> Iterator[Ranch]:
    """A gateway and a manager in one process and an orchestrator in another, for all tests together."""
    with _ranch() as ranch:
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


async def is_open(store: Store) -> bool:
    """Whether somebody answers, and somebody has browsers."""
    names = {role["name"] for role in await running_roles(store)}
    return {"gateway", "manager", "orchestrator"} <= names and bool(await store.scard(grid.ORCHESTRATORS()))


async def is_idle(store: Store, ranch: Ranch) -> bool:
    """Whether all slots are free, and only nodes that are kept warm are left."""
    if await store.llen(grid.ORCHESTRATOR_SLOTS_AVAILABLE(ranch.orchestrator)) != SLOTS:
        return False
    await check_slots(store, [ranch.orchestrator])
    names = [name_of(process) for process in ranch.processes()]
    drivers = names.count("chromedriver")
    return drivers <= 1 and len(list(ranch.temporary.iterdir())) == drivers and "chromium" not in names


def name_of(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return ""


@dataclass(frozen=True)
class Reply:
    status: int
    value: Any

    @property
    def error(self) -> str:
        assert self.value.keys() >= {"error", "message", "stacktrace"}
        return f"{self.status} {self.value['error']}"


class Client:
    """A WebDriver client at the front door."""

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self._http = http

    async def call(self, method: str, path: str, body: Any = None) -> Reply:
        async with self._http.request(method, path, json=body) as response:
            return Reply(response.status, (await response.json())["value"])

    async def ask(self, **capabilities: Any) -> Reply:
        return await self.call("POST", "/session", {"capabilities": {"alwaysMatch": capabilities}})

    async def open(self) -> SessionId:
        """A session with a browser that shows something."""
        reply = await self.ask(browserName="chrome")
        assert reply.status == 200, reply.value
        session = SessionId(reply.value["sessionId"])
        assert (await self.call("POST", f"/session/{session}/url", {"url": PAGE})).status == 200
        assert await self.title(session) == Reply(200, "corral")
        return session

    async def title(self, session: SessionId) -> Reply:
        return await self.call("GET", f"/session/{session}/title")

    async def close(self, session: SessionId) -> Reply:
        return await self.call("DELETE", f"/session/{session}")


@pytest.fixture
async def client(store: Store) -> AsyncIterator[Client]:
    (address,) = [role["address"] for role in await running_roles(store) if role["name"] == "gateway"]
    timeout = aiohttp.ClientTimeout(total=DEADLINE)
    async with aiohttp.ClientSession(f"http://{address}", timeout=timeout) as http:
        yield Client(http)


async def node_of(store: Store, session: SessionId, ranch: Ranch) -> psutil.Process:
    """The process that holds the session."""
    port = int(await store.hget(grid.SESSION_UPSTREAM(session), "port") or 0)
    (node,) = [each for each in ranch.processes() if port in _ports(each)]
    return node


def _ports(process: psutil.Process) -> set[int]:
    try:
        connections = process.net_connections("tcp")
    except psutil.NoSuchProcess:
        return set()
    return {each.laddr.port for each in connections if each.status == psutil.CONN_LISTEN}


def family(process: psutil.Process) -> list[psutil.Process]:
    return [process, *process.children(recursive=True)]


def driver_of(node: psutil.Process) -> psutil.Process:
    (driver,) = [each for each in node.children() if each.name() == "chromedriver"]
    return driver


def browser_of(node: psutil.Process) -> psutil.Process:
    (browser,) = driver_of(node).children()
    return browser


def are_gone(processes: list[psutil.Process]) -> bool:
    return not any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in processes)


async def has_ended(store: Store, session: SessionId) -> bool:
    return await Sessions(store).state(session) is State.TERMINATED and not await store.exists(
        grid.SESSION_SLOT(session)
    )


async def assert_ended(
    store: Store, client: Client, session: SessionId, was: list[psutil.Process]
) -> list[str]:
    """The codes of a session that has ended, whose slot is back and of which nothing is left."""
    await eventually(lambda: has_ended(store, session), DEADLINE)
    await eventually(lambda: are_gone(was), DEADLINE)
    assert (await client.title(session)).error == "404 invalid session id"
    return await codes_of(store, session)


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
    ("options", "words"),
    [
        ({"nonsense": 1}, "unrecognized chrome option: nonsense"),
        ({"binary": "/bin/sh"}, "'binary' in goog:chromeOptions belongs to this machine"),
        ({"args": "--headless"}, "'args' in goog:chromeOptions must be a list of strings"),
    ],
)
async def test_why_a_browser_does_not_start_reaches_the_client(
    store: Store, client: Client, options: dict[str, Any], words: str
) -> None:
    reply = await client.ask(**{"goog:chromeOptions": options})

    assert reply.error == "500 session not created"
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


async def test_two_orchestrators_share_the_work_and_one_may_leave(
    store: Store, client: Client, ranch: Ranch
) -> None:
    other = ranch.run("orchestrator", data="other", slots=SLOTS)
    await eventually(lambda: has_orchestrators(store, 2), DEADLINE)

    sessions = [await client.open(), await client.open()]
    owners = [await store.lrange(grid.SESSION_ORCHESTRATOR(session)) for session in sessions]
    assert owners[0] != owners[1]
    other.terminate()
    await asyncio.to_thread(other.wait, DEADLINE)
    ranch.running.remove(other)

    for session, owner in zip(sessions, owners, strict=True):
        if owner == [ranch.orchestrator]:
            assert await client.close(session) == Reply(200, None)
        else:
            assert await has_ended(store, session)
            assert (await codes_of(store, session))[-2:] == ["TERM", "HALT"]
            assert (await client.title(session)).error == "404 invalid session id"


async def has_orchestrators(store: Store, count: int) -> bool:
    return await store.scard(grid.ORCHESTRATORS()) == count
