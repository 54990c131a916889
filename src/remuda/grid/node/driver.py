"""The driver's process: started in a directory of its own, asked over HTTP, and at the end gone with
everything that it started."""

import asyncio
import os
import secrets
import shlex
import socket
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import psutil

from remuda.base.confinement import Confinement, browser_environ, remove_directory
from remuda.base.directories import make_closed, open_log, read_log
from remuda.base.errors import DriverTimeout, DriverUnavailable, InvalidArgument, UpstreamUnavailable
from remuda.base.filters import close_browser_to_others, close_to_others
from remuda.base.hosts import hidden_loopback
from remuda.base.ids import NodeId
from remuda.base.log import get_logger
from remuda.base.processes import (
    adopt_orphans,
    exit_status,
    has_ended,
    kill_descendants,
    running_since,
    until_exit,
    until_readable,
)
from remuda.base.programs import launched_by, loader_of
from remuda.fleet.display import Display
from remuda.fleet.http_client import ask
from remuda.fleet.leftovers import MARK
from remuda.fleet.permits.chromium import LIBRARIES, PROGRAMS
from remuda.fleet.relay import Address
from remuda.grid.browsers import Browser
from remuda.grid.capabilities import Capabilities
from remuda.grid.node.pulse import Question, ask_connection, ask_http, ask_kernel

KILL_TIMEOUT = 10.0
START_ATTEMPTS = 3
LOOK_EVERY = 0.005
LOOK_AT_BROWSER_EVERY = 1.0
BROWSER_PID = "browser.pid"
"""Where `launch-chromium` writes the browser's pid down, below TMPDIR."""

log = get_logger(__name__)


