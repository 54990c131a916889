"""The log of one run on the pipeline's own disk, from which it is sent to Redis.

Each entry is a line of a file before anything else happens with it, so neither an absence of Redis nor the
death of the pipeline loses one, and memory does not grow with what is still to be sent. The number of a line
is the number under which Redis knows the entry.
"""

import asyncio
import os
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from remuda.archive.crawler.model import CrawlCounts, DownloadEntry, IgnoreEntry, StdoutEntry
from remuda.archive.logs import Logs
from remuda.archive.model import RunId
from remuda.base.errors import Unavailable
from remuda.base.log import get_logger
from remuda.fleet.tasks import repeat

log = get_logger(__name__)

SHIP_EVERY = 0.1
"""Seconds; so `updates` is published at most ten times a second for a job."""
BATCH = 1000
BATCH_BYTES = 512 << 10

_encode = msgspec.json.Encoder().encode


class JobJournal:
    """The log of a run. It hears the crawl's reports; `ship`, a task of the owner's, sends them to Redis.

    Use it as `with Journal(...) as journal`; its file is new or that of a run to resume.
    """

    def __init__(self, path: Path, logs: Logs, run: RunId) -> None:
        self._path = path
        self._logs = logs
        self._run = run
        self._descriptor = -1
        self._written = 0
        """Lines of the file."""
        self._shipped = 0
        """Lines of them that Redis has."""
        self._offset = 0
        """Where the first line begins that Redis does not have."""
        self._news = asyncio.Event()
        self.counts = CrawlCounts()
        self.current: tuple[str, ...] = ()
        self.dropped_ignores: list[str] = []
        """Ignore patterns that took too long."""
        self.last_failure = ""
        """Why the last URL without a response had none."""

    def __enter__(self) -> Self:
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)

    def resume(self, shipped: int) -> None:
        """Goes on after so many lines that Redis has. A last line that was cut off is removed. Blocks."""
        whole = 0
        with self._path.open("rb") as lines:
            for line in lines:
                if not line.endswith(b"\n"):
                    break
                whole += len(line)
                self._written += 1
                if self._written <= shipped:
                    self._offset, self._shipped = whole, self._written
        os.ftruncate(self._descriptor, whole)
        # Redis may know of more than the file: the disk of a machine that crashed has lost its last lines.
        self._written, self._shipped = max(self._written, shipped), shipped
        self._news.set()

    # What the crawl reports

    def downloaded(self, entry: DownloadEntry) -> None:
        if not entry.response_code:
            self.last_failure = entry.wget_code
        self._write(entry)

    def ignored(self, entry: IgnoreEntry) -> None:
        self._write(entry)

    def said(self, entry: StdoutEntry) -> None:
        self._write(entry)

    def dropped(self, pattern: str) -> None:
        self.dropped_ignores.append(pattern)

    def counted(self, counts: CrawlCounts, current: tuple[str, ...]) -> None:
        self.counts, self.current = counts, current

    def say(self, message: str) -> None:
        """The same for what the pipeline itself has to tell."""
        self._write(StdoutEntry.of(message))

    def _write(self, entry: DownloadEntry | IgnoreEntry | StdoutEntry) -> None:
        try:
            os.write(self._descriptor, _encode(entry) + b"\n")
        except OSError as error:
            # A full disk: the crawl notices it too, and ends so that it can be resumed.
            log.warning("log entry lost", run=self._run, reason=str(error))
            return
        self._written += 1
        self._news.set()

    # Sending it

    async def ship(self) -> None:
        """Sends new lines for ever, in batches. Outlives any absence of Redis."""

        async def ship_new() -> None:
            await self._news.wait()
            self._news.clear()
            try:
                await self._ship_new()
            except Unavailable:
                self._news.set()
                raise

        await repeat(ship_new, every=SHIP_EVERY, failure="log kept on disk", run=self._run)

    async def finish(self) -> None:
        """Sends what is left."""
        await self._ship_new()

    async def _ship_new(self) -> None:
        while self._shipped < self._written:
            lines = self._read_lines()
            if not lines:
                return
            entries = [line.rstrip(b"\n") for line in lines]
            if not await self._logs.append(self._run, entries, first=self._shipped + 1):
                log.warning("log not sent: the job is gone", run=self._run)
            self._offset += sum(map(len, lines))
            self._shipped += len(lines)
            if self._shipped < self._written:
                await asyncio.sleep(SHIP_EVERY)

    def _read_lines(self) -> list[bytes]:
        found = os.pread(self._descriptor, BATCH_BYTES, self._offset)
        lines = found.splitlines(keepends=True)
        if lines and not lines[-1].endswith(b"\n"):
            lines.pop()
        return lines[:BATCH]
