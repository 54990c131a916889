"""A storage within its limits: what is scanned, evicted, deleted, measured, and what a full disk does."""

from contextlib import closing
from pathlib import Path

import pytest

from grids import new_session
from remuda.base.errors import Lost, Misconfigured
from remuda.base.ids import SessionId, new_id
from remuda.fleet.role import Life
from remuda.grid.artifacts import SessionArtifacts
from remuda.grid.model import State
from remuda.grid.sessions import Sessions
from remuda.keyspace import grid, metrics
from remuda.keyspace import storage as keys
from remuda.keyspace.fleet import SECRET
from remuda.storage.cleanup import ask_deletion
from remuda.storage.directory import keep_storage_id
from remuda.storage.index import FILE, Index
from remuda.storage.model import StorageId, StorageLimits
from remuda.storage.role import Storage
from remuda.store import Store
from storages import asking, fresh_session, indexed, running_storage, session_writer, write_file
from waiting import eventually

OLD = 60.0
"""Seconds for which sessions are kept: what was written a while ago goes."""


async def used(store: Store, storage: StorageId) -> int | None:
    value = await store.hget(metrics.METRICS_STORAGE_USED(), storage)
    return None if value is None else int(value)


async def is_measured(store: Store, storage: StorageId) -> bool:
    return await used(store, storage) is not None


async def test_an_empty_directory_is_fine(store: Store, tmp_path: Path) -> None:
    async with running_storage(store, tmp_path, StorageLimits(size=1000), retention=1.0) as storage:
        assert await store.hgetall(metrics.METRICS_STORAGE_USED()) == {storage.storage_id: "0"}
        assert await store.hgetall(metrics.METRICS_STORAGE_TOTAL()) == {storage.storage_id: "1000"}


async def test_files_that_nobody_announced_are_found_by_the_first_scan(store: Store, tmp_path: Path) -> None:
    sessions = [fresh_session() for _ in range(120)]
    for session in sessions:
        write_file(tmp_path, session, body=b"12345")

    async with running_storage(store, tmp_path) as storage:
        assert await used(store, storage.storage_id) == 600


@pytest.mark.parametrize("damage", ["missing", "corrupt"])
async def test_a_lost_index_is_rebuilt(store: Store, tmp_path: Path, damage: str) -> None:
    session = fresh_session()
    write_file(tmp_path, session)
    async with running_storage(store, tmp_path):
        assert await indexed(tmp_path, session)
    if damage == "missing":
        (tmp_path / FILE).unlink()
    else:
        (tmp_path / FILE).write_bytes(b"rubbish" * 1000)

    async with running_storage(store, tmp_path):
        assert await indexed(tmp_path, session)


async def test_a_rebuild_that_was_interrupted_is_begun_again(store: Store, tmp_path: Path) -> None:
    keep_storage_id(tmp_path)
    with closing(Index(tmp_path)) as index:
        assert not index.is_complete
    session = fresh_session()
    write_file(tmp_path, session)

    async with running_storage(store, tmp_path):
        assert await indexed(tmp_path, session)


async def test_old_sessions_go_whole_and_nobody_links_to_them(store: Store, tmp_path: Path) -> None:
    session = fresh_session()
    for name in ("video.m3u8", "video.m4s"):
        write_file(tmp_path, session, name)
    storage = keep_storage_id(tmp_path)
    await store.set(grid.SESSION_STORAGE(session), storage)

    async with running_storage(store, tmp_path, retention=OLD):
        await eventually(lambda: not (tmp_path / session).exists())
        await eventually(lambda: is_unknown(tmp_path, session))

    assert not await store.exists(grid.SESSION_STORAGE(session))


async def is_unknown(directory: Path, session: SessionId) -> bool:
    return await indexed(directory, session) == []


async def test_a_link_to_another_storage_stays(store: Store, tmp_path: Path) -> None:
    session, other = fresh_session(), new_id()
    write_file(tmp_path, session)
    await store.set(grid.SESSION_STORAGE(session), other)

    async with running_storage(store, tmp_path, retention=OLD):
        await eventually(lambda: not (tmp_path / session).exists())

    assert await store.get(grid.SESSION_STORAGE(session)) == other


