"""A data directory as one file: made while its Redis runs, and good for a new herd."""

import asyncio
import gzip
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import tarfile
import time
import tracemalloc
from contextlib import closing
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import psutil
import pytest

from configs import make_config
from disks import FLOOR, SIZE, disk
from herds import REMUDA
from remuda.archive.crawler.crawl import Crawl
from remuda.archive.crawler.model import EndReason
from remuda.base.errors import InvalidArgument, Misconfigured
from remuda.cli.backup import make_backup, restore_backup
from remuda.keyspace.fleet import LEASE
from remuda.storage.index import FILE as INDEX
from remuda.store import Store
from remuda.store.embedded import embedded_redis
from sites import (
    FAST,
    NETWORK,
    Heard,
    Request,
    Site,
    answer,
    check_warcs,
    crawl,
    order_for,
    responses_in,
    serving,
)
from waiting import eventually

KEY = LEASE("test")
DEADLINE = 60.0


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


def restore(file: Path, data: Path, **options: Any) -> None:
    restore_backup(make_config(data=data, **options), file)


def write_backup(file: Path, *members: tarfile.TarInfo, content: bytes = b"x") -> Path:
    """A file that may not be of `remuda backup`, with these in it."""
    with tarfile.open(file, "w:gz") as archive:
        for member in members:
            member.size = len(content) if member.isreg() else 0
            archive.addfile(member, BytesIO(content))
    return file


def member(name: str, kind: bytes = tarfile.REGTYPE, **fields: Any) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type = kind
    for field, value in fields.items():
        setattr(made, field, value)
    return made


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

    restore(file, restored)

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

    restore(file, restored)
    with closing(sqlite3.connect(restored / place)) as reader:
        assert reader.execute("SELECT url FROM urls").fetchall() == [("in the log",)]
    assert [path.name for path in (restored / place).parent.iterdir()] == ["frontier.sqlite3"]


