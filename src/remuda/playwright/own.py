"""Browsers of one's own: each client that comes gets a fresh one, which ends with its connection.

To its worker this is what `BrowserServer` is: something with an endpoint. Behind it, a relay takes each
client to a driver that was started for it, or was kept warm, with the launch options that its gateway has let
pass.
"""

import asyncio
import hmac
import secrets
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec

from remuda.base.config import Config
from remuda.base.confinement import protection_of
from remuda.base.errors import DriverTimeout, DriverUnavailable, InvalidArgument, RemudaError, UnknownCommand
from remuda.base.hosts import LOOPBACK_ONLY, InternalHosts, host_port
from remuda.base.log import get_logger
from remuda.fleet.internal import serve_internally
from remuda.fleet.relay import Address, Answer, Dial, Forward, Relay, Request
from remuda.fleet.secret import HerdSecret
from remuda.fleet.tasks import Tasks
from remuda.playwright.browsers import find_tailored_launch
from remuda.playwright.model import START_TIMEOUT
from remuda.playwright.options import Options
from remuda.playwright.room import PlaywrightConfig
from remuda.playwright.server import LOOPBACK, BrowserServer

log = get_logger(__name__)

DIAL_TIMEOUT = 10.0
"""A driver that listens answers at once, unless its machine is very busy."""
PAUSE = 5.0
"""After a warm browser could not be started, or has ended by itself."""


