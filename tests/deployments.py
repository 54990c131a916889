"""Real roles with real browsers, on a Redis and with temporary files of their own."""

import os
import signal
import subprocess
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import psutil

import servers
from grids import codes_of
from herds import REMUDA
from installed import LIGHTEST
from processes import are_gone, command_of, find_processes, kill, listeners_of
from remuda.base.ids import SessionId
from remuda.base.processes import die_with_parent
from remuda.fleet.role import running_roles
from remuda.grid.model import State
from remuda.grid.sessions import Sessions
from remuda.keyspace import grid
from remuda.store import Store
from waiting import eventually

# Browsers keep no variable that is called REMUDA_, but those of the locale.
MARK = "LC_REMUDA_TEST_DEPLOYMENT"
DEADLINE = 60.0
SLOTS = 2
PAGE = "data:text/html,<title>page</title>"


@dataclass
class Deployment:
    """Roles as processes of their own, on a Redis and with temporary files of their own."""

    redis_url: str
    home: Path
    mark: str = field(default_factory=lambda: str(uuid.uuid4()))
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def run(
        self,
        *roles: str,
        data: str = "data",
        slots: int = SLOTS,
        options: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """A process with these roles."""
        given = ["--redis", self.redis_url, "--data", str(self.home / data), "--port", "0"]
        with (self.home / "deployment.log").open("ab") as log:
            process = subprocess.Popen(
                [*REMUDA, "run", *roles, *given, "--slots", str(slots), *options],
                env={**os.environ, **(environ or {}), "TMPDIR": str(self.temporary), MARK: self.mark},
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
        directory.chmod(0o1777)
        return directory

    @property
    def orchestrator(self) -> str:
        return (self.home / "data" / "orchestrator-id").read_text()

    def log(self) -> str:
        return (self.home / "deployment.log").read_text()

    def processes(self) -> list[psutil.Process]:
        """Everything that was started here, at whatever remove, and still runs."""
        # Chromium may write its title over its environment, but the title names its files.
        return find_processes(MARK, self.mark, named=str(self.temporary))

    def stop(self) -> None:
        for process in self.running:
            process.terminate()
        for process in self.running:
            process.wait(DEADLINE)

    def kill(self) -> None:
        for process in self.processes():
            kill(process)
        for child in self.running:
            child.wait()


@contextmanager
def open_deployment() -> Iterator[Deployment]:
    """A deployment without roles yet; in the end, nothing of it is left."""
    # A short path: Chromium puts a socket below it.
    with (
        tempfile.TemporaryDirectory(prefix="remuda-test-") as home,
        servers.server(password="pw") as server,
    ):
        Path(home).chmod(0o711)  # Nodes are not root's, even if the tests are.
        deployment = Deployment(server.url, Path(home))
        try:
            yield deployment
        finally:
            deployment.kill()


@contextmanager
def working_deployment(
    *processes: Sequence[str], options: Sequence[str] = (), environ: Mapping[str, str] | None = None
) -> Iterator[Deployment]:
    """A deployment with these roles, each group in a process; at the end nothing of it is left."""
    with open_deployment() as deployment:
        for roles in processes:
            deployment.run(*roles, options=options, environ=environ)
        yield deployment
        deployment.stop()
        assert [command_of(each) for each in deployment.processes()] == [], "something outlives the roles"
        assert list(deployment.temporary.iterdir()) == []


async def is_open(store: Store) -> bool:
    """Whether somebody answers, and somebody has browsers."""
    names = {role["name"] for role in await running_roles(store)}
    return {"gateway", "manager", "orchestrator"} <= names and bool(await store.scard(grid.ORCHESTRATORS()))


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

    @asynccontextmanager
    async def websocket(self, path: str) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        async with self._http.ws_connect(path) as socket:
            yield socket

    async def ask(self, **capabilities: Any) -> Reply:
        return await self.call("POST", "/session", {"capabilities": {"alwaysMatch": capabilities}})

    async def open(self, browser: str = LIGHTEST, **capabilities: Any) -> SessionId:
        """A session with a browser that shows something."""
        reply = await self.ask(browserName=browser, **capabilities)
        assert reply.status == 200, reply.value
        session = SessionId(reply.value["sessionId"])
        assert (await self.call("POST", f"/session/{session}/url", {"url": PAGE})).status == 200
        assert await self.title(session) == Reply(200, "page")
        return session

    async def title(self, session: SessionId) -> Reply:
        return await self.call("GET", f"/session/{session}/title")

    async def close(self, session: SessionId) -> Reply:
        return await self.call("DELETE", f"/session/{session}")


@asynccontextmanager
async def open_client(store: Store) -> AsyncIterator[Client]:
    """A client at the gateway that this Redis knows."""
    (address,) = [role["address"] for role in await running_roles(store) if role["name"] == "gateway"]
    timeout = aiohttp.ClientTimeout(total=DEADLINE)
    async with aiohttp.ClientSession(f"http://{address}", timeout=timeout) as http:
        yield Client(http)


async def node_of(store: Store, session: SessionId, deployment: Deployment) -> psutil.Process:
    """The process that holds the session."""
    port = int(await store.hget(grid.SESSION_UPSTREAM(session), "port") or 0)
    (node,) = [each for each in deployment.processes() if port in ports_of(each)]
    return node


def ports_of(process: psutil.Process) -> set[int]:
    """Where the process listens."""
    return {each.laddr.port for each in listeners_of(process)}


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
