"""A storage as a test uses it: a directory with a role that serves it, and files to put there with owners."""

import asyncio
import os
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
from yarl import URL

from credentials import OPERATOR, herd_headers
from remuda.base import clock
from remuda.base.ids import SessionId, new_id
from remuda.fleet.origin import Origin
from remuda.fleet.ownership import OwnerKind, Retention
from remuda.fleet.role import Life
from remuda.grid.artifacts import SessionArtifacts
from remuda.keyspace import metrics
from remuda.storage.index import Librarian
from remuda.storage.model import Artifact, ArtifactPath, Owner, StorageId, StorageLimits, parse_path
from remuda.storage.role import Storage
from remuda.storage.writer import ArtifactWriter
from remuda.store import Store
from waiting import eventually

LONG_AGO = 3600.0
"""Longer than an owner is spared after its last write."""


def write_file(
    directory: Path, owner: str, name: str = "a.log", body: bytes = b"x", *, age: float = LONG_AGO
) -> ArtifactPath:
    """A file of this owner, a session if it is a bare id, that was written so many seconds ago."""
    (directory / owner).mkdir(exist_ok=True)
    path = directory / owner / name
    path.write_bytes(body)
    written = clock.now() - age
    os.utime(path, (written, written))
    return parse_path(f"{owner}/{name}")


def fresh_session() -> SessionId:
    return SessionId(new_id())


def session_writer(store: Store, storage: StorageId, directory: Path) -> ArtifactWriter:
    return ArtifactWriter(store, SessionArtifacts(store), storage=storage, directory=directory)


class JobArtifacts(OwnerKind):
    """A made-up room with jobs that last for weeks. It remembers by itself what a real one keeps in Redis."""

    name = "job"

    def __init__(self, retention: Retention | None = None) -> None:
        super().__init__(retention or Retention())
        self.running: set[str] = set()
        self.links: dict[str, str] = {}
        self.accounts: dict[str, str] = {}

    async def active(self, ids: Collection[str]) -> set[str]:
        return self.running.intersection(ids)

    async def account_of(self, owner_id: str) -> str | None:
        return self.accounts.get(owner_id)

    async def link(self, owner_id: str, storage: str) -> bool:
        if owner_id in self.running:
            self.links[owner_id] = storage
        return owner_id in self.running

    async def find_storage(self, owner_id: str) -> str | None:
        return self.links.get(owner_id)

    async def unlink(self, owner_id: str, storage: str) -> None:
        if self.links.get(owner_id) == storage:
            del self.links[owner_id]

    def finish(self, directory: Path) -> bool:
        """Gives a WARC that was being written its name."""
        left = list(directory.glob("*.open"))
        for path in left:
            path.rename(path.with_suffix(""))
        return bool(left)


@asynccontextmanager
async def running_storage(
    store: Store,
    directory: Path,
    limits: StorageLimits | None = None,
    *,
    retention: float | None = None,
    others: Iterable[OwnerKind] = (),
    sweep_every: float = 0.05,
) -> AsyncIterator[Storage]:
    """A storage that serves the directory and has swept it once; it has left afterwards.

    It keeps sessions for `retention` seconds, and owners of other kinds too.
    """
    storage = Storage(
        store,
        directory,
        kinds=[SessionArtifacts(store, Retention(seconds=retention)), *others],
        # No reserve by default: what else fills the machine's disk is not the test's business.
        limits=limits or StorageLimits(reserve=0),
        sweep_every=sweep_every,
        check_every=0.02,
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


async def indexed(directory: Path, owner: str) -> list[Artifact]:
    """What the index of a storage knows of an owner."""
    async with reading_index(directory) as librarian:
        return await librarian.ask(lambda index: index.files_of(Owner.parse(owner)))


def url_of(storage: Storage, path: str) -> URL:
    """The URL of an artifact at the storage itself, exactly as written."""
    whole = path if path.startswith("/") else f"/storage/{storage.storage_id}/{path}"
    return URL(f"http://{storage.address}{whole}", encoded=True)


@asynccontextmanager
async def asking(
    storage: Storage, path: str, asker: Origin = OPERATOR, /, *, method: str = "GET", **headers: str
) -> AsyncIterator[aiohttp.ClientResponse]:
    """The answer to a request for an artifact, or where the path begins with a slash for that."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    named |= await herd_headers(storage._store, asker)
    async with (
        aiohttp.ClientSession(auto_decompress=False) as client,
        client.request(method, url_of(storage, path), headers=named) as response,
    ):
        yield response