class OwnBrowsers:
    """Browsers of one type, one for each client."""

    def __init__(
        self,
        browser: str,
        config: Config,
        secret: HerdSecret,
        *,
        hosts: InternalHosts = LOOPBACK_ONLY,
        port: int = 0,
    ) -> None:
        self._browser = browser
        self._config = config
        self._hosts = hosts
        self._port = port
        # The path alone opens a browser, so it must not be guessable.
        self._secret = secret
        self._path = f"/playwright/{browser}/{secrets.token_urlsafe(24)}"
        self._relay = Relay(self._route, render_error, guard=secret, to_child=True)
        self._listener: asyncio.Server | None = None
        self._warm: list[BrowserServer] = []
        self._running: set[BrowserServer] = set()
        """Every browser there is: warm, being started, or in use."""
        self._clients = 0
        self._tasks = Tasks()
        self._warmer: asyncio.Task[None] | None = None
        self._wants_warm = asyncio.Event()
        self.endpoint = ""

    # Its life

    async def start(self, *, timeout: float) -> None:
        """Starts a first browser, to see that there can be others, and listens."""
        await self._secret.read()
        first = await self._launch({}, "", timeout=timeout)
        await first.check(timeout=timeout)
        # Kept for the first client: its request is often the reason for this worker.
        self._warm.append(first)
        self._listener, port = await serve_internally(self._relay, self._hosts, self._port)
        self.endpoint = endpoint_of(self._hosts, port, self._path)
        self._warmer = asyncio.create_task(self._keep_warm(), name="keep browsers warm")
        self._wants_warm.set()

    async def ended(self) -> int:
        """Never returns: it does not end with one of its browsers."""
        await asyncio.Event().wait()
        raise AssertionError

    async def check(self, *, timeout: float) -> None:
        """Checks nothing: a browser that does not answer affects only the one client that has it."""

    def connections(self) -> int:
        """How many clients have a browser, or wait for theirs to start."""
        return self._clients

    def tail(self) -> str:
        return ""

    async def stop(self) -> None:
        """Ends all browsers, and whatever they started."""
        if self._warmer is not None:
            self._warmer.cancel()
        if self._listener is not None:
            self._listener.close()
        self._relay.close()
        for browser in list(self._running):
            self._end(browser)
        await self._tasks.finish()

    # A client's way

    async def _route(self, request: Request) -> Dial:
        path, _, query = request.target.partition("?")
        if not hmac.compare_digest(path.encode(), self._path.encode()) or not request.is_upgrade:
            raise UnknownCommand(f"There is nothing at {path}.")
        said = parse_qs(query)
        options = msgspec.json.decode(said.get("launch-options", ["{}"])[-1], type=dict[str, Any])
        self._clients += 1
        try:
            browser = await self._take(options, said.get("proxy", [""])[-1])
        except BaseException:
            self._clients -= 1
            raise
        parts = urlsplit(browser.endpoint)
        target = f"{parts.path}?{parts.query}" if parts.query else parts.path
        forward = Forward(Address(LOOPBACK, parts.port or 0), target, host=parts.netloc)
        return Dial(forward, _Visit(self, browser), DIAL_TIMEOUT)

    async def _take(self, options: Options, network: str) -> BrowserServer:
        """A browser for one client: a warm one if any will do."""
        if not options and not network:
            while self._warm:
                browser = self._warm.pop()
                self._wants_warm.set()
                if browser.is_running:
                    return browser
                self._end(browser)
        else:
            # Ends the one that was started as a trial, if no client has asked for such a browser.
            while len(self._warm) > self._config[PlaywrightConfig].playwright_warm:
                self._end(self._warm.pop())
        timeout = min(START_TIMEOUT, options.get("timeout", START_TIMEOUT * 1000) / 1000)
        try:
            return await self._launch(options, network, timeout=timeout)
        except DriverUnavailable as error:
            if not options:
                raise
            # The options may not be the cause, but they are what the client can change.
            raise InvalidArgument(
                f"{self._browser} did not start with these options: {error.message}"
            ) from error

    async def _launch(self, options: Options, network: str, *, timeout: float) -> BrowserServer:
        launch = await asyncio.to_thread(find_tailored_launch, self._browser, self._config, options)
        # Its driver is behind no secret. It hears this worker only, not the browsers of other clients.
        browser = BrowserServer(launch, protection_of(self._config), network=network, is_closed=True)
        self._running.add(browser)
        try:
            await browser.start(timeout=timeout)
        except BaseException:
            # Cancelled, too: the client has gone.
            self._end(browser)
            raise
        return browser

    def finish(self, browser: BrowserServer) -> None:
        """The client of this browser has left."""
        self._clients -= 1
        self._end(browser)

    def _end(self, browser: BrowserServer) -> None:
        if browser in self._running:
            self._running.discard(browser)
            self._tasks.spawn(browser.stop(), name="end a browser")

    # Warm ones

    async def _keep_warm(self) -> None:
        """Keeps as many browsers ready as the config says, one start at a time."""
        while True:
            await self._wants_warm.wait()
            self._wants_warm.clear()
            while len(self._warm) < self._config[PlaywrightConfig].playwright_warm:
                try:
                    self._warm.append(await self._launch({}, "", timeout=START_TIMEOUT))
                except (RemudaError, OSError) as error:
                    log.error("warm browser not started", browser=self._browser, reason=str(error))
                    await asyncio.sleep(PAUSE)


class _Visit:
    """A client with its browser, as the relay's caller."""

    def __init__(self, browsers: OwnBrowsers, browser: BrowserServer) -> None:
        self._browsers = browsers
        self._browser = browser

    def is_answer(self, status: int) -> bool:
        return status != 101

    def taken(self, _status: int) -> None:
        """Nothing to note."""

    async def refused(self, reason: str) -> Dial:
        raise DriverTimeout(f"The browser's driver does not answer: {reason}")

    def ended(self) -> None:
        self._browsers.finish(self._browser)


def endpoint_of(hosts: InternalHosts, port: int, path: str) -> str:
    """The URL that the rest of the herd is told, for a server of this process."""
    scheme = "ws" if hosts.certificate is None else "wss"
    return f"{scheme}://{host_port(hosts.advertise, port)}{path}"


def render_error(request: Request | None, error: RemudaError) -> Answer:
    """The answer that tells a gateway, or its client, of the error."""
    return Answer(error.status, msgspec.json.encode(error.api_face()), headers=tuple(error.headers().items()))
