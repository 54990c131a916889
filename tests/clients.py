"""WebDriver clients that ask a manager for sessions, and get their answers one by one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp

from remuda.grid.manager import Manager
from remuda.store import Store

CHROME = {"capabilities": {"alwaysMatch": {"browserName": "chrome"}}}


@dataclass(frozen=True)
class Reply:
    """What a client was answered."""

    status: int
    value: Any

    @property
    def error(self) -> str:
        assert self.value.keys() == {"error", "message", "stacktrace"}
        return f"{self.status} {self.value['error']}"

    @property
    def message(self) -> str:
        return str(self.value["message"])


class Client:
    """A WebDriver client that asks a manager for sessions."""

    def __init__(self, manager: Manager, http: aiohttp.ClientSession) -> None:
        self._url = f"http://{manager.address}/session"
        self._http = http

    async def ask(self, body: Any = CHROME, *, method: str = "POST", **headers: str) -> Reply:
        options: dict[str, Any] = {"data": body} if isinstance(body, bytes) else {"json": body}
        async with self._http.request(method, self._url, headers=headers, **options) as response:
            assert response.content_type == "application/json"
            assert response.headers["Cache-Control"] == "no-cache"
            return Reply(response.status, (await response.json())["value"])

    def asking(self, body: Any = CHROME) -> "asyncio.Task[Reply]":
        return asyncio.create_task(self.ask(body), name="client")


@asynccontextmanager
async def running(store: Store) -> AsyncIterator[tuple[Manager, Client]]:
    """A manager at work, and a client of it."""
    manager = Manager(store)
    await manager.start()
    serving = asyncio.create_task(manager.serve(), name="serve")
    try:
        async with aiohttp.ClientSession() as http:
            yield manager, Client(manager, http)
    finally:
        serving.cancel()
        await manager.stop()
