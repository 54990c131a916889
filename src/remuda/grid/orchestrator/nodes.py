"""The orchestrator's side of the fork server and of the nodes that it forks."""

import asyncio
import os
import select
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress

from remuda.base.config import Config
from remuda.base.descriptors import own_lack, restore_limit
from remuda.base.errors import DriverUnavailable
from remuda.base.ids import SessionId
from remuda.base.log import get_logger
from remuda.base.processes import is_stopped, start_of, until_readable
from remuda.fleet.lifeline import Lifeline
from remuda.grid.browsers import Browser
from remuda.grid.node.assignment import Assignment
from remuda.grid.node.main import OPEN, WARM
from remuda.grid.orchestrator.forkserver import ForkRequest

log = get_logger(__name__)

FORK_TIMEOUT = 10.0
END_GRACE = 10.0


class NodeProcess:
    """A node as its orchestrator sees it: a process to hear the end of, or to end."""

    def __init__(self, pid: int, pidfd: int, session: SessionId | None = None) -> None:
        self.pid = pid
        self.session = session
        self._pidfd = pidfd
        self.gone = asyncio.Event()
        self.had_browser = False
        """Whether it has said so. One that an earlier life has started says nothing to this one."""

    @classmethod
    def find(cls, session: SessionId, noted: str) -> "NodeProcess | None":
        """The node that was noted so and has this session; None when it is gone."""
        pid, _, start = noted.partition(" ")
        try:
            pidfd = os.pidfd_open(int(pid))
        except (ValueError, OverflowError, OSError):
            return None
        # Asked while the descriptor is open: had the pid been given away before, its start would tell.
        # One that has ended is gone, too, though its parent may be slow to notice: then this is readable.
        has_ended = bool(select.select([pidfd], [], [], 0)[0])
        if has_ended or start_of(int(pid)) != start:
            os.close(pidfd)
            return None
        return NodeProcess(int(pid), pidfd, session)

    @property
    def noted(self) -> str:
        """What `find` finds it by."""
        return f"{self.pid} {start_of(self.pid)}"

    async def watch(self) -> None:
        """Waits for its end, and sets `gone` then."""
        await until_readable(self._pidfd)
        os.close(self._pidfd)
        self.gone.set()

    async def end(self) -> None:
        """Asks it to leave, and makes it leave if it does not; one that is stopped cannot hear."""
        self._signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(0 if is_stopped(self.pid) else END_GRACE):
                await self.gone.wait()
        except TimeoutError:
            log.warning("node killed", pid=self.pid, session=self.session)
            self._signal(signal.SIGKILL)
            await self.gone.wait()

    def _signal(self, signum: signal.Signals) -> None:
        # It may have died just now, without our having heard of it yet.
        with suppress(ProcessLookupError):
            if not self.gone.is_set():
                signal.pidfd_send_signal(self._pidfd, signum)


class OwnNode(NodeProcess):
    """A node of our own fork server: it can be sent a session, and says how it gets on."""

    def __init__(
        self, browsers: Sequence[Browser], pid: int, pidfd: int, control: socket.socket, *, with_browser: bool
    ) -> None:
        super().__init__(pid, pidfd)
        self.browsers = browsers
        """Those that its driver can start, first the one that it was made for."""
        self.with_browser = with_browser
        self.tls: ssl.SSLContext | None = None
        """The certificate that it was started with, which may have been replaced since."""
        self._control = control
        self.warm = asyncio.Event()
        """Set once it waits for a session, or will never do so."""
        self.opened = asyncio.Event()
        """Set once its session has a browser, or will never have one."""

    @property
    def is_starting(self) -> bool:
        """Whether a client is waiting for its browser."""
        return self.session is not None and not self.opened.is_set()

    async def watch(self) -> None:
        """Listens to it until its end, and sets `gone` then."""
        loop = asyncio.get_running_loop()
        self._control.setblocking(False)
        loop.add_reader(self._control, self._hear)
        try:
            await super().watch()
        finally:
            loop.remove_reader(self._control)
        self._hear()  # What it said at last may come together with its end.
        self._control.close()
        for event in (self.warm, self.opened):
            event.set()

    def _hear(self) -> None:
        try:
            said = self._control.recv(64)
        except OSError:
            said = b""
        if not said:
            asyncio.get_running_loop().remove_reader(self._control)
        if WARM in said:
            self.warm.set()
        if OPEN in said:
            self.had_browser = True
            self.opened.set()

    def can_start(self, browser: Browser) -> bool:
        """Whether a session that is given to it can have this browser."""
        return browser == self.browsers[0] if self.with_browser else browser in self.browsers

    def assign(self, assignment: Assignment) -> None:
        """Hands it a session; DriverUnavailable when it has just died."""
        try:
            self._control.send(assignment.encode())
        except OSError as error:
            raise DriverUnavailable(f"The node died before it got its session: {error}") from error
        self.session = assignment.session


