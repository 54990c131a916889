"""The api role: JSON API, dashboard, health and Selenium's status, behind the gateway like any upstream."""

from remuda.fleet.role import Role
from remuda.store import Store
from remuda.web.app import build_app
from remuda.web.herd import Herd
from remuda.web.server import HttpServer
from remuda.web.table import ROUTES


class Api(Role):
    """Serves what people and tools look at."""

    name = "api"

    def __init__(self, store: Store, *, host: str = "127.0.0.1") -> None:
        super().__init__()
        self._server = HttpServer(build_app(Herd(store), ROUTES), host=host)

    async def start(self) -> None:
        self.address = await self._server.start()

    async def serve(self) -> None:
        await self._server.serve()

    async def drain(self) -> None:
        await self._server.stop()

    async def stop(self) -> None:
        await self._server.stop()
