"""What is left on a pipeline's disk of runs that ended without it: of one that failed because its pipelines
died, that was aborted while it waited to be resumed, or that began anew elsewhere. What such a run captured
is delivered; then its directory is removed."""

import asyncio
import fcntl
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from remuda.archive.crawler.crawl import Crawl
from remuda.archive.crawler.model import CrawlCounts, EndReason, StdoutEntry
from remuda.archive.jobs import Jobs
from remuda.archive.logs import Logs
from remuda.archive.model import Ident, JobSettings, JobState
from remuda.archive.pipeline.delivery import (
    CRAWL,
    LOG,
    URL_FILE,
    ArchiveFile,
    RunEnding,
    deliver,
    describe,
    keep_ending,
    read_ending,
)
from remuda.archive.pipeline.journal import JobJournal
from remuda.archive.pipeline.running import LOCK, Workplace, has_response, order_of
from remuda.archive.pipeline.url_file import read_lines
from remuda.archive.records import Record
from remuda.archive.recovery import ATTEMPTS, ATTEMPTS_FILE, attempts_at
from remuda.archive.settings import JobSettingsEditor, LiveSettings
from remuda.archive.urls import slug_of
from remuda.archive.warc.repair import whole_size
from remuda.base.errors import Unavailable
from remuda.base.log import get_logger
from remuda.keyspace import archive

log = get_logger(__name__)


async def clear_leftover(place: Workplace, path: Path, record: Record) -> None:
    """Delivers what the run captured, unless that was done, and removes its directory."""
    with _locked(path) as is_ours:
        if not is_ours:  # The pipeline that ran it is still busy with it.
            return
        record = await Jobs(place.store).record(record.run)
        # A run that began anew elsewhere has several directories; all its files must lie in one storage.
        if record.files == "[]" or record.storage == place.storage:
            await _deliver_bounded(place, path, record)
        log.info("leftover removed", run=record.run)
        await asyncio.to_thread(shutil.rmtree, path, ignore_errors=True)


async def _deliver_bounded(place: Workplace, path: Path, record: Record) -> None:
    """Delivers it. An attempt counts if it kills the pipeline, not if that leaves or lacks space or Redis."""
    attempt = attempts_at(path) + 1
    (path / ATTEMPTS_FILE).write_text(str(attempt))
    try:
        await _deliver(place, path, record, is_last=attempt == ATTEMPTS)
    except (Unavailable, OSError, asyncio.CancelledError):
        (path / ATTEMPTS_FILE).write_text(str(attempt - 1))
        raise


async def _deliver(place: Workplace, path: Path, record: Record, *, is_last: bool) -> None:
    job = await place.store.hgetall(archive.JOB(record.ident))
    if job.get("run") == str(record.number):
        live = await JobSettingsEditor(place.store).read(Ident(record.ident))
    else:  # They have expired, or are those of a later run.
        job, live = {"slug": slug_of(record.url, record.depth)}, LiveSettings(0, JobSettings(), (), True)
    delivered = msgspec.json.decode(record.files, type=list[ArchiveFile])
    logs = Logs(place.store)
    with JobJournal(path / LOG, logs, record.run) as journal:
        await asyncio.to_thread(journal.resume, record.shipped)
        ending = await asyncio.to_thread(read_ending, path / "end.json")
        if ending is None and not is_last:
            ending = await _finish_crawl(place, path, record, job, live, journal)
        if ending is None:
            ending = await asyncio.to_thread(_take_warcs, path / CRAWL, record)
        names = {each.name for each in delivered}
        if delivered and (
            not has_response(ending.counts) or any(each.name in names for each in ending.files)
        ):
            return
        message = f"Saved what it had captured: {len(ending.files)} files."
        journal.say(message)
        files = await deliver(
            place.writer, record, ending, crawl=path / CRAWL, journal=path / LOG, job=job, live=live
        )
        if not delivered:
            await journal.finish()
    if delivered:
        # The log and the counts in Redis are those of the directory that was delivered first.
        await logs.append(record.run, [msgspec.json.encode(StdoutEntry.of(message))])
        fields = {"files": msgspec.json.encode(delivered + files).decode()}
    else:
        fields = {
            "files": msgspec.json.encode(files).decode(),
            "counts": msgspec.json.encode(ending.counts).decode(),
        }
    async with place.store.transaction_provided(archive.RUN(record.run)) as transaction:
        transaction.hset(archive.RUN(record.run), fields)
    log.info("leftover delivered", run=record.run, files=len(files))


async def _finish_crawl(
    place: Workplace,
    path: Path,
    record: Record,
    job: dict[str, str],
    live: LiveSettings,
    journal: JobJournal,
) -> RunEnding | None:
    """Has the crawl finish its files without fetching anything; None if there is no crawl that could."""
    if not (path / CRAWL).exists():
        return None
    kept = path / URL_FILE
    urls = read_lines(kept) if kept.exists() else record.start_urls
    order = await asyncio.to_thread(order_of, record, job, urls, place)
    crawl = Crawl(order, path / CRAWL, live.for_crawl(), journal, network=place.network)
    if record.state is JobState.ABORTED:
        crawl.abort()
    else:
        crawl.conclude()
    try:
        end = await crawl.run()
    except (OSError, sqlite3.Error, ValueError, msgspec.MsgspecError) as error:
        log.warning("crawl cannot be finished", run=record.run, reason=str(error))
        return None
    if end.reason not in (EndReason.ABORTED, EndReason.FAILED):
        raise OSError(end.message)
    return await asyncio.to_thread(keep_ending, path / "end.json", end)


def _take_warcs(crawl: Path, record: Record) -> RunEnding:
    """The WARC files as they lie there, each up to its last whole record."""
    files = []
    for path in sorted(crawl.glob("*.warc*")):
        os.truncate(path, whole_size(path))
        files.append(describe(path, "meta" if "-meta" in path.name else "warc"))
    reason = EndReason.ABORTED if record.state is JobState.ABORTED else EndReason.FAILED
    return RunEnding(reason, record.reason, msgspec.json.decode(record.counts, type=CrawlCounts), files)


@contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Whether the directory is ours meanwhile: see `Running`."""
    descriptor = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        is_ours = True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            is_ours = False
        yield is_ours
    finally:
        os.close(descriptor)
