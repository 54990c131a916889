"""News of files on its way to the index: all of it arrives, once the file is there, and only what is true."""

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from grids import new_session
from remuda.base import clock
from remuda.base.errors import Lost, Unavailable
from remuda.base.ids import SessionId
from remuda.keyspace import grid
from remuda.keyspace import storage as keys
from remuda.storage import intake
from remuda.storage.directory import keep_storage_id
from remuda.storage.index import FILE
from remuda.storage.model import StorageId
from remuda.store import Store
from storages import fresh_session, indexed, running_storage, session_writer, write_file
from waiting import eventually


def news(path: str, **changes: object) -> str:
    stamp = clock.rfc3339()
    return json.dumps({"path": path, "size": 1.0, "last_modified": stamp, "last_access": stamp} | changes)


async def is_settled(store: Store, storage: StorageId) -> bool:
    waiting = await store.exists(keys.STORAGE_METADATA_PENDING(storage), keys.STORAGE_METADATA_TAKEN(storage))
    return not waiting


async def names_of(directory: Path, session: SessionId) -> list[str]:
    return [artifact.path.name for artifact in await indexed(directory, session)]


async def test_what_a_writer_announces_is_indexed(store: Store, tmp_path: Path) -> None:
    session = await new_session(store)
    async with running_storage(store, tmp_path) as storage:
        writer = session_writer(store, storage.storage_id, tmp_path)
        path = await writer.open(session)
        (path / "video.m4s").write_bytes(b"12345")

        await writer.announce(session, "video.m4s")

        (artifact,) = await eventually(lambda: indexed(tmp_path, session))
        assert (artifact.path.name, artifact.size) == ("video.m4s", 5)
        assert await store.get(grid.SESSION_STORAGE(session)) == storage.storage_id
        await eventually(lambda: is_settled(store, storage.storage_id))


async def test_an_announcement_has_the_documented_form(store: Store, tmp_path: Path) -> None:
    session, storage = fresh_session(), keep_storage_id(tmp_path)
    write_file(tmp_path, session, "a.log", b"abc")

    await session_writer(store, storage, tmp_path).announce(session, "a.log")

    (entry,) = await store.lrange(keys.STORAGE_METADATA_PENDING(storage))
    told = json.loads(entry)
    assert list(told) == ["path", "size", "last_modified", "last_access"]
    assert (told["path"], told["size"]) == (f"{session}/a.log", 3)
    assert clock.parse_rfc3339(told["last_modified"]) < clock.parse_rfc3339(told["last_access"])


async def test_a_writer_cannot_announce_what_is_not_there(store: Store, tmp_path: Path) -> None:
    writer = session_writer(store, keep_storage_id(tmp_path), tmp_path)

    with pytest.raises(Lost):
        await writer.announce(fresh_session(), "missing.log")
    await writer.announce(fresh_session())

    assert await store.send("DBSIZE") == 0


async def test_a_writer_hears_at_once_that_it_cannot_write(store: Store, tmp_path: Path) -> None:
    storage = keep_storage_id(tmp_path / "storage")
    session = await new_session(store)
    (tmp_path / "storage" / session).touch()

    with pytest.raises(Unavailable, match="No artifacts can be written"):
        await session_writer(store, storage, tmp_path / "storage").open(session)

    assert not await store.exists(grid.SESSION_STORAGE(session))


async def test_news_waits_for_a_storage_that_is_away(store: Store, tmp_path: Path) -> None:
    session, storage = fresh_session(), keep_storage_id(tmp_path)
    async with running_storage(store, tmp_path):
        pass  # Its index is complete now, so that only news can tell it of a file.
    write_file(tmp_path, session)
    await session_writer(store, storage, tmp_path).announce(session, "a.log")

    async with running_storage(store, tmp_path):
        await eventually(lambda: indexed(tmp_path, session))


async def test_news_that_an_earlier_life_had_taken_is_not_lost(store: Store, tmp_path: Path) -> None:
    session, storage = fresh_session(), keep_storage_id(tmp_path)
    async with running_storage(store, tmp_path):
        pass
    for name in ("taken", "waiting"):
        write_file(tmp_path, session, name)
    await store.rpush(keys.STORAGE_METADATA_TAKEN(storage), news(f"{session}/taken"))
    await store.rpush(keys.STORAGE_METADATA_PENDING(storage), news(f"{session}/waiting"))

    async with running_storage(store, tmp_path):
        await eventually(lambda: is_settled(store, storage))

    assert await names_of(tmp_path, session) == ["taken", "waiting"]


