"""A storage as a test uses it: a directory with a role that serves it, and files to put there."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
from yarl import URL

from credentials import herd_headers
from remuda.base import clock
from remuda.base.ids import SessionId, new_id
from remuda.fleet.role import Life
from remuda.keyspace import metrics
from remuda.storage.index import Librarian
from remuda.storage.model import Artifact, Limits, Place
from remuda.storage.role import Storage
from remuda.store import Store
from waiting import eventually

LONG_AGO = 3600.0
"""Longer than a session is spared after its last write."""


def write_file(directory: Path, session: SessionId, name: str = "a.log", body: bytes = b"x") -> Place:
    """A file that was written a while ago."""
    (directory / session).mkdir(exist_ok=True)
    path = directory / session / name
    path.write_bytes(body)
    written = clock.now() - LONG_AGO
    os.utime(path, (written, written))
    return Place(session, name)


def fresh_session() -> SessionId:
    return SessionId(new_id())


@asynccontextmanager
async def running_storage(
    store: Store, directory: Path, limits: Limits | None = None, *, sweep_every: float = 0.05
) -> AsyncIterator[Storage]:
    """A storage that serves the directory and has swept it once; it has left afterwards."""
    # No reserve by default: what else fills the machine's disk is not the test's business.
    storage = Storage(
        store, directory, limits=limits or Limits(reserve=0), sweep_every=sweep_every, check_every=0.02
    )
    life = Life(store, [storage])
    await store.hdel(metrics.METRICS_STORAGE_USED(), storage.storage_id)
    living = asyncio.create_task(life.run(), name="storage")

    async def has_swept() -> bool:
        if living.done():
            living.result()
        return bool(storage.address and await store.hget(metrics.METRICS_STORAGE_USED(), storage.storage_id))

    try:
        await eventually(has_swept)
        yield storage
    finally:
        life.stop_asked.set()
        await living


@asynccontextmanager
async def reading_index(directory: Path) -> AsyncIterator[Librarian]:
    """A second reader of a storage's index."""
    librarian = Librarian(directory)
    await librarian.start()
    try:
        yield librarian
    finally:
        await librarian.stop()


async def indexed(directory: Path, session: SessionId) -> list[Artifact]:
    """What the index of a storage knows of a session."""
    async with reading_index(directory) as librarian:
        return await librarian.ask(lambda index: index.files_of(session))


def url_of(storage: Storage, path: str) -> URL:
    """The URL of an artifact at the storage itself, exactly as written."""
    return URL(f"http://{storage.address}/storage/{storage.storage_id}/{path}", encoded=True)


@asynccontextmanager
async def asking(
    storage: Storage, path: str, *, method: str = "GET", **headers: str
) -> AsyncIterator[aiohttp.ClientResponse]:
    """The answer to a request for an artifact."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    named |= await herd_headers(storage._store)
    async with (
        aiohttp.ClientSession(auto_decompress=False) as client,
        client.request(method, url_of(storage, path), headers=named) as response,
    ):
        yield response
