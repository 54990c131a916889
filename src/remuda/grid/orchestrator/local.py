"""Nodes as processes of this machine, born in a nursery; some are kept warm, with their driver running."""

import asyncio
import os
import platform
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from remuda.base.config import Config
from remuda.base.errors import DriverUnavailable, Misconfigured
from remuda.base.ids import SessionId
from remuda.base.log import get_logger
from remuda.base.processes import until_readable
from remuda.fleet.lifeline import Lifeline
from remuda.grid.browsers import Browser, survey_browsers
from remuda.grid.capabilities import Offer, first_match
from remuda.grid.node.leftovers import clear_orphans
from remuda.grid.orchestrator.nursery import Birth
from remuda.grid.orchestrator.provisioner import OnGone

log = get_logger(__name__)

BIRTH_TIMEOUT = 10.0
END_GRACE = 10.0
# A driver that does not start must not have us fork without a pause.
REPLACE_AFTER = 2.0


class NodeProcess:
    """A node as its orchestrator sees it: a process to send a session to, and to hear the end of."""

    def __init__(self, browser: Browser, pid: int, pidfd: int, control: socket.socket) -> None:
        self.browser = browser
        self.pid = pid
        self.session: SessionId | None = None
        self._pidfd = pidfd
        self._control = control
        self.gone = asyncio.Event()

    async def watch(self) -> None:
        """Waits for its end, and sets `gone` then."""
        await until_readable(self._pidfd)
        os.close(self._pidfd)
        self._control.close()
        self.gone.set()

    def assign(self, session: SessionId) -> None:
        """Hands it a session; DriverUnavailable when it has just died."""
        self.session = session
        try:
            self._control.send(session.encode())
        except OSError as error:
            raise DriverUnavailable(f"The node died before it got its session: {error}") from error

    async def end(self) -> None:
        """Asks it to leave, and makes it leave if it does not."""
        self._signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(END_GRACE):
                await self.gone.wait()
        except TimeoutError:
            log.warning("node killed", pid=self.pid, session=self.session)
            self._signal(signal.SIGKILL)
            await self.gone.wait()
        await asyncio.to_thread(clear_orphans)

    def _signal(self, signum: signal.Signals) -> None:
        # It may have died just now, without our having heard of it yet.
        with suppress(ProcessLookupError):
            if not self.gone.is_set():
                signal.pidfd_send_signal(self._pidfd, signum)


