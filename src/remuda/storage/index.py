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

from remuda.base.ids import SessionId
from remuda.base.log import get_logger
from remuda.storage.model import Artifact, Holding, Place

log = get_logger(__name__)

T = TypeVar("T")

FILE = ".remuda-index.sqlite3"
COMPLETE = 1
"""The `user_version` of an index that has seen every file; 0 is that of a new one."""
BUSY_TIMEOUT = 5.0

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
_FORGET_SESSION = "DELETE FROM files WHERE session = ?"
_TOUCH = "UPDATE files SET accessed = max(accessed, ?) WHERE session = ? AND name = ?"
_FILES = "SELECT name, size, modified, accessed FROM files WHERE session = ? ORDER BY name"
_HOLDINGS = "SELECT session, sum(size), max(modified), max(accessed) FROM files GROUP BY session"
# The sum of nothing is NULL, and an empty directory is nothing to fail at.
_USED = "SELECT coalesce(sum(size), 0) FROM files"


class Index:
    """The table of artifacts. Each change is committed before its call returns."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE
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

    def record(self, artifacts: Iterable[Artifact], *, gone: Iterable[Place] = ()) -> None:
        """Notes these artifacts as they are now, and forgets those that are gone."""
        with self._connection as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(_RECORD, map(_row, artifacts))
            connection.executemany(_FORGET, [(place.session, place.name) for place in gone])

    def replace_session(self, session: SessionId, artifacts: Iterable[Artifact]) -> None:
        """Notes that a session has these artifacts and no others."""
        kept = list(artifacts)
        names = {artifact.place.name for artifact in kept}
        gone = [each.place for each in self.files_of(session) if each.place.name not in names]
        self.record(kept, gone=gone)

    def forget_session(self, session: SessionId) -> None:
        self._connection.execute(_FORGET_SESSION, (session,))

    def touch(self, accesses: Mapping[Place, float]) -> None:
        """Notes when these artifacts were read last."""
        with self._connection as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(
                _TOUCH, [(moment, place.session, place.name) for place, moment in accesses.items()]
            )

    # Questions

    def files_of(self, session: SessionId) -> list[Artifact]:
        """The artifacts of a session in the order of their names."""
        rows = self._connection.execute(_FILES, (session,))
        return [Artifact(Place(session, name), *values) for name, *values in rows]

    def holdings(self) -> list[Holding]:
        """Every session with what is kept of it."""
        return [Holding(SessionId(session), *rest) for session, *rest in self._connection.execute(_HOLDINGS)]

    def used(self) -> int:
        """Bytes of all artifacts."""
        (used,) = self._connection.execute(_USED).fetchone()
        return int(used)


def _row(artifact: Artifact) -> tuple[str, str, int, float, float]:
    place = artifact.place
    return place.session, place.name, artifact.size, artifact.modified, artifact.accessed


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
