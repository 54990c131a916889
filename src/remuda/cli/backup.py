"""`remuda backup` and `remuda restore`: a data directory as one file, also while its herd runs.

The state in Redis is a snapshot of one moment, made by Redis itself. Artifacts are copied after it, so the
snapshot names nothing that was not there yet; what came later has no owner in it, and is removed as such. The
index of artifacts is left out: a storage rebuilds it from the files. Of a crawl that runs, its database is
copied before its WARC files: what these have more is cut off when the crawl is resumed. Jobs begin and end
meanwhile: what they remove is left out, and of what they cut off there is the rest.
"""

import asyncio
import gzip
import os
import signal
import sqlite3
import tarfile
import tempfile
import time
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path, PurePosixPath
from types import FrameType
from typing import BinaryIO
from urllib.parse import quote

from remuda.base.config import Config, HerdConfig
from remuda.base.directories import entered, remove_tree
from remuda.base.disk import find_lack
from remuda.base.errors import InvalidArgument, Misconfigured, StoreUnavailable, reason_of
from remuda.store import Store
from remuda.store.embedded import SOCKET, url_of

SAVE_TIMEOUT = 600.0
LOCKED_TIMEOUT = 5.0
"""For a database that another process locks, as for a moment while a crawl begins or ends."""
LOOK_EVERY = 0.1
SNAPSHOT = "dump.rdb"
# Names that Redis 7 and Valkey give a log that begins with a snapshot.
LOG = "appendonlydir"
BASE = "appendonly.aof.1.base.rdb"
MANIFEST = "appendonly.aof.manifest"
DATABASE = ".sqlite3"
# Of a storage, which makes it anew. Named here because the command line knows no room.
INDEX = ".remuda-index.sqlite3"
LONGEST_HEADER = 16 << 10
"""Bytes of an archive before a file's content: its name, which has up to 4,096, and some numbers."""
_PIECE = 1 << 20
_PAGES = 256
"""Of a database, between two looks for a signal: a megabyte."""
# Of a frontier 1 makes 4 % more than 9, in a quarter of the time. Most artifacts are compressed already.
_LEVEL = 1
_LEFT_OUT = {SOCKET, "redis.lock", "redis.log", "lock"}


def make_backup(config: Config, file: Path) -> None:
    """Writes the data directory to a file that does not exist yet, and says what is in it."""
    herd = config[HerdConfig]
    data, named = herd.data, str(config.value("storage"))
    storage = Path(named) if named else data / "storage"
    if not data.is_dir():
        raise Misconfigured(f"There is no data directory {data}; name it with --data DIR")
    try:
        if file.exists():
            raise FileExistsError(17, "File exists")
        # Half a backup must not look whole.
        with tempfile.TemporaryDirectory(dir=file.parent, prefix=f"{file.name}.") as directory:
            unfinished = Path(directory, "unfinished")
            with _create(unfinished) as target:
                # A file with two names is two files.
                with tarfile.open(
                    fileobj=target, mode="w:gz", compresslevel=_LEVEL, dereference=True
                ) as archive:
                    is_running = not herd.redis and asyncio.run(_save(data / "redis"))
                    databases = _copy_databases(data, storage, Path(directory))
                    for path, name in _files(data, storage, is_running=is_running):
                        with suppress(FileNotFoundError):  # Removed meanwhile.
                            _add(archive, databases.get(path, path), name)
                target.flush()
                os.fsync(target.fileno())
            unfinished.rename(file)
    except OSError as error:
        raise InvalidArgument(f"{file} cannot be written: {reason_of(error)}") from error
    elsewhere = " without Redis, which this herd does not run itself: back that up too" if herd.redis else ""
    print(f"{file}: {file.stat().st_size / 1e6:.1f} MB{elsewhere}")


async def _save(directory: Path) -> bool:
    """Has a running Redis write its snapshot; False if none runs there."""
    url = url_of(directory)
    if not url:
        return False
    try:
        store = await Store(url, name="backup").__aenter__()
    except StoreUnavailable:
        return False
    try:
        async with asyncio.timeout(SAVE_TIMEOUT):
            before, _ = await _wait_for_saves(store, 0)
            # Where its log is being rewritten, it waits for the end of that.
            await store.send("BGSAVE", "SCHEDULE")
            _, verdict = await _wait_for_saves(store, before + 1)
    except TimeoutError:
        raise StoreUnavailable(f"Redis wrote no snapshot within {SAVE_TIMEOUT:g} s; see its log") from None
    else:
        if verdict != "ok":
            raise StoreUnavailable("Redis could not write its snapshot; see its log")
    finally:
        await store.__aexit__(None, None, None)
    return True


