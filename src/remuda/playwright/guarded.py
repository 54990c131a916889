"""A browser server behind the herd's secret, for workers that listen beyond loopback.

Playwright's own server admits every client that knows its path, and asks for no secret that is compared in
constant time, nor for TLS. On loopback that is enough; on a network it is not. So its driver stays on
loopback, where it hears this process only, and what listens on the network is a relay that asks for the
secret.
"""

import asyncio
import hmac
import secrets
from urllib.parse import urlsplit

from remuda.base.confinement import Protection
from remuda.base.errors import UnknownCommand
from remuda.base.hosts import InternalHosts
from remuda.fleet.internal import serve_internally
from remuda.fleet.relay import Address, Forward, Relay, Request
from remuda.fleet.secret import HerdSecret
from remuda.playwright.browsers import Launch
from remuda.playwright.model import GUARDED
from remuda.playwright.own import endpoint_of, render_error
from remuda.playwright.server import LOOPBACK, BrowserServer


class GuardedServer:
    """A `BrowserServer` whose clients have to show the herd's secret."""

    def __init__(
        self,
        launch: Launch,
        protection: Protection,
        secret: HerdSecret,
        *,
        hosts: InternalHosts,
        port: int = 0,
    ) -> None:
        self._secret = secret
        self._hosts = hosts
        self._port = port
        self._path = f"{GUARDED}{launch.browser}/{secrets.token_urlsafe(24)}"
        self._browser = BrowserServer(launch, protection, is_closed=True)
        self._relay = Relay(self._route, render_error, guard=secret, to_child=True)
        self._listener: asyncio.Server | None = None
        self.endpoint = ""

    async def start(self, *, timeout: float) -> None:
        """Starts the browser, then listens."""
        await self._secret.read()
        await self._browser.start(timeout=timeout)
        self._listener, port = await serve_internally(self._relay, self._hosts, self._port)
        self.endpoint = endpoint_of(self._hosts, port, self._path)

    def _route(self, request: Request) -> Forward:
        path, _, query = request.target.partition("?")
        if not hmac.compare_digest(path.encode(), self._path.encode()) or not request.is_upgrade:
            raise UnknownCommand(f"There is nothing at {path}.")
        behind = urlsplit(self._browser.endpoint)
        target = f"{behind.path}?{query}" if query else behind.path
        return Forward(Address(LOOPBACK, behind.port or 0), target, host=behind.netloc)

    async def ended(self) -> int:
        return await self._browser.ended()

    async def check(self, *, timeout: float) -> None:
        await self._browser.check(timeout=timeout)

    def connections(self) -> int:
        return self._browser.connections()

    def tail(self) -> str:
        return self._browser.tail()

    async def stop(self) -> None:
        if self._listener is not None:
            self._listener.close()
        self._relay.close()
        await self._browser.stop()
