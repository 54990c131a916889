"""The local spool: where events wait on disk while Redis is away. What `append` was awaited for survives the
death of the process and of the machine.

A spool is a directory of segments, files of one event a line. The process that appends to a segment holds a
lock on it, which the kernel releases with the process. A segment without a lock is complete, and belongs to
whichever process locks it next: `metering/replay.py` counts its events and deletes it.
"""

import asyncio
import fcntl
import os
from collections.abc import Sequence
from pathlib import Path

from remuda.base import clock
from remuda.base.errors import StoreUnavailable
from remuda.base.ids import new_id

SUFFIX = ".jsonl"
SEGMENT_AGE = 1.0
"""Seconds after which a segment is left to be replayed, and a new one is begun."""


class Spool:
    """The segments that this process writes."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._file: int | None = None
        self._path = directory
        self._opened_at = 0.0
        self._lock = asyncio.Lock()

    async def append(self, lines: Sequence[bytes]) -> None:
        """Returns when the lines are on the disk; StoreUnavailable if they cannot be written."""
        async with self._lock:
            if self._file is not None and clock.monotonic() - self._opened_at >= SEGMENT_AGE:
                self._leave()
            try:
                await asyncio.to_thread(self._write, b"".join(line + b"\n" for line in lines))
            except OSError as error:
                # A half-written line at the end of a segment is skipped by the replay: its push fails here.
                self._leave()
                raise StoreUnavailable(f"Redis is away, and the spool cannot be written: {error}") from error
        asyncio.get_running_loop().call_later(SEGMENT_AGE, self._leave_if_old)

    def _write(self, content: bytes) -> None:
        is_new = self._file is None
        if self._file is None:
            self._file = self._open()
            self._opened_at = clock.monotonic()
        view = memoryview(content)
        while view:
            view = view[os.write(self._file, view) :]
        os.fsync(self._file)
        if is_new:
            sync_directory(self.directory)

    def _open(self) -> int:
        self.directory.mkdir(parents=True, exist_ok=True)
        while True:
            self._path = self.directory / f"{new_id()}{SUFFIX}"
            file = os.open(
                self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600
            )
            fcntl.flock(file, fcntl.LOCK_EX)
            if os.fstat(file).st_nlink:
                return file
            os.close(file)  # A replay took it for an empty one in the moment before the lock.

    def _leave_if_old(self) -> None:
        if not self._lock.locked() and clock.monotonic() - self._opened_at >= SEGMENT_AGE:
            self._leave()

    def _leave(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    async def close(self) -> None:
        """Leaves the last segment to the replay."""
        async with self._lock:
            self._leave()


def sync_directory(directory: Path) -> None:
    """Has the directory's entries on the disk."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def segments(directory: Path) -> list[Path]:
    """The segments of a spool, in no order."""
    try:
        return [path for path in directory.iterdir() if path.suffix == SUFFIX]
    except FileNotFoundError:
        return []
