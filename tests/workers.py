"""Playwright's browser servers and workers under test, each in a process of its own."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
from playwright._impl._driver import compute_driver_executable
from playwright.async_api import Browser, Page, async_playwright

from browser_directories import directories_in
from herds import DEADLINE, REMUDA
from processes import command_of, find_processes, is_alive, parent_of
from remuda.base.processes import die_with_parent
from remuda.fleet.leftovers import MARK
from remuda.store import Store
from waiting import eventually

NODE_CLIENTS = Path(__file__).parent / "acceptance/node"
PAGE = "data:text/html,<title>Pasture</title>"

_HOLDER = """
import asyncio, json, sys
from remuda.base.config import load_config
from remuda.cli.rooms import SECTIONS
from remuda.base.confinement import protection_of
from remuda.base.errors import DriverUnavailable
from remuda.playwright.browsers import find_launch
from remuda.playwright.server import BrowserServer

async def main():
    config = load_config(SECTIONS)
    server = BrowserServer(find_launch(sys.argv[1], config), protection_of(config))
    answers = {"connections": server.connections, "stop": server.stop, "ended": server.ended}
    try:
        await server.start(timeout=float(sys.argv[2]))
        say([str(server.directory), server.endpoint, ""])
    except DriverUnavailable as error:
        say([str(server.directory), "", f"{type(error).__name__}: {error}"])
    while word := await asyncio.to_thread(sys.stdin.readline):
        answer = answers[word.strip()]()
        say(await answer if asyncio.iscoroutine(answer) else answer)
    await server.stop()

def say(what):
    print(json.dumps(what), flush=True)

asyncio.run(main())
"""


class Holder:
    """A process that holds a browser server."""

    def __init__(self, browser: str, *, timeout: float, environ: Mapping[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _HOLDER, browser, str(timeout)],
            env={**os.environ, **environ},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=die_with_parent(signal.SIGKILL),
        )
        self.directory = Path()
        self.endpoint = ""
        self.complaint = ""

    async def _answer(self) -> Any:
        assert self.process.stdout is not None
        async with asyncio.timeout(DEADLINE):
            return json.loads(await asyncio.to_thread(self.process.stdout.readline))

    async def ask(self, word: str) -> Any:
        """What the server says to `connections`, `stop` or `ended`."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        return await self._answer()

    async def start(self) -> None:
        directory, self.endpoint, self.complaint = await self._answer()
        self.directory = Path(directory)

    async def has_connections(self, count: int) -> bool:
        return bool(await self.ask("connections") == count)

    async def end(self) -> None:
        """Has the process end in good order, if it still runs."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        if self.process.poll() is None:
            self.process.stdin.close()
            await asyncio.to_thread(self.process.wait, DEADLINE)
        self.process.stdout.close()


@asynccontextmanager
async def holder(
    browser: str = "chromium", *, timeout: float = DEADLINE, **environ: str
) -> AsyncIterator[Holder]:
    """A browser server of the test's own."""
    running = Holder(browser, timeout=timeout, environ=environ)
    try:
        await running.start()
        yield running
    finally:
        await running.end()


def browser_process(directory: Path) -> psutil.Process:
    """The main process of the browser whose files are there."""
    found = [process for process in processes_of(directory) if _is_browser(command_of(process))]
    # What it has just forked looks as it does, for a moment.
    known = {process.pid for process in found}
    (first,) = [process for process in found if is_alive(process) and parent_of(process) not in {0, *known}]
    return first


def driver_process(directory: Path) -> psutil.Process:
    """The driver of that browser."""
    (found,) = [process for process in processes_of(directory) if "launch-server" in command_of(process)]
    return found


def _is_browser(command: list[str]) -> bool:
    # Not the scripts around the binaries, nor the processes for tabs and the like, which carry a type.
    if not command:
        return False
    is_binary = Path(command[0]).name in (
        "chrome",
        "chromium",
        "chromium-headless-shell",
        "firefox-esr",
    )
    is_part = any(word.startswith("--type=") for word in command) or "-contentproc" in command
    return is_binary and not is_part


def processes_of(directory: Path) -> list[psutil.Process]:
    """Everything that runs for the holder of these files: it carries its name, or names the files."""
    return find_processes(MARK, directory.name, named=str(directory))


