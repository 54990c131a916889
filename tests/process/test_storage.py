"""The storage as a process of its own, killed at the worst moment."""

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import aiohttp

from credentials import herd_headers
from herds import running_herd
from remuda.base.processes import die_with_parent
from remuda.fleet.role import running_roles
from remuda.keyspace import metrics
from remuda.keyspace import storage as keys
from remuda.storage.directory import keep_storage_id
from remuda.storage.index import FILE
from remuda.storage.model import StorageId
from remuda.store import Store
from storages import fresh_session, indexed, session_writer, write_file
from waiting import eventually

DEADLINE = 60.0


@asynccontextmanager
async def storage_process(
    store: Store, redis_url: str, directory: Path
) -> AsyncIterator[subprocess.Popen[bytes]]:
    """A `remuda run storage` that has swept its directory once."""
    storage = keep_storage_id(directory)
    await store.hdel(metrics.METRICS_STORAGE_USED(), storage)
    process = subprocess.Popen(
        [sys.executable, "-m", "remuda.cli.main", "run", "storage", "--redis", redis_url],
        env={**os.environ, "REMUDA_STORAGE": str(directory)},
        preexec_fn=die_with_parent(signal.SIGKILL),
    )

    async def has_swept() -> bool:
        assert process.poll() is None
        return await store.hget(metrics.METRICS_STORAGE_USED(), storage) is not None

    try:
        await eventually(has_swept, DEADLINE)
        yield process
    finally:
        process.kill()
        process.wait()


async def test_a_storage_killed_between_taking_and_committing_loses_nothing(
    store: Store, redis_url: str, tmp_path: Path
) -> None:
    storage, session = keep_storage_id(tmp_path), fresh_session()
    names = [f"{number:03}.log" for number in range(250)]
    async with storage_process(store, redis_url, tmp_path) as process:
        # Whoever holds the write lock keeps the storage from committing what it has taken.
        with closing(sqlite3.connect(tmp_path / FILE, isolation_level=None, timeout=DEADLINE)) as other:
            other.execute("BEGIN IMMEDIATE")
            for name in names:
                write_file(tmp_path, session, name)
            await session_writer(store, storage, tmp_path).announce(session, *names)
            await eventually(lambda: store.llen(keys.STORAGE_METADATA_TAKEN(storage)), DEADLINE)

            process.kill()
            process.wait()

            other.execute("ROLLBACK")
    assert await indexed(tmp_path, session) == []

    async with storage_process(store, redis_url, tmp_path):
        await eventually(lambda: is_settled(store, storage), DEADLINE)

    assert [artifact.path.name for artifact in await indexed(tmp_path, session)] == names


async def is_settled(store: Store, storage: StorageId) -> bool:
    return not await store.exists(
        keys.STORAGE_METADATA_PENDING(storage), keys.STORAGE_METADATA_TAKEN(storage)
    )


async def test_a_storage_serves_and_leaves_on_a_signal(store: Store, redis_url: str, tmp_path: Path) -> None:
    storage, session = keep_storage_id(tmp_path), fresh_session()
    write_file(tmp_path, session, body=b"hello")
    async with storage_process(store, redis_url, tmp_path) as process:
        (role,) = await eventually(lambda: running_roles(store), DEADLINE)
        assert (role["name"], role["id"]) == ("storage", storage)
        url = f"http://{role['address']}/storage/{storage}/{session}/a.log"
        headers = await herd_headers(store)
        async with aiohttp.ClientSession(headers=headers) as client, client.get(url) as answer:
            assert await answer.read() == b"hello"

        process.send_signal(signal.SIGTERM)

        await eventually(lambda: process.poll() == 0, DEADLINE)
    assert await running_roles(store) == []


def test_a_herd_serves_the_artifacts_in_its_data_directory() -> None:
    session = fresh_session()
    # Short, unlike pytest's: it also holds a socket.
    with tempfile.TemporaryDirectory(prefix="herd-") as data:
        storage = keep_storage_id(Path(data) / "data" / "storage")
        write_file(Path(data) / "data" / "storage", session, "video.m4s", b"0123456789")

        with running_herd(Path(data) / "data", "--slots", "1") as herd:
            status, listed, _ = herd.request("GET", f"/storage/{storage}/{session}/")
            assert (status, [file["name"] for file in listed["files"]]) == (200, ["video.m4s"])
            for path in (f"/storage/{storage}/../redis", f"/storage/{storage}/{session}/..%2f..%2flock"):
                assert herd.request("GET", path)[0] == 404
