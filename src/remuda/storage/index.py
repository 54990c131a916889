"""The storage's memory of its artifacts: a SQLite file beside them, which can always be rebuilt from them.

`Index` blocks and has no lock: `Librarian` lets one thread at a time near it, always the same, together with
the look at the files that an entry is made from. So what is looked up first is also written first.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from remuda.base.log import get_logger
from remuda.storage.model import Artifact, ArtifactPath, Holding, Owner

log = get_logger(__name__)

T = TypeVar("T")

FILE = ".remuda-index.sqlite3"
COMPLETE = 1
"""The `user_version` of an index that has seen every file; 0 is that of a new one."""
BUSY_TIMEOUT = 5.0

# `session` holds the text of any owner. Its name is of a time when only sessions had artifacts: an index of
# then is read as it is, and an older version that comes back can read this one.
_SCHEMA = """
CREATE TABLE IF NOT EXISTS files (
  session TEXT NOT NULL,
  name TEXT NOT NULL,
  size INTEGER NOT NULL,
  modified REAL NOT NULL,
  accessed REAL NOT NULL,
  PRIMARY KEY (session, name)
) WITHOUT ROWID
"""
_RECORD = """
INSERT INTO files VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE
SET size = excluded.size, modified = excluded.modified, accessed = max(accessed, excluded.accessed)
"""
_FORGET = "DELETE FROM files WHERE session = ? AND name = ?"
_FORGET_OWNER = "DELETE FROM files WHERE session = ?"
_TOUCH = "UPDATE files SET accessed = max(accessed, ?) WHERE session = ? AND name = ?"
_FILES = "SELECT name, size, modified, accessed FROM files WHERE session = ? ORDER BY name"
_HOLDINGS = "SELECT session, sum(size), max(modified), max(accessed) FROM files GROUP BY session"
_TOTALS = "SELECT session, sum(size), count(*) FROM files GROUP BY session"
_TOTAL = "SELECT coalesce(sum(size), 0), count(*) FROM files WHERE session = ?"
# The sum of nothing is NULL, and an empty directory is nothing to fail at.
_USED = "SELECT coalesce(sum(size), 0) FROM files"


class Index:
    """The table of artifacts. Each change is committed before its call returns."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE
        self._changed: set[str] = set()
        """Owners whose files have changed since the last `take_changes`."""
        try:
            self._connection = self._open()
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):  # Not corrupt: full, locked or not allowed.
                raise
            log.error("index is corrupt", path=str(self._path), reason=str(error))
            self._remove()
            self._connection = self._open()

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path, timeout=BUSY_TIMEOUT, isolation_level=None, check_same_thread=False
        )
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            # Enough in WAL mode: a power cut may take the last commits, and the next scan finds their files.
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(_SCHEMA)
            (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if verdict != "ok":
                raise sqlite3.DatabaseError(verdict)
        except BaseException:
            connection.close()
            raise
        return connection

    def _remove(self) -> None:
        for suffix in ("", "-wal", "-shm"):
            self._path.with_name(FILE + suffix).unlink(missing_ok=True)

    def start_anew(self) -> None:
        """An empty index in place of one that has turned out to be corrupt."""
        self.close()
        self._remove()
        self._connection = self._open()

    def close(self) -> None:
        self._connection.close()

    @property
    def is_complete(self) -> bool:
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        return bool(version == COMPLETE)

    def declare_complete(self) -> None:
        """Every file has been seen: from now on news is enough."""
        self._connection.execute(f"PRAGMA user_version = {COMPLETE}")

    # Changes

    def record(self, artifacts: Iterable[Artifact], *, gone: Iterable[ArtifactPath] = ()) -> None:
        """Notes these artifacts as they are now, and forgets those that are gone."""
        artifacts, gone = list(artifacts), list(gone)
        self._changed.update(str(each.path.owner) for each in artifacts)
        self._changed.update(str(path.owner) for path in gone)
        with self._connection as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(
                _RECORD,
                [
                    (str(each.path.owner), each.path.name, each.size, each.modified, each.accessed)
                    for each in artifacts
                ],
            )
            connection.executemany(_FORGET, [(str(path.owner), path.name) for path in gone])

    def replace_owner(self, owner: Owner, artifacts: Iterable[Artifact]) -> None:
        """Notes that an owner has these artifacts and no others."""
        kept = list(artifacts)
        names = {artifact.path.name for artifact in kept}
        gone = [each.path for each in self.files_of(owner) if each.path.name not in names]
        self.record(kept, gone=gone)

    def forget_owner(self, owner: Owner) -> None:
        self._changed.add(str(owner))
        self._connection.execute(_FORGET_OWNER, (str(owner),))

    def touch(self, accesses: Mapping[ArtifactPath, float]) -> None:
        """Notes when these artifacts were read last."""
        with self._connection as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(
                _TOUCH, [(moment, str(path.owner), path.name) for path, moment in accesses.items()]
            )

    # Questions

    def files_of(self, owner: Owner) -> list[Artifact]:
        """The artifacts of an owner in the order of their names."""
        rows = self._connection.execute(_FILES, (str(owner),))
        return [Artifact(ArtifactPath(owner, name), *values) for name, *values in rows]

    def holdings(self) -> list[Holding]:
        """Every owner with what is kept of it."""
        return [Holding(Owner.parse(owner), *rest) for owner, *rest in self._connection.execute(_HOLDINGS)]

    def totals(self) -> dict[str, tuple[int, int]]:
        """Bytes and number of the artifacts of each owner, by its text."""
        return {owner: (size, count) for owner, size, count in self._connection.execute(_TOTALS)}

    def take_changes(self) -> dict[str, tuple[int, int]]:
        """The same of those whose files have changed since the last time."""
        changed, self._changed = self._changed, set()
        return {owner: self._connection.execute(_TOTAL, (owner,)).fetchone() for owner in changed}

    def used(self) -> int:
        """Bytes of all artifacts."""
        (used,) = self._connection.execute(_USED).fetchone()
        return int(used)


class Librarian:
    """The one thread that works with the index: `await librarian.ask(lambda index: index.used())`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="storage index")
        self._index: Index | None = None

    async def start(self) -> None:
        await self._run(self._open)

    async def ask(self, question: Callable[[Index], T]) -> T:
        """What the question finds. An index that turns out to be corrupt is begun anew, and asked again."""
        return await self._run(lambda: self._answer(question))

    async def stop(self) -> None:
        with suppress(RuntimeError):  # Stopped already.
            await self._run(self._close)
        self._thread.shutdown(wait=False)

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _open(self) -> Index:
        if self._index is None:
            self._index = Index(self._directory)
        return self._index

    def _close(self) -> None:
        if self._index is not None:
            self._index.close()
            self._index = None

    def _answer(self, question: Callable[[Index], T]) -> T:
        index = self._open()
        try:
            return question(index)
        except sqlite3.DatabaseError as error:
            if type(error) is not sqlite3.DatabaseError:
                raise
            log.error("index is corrupt", path=str(self._directory), reason=str(error))
            index.start_anew()
            return question(index)
