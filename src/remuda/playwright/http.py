"""What the API answers about Playwright's workers, their connections, and the clients that wait for one."""

from collections.abc import Sequence

from msgspec import Struct
from starlette.requests import Request

from remuda.fleet.origin import Scope
from remuda.fleet.route import Route, origin_of
from remuda.playwright.view import (
    ConnectionView,
    WaitingView,
    WorkerView,
    read_connections,
    read_waiting,
    read_workers,
)
from remuda.store import Store


class WorkerList(Struct):
    """Every Playwright worker that is registered."""

    workers: list[WorkerView]


class ConnectionList(Struct):
    """Playwright connections that are open, oldest first."""

    connections: list[ConnectionView]


class WaitingList(Struct):
    """Playwright clients that wait for a place, line by line."""

    queue: list[WaitingView]


def playwright_routes(store: Store) -> Sequence[Route]:
    """The routes of this room."""

    async def list_workers(_request: Request) -> WorkerList:
        return WorkerList(await read_workers(store))

    async def list_connections(request: Request) -> ConnectionList:
        return ConnectionList(await read_connections(store, limited_to=origin_of(request).limited_to))

    async def list_waiting(request: Request) -> WaitingList:
        return WaitingList(await read_waiting(store, limited_to=origin_of(request).limited_to))

    return [
        Route(
            "GET",
            "/api/playwright/workers",
            "Playwright workers with their connections",
            list_workers,
            WorkerList,
        ),
        Route(
            "GET",
            "/api/playwright/connections",
            "Playwright connections that are open, oldest first",
            list_connections,
            ConnectionList,
            scope=Scope.USE,
        ),
        Route(
            "GET",
            "/api/playwright/queue",
            "Playwright clients that wait for a place",
            list_waiting,
            WaitingList,
            scope=Scope.USE,
        ),
    ]
