"""The driver's process: started in a directory of its own, asked over HTTP, and at the end gone with
everything that it started."""

import asyncio
import http.client
import os
import re
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from remuda.base.errors import DriverUnavailable
from remuda.base.ids import NodeId
from remuda.base.log import get_logger
from remuda.base.processes import (
    adopt_orphans,
    die_with_parent,
    kill_descendants,
    until_exit,
    until_readable,
)
from remuda.fleet.relay import Address
from remuda.grid.browsers import Browser
from remuda.grid.node.leftovers import MARK

_STARTED = re.compile(rb"started successfully on port (\d+)")
KILL_TIMEOUT = 10.0

log = get_logger(__name__)


class Driver:
    """A running ChromeDriver on a port of its own choice."""

    def __init__(self, node: NodeId, browser: Browser) -> None:
        self.browser = browser
        self._node = node
        # A short path: Chromium puts a socket in here, and those have at most 107 characters.
        self.directory = Path(tempfile.gettempdir()) / node
        """The node's own files; they go with the driver."""
        self.directory.mkdir(mode=0o700)
        self._log = self.directory / "driver.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.address = Address("127.0.0.1", 0)

    # Its life

    async def start(self, *, timeout: float) -> None:
        """Starts the driver and waits until it listens."""
        adopt_orphans()
        try:
            with self._log.open("wb") as output:
                self._process = subprocess.Popen(
                    [str(self.browser.driver), "--port=0", "--log-level=WARNING"],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env={**os.environ, "TMPDIR": str(self.directory), MARK: self._node},
                    start_new_session=True,
                    preexec_fn=die_with_parent(signal.SIGKILL),
                )
        except OSError as error:
            raise DriverUnavailable(f"{self.browser.driver} cannot be started: {error}") from error
        self.address = Address("127.0.0.1", await self._await_port(self._process, timeout=timeout))

    async def _await_port(self, process: subprocess.Popen[bytes], *, timeout: float) -> int:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while loop.time() < deadline:
            if match := _STARTED.search(self._log.read_bytes()):
                return int(match[1])
            if process.poll() is not None:
                raise DriverUnavailable(f"The driver ended at once: {self.tail()}")
            # A file, not a pipe, so that a driver that talks can never block; hence this look every 5 ms.
            await asyncio.sleep(0.005)
        raise DriverUnavailable(f"The driver does not listen after {timeout:g} s: {self.tail()}")

    async def ended(self) -> int:
        """Waits until the driver has ended by itself; its exit status."""
        assert self._process is not None
        return await until_exit(self._process)

    async def browser_ended(self, pid: int) -> None:
        """Waits until the browser has ended, which is a child of the driver's."""
        try:
            pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        try:
            await until_readable(pidfd)
        finally:
            os.close(pidfd)

    def tail(self) -> str:
        """The last line that the driver wrote."""
        try:
            lines = self._log.read_text(errors="replace").strip().splitlines()
        except OSError:
            return ""
        return lines[-1] if lines else ""

    async def stop(self) -> None:
        """Ends the driver, its browser and whatever they started, and removes their files."""
        await asyncio.shield(asyncio.to_thread(self._stop))

    def _stop(self) -> None:
        # Killed, not asked: the profile is thrown away, so there is nothing to save, and the next waits.
        if not kill_descendants(KILL_TIMEOUT):
            log.error("browser does not die", node=self._node)
        shutil.rmtree(self.directory, ignore_errors=True)

    # Its protocol

    async def call(
        self, method: str, path: str, body: bytes = b"", *, timeout: float, to: Address | None = None
    ) -> tuple[int, bytes]:
        """Status and body of what the driver, or its browser, answers; DriverUnavailable if it does not."""
        # In a thread and with the standard library: a session needs three of these in its whole life.
        try:
            return await asyncio.to_thread(_call, to or self.address, method, path, body, timeout)
        except (OSError, http.client.HTTPException) as error:
            raise DriverUnavailable(
                f"The driver does not answer: {str(error) or type(error).__name__}"
            ) from error

    async def new_session(self, request: dict[str, Any], *, timeout: float) -> tuple[str, dict[str, Any]]:
        """The driver's session id and capabilities; DriverUnavailable with its own words when it refuses."""
        status, body = await self.call("POST", "/session", msgspec.json.encode(request), timeout=timeout)
        try:
            value = msgspec.json.decode(body)["value"]
            if status == 200:
                return value["sessionId"], value["capabilities"]
            raise DriverUnavailable(value["message"])
        except (msgspec.DecodeError, KeyError, TypeError) as error:
            raise DriverUnavailable(f"The driver's answer makes no sense: {body[:200]!r}") from error


def _call(address: Address, method: str, path: str, body: bytes, timeout: float) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(address.host, address.port, timeout=timeout)
    try:
        connection.request(method, path, body, {"Content-Type": "application/json; charset=utf-8"})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()