class ForkServer:
    """The fork server, which is replaced when it fails."""

    def __init__(self, config: Config, *, redis_url: str) -> None:
        self._config = config
        self._redis_url = redis_url
        self._orders: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._one_at_a_time = asyncio.Lock()

    def start(self) -> None:
        """Starts its process."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        lifeline = Lifeline.from_environ()
        inherited = (theirs.fileno(), *([lifeline.descriptor] if lifeline else []))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "remuda.grid.orchestrator.forkserver", str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            env={**os.environ, **self._config.environ(), "REMUDA_REDIS": self._redis_url},
            pass_fds=inherited,
            start_new_session=True,
        )
        restore_limit(self._process.pid)
        theirs.close()
        ours.setblocking(False)
        self._orders = ours

    async def stop(self, *, grace: float = END_GRACE) -> None:
        """Ends its process; its nodes live on."""
        if self._orders is None or self._process is None:
            return
        self._orders.close()
        try:
            await asyncio.to_thread(self._process.wait, grace)
        except subprocess.TimeoutExpired:
            self._process.kill()
            await asyncio.to_thread(self._process.wait)

    async def settle(self) -> None:
        """Waits until no node is being forked."""
        async with self._one_at_a_time:
            return

    async def fork_node(self, browsers: Sequence[Browser], *, with_browser: bool) -> OwnNode:
        """A new node; DriverUnavailable if none can be forked."""
        async with self._one_at_a_time:
            try:
                return await self._ask(browsers, with_browser=with_browser)
            except OSError as error:  # A TimeoutError is one.
                if (lack := own_lack(error)) is not None:
                    raise lack from error
                log.warning("fork server replaced", reason=str(error) or "no answer")
                # Killed even if it only hangs: its late answer would be taken for that to the next request.
                await self.stop(grace=0)
                self.start()
                return await self._ask_again(browsers, with_browser=with_browser)

    async def _ask_again(self, browsers: Sequence[Browser], *, with_browser: bool) -> OwnNode:
        try:
            return await self._ask(browsers, with_browser=with_browser)
        except OSError as error:
            raise DriverUnavailable(
                f"The fork server did not fork a node: {str(error) or 'no answer'}"
            ) from error

    async def _ask(self, browsers: Sequence[Browser], *, with_browser: bool) -> OwnNode:
        ours, theirs = socket.socketpair()
        assert self._orders is not None
        request = ForkRequest(list(browsers), with_browser).encode()
        try:
            async with asyncio.timeout(FORK_TIMEOUT):
                socket.send_fds(self._orders, [request], [theirs.fileno()])
                await until_readable(self._orders.fileno())
                message, descriptors, _, _ = socket.recv_fds(self._orders, 64, 1)
                if not message:
                    raise OSError("it closed its socket")
                pid, pidfd = int(message), descriptors[0]
        except BaseException:
            ours.close()  # If the node is forked all the same, it notices this and ends.
            raise
        finally:
            theirs.close()
        return OwnNode(browsers, pid, pidfd, ours, with_browser=with_browser)