async def test_active_sessions_and_fresh_files_stay(store: Store, tmp_path: Path) -> None:
    active, fresh, idle = fresh_session(), fresh_session(), fresh_session()
    for session in (active, fresh, idle):
        write_file(tmp_path, session)
    (tmp_path / fresh / "a.log").write_bytes(b"written just now")
    await store.sadd(grid.SESSIONS_ACTIVE(), active)

    async with running_storage(store, tmp_path, retention=OLD):
        await eventually(lambda: not (tmp_path / idle).exists())

        assert (tmp_path / active / "a.log").exists()
        assert (tmp_path / fresh / "a.log").exists()


async def test_over_the_limit_what_was_read_last_stays(store: Store, tmp_path: Path) -> None:
    sessions = [fresh_session() for _ in range(10)]
    for session in sessions:
        write_file(tmp_path, session, body=b"x" * 100)
    async with running_storage(store, tmp_path) as storage, asking(storage, f"{sessions[4]}/a.log") as answer:
        assert answer.status == 200

    async with running_storage(store, tmp_path, StorageLimits(size=500, low_water=0.8, reserve=0)) as storage:
        await eventually(lambda: len([each for each in sessions if (tmp_path / each).exists()]) <= 4)
        await eventually(lambda: is_used(store, storage.storage_id, 400))

    assert (tmp_path / sessions[4]).exists()


async def is_used(store: Store, storage: StorageId, size: int) -> bool:
    return await used(store, storage) == size


async def test_more_than_one_run_can_evict_goes_with_the_next(store: Store, tmp_path: Path) -> None:
    for _ in range(7):
        write_file(tmp_path, fresh_session())

    async with running_storage(
        store, tmp_path, StorageLimits(reserve=0, at_once=2), retention=OLD
    ) as storage:
        await eventually(lambda: is_used(store, storage.storage_id, 0))


async def test_a_deletion_is_done_by_the_storage_that_holds_the_artifacts(
    store: Store, tmp_path: Path
) -> None:
    session = await new_session(store)
    async with running_storage(store, tmp_path) as storage:
        writer = session_writer(store, storage.storage_id, tmp_path)
        (await writer.open(session) / "a.log").write_bytes(b"x")
        await writer.announce(session, "a.log")
        await eventually(lambda: indexed(tmp_path, session))
        await Sessions(store).move(session, State.TERMINATED, code="CLOSED")

        assert await ask_deletion(store, SessionArtifacts(store), session) == storage.storage_id

        assert not await store.exists(grid.SESSION_STORAGE(session))
        await eventually(lambda: is_unknown(tmp_path, session))
        assert not (tmp_path / session).exists()
        await eventually(lambda: is_heeded(store, storage.storage_id))


async def is_heeded(store: Store, storage: StorageId) -> bool:
    return not await store.exists(keys.STORAGE_UNWANTED(storage))


async def test_a_deletion_waits_for_a_storage_that_is_away(store: Store, tmp_path: Path) -> None:
    session, storage = fresh_session(), keep_storage_id(tmp_path)
    write_file(tmp_path, session)

    await ask_deletion(store, SessionArtifacts(store), session, storage=storage)

    async with running_storage(store, tmp_path):
        await eventually(lambda: is_heeded(store, storage))
    assert not (tmp_path / session).exists()


async def test_a_deletion_waits_for_the_end_of_its_session(store: Store, tmp_path: Path) -> None:
    active, ended, storage = fresh_session(), fresh_session(), keep_storage_id(tmp_path)
    for session in (active, ended):
        write_file(tmp_path, session)
    await store.sadd(grid.SESSIONS_ACTIVE(), active)

    async with running_storage(store, tmp_path):
        for session in (active, ended):
            await ask_deletion(store, SessionArtifacts(store), session, storage=storage)
        await eventually(lambda: not (tmp_path / ended).exists())
        assert (tmp_path / active).exists()

        await store.srem(grid.SESSIONS_ACTIVE(), active)
        await ask_deletion(store, SessionArtifacts(store), active, storage=storage)

        await eventually(lambda: not (tmp_path / active).exists())