class Driver:
    """A running driver on a port of its own."""

    def __init__(
        self,
        node: NodeId,
        browser: Browser,
        confinement: Confinement,
        *,
        kin: Sequence[Browser] = (),
        headless: bool = True,
        with_programs: bool = False,
    ) -> None:
        """`kin` are further browsers that the same driver starts. Unless they are `headless`, they get a
        screen. `with_programs`, extensions of theirs may start programs of this machine."""
        self.browser = browser
        self._with_programs = with_programs
        self._browsers = (browser, *kin)
        self._needs_screen = any(each.family.needs_screen(headless=headless) for each in self._browsers)
        if not self._needs_screen:
            confinement = replace(
                confinement, protection=replace(confinement.protection, shares_display=False)
            )
        self.confinement = confinement
        self._node = node
        # A short path: Chromium puts a socket in here, and those have at most 107 characters.
        self.directory = Path(tempfile.gettempdir()) / node
        self.directory.mkdir(mode=0o700)
        confinement.own(self.directory)
        confinement.make_home(self.directory)
        self._log = self.directory / "driver.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._display: Display | None = None
        self._launched: Browser | None = None
        """The one of its browsers that has a launcher."""
        self._early: tuple[str, Capabilities] | None = None
        self._watch: asyncio.Task[None] | None = None
        args = " ".join(browser.family.driver_args)
        self._host = hidden_loopback() if "{host}" in args else "127.0.0.1"
        self._secret = secrets.token_urlsafe()
        self.prefix = f"/{self._secret}" if "{secret}" in args else ""
        """What stands before every path of its HTTP commands."""
        self.address = Address(self._host, 0)
        self.bidi_address = self.address
        """Where WebSockets go: to the driver, or to a browser that speaks WebDriver BiDi itself."""

    # Its life

    async def start(self, *, timeout: float) -> None:
        """Starts the driver and waits until it listens."""
        adopt_orphans()
        environ = await asyncio.to_thread(self._prepare_launch, self._environ())
        if self._needs_screen and not self.confinement.protection.shares_display:
            self._display = await Display.start(self.directory, environ, self.confinement, timeout=timeout)
            environ |= self._display.environ
        try:
            async with asyncio.timeout(timeout):
                port = await self._start(environ)
        except TimeoutError:
            raise DriverTimeout(
                f"The driver did not listen within {timeout:g} s{self._last_words()}"
            ) from None
        self.address = self.bidi_address = Address(self._host, port)
        await asyncio.to_thread(self._close_ports_to_others)

    def _close_ports_to_others(self) -> None:
        """Has the driver hear nothing but its node: not the pages that its browser shows, for instance.

        Where the machine forbids that, a secret path or a hidden address is what keeps pages out.
        """
        assert self._process is not None
        try:
            close_to_others(self._process.pid)
        except OSError as error:
            log.debug("driver's port is not closed to others", node=self._node, reason=str(error))

    def _close_devtools_to_others(self, browser: int | None) -> None:
        """Has the browser's own ports hear nothing but its node, now that its driver is connected to them.

        A Chromium's DevTools obey any local program that finds them, such as the browser of another client.
        """
        assert self._process is not None
        try:
            if browser is not None:
                close_browser_to_others(browser, friend=self._process.pid)
        except OSError as error:
            log.debug("browser's ports are not closed to others", node=self._node, reason=str(error))

    def _keep_programs_out(self, actual: Capabilities) -> None:
        """Has a Chromium find no program that an extension could start, and no library, in its profile. A
        Firefox looks in its home.

        Extensions are looked at when a client brings one as WebDriver does, but BiDi brings others, and
        DevTools can change one that is there. Neither can save a file in a directory that the browser has no
        right to write to.
        """
        profile = Path(actual.get("chrome", {}).get("userDataDir", "/"))
        if not profile.is_relative_to(self.directory):
            return
        try:
            make_closed(profile, LIBRARIES if self._with_programs else (PROGRAMS, *LIBRARIES))
        except OSError as error:  # On a full disk, for instance. A session needs them.
            raise DriverUnavailable(f"{profile} cannot be written to: {error.strerror}") from error

    @property
    def display(self) -> Display | None:
        """The screen that the browser has for itself; None when it has none, or shares one."""
        return self._display

    async def open_display(self, size: str, *, timeout: float) -> None:
        """Has a screen ready for the browser to come; a driver that needs one itself has it already."""
        if self._display is None:
            self._display = await Display.start(
                self.directory, self._environ(), self.confinement, size=size, timeout=timeout
            )

    def _environ(self) -> dict[str, str]:
        shares_display = self.confinement.protection.shares_display
        environ = browser_environ(self.directory, self.confinement.openers, shares_display=shares_display)
        return {**environ, MARK: self._node}

    @property
    def launcher(self) -> Path | None:
        """The program by which the driver starts the browser; None if that is the browser itself."""
        path = self.confinement.openers / self.browser.family.launcher
        # Where it was copied to, nothing may be run, perhaps. Then the browser only starts more slowly.
        return path if self.browser == self._launched and os.access(path, os.X_OK) else None

    def _prepare_launch(self, environ: dict[str, str]) -> dict[str, str]:
        """The driver's environment, with all that the browser's launcher needs to know.

        Debian's Chromium is a script around the browser which takes 15 ms, more on a busy machine. It is run
        here, while no client waits, and not when the browser is started.
        """
        browser = next((each for each in self._browsers if each.family.launcher), None)
        if browser is None:
            return environ
        self._launched = browser
        command = [str(browser.binary)]
        if loader_of(browser.binary) is None:
            enter = self._enter()
            command, environ = launched_by(browser.binary, environ, enter=enter) or (command, environ)
        return {**environ, "CHROMIUM_COMMAND": shlex.join(command)}

    def _enter(self) -> Callable[[], None]:
        """Confines what is started to what a driver and its browsers may do."""
        programs = [self.browser.driver, *(browser.binary for browser in self._browsers)]
        runs_alone = self.browser.family.runs_alone and not self._with_programs
        return self.confinement.inside(self.directory, programs, runs_alone=runs_alone)

    async def _start(self, environ: dict[str, str]) -> int:
        # More than once: a port that was free when it was chosen may have been taken meanwhile.
        for _ in range(START_ATTEMPTS):
            self._process = self._spawn(environ)
            if (port := await self._await_port(self._process)) is not None:
                return port
        raise DriverUnavailable(f"The driver ended at once{self._last_words()}")

    def _spawn(self, environ: dict[str, str]) -> subprocess.Popen[bytes]:
        values = {
            "port": _free_port(),
            "directory": self.directory,
            "host": self._host,
            "secret": self._secret,
        }
        args = [arg.format_map(values) for arg in self.browser.family.driver_args]
        enter = self._enter()
        try:
            with open_log(self._log) as output:
                return subprocess.Popen(
                    [str(self.browser.driver), *args],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=environ,
                    cwd=self.directory,
                    start_new_session=True,
                    preexec_fn=enter,
                )
        except OSError as error:
            raise DriverUnavailable(f"{self.browser.driver} cannot be started: {error}") from error

    async def _await_port(self, process: subprocess.Popen[bytes]) -> int | None:
        """The port on which the driver listens; None when it ended instead."""
        while process.poll() is None:
            if (port := self._port(process)) is not None:
                return port
            # A file, not a pipe, so that a driver that talks can never block; hence this look every 5 ms.
            await asyncio.sleep(LOOK_EVERY)
        return None

    def _port(self, process: subprocess.Popen[bytes]) -> int | None:
        line = self.browser.family.port_line
        if line is None:
            return _listening_port(process.pid)
        match = line.search(read_log(self._log))
        return int(match[1]) if match else None

    async def ended(self) -> int:
        """Waits until the driver has ended by itself; its exit status."""
        assert self._process is not None
        return await until_exit(self._process)

    @property
    def has_ended(self) -> bool:
        """Whether the driver has ended by itself, or the browser that it started early."""
        early = None if self._early is None else self.browser_pid(self._early[1])
        has_lost_browser = early is not None and running_since(early) is None
        return has_lost_browser or (self._process is not None and has_ended(self._process))

    def browser_pid(self, actual: Capabilities) -> int | None:
        """The browser's process; None when it cannot be told from others."""
        told: int | None = actual.get(self.browser.family.process_id)
        return self._find_browser() if told is None else told

    def _find_browser(self) -> int | None:
        """The child of a driver that does not tell, as WebKit's, that runs the browser's program."""
        assert self._process is not None
        program = self.browser.binary.resolve()
        found = []
        with suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self._process.pid).children():
                with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                    if Path(child.exe()) == program:
                        found.append(child.pid)
        return found[0] if len(found) == 1 else None

    async def browser_ended(self, pid: int) -> int | None:
        """Waits until the browser, a child of the driver's, has ended; its exit status, if that is known."""
        try:
            pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            return None
        try:
            await until_readable(pidfd)
            return exit_status(pid, pidfd)
        finally:
            os.close(pidfd)

    def questions(self, *, browser_pid: int | None, devtools: Address | None) -> dict[str, Question]:
        """What tells whether the driver and its browser still live, by what to call them."""
        assert self._process is not None
        family = self.browser.family
        questions = {
            "driver": ask_http(self.address, f"{self.prefix}/status")
            if family.answers_beside_sessions
            else ask_kernel(self._process.pid)
        }
        if devtools is not None:
            questions["browser"] = ask_http(devtools, "/json/version")
        elif browser_pid is not None:
            port = _listening_port(browser_pid)
            questions["browser"] = (
                ask_kernel(browser_pid) if port is None else ask_connection(Address("127.0.0.1", port))
            )
        return questions

    def tail(self) -> str:
        """The last line that the driver wrote."""
        lines = read_log(self._log).strip().splitlines()
        return lines[-1] if lines else ""

    def _last_words(self) -> str:
        line = self.tail()
        return f": {line}" if line else ""

    async def stop(self) -> None:
        """Ends the driver, its browser and whatever they started, and removes their files."""
        if self._watch is not None:
            self._watch.cancel()
        await asyncio.shield(asyncio.to_thread(self._stop))

    def _stop(self) -> None:
        # Killed, not asked: the profile is thrown away, so there is nothing to save, and the next waits.
        if not kill_descendants(KILL_TIMEOUT):
            log.error("browser does not die", node=self._node)
        remove_directory(self.directory, owners=self.confinement.protection.users)

    def choose_browser(self, number: int) -> None:
        """Has the session to come get this one of the driver's browsers."""
        self.browser = self._browsers[number]

    # Its protocol

    async def call(
        self, method: str, path: str, body: bytes = b"", *, timeout: float, to: Address | None = None
    ) -> tuple[int, bytes]:
        """Status and body of what the driver, or its browser, answers; DriverUnavailable if it does not."""
        target = self.prefix + path if to is None else path
        headers = {"Content-Type": "application/json; charset=utf-8"}
        try:
            return await ask(
                to or self.address, method, target, body, headers=headers, to_child=True, timeout=timeout
            )
        except UpstreamUnavailable as error:
            asked = "driver" if to is None else "browser"
            raise DriverUnavailable(f"The {asked} at {error.message}") from error

    async def new_session(self, request: Capabilities, *, timeout: float) -> tuple[str, Capabilities]:
        """The driver's session id and capabilities; when it refuses, DriverUnavailable in its own words, or
        InvalidArgument if it does not understand what is wanted."""
        wanted = msgspec.json.encode(request)
        if self.launcher is None:
            status, body = await self.call("POST", "/session", wanted, timeout=timeout)
        else:
            status, body = await self._ask_while_browser_runs(wanted, timeout=timeout)
        try:
            value = msgspec.json.decode(body)["value"]
            if status == 200:
                actual = value["capabilities"]
                await self._find_devtools(actual, timeout=timeout)
                self._find_bidi(actual)
                await asyncio.to_thread(self._close_devtools_to_others, self.browser_pid(actual))
                self._keep_programs_out(actual)
                return value["sessionId"], actual
            refusal = InvalidArgument if value["error"] == InvalidArgument.webdriver else DriverUnavailable
            raise refusal(value["message"])
        except (msgspec.DecodeError, KeyError, TypeError) as error:
            raise DriverUnavailable(f"The driver's answer is not valid: {body[:200]!r}") from error

    async def _ask_while_browser_runs(self, body: bytes, *, timeout: float) -> tuple[int, bytes]:
        """The driver's answer to a new session. At a pipe, ChromeDriver waits a minute for a browser that has
        exited: this does not."""
        noted = self.directory / BROWSER_PID
        noted.unlink(missing_ok=True)
        answer = asyncio.ensure_future(self.call("POST", "/session", body, timeout=timeout))
        try:
            has_exited = False
            while not (await asyncio.wait([answer], timeout=LOOK_AT_BROWSER_EVERY))[0]:
                if has_exited:
                    raise DriverUnavailable("session not created: Chrome instance exited")
                # Once more, if so: the driver may be about to say why.
                with suppress(OSError, ValueError):
                    has_exited = running_since(int(read_log(noted))) is None
            return answer.result()
        finally:
            answer.cancel()

    async def _find_devtools(self, actual: Capabilities, *, timeout: float) -> None:
        """Completes the capabilities of a Chromium whose driver, at its pipe, does not know its port."""
        options = actual.setdefault(self.browser.family.options, {}) if self.launcher else {}
        if self.launcher is None or "debuggerAddress" in options:
            return
        file = Path(actual["chrome"]["userDataDir"]) / "DevToolsActivePort"
        try:
            async with asyncio.timeout(timeout):
                while not (port := _first_line(file)).isdecimal():  # noqa: ASYNC110  # Nothing tells of it.
                    await asyncio.sleep(LOOK_EVERY)
        except TimeoutError:
            raise DriverTimeout(f"The browser told no port of its DevTools within {timeout:g} s") from None
        options["debuggerAddress"] = f"localhost:{port}"

    def _find_bidi(self, actual: Capabilities) -> None:
        port = urlsplit(str(actual.get("webSocketUrl", ""))).port
        if port is not None:
            self.bidi_address = Address("127.0.0.1", port)

    # A browser before its session

    async def open_early(self, request: Capabilities, *, timeout: float) -> None:
        """Starts a browser for a session to come."""
        self._early = await self.new_session(request, timeout=timeout)
        pid = self.browser_pid(self._early[1])
        if pid is not None:
            self._watch = asyncio.create_task(self._fall_with_browser(pid), name="watch early browser")

    async def _fall_with_browser(self, pid: int) -> None:
        # A driver without its early browser is good for nothing; those who wait for its end replace both.
        await self.browser_ended(pid)
        if self._process is not None:
            self._process.kill()

    def take_early(self) -> tuple[str, Capabilities] | None:
        """What `new_session` would give, of the browser that was started early; only once."""
        session, self._early = self._early, None
        if self._watch is not None:
            self._watch.cancel()
        return session


def _first_line(file: Path) -> str:
    """The first line of a file; empty while there is none that is whole."""
    line, end, _ = read_log(file).partition("\n")
    return line if end else ""


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def _listening_port(pid: int) -> int | None:
    try:
        connections = psutil.Process(pid).net_connections("tcp4")
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        # Firefox lets no other process look at it once it runs under another user than root.
        return None
    return next((each.laddr.port for each in connections if each.status == psutil.CONN_LISTEN), None)
