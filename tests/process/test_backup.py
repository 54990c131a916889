"""A data directory as one file: made while its Redis runs, and good for a new herd."""

import asyncio
import gzip
import os
import sqlite3
import tarfile
from contextlib import closing
from io import BytesIO
from pathlib import Path

import pytest

from configs import make_config
from remuda.base.errors import InvalidArgument, Misconfigured
from remuda.cli.backup import make_backup, restore_backup
from remuda.keyspace.fleet import LEASE
from remuda.storage.index import FILE as INDEX
from remuda.store import Store
from remuda.store.embedded import embedded_redis

KEY = LEASE("test")


@pytest.fixture
def data(short_path: Path) -> Path:
    """A data directory with an artifact and a token."""
    data = short_path / "data"
    (data / "storage/session").mkdir(parents=True)
    (data / "storage/session/video.mp4").write_bytes(b"frames")
    (data / "storage" / INDEX).write_bytes(b"index")
    (data / "admin.token").write_text("rmd_secret")
    return data


def back_up(data: Path, file: Path) -> None:
    make_backup(make_config(data=data), file)


async def read_key(data: Path) -> str | None:
    async with embedded_redis(data / "redis") as url, Store(url) as store:
        return await store.get(KEY)


@pytest.mark.parametrize("is_running", [True, False])
async def test_a_backup_becomes_a_data_directory_with_the_same_state(
    data: Path, short_path: Path, is_running: bool
) -> None:
    file, restored = short_path / "backup.tar.gz", short_path / "restored"
    async with embedded_redis(data / "redis") as url, Store(url) as store:
        await store.set(KEY, "kept")
        if is_running:
            await asyncio.to_thread(back_up, data, file)
            await store.set(KEY, "too late")
    if not is_running:
        await asyncio.to_thread(back_up, data, file)

    restore_backup(file, restored)

    assert await read_key(restored) == "kept"
    assert (restored / "storage/session/video.mp4").read_bytes() == b"frames"
    assert (restored / "admin.token").read_text() == "rmd_secret"
    assert not (restored / "storage" / INDEX).exists()
    assert file.stat().st_mode & 0o777 == 0o600


async def test_a_redis_whose_socket_is_elsewhere_is_found(short_path: Path) -> None:
    data, file = short_path / ("x" * 100), short_path / "backup.tar.gz"
    async with embedded_redis(data / "redis") as url, Store(url) as store:
        await store.set(KEY, "kept")
        await asyncio.to_thread(back_up, data, file)

    with tarfile.open(file) as archive:
        assert "redis/dump.rdb" in archive.getnames()


def test_a_database_is_copied_while_it_is_written(data: Path, short_path: Path) -> None:
    place, file, restored = (
        "archive/job/frontier.sqlite3",
        short_path / "backup.tar.gz",
        short_path / "restored",
    )
    (data / place).parent.mkdir(parents=True)
    with closing(sqlite3.connect(data / place, isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode=WAL")
        writer.execute("CREATE TABLE urls (url)")
        writer.execute("INSERT INTO urls VALUES ('in the log')")
        writer.execute("BEGIN")
        writer.execute("INSERT INTO urls VALUES ('not committed')")

        back_up(data, file)

    restore_backup(file, restored)
    with closing(sqlite3.connect(restored / place)) as reader:
        assert reader.execute("SELECT url FROM urls").fetchall() == [("in the log",)]
    assert [path.name for path in (restored / place).parent.iterdir()] == ["frontier.sqlite3"]


def test_nothing_is_overwritten(data: Path, short_path: Path) -> None:
    file = short_path / "backup.tar.gz"
    back_up(data, file)
    before = file.read_bytes()

    with pytest.raises(InvalidArgument, match="File exists"):
        back_up(data, file)
    with pytest.raises(InvalidArgument, match="is not empty"):
        restore_backup(file, data)

    assert file.read_bytes() == before
    assert sorted(path.name for path in short_path.iterdir()) == ["backup.tar.gz", "data"]


def test_a_directory_that_is_not_there_is_named(short_path: Path) -> None:
    with pytest.raises(Misconfigured, match="no data directory"):
        back_up(short_path / "none", short_path / "backup.tar.gz")


@pytest.mark.parametrize(
    "content", [b"", b"no tar", gzip.compress(b"x" * 5000, mtime=0)], ids=["empty", "text", "gzip"]
)
def test_a_file_that_is_no_backup_is_one_clear_line(content: bytes, short_path: Path) -> None:
    file = short_path / "backup.tar.gz"
    file.write_bytes(content)

    with pytest.raises(
        InvalidArgument, match=r"^[^\n]*backup.tar.gz is not a backup of Remuda, or is damaged$"
    ):
        restore_backup(file, short_path / "restored")


def test_half_a_backup_leaves_nothing_behind(data: Path, short_path: Path) -> None:
    (data / "long").write_bytes(os.urandom(1 << 20))
    file, restored = short_path / "backup.tar.gz", short_path / "restored"
    back_up(data, file)
    os.truncate(file, file.stat().st_size - 1000)

    with pytest.raises(InvalidArgument, match="damaged"):
        restore_backup(file, restored)

    assert not restored.exists() or not any(restored.iterdir())


def test_what_is_no_backup_is_not_unpacked(short_path: Path) -> None:
    file = short_path / "hostile.tar.gz"
    with tarfile.open(file, "w:gz") as archive:
        member = tarfile.TarInfo("../outside")
        member.size = 1
        archive.addfile(member, BytesIO(b"x"))

    with pytest.raises(InvalidArgument, match="is not a backup of Remuda"):
        restore_backup(file, short_path / "data")

    assert not (short_path / "outside").exists()
