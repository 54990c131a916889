"""A browser server: the driver's process with its browser below it, in a directory of its own, and at the end
gone with everything that it started.

The driver ends when its browser does, so watching one process is enough.
"""

import asyncio
import re
import secrets
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlencode, urlsplit

import msgspec
import psutil

from remuda.base.confinement import Confinement, Protection, remove_directory
from remuda.base.directories import open_log, read_log
from remuda.base.errors import DriverTimeout, DriverUnavailable
from remuda.base.filters import close_browser_to_others, close_to_others
from remuda.base.hosts import host_port
from remuda.base.log import get_logger
from remuda.base.processes import (
    adopt_orphans,
    children_of,
    has_ended,
    kill_family,
    reap_orphans,
    until_exit,
)
from remuda.base.reach import make_reachable
from remuda.fleet.display import Display
from remuda.fleet.leftovers import MARK, holder_name
from remuda.playwright.browsers import Launch
from remuda.playwright.checkup import check_up
from remuda.playwright.driver import driver_programs, host_command, serve_command, serve_environ

log = get_logger(__name__)

LOOPBACK = "127.0.0.1"
KILL_TIMEOUT = 10.0
LOOK_EVERY = 0.01
LOOK_AT_BROWSER_EVERY = 0.05
FIREFOX = "firefox"
"""Its driver connects to a port; others have a pipe."""
_URL_LINE = re.compile(r"^(?:Listening on )?(ws://\S+)\n", re.MULTILINE)