def start_backup(data: Path, file: Path) -> subprocess.Popen[str]:
    """The command as a process of its own."""
    command = [*REMUDA, "backup", str(file), "--data", str(data)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


async def test_a_crawl_that_runs_is_copied_and_its_copy_completes_exactly(
    data: Path, short_path: Path
) -> None:
    site, is_copied, place = Site(), asyncio.Event(), Path("archive/job/crawl")
    (data / place).mkdir(parents=True)
    file, restored = short_path / "backup.tar.gz", short_path / "restored"

    async def send_late(request: Request, writer: asyncio.StreamWriter) -> None:
        await is_copied.wait()
        writer.write(answer("<a href='/after'>the crawl still runs"))

    async def send(request: Request, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.01)
        writer.write(answer(f"<p>{request.path}"))

    site.page("/", "/held", *(f"/{number}" for number in range(150)))
    site.add("/held", send_late)
    for name in ("after", *range(150)):
        site.add(f"/{name}", send)
    async with serving(site):
        heard = Heard()
        patient = replace(NETWORK, head_timeout=2 * DEADLINE)
        running = Crawl(order_for(site.url()), data / place, FAST, heard, network=patient)
        task = asyncio.create_task(running.run())
        await eventually(lambda: heard.counts and heard.counts[-1].finished > 10)
        with start_backup(data, file) as process:
            try:
                said, _ = await asyncio.to_thread(process.communicate, timeout=DEADLINE)
            finally:
                process.kill()
                is_copied.set()
        end = await task
        restore(file, restored)
        again = await crawl(order_for(site.url()), restored / place)

    assert process.returncode == 0, said
    assert end.reason is again.reason is EndReason.FINISHED
    pages = {site.url(f"/{name}") for name in ("", "held", "after", *range(150))}
    assert set(responses_in(data / place)) == set(responses_in(restored / place)) == pages
    check_warcs(restored / place)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("is_locked", [False, True], ids=["while it packs", "while it waits"])
async def test_an_interrupted_backup_ends_at_once_and_leaves_nothing(
    data: Path, short_path: Path, is_locked: bool, number: signal.Signals
) -> None:
    source = data / ("frontier.sqlite3" if is_locked else "long")
    source.touch()
    if is_locked:
        database = sqlite3.connect(source, isolation_level=None)
        database.execute("BEGIN EXCLUSIVE")
    else:  # Of holes, so that it takes minutes to pack and no room.
        os.truncate(source, 64 << 30)

    with start_backup(data, short_path / "backup.tar.gz") as process:
        running = psutil.Process(process.pid)
        await eventually(lambda: str(source) in [file.path for file in running.open_files()], DEADLINE)
        process.send_signal(number)
        said, _ = await asyncio.to_thread(process.communicate, timeout=DEADLINE)

    assert (process.returncode, said) == (-number, "")
    assert [path.name for path in short_path.iterdir()] == ["data"]
    if is_locked:
        database.close()


async def test_an_interrupted_restore_leaves_nothing(short_path: Path) -> None:
    whole = write_backup(short_path / "whole.tar.gz", member("file"), content=os.urandom(1 << 16))
    pipe, data = short_path / "backup.tar.gz", short_path / "restored"
    os.mkfifo(pipe)
    command = [*REMUDA, "restore", str(pipe), "--data", str(data)]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process, pipe.open("wb") as file:
        await asyncio.to_thread(file.write, whole.read_bytes()[:-100])
        await eventually((data / "file").exists, DEADLINE)

        def has_ended() -> bool:
            # Again: Python does not notice a signal that comes just before it reads from a pipe.
            process.send_signal(signal.SIGTERM)
            return process.poll() is not None

        await eventually(has_ended, DEADLINE)
        said = process.stderr.read() if process.stderr else None

    assert (process.returncode, said) == (-signal.SIGTERM, b"")
    assert not data.exists()


def test_a_database_that_stays_locked_is_named_and_nothing_is_left(
    data: Path, short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remuda.cli.backup.LOCKED_TIMEOUT", 0.0)
    with closing(sqlite3.connect(data / "frontier.sqlite3", isolation_level=None)) as owner:
        owner.execute("BEGIN EXCLUSIVE")

        with pytest.raises(InvalidArgument, match=r"frontier\.sqlite3 cannot be copied: database is locked"):
            back_up(data, short_path / "backup.tar.gz")

    assert [path.name for path in short_path.iterdir()] == ["data"]


def test_what_a_job_removes_or_cuts_off_meanwhile_does_not_end_a_backup(
    data: Path, short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, restored, job = short_path / "backup.tar.gz", short_path / "restored", data / "archive/job"
    (job / "crawl/state").mkdir(parents=True)
    warc = data / "resumed.warc.gz"
    warc.write_bytes(b"record" * 1000)
    take = tarfile.TarFile.gettarinfo

    def take_late(archive: tarfile.TarFile, path: Any, *args: Any, **options: Any) -> tarfile.TarInfo:
        found = take(archive, path, *args, **options)
        if path == job:
            shutil.rmtree(job)
        elif path == warc:
            os.truncate(warc, 600)
        return found

    monkeypatch.setattr(tarfile.TarFile, "gettarinfo", take_late)

    back_up(data, file)

    restore(file, restored)
    assert (restored / "resumed.warc.gz").read_bytes()[:600] == b"record" * 100
    assert (restored / "admin.token").read_text() == "rmd_secret"


def test_a_storage_behind_a_link_is_copied(data: Path, short_path: Path) -> None:
    file, restored = short_path / "backup.tar.gz", short_path / "restored"
    (data / "storage").rename(short_path / "disk")
    (data / "storage").symlink_to(short_path / "disk")

    back_up(data, file)

    restore(file, restored)
    assert (restored / "storage/session/video.mp4").read_bytes() == b"frames"


def test_artifacts_are_copied_whatever_their_names(data: Path, short_path: Path) -> None:
    file, restored = short_path / "backup.tar.gz", short_path / "restored"
    for name in ("page.sqlite3", "page.sqlite3-wal", "lock", "redis.log"):
        (data / "storage/session" / name).write_bytes(b"downloaded")

    back_up(data, file)

    restore(file, restored)
    names = {path.name for path in (restored / "storage/session").iterdir()}
    assert names == {"video.mp4", "page.sqlite3", "page.sqlite3-wal", "lock", "redis.log"}


def test_nothing_is_overwritten(data: Path, short_path: Path) -> None:
    file = short_path / "backup.tar.gz"
    back_up(data, file)
    before = file.read_bytes()

    with pytest.raises(InvalidArgument, match="File exists"):
        back_up(data, file)
    with pytest.raises(InvalidArgument, match="is not empty"):
        restore(file, data)

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
        restore(file, short_path / "restored")


def test_half_a_backup_leaves_nothing_behind(data: Path, short_path: Path) -> None:
    (data / "long").write_bytes(os.urandom(1 << 20))
    file, restored = short_path / "backup.tar.gz", short_path / "restored"
    back_up(data, file)
    os.truncate(file, file.stat().st_size - 1000)

    with pytest.raises(InvalidArgument, match="damaged"):
        restore(file, restored)

    assert not restored.exists() or not any(restored.iterdir())


@pytest.mark.parametrize(
    "members",
    [
        [member("../outside")],
        [member("a/../../outside")],
        [member("{above}/outside")],
        [member("link", tarfile.SYMTYPE, linkname="{above}"), member("link/outside")],
        [member("hard", tarfile.LNKTYPE, linkname="{above}/secret")],
        [member("pipe", tarfile.FIFOTYPE)],
        [member("disk", tarfile.CHRTYPE, devmajor=1, devminor=5)],
        [member("holes", pax_headers={"GNU.sparse.map": "0,1", "GNU.sparse.size": "1000000000000"})],
        [member("a"), member("a/b")],
        [member("a/b"), member("a")],
        [member("a"), member("a", tarfile.DIRTYPE)],
        [member("nul\0", pax_headers={"path": "nul\0"})],
    ],
    ids=lambda members: members[-1].name if len(members) == 1 else "+".join(each.name for each in members),
)
def test_what_is_no_backup_is_not_unpacked(members: list[tarfile.TarInfo], short_path: Path) -> None:
    (short_path / "secret").write_text("secret")
    for each in members:
        each.name, each.linkname = (text.format(above=short_path) for text in (each.name, each.linkname))
    file = write_backup(short_path / "hostile.tar.gz", *members)

    with pytest.raises(InvalidArgument, match="is not a backup of Remuda"):
        restore(file, short_path / "data")

    assert sorted(path.name for path in short_path.iterdir()) == ["hostile.tar.gz", "secret"]


def test_only_names_contents_and_past_times_of_a_backup_are_believed(short_path: Path) -> None:
    theirs: dict[str, Any] = {
        "mode": 0o6777,
        "uid": 57001,
        "gid": 57001,
        "uname": "daemon",
        "gname": "daemon",
    }
    file = write_backup(
        short_path / "backup.tar.gz",
        member(".", tarfile.DIRTYPE, **theirs),
        member("bin", tarfile.DIRTYPE, **theirs),
        member("bin/old", mtime=1000, **theirs),
        member("bin/future", mtime=1e11, **theirs),
        member("above/below", **theirs),
    )
    data = short_path / "data"
    data.mkdir(mode=0o777)
    data.chmod(0o2777)

    restore(file, data)

    found = {str(path.relative_to(data)): path.stat() for path in [data, *data.rglob("*")]}
    assert {(status.st_uid, status.st_gid) for status in found.values()} == {(os.geteuid(), os.getegid())}
    modes = {name: stat.S_IMODE(status.st_mode) for name, status in found.items()}
    assert modes == {
        **dict.fromkeys((".", "bin", "above"), 0o700),
        **dict.fromkeys(("bin/old", "bin/future", "above/below"), 0o600),
    }
    assert found["bin/old"].st_mtime == 1000
    assert found["bin/future"].st_mtime <= time.time()


def test_the_last_of_several_files_of_one_name_counts(short_path: Path) -> None:
    # As in a backup of a herd whose storage was moved out of its data directory.
    file = short_path / "backup.tar.gz"
    with tarfile.open(file, "w:gz") as archive:
        for content in (b"longer", b"last"):
            made = member("storage/file")
            made.size = len(content)
            archive.addfile(made, BytesIO(content))

    restore(file, short_path / "data")

    assert (short_path / "data/storage/file").read_bytes() == b"last"


def test_a_backup_takes_no_more_than_the_disk_has_free_beside_its_reserve(short_path: Path) -> None:
    file = write_backup(short_path / "backup.tar.gz", member("file"))

    with pytest.raises(InvalidArgument, match=r"cannot be restored: low disk space: .*min_free_megabytes"):
        restore(file, short_path / "data", min_free_megabytes=10**9)

    assert not (short_path / "data").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a disk")
def test_a_backup_that_becomes_too_large_leaves_nothing_behind(short_path: Path) -> None:
    file = write_backup(short_path / "bomb.tar.gz", member("zeros"), content=bytes(SIZE))

    with disk() as place:
        with pytest.raises(InvalidArgument, match="low disk space"):
            restore(file, place / "data", min_free_megabytes=FLOOR)

        assert list(place.iterdir()) == []


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_long_description_of_a_file_is_not_read_into_memory(kind: bytes, short_path: Path) -> None:
    file, size = short_path / "bomb.tar.gz", 32 << 20
    header = member("long", kind)
    header.size = size
    with gzip.open(file, "wb", compresslevel=1) as packed:
        packed.write(header.tobuf(tarfile.USTAR_FORMAT) + bytes(size) + member("file").tobuf())
    tracemalloc.start()

    with pytest.raises(InvalidArgument, match="is not a backup of Remuda"):
        restore(file, short_path / "data")

    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < size / 4


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a directory of another user")
def test_nothing_is_restored_to_a_directory_of_another_user(short_path: Path) -> None:
    file, data = write_backup(short_path / "backup.tar.gz", member("file")), short_path / "data"
    data.mkdir()
    os.chown(data, 57001, 57001)

    with pytest.raises(InvalidArgument, match="belongs to another user"):
        restore(file, data)

    assert list(data.iterdir()) == []