async def test_many_writers_at_once_lose_nothing(store: Store, redis_url: str, tmp_path: Path) -> None:
    sessions = [await new_session(store) for _ in range(8)]
    names = sorted(f"{number:03}.log" for number in range(100))

    async def write(session: SessionId) -> None:
        async with Store(redis_url) as own:
            writer = session_writer(own, keep_storage_id(tmp_path), tmp_path)
            path = await writer.open(session)
            for name in names:
                (path / name).write_bytes(name.encode())
                await writer.announce(session, name)

    async with running_storage(store, tmp_path) as storage:
        await asyncio.gather(*map(write, sessions))
        await eventually(lambda: is_settled(store, storage.storage_id), 30)

    for session in sessions:
        assert await names_of(tmp_path, session) == names


async def test_the_index_believes_the_file_and_not_the_news(store: Store, tmp_path: Path) -> None:
    session, storage = fresh_session(), keep_storage_id(tmp_path)
    write_file(tmp_path, session, body=b"12345")
    await store.rpush(keys.STORAGE_METADATA_PENDING(storage), news(f"{session}/a.log", size=1 << 40))

    async with running_storage(store, tmp_path):
        await eventually(lambda: is_settled(store, storage))

    assert [artifact.size for artifact in await indexed(tmp_path, session)] == [5]


async def test_news_of_a_file_that_is_gone_makes_the_index_forget_it(store: Store, tmp_path: Path) -> None:
    session = fresh_session()
    path = write_file(tmp_path, session)
    async with running_storage(store, tmp_path) as storage:
        await eventually(lambda: indexed(tmp_path, session))
        (tmp_path / str(path)).unlink()

        await store.rpush(keys.STORAGE_METADATA_PENDING(storage.storage_id), news(str(path)))

        await eventually(lambda: is_settled(store, storage.storage_id))
        assert await indexed(tmp_path, session) == []
        assert not await store.exists(keys.STORAGE_METADATA_REFUSED(storage.storage_id))


async def test_poison_is_set_aside_and_the_rest_goes_on(store: Store, tmp_path: Path) -> None:
    session, storage = fresh_session(), keep_storage_id(tmp_path)
    write_file(tmp_path, session)
    (tmp_path.parent / "secret").write_text("secret")
    poison = ["nonsense", news("../secret"), news("/etc/passwd"), news(f"{session}/a.log", size=-1)]
    pending = keys.STORAGE_METADATA_PENDING(storage)
    await store.send("RPUSH", pending, b"\xff\xfe")
    await store.rpush(pending, *poison, news(f"{session}/a.log"), "x" * 5000)

    async with running_storage(store, tmp_path):
        await eventually(lambda: is_settled(store, storage))

    assert await names_of(tmp_path, session) == ["a.log"]
    aside = await store.lrange(keys.STORAGE_METADATA_REFUSED(storage))
    assert aside == ["\udcff\udcfe", *poison, "x" * intake.LONGEST_REFUSED]
    assert await store.hgetall(keys.STORAGE_REFUSED_TOTAL()) == {storage: "6"}


async def test_poison_without_end_is_counted_and_only_the_last_is_kept(store: Store, tmp_path: Path) -> None:
    storage = keep_storage_id(tmp_path)
    poison = [f"poison {number}" for number in range(1000)]
    await store.rpush(keys.STORAGE_METADATA_PENDING(storage), *poison)

    async with running_storage(store, tmp_path):
        await eventually(lambda: is_settled(store, storage))

    assert await store.lrange(keys.STORAGE_METADATA_REFUSED(storage)) == poison[-intake.KEEP_REFUSED :]
    assert await store.hgetall(keys.STORAGE_REFUSED_TOTAL()) == {storage: "1000"}


async def test_news_is_kept_while_the_index_cannot_be_written(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remuda.storage.index.BUSY_TIMEOUT", 0.05)
    session, storage = fresh_session(), keep_storage_id(tmp_path)
    async with running_storage(store, tmp_path):
        with closing(sqlite3.connect(tmp_path / FILE, isolation_level=None)) as other:
            await eventually(lambda: _lock(other))
            write_file(tmp_path, session)
            await session_writer(store, storage, tmp_path).announce(session, "a.log")
            await eventually(lambda: store.llen(keys.STORAGE_METADATA_TAKEN(storage)))
            other.execute("ROLLBACK")

        await eventually(lambda: is_settled(store, storage))

    assert await names_of(tmp_path, session) == ["a.log"]


def _lock(connection: sqlite3.Connection) -> bool:
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError:
        return False
    return True