async def _wait_for_saves(store: Store, count: int) -> tuple[int, str]:
    """Waits until so many snapshots were begun and none is being written; how many, and how the last went."""
    while True:
        about = str(await store.send("INFO", "persistence"))
        fields = dict(line.split(":", 1) for line in about.splitlines() if ":" in line)
        begun = int(fields["rdb_saves"])
        if begun >= count and fields["rdb_bgsave_in_progress"] == "0":
            return begun, fields["rdb_last_bgsave_status"]
        await asyncio.sleep(LOOK_EVERY)


def _copy_databases(data: Path, storage: Path, directory: Path) -> dict[Path, Path]:
    """Copies of the herd's own SQLite databases, each as of one moment."""
    copies: dict[Path, Path] = {}
    for path in _walk(data):
        if path.name.endswith(DATABASE) and not path.is_relative_to(storage):
            copy = directory / f"{len(copies)}{DATABASE}"
            try:
                _copy_database(path, copy)
            except sqlite3.Error as error:
                if path.exists():
                    raise InvalidArgument(f"{path} cannot be copied: {error}") from error
            else:
                copies[path] = copy
    return copies


def _copy_database(path: Path, copy: Path) -> None:
    with (
        closing(
            sqlite3.connect(f"file:{quote(str(path))}?mode=rw", uri=True, timeout=0, isolation_level=None)
        ) as source,
        closing(sqlite3.connect(copy, isolation_level=None)) as target,
    ):
        # In one transaction, or SQLite would begin anew whenever the owner writes.
        source.execute("BEGIN")
        until = time.monotonic() + LOCKED_TIMEOUT
        while True:
            try:
                source.execute("PRAGMA schema_version").fetchall()
                break
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                    raise
            # Not SQLite's own wait, nor a copy in one piece: no signal would end these.
            time.sleep(LOOK_EVERY)
        target.execute("PRAGMA journal_mode = OFF")
        target.execute("PRAGMA synchronous = OFF")
        source.backup(target, pages=_PAGES, progress=lambda *_: None)


def _files(data: Path, storage: Path, *, is_running: bool) -> Iterator[tuple[Path, str]]:
    """What is kept, and its name in the backup."""
    # Of a Redis that runs, the snapshot; of one that does not, its log, which is newer than any snapshot.
    redis = data / "redis"
    kept = redis / (SNAPSHOT if is_running else LOG)
    is_apart = storage.is_symlink() or not storage.is_relative_to(data)
    for path in [*_walk(data), *(_walk(storage) if is_apart else [])]:
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            continue
        if path.is_relative_to(storage):
            if not path.name.startswith(INDEX):
                yield path, str("storage" / path.relative_to(storage))
        # With the log of a database, which its copy has taken in.
        elif path.name in _LEFT_OUT or f"{DATABASE}-" in path.name:
            continue
        elif path == redis or path.is_relative_to(kept) or not path.is_relative_to(redis):
            yield path, str(path.relative_to(data))


def _walk(top: Path) -> Iterator[Path]:
    """All that is below a directory. Unlike `rglob`, it may be removed meanwhile."""
    for directory, directories, files in os.walk(top):
        for name in (*directories, *files):
            yield Path(directory, name)


def _add(archive: tarfile.TarFile, path: Path, name: str) -> None:
    member = archive.gettarinfo(path, name)
    if member.isreg():
        with path.open("rb") as content:
            archive.addfile(member, _Padded(content))  # type: ignore[arg-type]
    else:
        archive.addfile(member)


class _Padded:
    """A file, with zeros where it gets shorter meanwhile. Files of a crawl do when it is resumed: what they
    lose is beyond its marks."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def read(self, size: int) -> bytes:
        return self._file.read(size).ljust(size, b"\0")


class _Interrupted(KeyboardInterrupt):
    """A signal has come."""


@contextmanager
def tidying() -> Iterator[None]:
    """What a signal interrupts removes what it has left unfinished. Then the process dies of that signal, as
    its caller expects."""
    came: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def interrupt(number: int, _: FrameType | None) -> None:
        if not came:  # The next one must not interrupt the removal.
            came.append(number)
            raise _Interrupted

    # Those that the caller ignores stay so, as with `nohup`.
    before = {
        each: signal.signal(each, interrupt)
        for each in numbers
        if signal.getsignal(each) is not signal.SIG_IGN
    }
    try:
        yield
    except _Interrupted:
        signal.signal(came[0], signal.SIG_DFL)
        signal.raise_signal(came[0])
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


# A backup may have come from anywhere, and whoever restores it may be root. Of what is in it, only names,
# contents and past times are believed.


class _Archive(gzip.GzipFile):
    """A packed archive. `tarfile` reads what is before a file, such as its name, whole, however long it says
    that it is."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(fileobj=file, mode="rb")
        self.allowance = LONGEST_HEADER
        """Bytes that may be read now."""

    def read(self, size: int | None = -1) -> bytes:
        if size is None or not 0 <= size <= self.allowance:
            raise tarfile.ReadError(f"{size} bytes cannot be the description of a file")
        self.allowance -= size
        return super().read(size)