class RunningWorker:
    """`remuda run worker` as a process, with a beat a second."""

    def __init__(self, redis_url: str, directory: Path, *args: str, environ: Mapping[str, str]) -> None:
        self.log = directory / "worker.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*REMUDA, "run", "worker", "--redis", redis_url, *args],
                env={**os.environ, "HEARTBEAT_INTERVAL": "1", **environ},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent(signal.SIGKILL),
            )

    @property
    def directory(self) -> Path:
        """Where its browser's files are."""
        (found,) = self.directories
        return found

    @property
    def directories(self) -> list[Path]:
        """Where the files of its browsers are."""
        return directories_in(Path(tempfile.gettempdir()), self.process.pid)

    async def ends(self) -> int:
        """Its exit status."""
        return await asyncio.to_thread(self.process.wait, DEADLINE)

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None


@asynccontextmanager
async def running_worker(
    store: Store, directory: Path, *args: str, **environ: str
) -> AsyncIterator[RunningWorker]:
    """A worker that is registered, and gone afterwards."""
    running = RunningWorker(redis_url_of(store), directory, *args, environ=environ)
    try:
        await eventually(lambda: running.has_ended or _serves(store), DEADLINE)
        assert not running.has_ended, running.log.read_text()
        yield running
    finally:
        if not running.has_ended:
            # Twice: the second ends it at once, and it still clears up.
            running.process.terminate()
            running.process.send_signal(signal.SIGINT)
            await running.ends()


def redis_url_of(store: Store) -> str:
    return store.url.text


async def entries(store: Store) -> dict[str, dict[str, str]]:
    """The registry: every worker's key and fields."""
    keys = [key for key in await store.send("KEYS", "worker:*") if not key.startswith("worker:cmd:")]
    return {key: await store.send("HGETALL", key) for key in keys}


async def _serves(store: Store) -> bool:
    # The role's record is the last that a start writes: from then on it can do without Redis.
    return bool(await entries(store)) and bool(await store.send("KEYS", "remuda:role:*"))


async def only_entry(store: Store) -> dict[str, str]:
    """The fields of the one worker there is."""
    (entry,) = (await entries(store)).values()
    return entry


async def is_forgotten(store: Store) -> bool:
    """Whether nothing in Redis tells of a worker any more."""
    patterns = ("worker:*", "cluster:*", "remuda:role*")
    return not any([await store.send("KEYS", pattern) for pattern in patterns])


@asynccontextmanager
async def stock_client(endpoint: str, browser: str = "chromium") -> AsyncIterator[tuple[Browser, Page]]:
    """A stock client with a page open."""
    async with async_playwright() as playwright:
        connection = await getattr(playwright, browser).connect(endpoint)
        page = await connection.new_page()
        await page.goto(PAGE)
        yield connection, page


class NodeClient:
    """A stock client in Node with a page open."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def complain(self) -> str:
        """The words of an error about a button that is not there."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        return str(json.loads(await self.read()))

    async def read(self) -> bytes:
        assert self._process.stdout is not None
        async with asyncio.timeout(DEADLINE):
            return await self._process.stdout.readline()


@asynccontextmanager
async def node_client(endpoint: str) -> AsyncIterator[NodeClient]:
    """A stock client in Node."""
    # The node that comes with Python's Playwright: a machine's own may be too old for the client.
    node, _ = compute_driver_executable()
    process = await asyncio.create_subprocess_exec(
        node, str(NODE_CLIENTS / "complain.mjs"), endpoint, stdin=PIPE, stdout=PIPE
    )
    client = NodeClient(process)
    try:
        assert await client.read() == b"ready\n"
        yield client
    finally:
        process.kill()
        await process.wait()


async def status_of(store: Store) -> str:
    return (await only_entry(store))["status"]


async def is_draining(store: Store) -> bool:
    return await status_of(store) == "draining"


async def has_beaten_since(store: Store, entry: dict[str, str]) -> bool:
    """Whether the worker has beaten since its fields were these."""
    return int((await only_entry(store))["lastHeartbeat"]) > int(entry["lastHeartbeat"])


async def finishes(worker: RunningWorker, store: Store) -> None:
    """The worker ends in good order, and nothing is left of it."""
    directory = worker.directory
    assert await worker.ends() == 0, worker.log.read_text()
    assert await is_forgotten(store)
    assert not directory.exists()
