"""Playwright's side of a herd under test: a gateway in this process, and workers that a test scripts."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import aiohttp
from aiohttp import web

from configs import make_config
from remuda.base.ids import WorkerId
from remuda.cli.rooms import ROOMS
from remuda.fleet.room import Room, Surroundings
from remuda.gateway.role import Gateway
from remuda.metering.room import make_metering
from remuda.playwright.model import ServedBrowser, Worker
from remuda.playwright.registry import Registry
from remuda.store import Store

DEADLINE = 20.0
USER_AGENT = "Playwright/1.62.0 (x64; debian 12) python/3.11"
# By which a client's `connect` differs from its `connect_over_cdp`.
OWN_PROTOCOL = {"x-playwright-proxy": ""}

UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "User-Agent": USER_AGENT,
    **OWN_PROTOCOL,
}

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ScriptedWorker:
    """A worker as the registry shows it, with a real WebSocket server that keeps what it sees."""

    def __init__(
        self, name: str, *, browser: ServedBrowser = ServedBrowser.CHROMIUM, version: str = "1.62"
    ) -> None:
        self.name = name
        self.browser = browser
        self.version = version
        self.path = f"/playwright/{name}"
        self.answer: Answer = self.echo
        self.requests: list[web.Request] = []
        self.sockets: list[web.WebSocketResponse] = []
        self.codes: list[int | None] = []
        self.came = asyncio.Event()
        self.serving = 0
        """Clients that it is busy with."""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        self.came.set()
        self.serving += 1
        try:
            return await self.answer(request)
        finally:
            self.serving -= 1

    async def echo(self, request: web.Request) -> web.StreamResponse:
        """Sends everything back; hangs up on `bye`."""
        socket = web.WebSocketResponse(compress=True)
        await socket.prepare(request)
        self.sockets.append(socket)
        try:
            async for message in socket:
                if message.data == "bye":
                    await socket.close(code=4321, message=b"so long")
                else:
                    await socket.send_str(message.data)
        finally:
            self.codes.append(socket.close_code)
        return socket

    async def stay_silent(self, request: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    async def refuse(self, request: web.Request) -> web.StreamResponse:
        return web.Response(status=400, text="wrong path")

    async def speak_another_version(self, request: web.Request) -> web.StreamResponse:
        return web.Response(status=428, text="Playwright version mismatch")

    @asynccontextmanager
    async def running(self, store: Store) -> AsyncIterator["ScriptedWorker"]:
        """Listens, and is registered."""
        app = web.Application()
        app.router.add_get(self.path, self.handle)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.port = runner.addresses[0][1]
        await self.register(store)
        try:
            yield self
        finally:
            await runner.cleanup()

    async def register(self, store: Store) -> None:
        endpoint = f"ws://127.0.0.1:{self.port}{self.path}"
        worker = Worker(self.browser, WorkerId(self.name), endpoint, self.version)
        await Registry(store, worker, key_ttl=60, lease=20).register()


@asynccontextmanager
async def workers(store: Store, *scripted: ScriptedWorker) -> AsyncIterator[None]:
    """Several of them."""
    if not scripted:
        yield
        return
    first, *others = scripted
    async with first.running(store), workers(store, *others):
        yield


class Door:
    """A gateway, as its clients see it."""

    def __init__(self, port: int, session: aiohttp.ClientSession, gateway: Gateway) -> None:
        self.port = port
        self.gateway = gateway
        self._session = session

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def clients(self) -> int:
        """Connections that it has not closed yet."""
        return len(self.gateway._door.relay.connections)

    async def connect(
        self, path: str = "/", *, headers: Mapping[str, str] | None = None, **options: Any
    ) -> aiohttp.ClientWebSocketResponse:
        """A client's WebSocket; aiohttp.WSServerHandshakeError when it is refused."""
        url = f"ws://127.0.0.1:{self.port}{path}"
        given = {"User-Agent": USER_AGENT, **OWN_PROTOCOL, **(headers or {})}
        async with asyncio.timeout(DEADLINE):
            socket: aiohttp.ClientWebSocketResponse = await self._session.ws_connect(
                url, headers=given, **options
            )
            return socket

    async def refusal(
        self, path: str = "/", *, headers: Mapping[str, str] | None = None
    ) -> tuple[int, dict[str, str], Mapping[str, str]]:
        """Status, error and headers of the answer to a WebSocket that is refused."""
        return await self.get(path, headers={**UPGRADE, **(headers or {})})

    async def words(self, path: str = "/", *, headers: Mapping[str, str]) -> tuple[int, str]:
        """Status and text of the answer to a WebSocket that is refused by a worker."""
        url = f"http://127.0.0.1:{self.port}{path}"
        async with self._session.get(url, headers={**UPGRADE, **headers}) as response:
            return response.status, await response.text()

    async def get(
        self, path: str, *, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any, Mapping[str, str]]:
        url = f"http://127.0.0.1:{self.port}{path}"
        timeout = aiohttp.ClientTimeout(total=DEADLINE)
        async with self._session.get(url, headers=headers, timeout=timeout) as response:
            body = await response.json(content_type=None)
            return response.status, body.get("error", body), response.headers


@asynccontextmanager
async def front_door(
    store: Store, *, rooms: Sequence[Room] = (), is_metered: bool = False, **options: Any
) -> AsyncIterator[Door]:
    """A gateway on a free port."""
    config = make_config(port=0, **options)
    metering = make_metering(Surroundings(store, config, ROOMS)) if is_metered else None
    gateway = Gateway(store, config, rooms=rooms, metering=metering)
    await gateway.start()
    serving = asyncio.create_task(gateway.serve(), name="serve gateway")
    try:
        async with aiohttp.ClientSession() as session:
            yield Door(int(gateway.address.rpartition(":")[2]), session, gateway)
    finally:
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving
        await gateway.stop()
