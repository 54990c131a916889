"""Artifacts of owners other than sessions: each kind lives by its own rules, which its room knows."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from remuda.base import clock
from remuda.base.errors import Broken, InvalidArgument, Lost
from remuda.fleet.bell import bell_of
from remuda.fleet.ownership import Retention
from remuda.keyspace import grid, metrics
from remuda.keyspace import storage as keys
from remuda.storage.cleanup import ask_deletion
from remuda.storage.directory import LocalDirectory, keep_storage_id
from remuda.storage.index import FILE
from remuda.storage.model import Owner, StorageId, StorageLimits
from remuda.storage.owners import OwnerKinds
from remuda.storage.writer import ArtifactWriter
from remuda.store import Store
from storages import JobArtifacts, asking, fresh_session, indexed, running_storage, write_file
from waiting import eventually

DAY = 24 * 3600.0
MONTH = 30 * DAY
JOB = "3kx0uuq8yjy0dqn3bgp7rypu0"
OTHER_JOB = "9dqn3bgp7rypu03kx0uuq8yjy"


def job_writer(store: Store, jobs: JobArtifacts, directory: Path) -> ArtifactWriter:
    return ArtifactWriter(store, jobs, storage=keep_storage_id(directory), directory=directory)


async def is_used(store: Store, storage: StorageId, size: int) -> bool:
    return await store.hget(metrics.METRICS_STORAGE_USED(), storage) == str(size)


# What is kept, and for how long


async def test_a_job_outlives_the_time_for_which_sessions_are_kept(store: Store, tmp_path: Path) -> None:
    session, jobs = fresh_session(), JobArtifacts()
    write_file(tmp_path, session, age=2 * MONTH)
    write_file(tmp_path, f"job_{JOB}", "site.warc.gz", b"12345", age=24 * MONTH)

    async with running_storage(store, tmp_path, retention=MONTH, others=[jobs]) as storage:
        await eventually(lambda: not (tmp_path / session).exists())
        await eventually(lambda: is_used(store, storage.storage_id, 5))

    assert (tmp_path / f"job_{JOB}" / "site.warc.gz").exists()


async def test_a_job_goes_by_its_own_rule_once_it_is_over(store: Store, tmp_path: Path) -> None:
    jobs = JobArtifacts(Retention(seconds=6 * MONTH))
    jobs.running = {OTHER_JOB}
    storage_id = keep_storage_id(tmp_path)
    jobs.links = {JOB: storage_id, OTHER_JOB: storage_id}
    for job in (JOB, OTHER_JOB):
        write_file(tmp_path, f"job_{job}", age=7 * MONTH)

    async with running_storage(store, tmp_path, retention=MONTH, others=[jobs]):
        await eventually(lambda: not (tmp_path / f"job_{JOB}").exists())
        assert jobs.links == {OTHER_JOB: storage_id}
        assert (tmp_path / f"job_{OTHER_JOB}").exists()

        jobs.running.clear()

        await eventually(lambda: not (tmp_path / f"job_{OTHER_JOB}").exists())
    assert jobs.links == {}


async def test_an_active_job_stays_though_there_is_no_room(store: Store, tmp_path: Path) -> None:
    jobs, sessions = JobArtifacts(), [fresh_session() for _ in range(3)]
    jobs.running = {JOB}
    write_file(tmp_path, f"job_{JOB}", "site.warc.gz", b"x" * 100, age=2 * MONTH)
    write_file(tmp_path, f"job_{OTHER_JOB}", "site.warc.gz", b"x" * 100, age=2 * MONTH)
    for session in sessions:
        write_file(tmp_path, session, body=b"x" * 100)

    limits = StorageLimits(size=50, reserve=0)
    async with running_storage(store, tmp_path, limits, others=[jobs]) as storage:
        await eventually(lambda: is_used(store, storage.storage_id, 100))

    assert (tmp_path / f"job_{JOB}" / "site.warc.gz").exists()


async def test_sessions_make_room_before_jobs_do(store: Store, tmp_path: Path) -> None:
    session, jobs = fresh_session(), JobArtifacts(Retention(eviction_rank=1))
    write_file(tmp_path, session, body=b"x" * 100)
    write_file(tmp_path, f"job_{JOB}", body=b"x" * 100, age=2 * MONTH)

    limits = StorageLimits(size=150, low_water=1.0, reserve=0)
    async with running_storage(store, tmp_path, limits, others=[jobs]) as storage:
        await eventually(lambda: is_used(store, storage.storage_id, 100))

    assert not (tmp_path / session).exists()


async def test_a_deletion_waits_for_the_end_of_its_job(store: Store, tmp_path: Path) -> None:
    jobs = JobArtifacts()
    jobs.running = {JOB}
    async with running_storage(store, tmp_path, others=[jobs]) as storage:
        writer = job_writer(store, jobs, tmp_path)
        (await writer.open(JOB) / "site.warc.gz").write_bytes(b"x")
        write_file(tmp_path, f"job_{OTHER_JOB}")

        assert await ask_deletion(store, jobs, JOB) == storage.storage_id
        await ask_deletion(store, jobs, OTHER_JOB, storage=storage.storage_id)
        await eventually(lambda: not (tmp_path / f"job_{OTHER_JOB}").exists())
        assert (tmp_path / f"job_{JOB}").exists()

        jobs.running.clear()
        await store.publish(bell_of(keys.STORAGE_UNWANTED(storage.storage_id)))

        await eventually(lambda: not (tmp_path / f"job_{JOB}").exists())
    with pytest.raises(Lost, match=f"Job {JOB} has no artifacts"):
        await ask_deletion(store, jobs, JOB)


async def test_what_a_job_has_left_open_is_finished_after_each_of_its_runs(
    store: Store, tmp_path: Path
) -> None:
    jobs, directory = JobArtifacts(), tmp_path / f"job_{JOB}"
    jobs.running = {JOB}
    write_file(tmp_path, f"job_{JOB}", "1.warc.gz.open")
    write_file(tmp_path, f"job_{OTHER_JOB}", "1.warc.gz.open")

    async with running_storage(store, tmp_path, others=[jobs]):
        await eventually(lambda: (tmp_path / f"job_{OTHER_JOB}" / "1.warc.gz").exists())
        assert (directory / "1.warc.gz.open").exists()

        jobs.running = set()
        await eventually(lambda: (directory / "1.warc.gz").exists())
        jobs.running = {JOB}
        write_file(tmp_path, f"job_{JOB}", "2.warc.gz.open")
        await job_writer(store, jobs, tmp_path).announce(JOB, "2.warc.gz.open")
        await eventually(lambda: is_indexed(tmp_path, f"job_{JOB}", ["1.warc.gz", "2.warc.gz.open"]))
        jobs.running = set()

        await eventually(lambda: (directory / "2.warc.gz").exists())
        await eventually(lambda: is_indexed(tmp_path, f"job_{JOB}", ["1.warc.gz", "2.warc.gz"]))


class BrokenJobs(JobArtifacts):
    """A room that fails at the files of each job."""

    def finish(self, directory: Path) -> bool:
        raise ValueError(f"{directory} is not what was expected")


async def test_an_owner_that_cannot_be_finished_or_removed_holds_up_no_other(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, remove = fresh_session(), LocalDirectory.remove_owner
    write_file(tmp_path, session, age=2 * MONTH)
    write_file(tmp_path, f"job_{JOB}", age=3 * MONTH)

    def fail_for_jobs(directory: LocalDirectory, owner: Owner) -> None:
        if owner.kind == "job":
            raise PermissionError("not yours")
        remove(directory, owner)

    monkeypatch.setattr(LocalDirectory, "remove_owner", fail_for_jobs)
    month = Retention(seconds=MONTH)
    async with running_storage(store, tmp_path, retention=MONTH, others=[BrokenJobs(month)]) as storage:
        await eventually(lambda: not (tmp_path / session).exists())
        await eventually(lambda: is_used(store, storage.storage_id, 1))


async def is_indexed(directory: Path, owner: str, names: list[str]) -> bool:
    return [each.path.name for each in await indexed(directory, owner)] == names


# Writing and serving


async def test_a_job_writes_announces_and_is_served(store: Store, tmp_path: Path) -> None:
    jobs = JobArtifacts()
    jobs.running = {JOB}
    async with running_storage(store, tmp_path, others=[jobs]) as storage:
        writer = job_writer(store, jobs, tmp_path)
        path = await writer.open(JOB)
        (path / "site.warc.gz").write_bytes(b"12345")
        await writer.announce(JOB, "site.warc.gz")

        await eventually(lambda: is_indexed(tmp_path, f"job_{JOB}", ["site.warc.gz"]))
        assert (path, jobs.links) == (tmp_path / f"job_{JOB}", {JOB: storage.storage_id})
        async with asking(storage, f"job_{JOB}/") as answer:
            listed = await answer.json()
            assert (listed["job"], "session" in listed) == (JOB, False)
        async with asking(storage, listed["files"][0]["path"].split("/", 3)[3]) as answer:
            assert (answer.status, await answer.read()) == (200, b"12345")
            assert answer.headers["Content-Type"] == "application/warc"


async def test_a_job_that_is_gone_gets_no_artifacts(store: Store, tmp_path: Path) -> None:
    with pytest.raises(Lost, match=f"There is no job {JOB}"):
        await job_writer(store, JobArtifacts(), tmp_path).open(JOB)

    assert not (tmp_path / f"job_{JOB}").exists()


@pytest.mark.parametrize("owner_id", ["../outside", "..", "/etc", "", "a/b", "a_b", "a\0"])
async def test_an_id_that_is_none_becomes_neither_path_nor_member(
    store: Store, tmp_path: Path, owner_id: str
) -> None:
    jobs = JobArtifacts()
    jobs.running = {owner_id}
    writer = job_writer(store, jobs, tmp_path / "storage")

    with pytest.raises(InvalidArgument):
        await writer.open(owner_id)
    with pytest.raises(InvalidArgument):
        await writer.announce(owner_id, "a.log")
    with pytest.raises(InvalidArgument):
        await ask_deletion(store, jobs, owner_id, storage=StorageId("storage"))

    assert [path.name for path in tmp_path.iterdir()] == ["storage"]
    assert await store.send("DBSIZE") == 0


# Kinds that a storage does not know


async def test_what_belongs_to_an_unknown_kind_is_left_alone(store: Store, tmp_path: Path) -> None:
    session, storage_id = fresh_session(), keep_storage_id(tmp_path)
    write_file(tmp_path, session, age=2 * MONTH)
    write_file(tmp_path, "old_pictures", "private.jpg", age=2 * MONTH)
    stamp = clock.rfc3339()
    told = {"path": "old_pictures/private.jpg", "size": 1, "last_modified": stamp, "last_access": stamp}
    await store.rpush(keys.STORAGE_METADATA_PENDING(storage_id), json.dumps(told))
    await store.sadd(keys.STORAGE_UNWANTED(storage_id), "old_pictures")

    limits = StorageLimits(size=0, reserve=0)
    async with running_storage(store, tmp_path, limits, retention=DAY) as storage:
        await eventually(lambda: not (tmp_path / session).exists())
        await eventually(lambda: store.llen(keys.STORAGE_METADATA_REFUSED(storage_id)))
        for path in ("old_pictures/private.jpg", "old_pictures/"):
            async with asking(storage, path) as answer:
                assert answer.status == 404
        await eventually(lambda: is_used(store, storage_id, 0))

    assert (tmp_path / "old_pictures" / "private.jpg").exists()
    assert await store.smembers(keys.STORAGE_UNWANTED(storage_id)) == ["old_pictures"]


def test_two_rooms_cannot_have_the_same_kind() -> None:
    with pytest.raises(Broken, match="job"):
        OwnerKinds([JobArtifacts(), JobArtifacts()])


# What older versions have left


async def test_the_index_of_an_older_version_is_read_with_what_it_remembers(
    store: Store, tmp_path: Path
) -> None:
    storage_id, read, unread = keep_storage_id(tmp_path), fresh_session(), fresh_session()
    await store.set(grid.SESSION_STORAGE(unread), storage_id)
    with closing(sqlite3.connect(tmp_path / FILE, isolation_level=None)) as index:
        index.execute(
            "CREATE TABLE files (session TEXT NOT NULL, name TEXT NOT NULL, size INTEGER NOT NULL,"
            " modified REAL NOT NULL, accessed REAL NOT NULL, PRIMARY KEY (session, name)) WITHOUT ROWID"
        )
        for session, accessed in ((read, clock.now()), (unread, clock.now() - MONTH)):
            write_file(tmp_path, session, body=b"x" * 100, age=MONTH)
            row = (session, "a.log", 100, clock.now() - MONTH, accessed)
            index.execute("INSERT INTO files VALUES (?, ?, ?, ?, ?)", row)
        index.execute("PRAGMA user_version = 1")

    limits = StorageLimits(size=150, low_water=1.0, reserve=0)
    async with running_storage(store, tmp_path, limits, others=[JobArtifacts()]) as storage:
        await eventually(lambda: not (tmp_path / unread).exists())
        async with asking(storage, f"{read}/a.log") as answer:
            assert answer.status == 200

    assert not await store.exists(grid.SESSION_STORAGE(unread))