class BrowserServer:
    """A browser that Playwright clients connect to.

    With a `network`, it is for one client, and reaches the addresses that this pattern names from that
    client's side (`expose_network`). Such a browser is launched when the client connects.

    One that `is_closed` takes connections of this process only; else its path, which cannot be guessed, opens
    it. What its browser listens on is closed in any case: to all but its driver.
    """

    _drivers: ClassVar[set[int]] = set()

    def __init__(
        self,
        launch: Launch,
        protection: Protection,
        *,
        host: str = LOOPBACK,
        port: int = 0,
        network: str = "",
        is_closed: bool = False,
    ) -> None:
        self._launch = launch
        self._protection = protection if launch.has_window else replace(protection, shares_display=False)
        self._confinement: Confinement | None = None
        self._host = host
        self._port = port
        self._network = network
        self._is_closed = is_closed
        self._name = holder_name()
        # A short path: Chromium puts a socket in here, and those have at most 107 characters.
        self.directory = Path(tempfile.gettempdir()) / self._name
        self._log = self.directory / "server.log"
        self._staging = self.directory / "programs"
        """Where programs are copied to that its user does not reach."""
        self._display: Display | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._closing: asyncio.Task[None] | None = None
        self.endpoint = ""
        """Its WebSocket URL as this process reaches it, once it has started."""

    # Its life

    async def start(self, *, timeout: float) -> None:
        """Starts it and waits until it listens, which it does once its browser runs."""
        adopt_orphans()
        self._confinement = confinement = await asyncio.to_thread(Confinement.claim, self._protection)
        environ = self._prepare(confinement)
        if self._launch.has_window and not self._protection.shares_display:
            self._display = await Display.start(self.directory, environ, confinement, timeout=timeout)
            environ |= self._display.environ
        self._process = self._spawn(confinement, environ)
        try:
            async with asyncio.timeout(timeout):
                self.endpoint = await self._await_endpoint(self._process)
        except TimeoutError:
            raise DriverTimeout(f"The browser did not listen within {timeout:g} s: {self.tail()}") from None
        try:
            await asyncio.to_thread(self._close_ports_to_others, self._process.pid)
        except OSError as error:
            log.debug("ports are not closed to others", holder=self._name, reason=str(error))
        else:
            if self._network and self._launch.browser == FIREFOX:
                late = self._close_late_browser(self._process.pid)
                self._closing = asyncio.create_task(late, name="close a browser's port")

    def _close_ports_to_others(self, driver: int) -> None:
        if self._is_closed:
            close_to_others(driver)
        self._close_browser_to_others(driver)

    def _close_browser_to_others(self, driver: int) -> bool:
        """Has a browser that its driver has connected to hear nothing else; whether there is one. It obeys
        any local program that finds its port, such as the browser of another client."""
        browsers = children_of(driver)
        return any(close_browser_to_others(each, friend=driver, awaits_friend=True) for each in browsers)

    async def _close_late_browser(self, driver: int) -> None:
        """Closes the port of a browser that is launched when its client connects."""
        while self.is_running:
            with suppress(OSError):  # A process that is just starting cannot be looked into.
                if await asyncio.to_thread(self._close_browser_to_others, driver):
                    return
            await asyncio.sleep(LOOK_AT_BROWSER_EVERY)

    def _prepare(self, confinement: Confinement) -> dict[str, str]:
        """Makes its directory; the environment of all its processes."""
        self.directory.mkdir(mode=0o700)
        confinement.own(self.directory)
        confinement.make_home(self.directory)
        shares_display = self._protection.shares_display
        environ = serve_environ(self.directory, self._reach, shares_display=shares_display)
        return {**environ, MARK: self._name}

    def _reach(self, program: Path) -> Path:
        """Where its user finds a program or a directory of programs."""
        has_user = self._confinement is not None and self._confinement.user is not None
        return make_reachable(program, self._staging) if has_user else program

    def _spawn(self, confinement: Confinement, environ: dict[str, str]) -> subprocess.Popen[bytes]:
        # The path alone opens the browser, so it must not be guessable.
        path = f"/playwright/{self._launch.browser}/{secrets.token_urlsafe(24)}"
        if self._network:
            command = host_command(path, self._reach)
        else:
            config = self.directory / "launch.json"
            options = {**self._launch.options, "host": self._host, "port": self._port, "wsPath": path}
            if "env" in options:
                # The browser would have no other variables than these.
                options["env"] = {**environ, **options["env"]}
            config.write_bytes(msgspec.json.encode(options))
            confinement.own(config)
            command = serve_command(self._launch.browser, config, self._reach)
        program = self._launch.program
        programs = [*driver_programs(), self._staging, *([program] if program else [])]
        try:
            with open_log(self._log) as output:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=environ,
                    cwd=self.directory,
                    start_new_session=True,
                    preexec_fn=confinement.inside(self.directory, programs),
                )
        except OSError as error:
            raise DriverUnavailable(f"{command[0]} cannot be started: {error}") from error
        self._drivers.add(process.pid)
        return process

    async def _await_endpoint(self, process: subprocess.Popen[bytes]) -> str:
        while True:
            is_over = process.poll() is not None
            if match := _URL_LINE.search(read_log(self._log)):
                return with_host(match[1], LOOPBACK) + self._query()
            if is_over:
                raise DriverUnavailable(f"The browser ended at once: {self.tail()}")
            # A file, not a pipe, so that a driver that talks can never block; hence this look every 10 ms.
            await asyncio.sleep(LOOK_EVERY)

    def _query(self) -> str:
        if not self._network:
            return ""
        options = dict(self._launch.options)
        if self._launch.browser == "firefox":
            # Else it reaches its own machine, and not the client's, at addresses such as 127.0.0.1.
            preferences = options.get("firefoxUserPrefs", {})
            options["firefoxUserPrefs"] = {**preferences, "network.proxy.allow_hijacking_localhost": True}
        text = msgspec.json.encode(options).decode()
        wish = {"browser": self._launch.browser, "proxy": self._network, "launch-options": text}
        return f"?{urlencode(wish)}"

    @property
    def is_running(self) -> bool:
        return self._process is not None and not has_ended(self._process)

    async def ended(self) -> int:
        """Waits until it has ended by itself, with its browser or without; its exit status."""
        assert self._process is not None
        return await until_exit(self._process)

    async def stop(self) -> None:
        """Ends it with its browser and whatever they started, and removes their files."""
        if self._closing is not None:
            self._closing.cancel()
        await asyncio.shield(asyncio.to_thread(self._stop))

    def _stop(self) -> None:
        # Killed, not asked: the profile is thrown away, so there is nothing to save.
        process = self._process
        if process is not None:
            if not kill_family(process, mark=(MARK, self._name), timeout=KILL_TIMEOUT):
                log.error("browser does not die", holder=self._name)
            self._drivers.discard(process.pid)
            reap_orphans(self._drivers)
        if self._display is not None:
            self._display.stop()
        remove_directory(self.directory, owners=self._protection.users)
        if self._confinement is not None:
            self._confinement.release()
            self._confinement = None

    def tail(self) -> str:
        """What it complained about last: the driver's own words, less its stack and its box of stars."""
        text = read_log(self._log)
        # Nor its URL: that is a secret.
        noise = ("at ", "ws://", "Listening on ws://")
        lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith(noise)]
        return next((line.strip() for line in lines if "Error" in line), lines[-1].strip() if lines else "")

    # What it serves

    async def check(self, *, timeout: float) -> None:
        """Returns if its browser answers; DriverUnavailable if it does not."""
        await check_up(self.endpoint, to_child=self._is_closed, timeout=timeout)

    def connections(self) -> int:
        """How many clients are connected, by the sockets and not by counters. Blocks."""
        if self._process is None:
            return 0
        port = urlsplit(self.endpoint).port
        sockets: Sequence[Any]
        try:
            sockets = psutil.Process(self._process.pid).net_connections("tcp")
        except psutil.NoSuchProcess:
            return 0
        except psutil.AccessDenied:
            # It runs under another user, whose open files are not ours to see. The machine's sockets are.
            sockets = psutil.net_connections("tcp")
        open_ones = [each.laddr for each in sockets if each.status == psutil.CONN_ESTABLISHED]
        return sum(getattr(local, "port", None) == port for local in open_ones)


def with_host(endpoint: str, host: str) -> str:
    """The URL with another host in it."""
    parts = urlsplit(endpoint)
    return parts._replace(netloc=host_port(host, parts.port or 80)).geturl()
