"""Memory for requests, at a front door that asks for tokens: one account keeps no other waiting."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from granted import give_token
from managers import open_orchestrator, running
from remuda.grid.manager import Manager
from remuda.keyspace import grid
from remuda.store import Store
from scripted_workers import front_door
from waiting import eventually

MEGABYTE = 1_000_000
# Longer than a manager has a request wait for memory.
DEADLINE = 20.0


class Account:
    """A client with a token, which writes its requests piece by piece."""

    def __init__(self, store: Store, port: int, name: str, token: str) -> None:
        self._store = store
        self._port = port
        self._name = name
        self._token = token
        self._writers: list[asyncio.StreamWriter] = []

    async def announce(self, size: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Sends the head of a request for a session, of whose body nothing follows yet."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers.append(writer)
        head = (
            f"POST /session HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {self._token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {size}\r\n\r\n"
        )
        writer.write(head.encode())
        await writer.drain()
        return reader, writer

    async def start(self, size: int) -> "asyncio.Task[bytes]":
        """Asks for a session; its answer."""
        body = json.dumps({"capabilities": {"alwaysMatch": {"test:padding": "x" * size}}}).encode()
        reader, writer = await self.announce(len(body))
        writer.write(body)
        return asyncio.create_task(reader.read(4096), name="answer")

    async def ask(self, size: int) -> str:
        """Asks for a session; `queued`, or the answer if it is refused."""
        before = await self.queued()
        answer = await self.start(size)

        async def is_decided() -> bool:
            return answer.done() or await self.queued() > before

        await eventually(is_decided, DEADLINE)
        return answer.result().decode() if answer.done() else "queued"

    async def queued(self) -> int:
        """How many of its sessions wait for a browser."""
        return await self._store.scard(grid.SESSIONS_OF(self._name))

    def leave(self) -> None:
        for writer in self._writers:
            writer.close()


class Herd:
    """A front door, and a manager of which a test knows the bodies; no browser is free."""

    def __init__(self, store: Store, port: int, manager: Manager) -> None:
        self.bodies = manager._relay.bodies
        self._store = store
        self._port = port
        self._accounts: list[Account] = []

    async def account(self, name: str) -> Account:
        account = Account(self._store, self._port, name, await give_token(self._store, name))
        self._accounts.append(account)
        return account

    def leave(self) -> None:
        for account in self._accounts:
            account.leave()


@pytest.fixture
async def herd(store: Store, tmp_path: Path) -> AsyncIterator[Herd]:
    async with herd_with(Manager(store, body_bytes=8 * MEGABYTE), store, tmp_path) as herd:
        yield herd


@asynccontextmanager
async def herd_with(manager: Manager, store: Store, data: Path) -> AsyncIterator[Herd]:
    async with running(store, manager), front_door(store, auth="on", data=data) as door:
        await open_orchestrator(store, 0)
        herd = Herd(store, door.port, manager)
        yield herd
        herd.leave()
        await eventually(lambda: herd.bodies.held == 0)


@pytest.mark.parametrize(("announced", "much"), [(900_000, 2_500_000), (60_000, 900_000)])
async def test_bodies_that_one_account_announces_keep_no_other_waiting(
    herd: Herd, announced: int, much: int
) -> None:
    flood, other = await herd.account("flood"), await herd.account("other")
    for _ in range(150):
        await flood.announce(announced)
    await eventually(lambda: herd.bodies.held >= much)

    answers = [await other.ask(size) for size in (100, MEGABYTE)]

    assert answers == ["queued", "queued"]


async def test_bodies_of_sessions_that_wait_keep_no_other_account_waiting(herd: Herd) -> None:
    flood, other = await herd.account("flood"), await herd.account("other")
    for _ in range(12):
        await flood.start(900_000)
    await eventually(lambda: herd.bodies.held >= 2_500_000)

    answers = [await other.ask(size) for size in (100, MEGABYTE)]

    assert answers == ["queued", "queued"]


async def test_large_capabilities_that_wait_in_redis_refuse_no_other_account(
    store: Store, tmp_path: Path
) -> None:
    async with herd_with(Manager(store, waiting_bytes=4 * MEGABYTE), store, tmp_path) as herd:
        flood, other = await herd.account("flood"), await herd.account("other")
        first, second, third = [await flood.ask(900_000) for _ in range(3)]

        answer = await other.ask(900_000)

        assert [first, second, answer] == ["queued"] * 3
        assert "Requests with large capabilities of the account 'flood' take 2 of 4 MB" in third


async def test_accounts_take_turns_when_large_bodies_are_read(store: Store) -> None:
    manager = Manager(store)
    read = []

    async def read_one(account: str) -> None:
        async with manager._turn_to_read(account):
            read.append(account)
            await asyncio.sleep(0)

    await asyncio.gather(*map(read_one, ("flood", "flood", "flood", "other")))

    assert read == ["flood", "other", "flood", "flood"]