class _Unfit(Exception):
    """Why an archive is not unpacked, as the rest of a sentence about it."""


def restore_backup(config: Config, file: Path) -> None:
    """Makes a data directory of a backup, for a herd to be started with. It must not be there yet."""
    herd = config[HerdConfig]
    try:
        with file.open("rb") as packed:
            data = _make_data_directory(herd.data)
            try:
                _unpack(_Archive(packed), data, reserve=herd.min_free_megabytes)
                _begin_log(data / "redis")
            except BaseException:  # Half of a data directory must not look whole.
                with suppress(OSError):
                    remove_tree(data)
                raise
    except _Unfit as error:
        raise InvalidArgument(f"{file} {error}") from error
    except (tarfile.TarError, gzip.BadGzipFile, ValueError) as error:
        raise InvalidArgument(f"{file} is not a backup of Remuda, or is damaged") from error
    except (OSError, EOFError, zlib.error) as error:
        reason = reason_of(error) if isinstance(error, OSError) else "it is damaged"
        raise InvalidArgument(f"{file} cannot be restored: {reason}") from error
    print(f"{herd.data} restored; start it with `remuda up --data {herd.data}`")


def _make_data_directory(path: Path) -> Path:
    """An empty directory that no other user can write to; InvalidArgument if there is another one."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    with entered(path.resolve()) as descriptor:
        if os.fstat(descriptor).st_uid != os.geteuid():
            raise InvalidArgument(f"{path} belongs to another user: restore to it as that user")
        is_empty = _is_empty(descriptor)
        if is_empty:
            os.fchmod(descriptor, 0o700)
            # Once more, now that no other can put a link in there.
            is_empty = _is_empty(descriptor)
        if not is_empty:
            raise InvalidArgument(f"{path} is not empty: restore to a new directory")
    return path.resolve()


def _is_empty(directory: int) -> bool:
    with os.scandir(directory) as entries:
        return next(entries, None) is None


def _unpack(source: _Archive, data: Path, *, reserve: int) -> None:
    """Unpacks an archive into an empty directory, as long as so many megabytes stay free there."""
    with tarfile.open(fileobj=source, mode="r:") as archive:
        while (member := archive.next()) is not None:
            archive.members.clear()  # type: ignore[attr-defined]  # It would keep them all.
            name = PurePosixPath(member.name)
            wrong = f"is not a backup of Remuda: it contains {member.name[:100]!r}"
            is_plain = member.isdir() or (member.isreg() and not member.issparse() and member.size >= 0)
            if not is_plain or archive.pax_headers or name.is_absolute() or ".." in name.parts:
                raise _Unfit(wrong)
            try:
                _make_directories(data, name if member.isdir() else name.parent)
                _check_room(data, reserve)
                if not member.isdir():
                    source.allowance = member.size
                    content = archive.extractfile(member)
                    assert content is not None
                    with _create(data / name) as file:
                        while piece := content.read(_PIECE):
                            _check_room(data, reserve)
                            file.write(piece)
                    # Artifacts leave by their age.
                    if 0 <= member.mtime <= time.time():
                        os.utime(data / name, (member.mtime, member.mtime))
            except (FileExistsError, IsADirectoryError, NotADirectoryError) as error:
                raise _Unfit(f"{wrong} as a file and as a directory") from error
            source.allowance = LONGEST_HEADER


def _make_directories(data: Path, name: PurePosixPath) -> None:
    for parent in (*reversed(name.parents), name):
        (data / parent).mkdir(mode=0o700, exist_ok=True)


def _create(path: Path) -> BinaryIO:
    return open(path, "wb", opener=partial(os.open, mode=0o600))


def _check_room(data: Path, reserve: int) -> None:
    if (lack := find_lack([data], megabytes=reserve)) is not None:
        raise _Unfit(f"cannot be restored: {lack}")


def _begin_log(redis: Path) -> None:
    """A Redis that keeps a log reads nothing else, so a snapshot becomes the beginning of one."""
    if (redis / SNAPSHOT).exists():
        log = redis / LOG
        log.mkdir(mode=0o700)
        (redis / SNAPSHOT).rename(log / BASE)
        with _create(log / MANIFEST) as file:
            file.write(f"file {BASE} seq 1 type b\n".encode())
