"""The api role: the routes of all rooms, the dashboard and probes, behind the gateway like any upstream."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import cached_property

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from remuda.base.errors import StoreUnavailable
from remuda.fleet.http_server import HttpServer
from remuda.fleet.internal import internal_hosts_of
from remuda.fleet.live import LiveStreams
from remuda.fleet.origin import Scope
from remuda.fleet.role import Role
from remuda.fleet.room import Surroundings
from remuda.fleet.route import ANY_TOKEN, EVENT_STREAM, Route, json_response, origin_of
from remuda.fleet.secret import HerdSecret
from remuda.web.app import Ends, build_app
from remuda.web.files import dashboard_files
from remuda.web.openapi import OpenApi, Schema, describe
from remuda.web.overview import Overview, RoleView, read_roles
from remuda.web.room import ROOM

# Probes are impatient: Kubernetes gives up after a second unless told otherwise.
PATIENCE = 1.0
HTML = "text/html"


class RoleList(Struct):
    """All running roles."""

    roles: list[RoleView]


class Health(Struct):
    """A good state, in words."""

    ready: bool
    message: str


class Api(Role):
    """Serves what rooms declare, and what combines them."""

    name = "api"

    def __init__(self, on: Surroundings) -> None:
        super().__init__()
        self._on = on
        self._overview = Overview(on)
        self.live = LiveStreams("overview", self._overview.read, self._overview.without_time)
        self._files = dashboard_files()
        self.groups = [(ROOM, self._own_routes()), *((room, room.routes(on)) for room in on.rooms)]
        self.routes = [route for _, routes in self.groups for route in routes]
        self._secret = HerdSecret(on.store)
        self._closing = asyncio.Event()
        refusals = [room.refusals(on) for room in on.rooms if room.refusals is not None]
        app = build_app(self.routes, Ends(self._closing, refusals))
        hosts = internal_hosts_of(on.config, on.store, on.tls)
        self.scheme = hosts.scheme
        self._server = HttpServer(app, hosts=hosts, guard=self._secret, websockets=True)

    async def start(self) -> None:
        await self._secret.read()
        self.address = await self._server.start()

    async def serve(self) -> None:
        await self._server.serve()

    async def drain(self) -> None:
        await self.stop()

    async def stop(self) -> None:
        self._closing.set()
        await self._server.stop()

    # What is of no room, or of all

    async def get_overview(self, request: Request) -> Struct:
        return await self._overview.read(origin_of(request).limited_to)

    async def watch(self, request: Request) -> AsyncIterator[bytes]:
        return self.live.watch(origin_of(request).limited_to)

    async def list_roles(self, _request: Request) -> RoleList:
        return RoleList(await read_roles(self._on.store))

    async def healthz(self, _request: Request) -> Health:
        """`GET /healthz`: this process lives."""
        return Health(ready=True, message="This process lives.")

    async def readyz(self, _request: Request) -> Health:
        """`GET /readyz`: Redis answers, and every room can do its work; Unavailable says what is missing."""
        checks = [room.check_readiness for room in self._on.rooms if room.check_readiness is not None]
        try:
            async with asyncio.timeout(PATIENCE):
                messages = [await check(self._on) for check in checks]
        except TimeoutError:
            raise StoreUnavailable from None
        return Health(ready=True, message=" ".join(messages))

    async def get_openapi(self, _request: Request) -> Response:
        return json_response(self._openapi)

    @cached_property
    def _openapi(self) -> Schema:
        # Made when it is asked for: that takes longer than all else that this role does to start.
        return describe(self.groups)

    async def get_docs(self, request: Request) -> Response:
        return self._files.answer("docs.html", request)

    async def get_dashboard(self, request: Request) -> Response:
        return self._files.answer("index.html", request)

    async def get_file(self, request: Request) -> Response:
        return self._files.answer(request.path_params["path"], request)

    def _own_routes(self) -> Sequence[Route]:
        return [
            Route(
                "GET",
                "/api/overview",
                "Everything that the dashboard shows",
                self.get_overview,
                self._overview.kind,
                scope=Scope.USE,
            ),
            Route(
                "GET",
                "/api/live",
                "The overview whenever it changes, as Server-Sent Events",
                self.watch,
                EVENT_STREAM,
                scope=Scope.USE,
            ),
            Route("GET", "/api/roles", "Running roles", self.list_roles, RoleList),
            Route(
                "GET",
                "/api/openapi.json",
                "This description",
                self.get_openapi,
                OpenApi,
                scope=ANY_TOKEN,
            ),
            Route("GET", "/api/docs", "This description, for people", self.get_docs, HTML, scope=ANY_TOKEN),
            Route("GET", "/healthz", "Whether the process is alive", self.healthz, Health, scope=None),
            Route(
                "GET",
                "/readyz",
                "Whether a session can be created; 503 with the reason if not",
                self.readyz,
                Health,
                scope=None,
            ),
            Route("GET", "/", "The dashboard", self.get_dashboard, HTML, scope=ANY_TOKEN),
            Route(
                "GET",
                "/ui",
                "Whether a session can be created, at Selenium Grid's path",
                self.get_dashboard,
                HTML,
                scope=ANY_TOKEN,
            ),
            Route("GET", "/static/{path:path}", "The dashboard's files", self.get_file, "*/*", scope=None),
        ]