class LocalProvisioner:
    """Keeps a nursery and a few warm nodes."""

    kind = "local"

    def __init__(self, config: Config, *, redis_url: str) -> None:
        self._config = config
        self._redis_url = redis_url
        self._browsers: list[Browser] = []
        self._warm: list[NodeProcess] = []
        self._warming = 0
        self._nodes: set[NodeProcess] = set()
        self._orders: socket.socket | None = None
        self._nursery: subprocess.Popen[bytes] | None = None
        self._one_birth_at_a_time = asyncio.Lock()
        self._is_stopping = False
        self._watchers: set[asyncio.Task[None]] = set()
        self._on_gone: OnGone = lambda session: None

    # Its life

    async def start(self, on_gone: OnGone) -> list[Offer]:
        self._on_gone = on_gone
        found = await asyncio.to_thread(
            survey_browsers,
            chromium=_path(self._config.chromium),
            chromedriver=_path(self._config.chromedriver),
        )
        if not found.browsers:
            problems = "; ".join(f"{each.subject}: {each.problem}" for each in found.findings)
            raise Misconfigured(f"There is no browser to run ({problems}). `remuda doctor` says what to do")
        self._browsers = list(found.browsers)
        await asyncio.to_thread(clear_orphans)
        self._start_nursery()
        self._refill()
        return [Offer(each.name, each.version, _platform()) for each in self._browsers]

    def _start_nursery(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        lifeline = Lifeline.from_environ()
        inherited = (theirs.fileno(), *([lifeline.descriptor] if lifeline else []))
        self._nursery = subprocess.Popen(
            [sys.executable, "-m", "remuda.grid.orchestrator.nursery", str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            env={**os.environ, **self._config.environ(), "REMUDA_REDIS": self._redis_url},
            pass_fds=inherited,
            start_new_session=True,
        )
        theirs.close()
        ours.setblocking(False)
        self._orders = ours

    async def stop(self) -> None:
        self._is_stopping = True
        await asyncio.gather(*(node.end() for node in list(self._nodes)))
        for watcher in list(self._watchers):
            watcher.cancel()
        await self._end_nursery(grace=END_GRACE)

    async def _end_nursery(self, *, grace: float) -> None:
        if self._orders is None or self._nursery is None:
            return
        self._orders.close()
        try:
            await asyncio.to_thread(self._nursery.wait, grace)
        except subprocess.TimeoutExpired:
            self._nursery.kill()
            await asyncio.to_thread(self._nursery.wait)

    # Nodes

    async def provision(self, session: SessionId, wanted: list[dict[str, Any]]) -> None:
        match = first_match(wanted, [Offer(each.name, each.version, _platform()) for each in self._browsers])
        if match is None:
            raise DriverUnavailable("No browser of this machine satisfies the capabilities")
        browser = next(each for each in self._browsers if each.version == match[1].version)
        node = self._take_warm(browser) or await self._bear(browser)
        node.assign(session)
        self._refill()

    def _take_warm(self, browser: Browser) -> NodeProcess | None:
        node = next((each for each in self._warm if each.browser == browser), None)
        if node is not None:
            self._warm.remove(node)
        return node

    def _refill(self) -> None:
        """Brings the warm nodes up to their number, in the background."""
        missing = 0 if self._is_stopping else self._config.warm - len(self._warm) - self._warming
        for _ in range(missing):
            self._warming += 1
            self._spawn(self._add_warm(), "warm a node")

    async def _add_warm(self) -> None:
        try:
            self._warm.append(await self._bear(self._browsers[0]))
        except DriverUnavailable as error:
            log.warning("no warm node", reason=error.message)
        finally:
            self._warming -= 1

    async def _bear(self, browser: Browser) -> NodeProcess:
        async with self._one_birth_at_a_time:
            try:
                node = await self._ask_nursery(browser)
            except OSError as error:  # A TimeoutError is one.
                log.warning("nursery replaced", reason=str(error) or "no answer")
                # Killed even if it only hangs: its late answer would be taken for that to the next request.
                await self._end_nursery(grace=0)
                self._start_nursery()
                node = await self._ask_new_nursery(browser)
        self._nodes.add(node)
        self._spawn(self._watch(node), f"watch node {node.pid}")
        return node

    async def _ask_new_nursery(self, browser: Browser) -> NodeProcess:
        try:
            return await self._ask_nursery(browser)
        except OSError as error:
            raise DriverUnavailable(f"No nursery bears a node: {str(error) or 'no answer'}") from error

    async def _ask_nursery(self, browser: Browser) -> NodeProcess:
        ours, theirs = socket.socketpair()
        assert self._orders is not None
        birth = msgspec.json.encode(Birth.of(browser))
        try:
            async with asyncio.timeout(BIRTH_TIMEOUT):
                socket.send_fds(self._orders, [birth], [theirs.fileno()])
                pid, pidfd = await self._await_birth(self._orders)
        except BaseException:
            ours.close()  # Should the node be born all the same, it hears that nobody wants it.
            raise
        finally:
            theirs.close()
        return NodeProcess(browser, pid, pidfd, ours)

    async def _await_birth(self, orders: socket.socket) -> tuple[int, int]:
        await until_readable(orders.fileno())
        message, descriptors, _, _ = socket.recv_fds(orders, 64, 1)
        if not message:
            raise OSError("it closed its socket")
        return int(message), descriptors[0]

    async def _watch(self, node: NodeProcess) -> None:
        await node.watch()
        self._nodes.discard(node)
        if node in self._warm:
            self._warm.remove(node)
            if not self._is_stopping:
                log.warning("warm node died", pid=node.pid)
                self._spawn(self._replace(), "replace a warm node")
        await asyncio.to_thread(clear_orphans)
        if node.session is not None:
            self._on_gone(node.session)

    async def _replace(self) -> None:
        await asyncio.sleep(REPLACE_AFTER)
        self._refill()

    async def end(self, session: SessionId) -> None:
        for node in list(self._nodes):
            if node.session == session:
                await node.end()

    def _spawn(self, work: Any, name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._watchers.add(task)
        task.add_done_callback(self._watchers.discard)


def _path(text: str) -> Path | None:
    return Path(text) if text else None


def _platform() -> str:
    # W3C WebDriver 7.1 names: "linux", "mac", "windows".
    return {"darwin": "mac"}.get(platform.system().lower(), platform.system().lower())
