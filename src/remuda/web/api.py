"""The api role: JSON API, dashboard, health and Selenium's status, behind the gateway like any upstream."""

import asyncio
from collections.abc import Sequence

from remuda.fleet.http_server import HttpServer
from remuda.fleet.role import Role
from remuda.fleet.secret import HerdSecret
from remuda.store import Store
from remuda.web.app import build_app
from remuda.web.herd import Herd
from remuda.web.openapi import describe
from remuda.web.route import Route
from remuda.web.table import ROUTES


class Api(Role):
    """Serves what people and tools look at; `extra` are routes to what other rooms have to show."""

    name = "api"

    def __init__(self, store: Store, *, host: str = "127.0.0.1", extra: Sequence[Route] = ()) -> None:
        super().__init__()
        routes = (*ROUTES, *extra)
        self._herd = Herd(store, openapi=describe(routes))
        self._secret = HerdSecret(store)
        self._server = HttpServer(build_app(self._herd, routes), host=host, guard=self._secret)

    async def start(self) -> None:
        await self._secret.read()
        self.address = await self._server.start()

    async def serve(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._server.serve(), name="http")
            group.create_task(self._herd.live.run(), name="live")

    async def drain(self) -> None:
        await self.stop()

    async def stop(self) -> None:
        self._herd.live.close()  # Else the server would wait for viewers, who never leave by themselves.
        await self._server.stop()