async def test_there_is_nothing_to_delete_of_a_session_without_artifacts(store: Store) -> None:
    with pytest.raises(Lost):
        await ask_deletion(store, SessionArtifacts(store), fresh_session())


async def test_rubbish_among_the_deletions_is_dropped(store: Store, tmp_path: Path) -> None:
    storage = keep_storage_id(tmp_path)
    await store.sadd(keys.STORAGE_UNWANTED(storage), "../..", "")

    async with running_storage(store, tmp_path):
        await eventually(lambda: is_heeded(store, storage))


async def test_a_full_disk_makes_room_and_loses_no_news(store: Store, tmp_path: Path) -> None:
    # SQLite says the same of a database that may not grow as of a disk that is full.
    session, old = fresh_session(), fresh_session()
    write_file(tmp_path, old)
    async with running_storage(store, tmp_path, StorageLimits(reserve=1)) as storage:
        assert await indexed(tmp_path, old)
        await storage._librarian.ask(_forbid_growth)
        names = [f"{number:03}-{'x' * 200}" for number in range(300)]
        for name in names:
            write_file(tmp_path, session, name)
        await store.sadd(grid.SESSIONS_ACTIVE(), session)

        await session_writer(store, storage.storage_id, tmp_path).announce(session, *names)

        await eventually(lambda: not (tmp_path / old).exists())
        await storage._librarian.ask(_allow_growth)
        await eventually(lambda: is_known(tmp_path, session, names))


def _forbid_growth(index: Index) -> None:
    index._connection.execute("PRAGMA max_page_count = 1")


def _allow_growth(index: Index) -> None:
    index._connection.execute("PRAGMA max_page_count = 1000000")


async def is_known(directory: Path, session: SessionId, names: list[str]) -> bool:
    return [artifact.path.name for artifact in await indexed(directory, session)] == names


async def test_only_one_storage_serves_a_directory(store: Store, tmp_path: Path) -> None:
    async with running_storage(store, tmp_path):
        with pytest.raises(Misconfigured, match="Another storage"):
            await Life(store, [Storage(store, tmp_path, kinds=[], limits=StorageLimits())]).run()


async def test_a_storage_that_stops_keeps_its_metrics(store: Store, tmp_path: Path) -> None:
    async with running_storage(store, tmp_path) as storage:
        pass

    assert await is_measured(store, storage.storage_id)


async def test_a_storage_whose_directory_is_gone_leaves_nothing_in_redis(
    store: Store, tmp_path: Path
) -> None:
    async with running_storage(store, tmp_path / "storage") as storage:
        await store.rpush(keys.STORAGE_METADATA_REFUSED(storage.storage_id), "x")

        (tmp_path / "storage").rename(tmp_path / "moved")

        await eventually(lambda: is_retired(store, storage.storage_id))

    assert await store.send("KEYS", "*") == [SECRET()]


async def is_retired(store: Store, storage: StorageId) -> bool:
    return not await is_measured(store, storage) and not await store.exists(
        keys.STORAGE_METADATA_REFUSED(storage)
    )


async def test_a_playlist_whose_writer_was_killed_is_ended(store: Store, tmp_path: Path) -> None:
    living, dead = await new_session(store), fresh_session()
    for session in (living, dead):
        write_file(tmp_path, session, "stream.m3u8", b"#EXTM3U\n#EXTINF:4.0,\nvideo.mp4\n")
    long_ago = (tmp_path / dead / "stream.m3u8").stat().st_mtime

    async with running_storage(store, tmp_path):
        await eventually(lambda: ends(tmp_path / dead / "stream.m3u8"))
        (known,) = await indexed(tmp_path, dead)

    ended = (tmp_path / dead / "stream.m3u8").stat()
    assert (ended.st_mtime, ended.st_size) == (long_ago, known.size)
    assert not ends(tmp_path / living / "stream.m3u8")


def ends(playlist: Path) -> bool:
    """Whether the playlist says that it is over."""
    return "#EXT-X-ENDLIST" in playlist.read_text()
