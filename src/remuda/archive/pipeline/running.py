"""One run of a job in a pipeline: from the claim to the end, to a suspension, or to the loss of the job."""

import asyncio
import fcntl
import os
import shutil
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import TypeVar

import msgspec

from remuda.archive.crawler.crawl import Crawl
from remuda.archive.crawler.model import (
    MAX_BODY,
    SPLIT_SIZE,
    CrawlCounts,
    CrawlOrder,
    CrawlSettings,
    EndReason,
    parse_depth,
)
from remuda.archive.crawler.network import Network
from remuda.archive.crawler.response import FetchFailed
from remuda.archive.jobs import HOST_GRACE, LEASE_SECONDS, Jobs
from remuda.archive.logs import Logs
from remuda.archive.model import JobState, PipelineKey
from remuda.archive.pipeline.delivery import (
    CRAWL,
    LOG,
    URL_FILE,
    RunEnding,
    deliver,
    keep_ending,
    read_ending,
)
from remuda.archive.pipeline.journal import JobJournal
from remuda.archive.pipeline.url_file import read_url_file
from remuda.archive.records import MOST_SERVERS, Claim, Progress, Record
from remuda.archive.recovery import recover
from remuda.archive.settings import JobSettingsEditor, LiveSettings
from remuda.archive.urls import credentials_by_server, without_credentials
from remuda.base import clock
from remuda.base.errors import RemudaError, Unavailable
from remuda.base.log import get_logger
from remuda.fleet.tasks import retry_until_redis_returns
from remuda.keyspace import archive
from remuda.storage.model import StorageId
from remuda.storage.writer import ArtifactWriter
from remuda.store import Store

log = get_logger(__name__)

T = TypeVar("T")

BEAT_EVERY = 1.0
LOOK_EVERY = 0.2
LOCK_PATIENCE = 10.0
"""Seconds for which a pipeline that has lost a job may still be busy with it."""
WATERMARK = 100_000
"""URLs; as in the original."""
LOCK = "lock"
"""The file in a run's directory that is locked by the process that writes there."""


@dataclass(frozen=True)
class Workplace:
    """What all runs of a pipeline share."""

    store: Store
    pipeline: PipelineKey
    directory: Path
    """Where each run has a directory of its own."""
    writer: ArtifactWriter
    storage: StorageId
    """Where the writer writes to."""
    network: Network
    user_agent: str
    operator: str
    """Who runs this herd, for the WARC files; may be empty."""
    max_deaths: int
    announces: bool = False
    """Whether starts of jobs are queued for announcement."""
    lease: int = LEASE_SECONDS
    beat_every: float = BEAT_EVERY


class JobLost(Exception):
    """The job is not this pipeline's any more: it was given to another one, or has been ended."""


class Running:
    """A claimed job. `run()` returns when it has ended, is back in its queue, or is lost."""

    def __init__(self, place: Workplace, claim: Claim) -> None:
        self._place = place
        self.claim = claim
        self._jobs = Jobs(place.store)
        self._settings = JobSettingsEditor(place.store)
        self._logs = Logs(place.store)
        self._crawl: Crawl | None = None
        self._live: LiveSettings | None = None
        self._skips_duplicates = True
        self._is_leaving = False
        self._is_finishing = False
        """Whether the job may be out of its pipeline's hands because that has ended it."""
        self._beaten_at = clock.monotonic()
        self.has_filled_disk = False

    def suspend(self) -> None:
        """Has the job go back to its queue within a second, to be resumed."""
        self._is_leaving = True
        if self._crawl is not None:
            self._crawl.suspend()

    async def run(self) -> None:
        """The whole run. Never raises but when it is cancelled."""
        run = self.claim.run
        try:
            record = await self._patiently(lambda: self._jobs.record(run))
            self._skips_duplicates = record.options.skip_duplicate_pages
            async with self._own_directory() as directory:
                await self._work(record, directory)
        except JobLost:
            log.warning("job lost", run=run)
        except Exception as error:
            known = isinstance(error, RemudaError | OSError)
            log.error("job broken off", run=run, reason=str(error), exc_info=not known)
            await self._break_off(f"{type(error).__name__}: {error}")

    async def _work(self, record: Record, directory: Path) -> None:
        if not (directory / LOG).exists():
            # The numbers of entries are those of lines, which begin anew.
            await self._patiently(lambda: self._place.store.hset(archive.RUN(record.run), {"shipped": 0}))
            record = msgspec.structs.replace(record, shipped=0)
        with JobJournal(directory / LOG, self._logs, record.run) as journal:
            await asyncio.to_thread(journal.resume, record.shipped)
            journal.dropped_ignores = record.dropped
            if (directory / CRAWL).exists():
                # Until the crawl reports again: a beat without them would have all of it metered once more.
                journal.counts = msgspec.json.decode(record.counts, type=CrawlCounts)
            self._live = await self._patiently(lambda: self._settings.read(self.claim.ident))
            tasks = [
                asyncio.create_task(journal.ship(), name=f"send the log of {record.run}"),
                asyncio.create_task(self._keep_beating(journal), name=f"beat of {record.run}"),
                asyncio.create_task(self._heed_settings(), name=f"settings of {record.run}"),
            ]
            crawling = asyncio.create_task(
                self._crawl_and_deliver(record, directory, journal), name=f"crawl {record.run}"
            )
            try:
                await asyncio.wait([crawling, *tasks], return_when=asyncio.FIRST_COMPLETED)
                for task in (crawling, *tasks):
                    if task.done():
                        await task
            finally:
                for task in (crawling, *tasks):
                    task.cancel()
                await asyncio.gather(crawling, *tasks, return_exceptions=True)

    async def _crawl_and_deliver(self, record: Record, directory: Path, journal: JobJournal) -> None:
        assert self._live is not None
        ending = await asyncio.to_thread(read_ending, directory / "end.json")
        if ending is None:
            journal.say(self._greeting(record, directory))
            if self._place.announces:
                await self._patiently(lambda: announce(self._place.store, record.url))
            job = await self._read_job()
            logins = await self._patiently(lambda: self._jobs.credentials(self.claim.ident))
            try:
                urls = await self._start_urls(record, job, directory, logins)
            except FetchFailed as error:
                message = f"The file of URLs could not be fetched: {error.reason}"
                ending = RunEnding(EndReason.FINISHED, message, CrawlCounts(), [])
                await self._finish(record, ending, directory, journal)
                return
            # In a thread: a file of URLs may have a million lines.
            order = await asyncio.to_thread(order_of, record, job, urls, self._place, logins=logins)
            if order.credentials:  # Those in a file of URLs are known only now.
                fields = {"servers": _json(list(order.credentials)[:MOST_SERVERS])}
                await self._patiently(lambda: self._place.store.hset(archive.RUN(record.run), fields))
            crawl = Crawl(
                order,
                directory / CRAWL,
                self._for_crawl(self._live),
                journal,
                network=self._place.network,
                dropped_ignores=journal.dropped_ignores,
            )
            self._crawl = crawl
            if self._live.is_aborted:
                crawl.abort()
            elif self._is_leaving:
                crawl.suspend()
            end = await crawl.run()
            if end.reason in (EndReason.SUSPENDED, EndReason.DISK_FULL):
                self.has_filled_disk = end.reason is EndReason.DISK_FULL
                await self._put_back(journal)
                return
            ending = await asyncio.to_thread(keep_ending, directory / "end.json", end)
        await self._finish(record, ending, directory, journal)

    def _greeting(self, record: Record, directory: Path) -> str:
        if not record.host:
            return f"Started on {socket.gethostname()}."
        if (directory / CRAWL).exists():
            return f"Resumed on {socket.gethostname()} from where it was."
        return f"Begins anew on {socket.gethostname()}, which does not have the frontier of {record.host}."

    async def _start_urls(
        self, record: Record, job: dict[str, str], directory: Path, logins: Sequence[str]
    ) -> list[str]:
        source = job.get("url_file")
        if not source:
            return record.start_urls
        place = self._place
        return await read_url_file(
            source,
            directory / URL_FILE,
            network=place.network,
            user_agent=place.user_agent,
            credentials=credentials_by_server(logins),
        )

    # Settings, beats

    def _for_crawl(self, live: LiveSettings, *, is_held: bool = False) -> CrawlSettings:
        settings = live.for_crawl(
            user_agent=self._place.user_agent, skip_duplicate_pages=self._skips_duplicates
        )
        return replace(settings, is_paused=True) if is_held else settings

    async def _heed_settings(self) -> None:
        """Applies changes as soon as they are published. One that is missed is noticed at the next beat."""
        with self._place.store.subscribe(archive.JOB_SETTINGS(self.claim.ident)) as messages:
            while True:
                await messages.wait()
                try:
                    await self._apply_settings()
                except Unavailable:
                    continue

    async def _apply_settings(self) -> None:
        live = await self._settings.read(self.claim.ident)
        if self._live is not None and live.age <= self._live.age and not live.is_aborted:
            return
        self._live = live
        if self._crawl is not None:
            if live.is_aborted:
                self._crawl.abort()
            else:
                self._crawl.apply(self._for_crawl(live))

    async def _keep_beating(self, journal: JobJournal) -> None:
        """Beats every second. Raises JobLost when the job is another's."""
        is_held = False
        while True:
            try:
                age = await self._beat(journal)
                if self._live is not None and (age > self._live.age or is_held):
                    self._live = replace(self._live, age=-1)
                    await self._apply_settings()
                is_held = False
            except JobLost:
                if not self._is_finishing:
                    raise
            except Unavailable:
                # The lease may be over, and the job another's: nothing more is fetched until that is known.
                if clock.monotonic() - self._beaten_at > self._place.lease and not is_held:
                    is_held = True
                    if self._crawl is not None and self._live is not None:
                        self._crawl.apply(self._for_crawl(self._live, is_held=True))
            await asyncio.sleep(self._place.beat_every)

    async def _beat(self, journal: JobJournal) -> int:
        """Beats once; the age of the job's settings."""
        place = self._place
        age = await self._jobs.beat(self.claim, place.pipeline, self._progress(journal), lease=place.lease)
        if age is None:
            raise JobLost
        self._beaten_at = clock.monotonic()
        return age

    def _progress(self, journal: JobJournal) -> Progress:
        counts = journal.counts
        return Progress(
            job={
                "items_queued": str(counts.queued),
                "items_downloaded": str(counts.downloaded),
                "bytes_downloaded": str(counts.bytes),
                "warc_size": str(counts.warc_bytes),
                "next_watermark": str((counts.queued // WATERMARK + 1) * WATERMARK),
            },
            record={
                "host": socket.gethostname(),
                "counts": _json(counts),
                "current": _json(journal.current[:10]),
                "droppedIgnores": _json(journal.dropped_ignores),
            },
        )

    # The end

    async def _finish(self, record: Record, ending: RunEnding, directory: Path, journal: JobJournal) -> None:
        assert self._live is not None
        state, reason = judge(ending, journal.last_failure)
        journal.say(f"Finished: {state}{f' ({reason})' if reason else ''}.")
        journal.counted(ending.counts, ())
        await self._patiently(lambda: self._beat(journal))
        live, job = self._live, await self._read_job()
        files = await self._patiently(
            lambda: deliver(
                self._place.writer,
                record,
                ending,
                crawl=directory / CRAWL,
                journal=directory / LOG,
                job=job,
                live=live,
            )
        )
        await self._patiently(journal.finish)
        await self._patiently(lambda: self._logs.digest(self.claim.ident))
        fields = {
            "counts": _json(ending.counts),
            "files": _json(files),
            "settings": _json(live.settings),
        }
        self._is_finishing = True
        is_done = await self._patiently(
            lambda: self._jobs.finish(
                record.run, state, asker=self._place.pipeline, reason=reason, fields=fields
            )
        )
        if not is_done:
            raise JobLost
        await self._place.store.hincrby(archive.METRICS_ARCHIVE(), "bytes", ending.counts.bytes)
        log.info("job finished", run=record.run, state=state, reason=reason)
        await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)

    async def _put_back(self, journal: JobJournal) -> None:
        journal.say(f"Suspended: {'the disk is full' if self.has_filled_disk else 'its pipeline leaves'}.")
        await self._patiently(journal.finish)
        self._is_finishing = True
        await self._patiently(
            lambda: self._jobs.requeue(self.claim.run, asker=self._place.pipeline, grace=HOST_GRACE)
        )

    async def _break_off(self, reason: str) -> None:
        """After a failure of ours: the job is tried again, a bounded number of times."""
        place = self._place
        try:
            await self._patiently(
                lambda: recover(
                    place.store,
                    self.claim.run,
                    asker=place.pipeline,
                    max_deaths=place.max_deaths,
                    cause=reason,
                )
            )
        except RemudaError as error:
            log.error("job not put back", run=self.claim.run, reason=error.message)

    # Helpers

    async def _read_job(self) -> dict[str, str]:
        key = archive.JOB(self.claim.ident)
        return await self._patiently(lambda: self._place.store.hgetall(key))

    async def _patiently(self, step: Callable[[], Awaitable[T]]) -> T:
        return await retry_until_redis_returns(step, failure="job cannot go on yet", run=self.claim.run)

    @asynccontextmanager
    async def _own_directory(self) -> AsyncIterator[Path]:
        """The run's directory, which is new or one to resume. It is locked: a pipeline that was only frozen
        may still write to it, and if that does not end soon, the run begins anew in another one."""
        base = self._place.directory / self.claim.run
        until = clock.monotonic() + LOCK_PATIENCE
        for attempt in count():
            path = base if not attempt else base.with_name(f"{base.name}.{attempt}")
            path.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                if await _lock(descriptor, until=until):
                    yield path
                    return
            finally:
                os.close(descriptor)


def order_of(
    record: Record,
    job: Mapping[str, str],
    urls: Sequence[str],
    place: Workplace,
    *,
    logins: Sequence[str] = (),
) -> CrawlOrder:
    """What the crawler is told of a run. `logins` are URLs with users and passwords; those of a file of URLs
    have some, too."""
    options = record.options
    shared = place.directory / f"payloads-{record.account}.sqlite3"
    return CrawlOrder(
        ident=record.ident,
        urls=tuple(map(without_credentials, urls)),
        slug=job.get("slug", ""),
        depth=parse_depth(record.depth),
        scope=options.scope,
        no_parent=options.no_parent,
        page_requisites=options.page_requisites,
        obey_robots=options.obey_robots,
        sitemaps=options.sitemaps,
        max_body=options.max_body or MAX_BODY,
        split_size=options.split_size or SPLIT_SIZE,
        compression=options.compression,
        dedupe=options.dedupe,
        known_payloads=shared if options.dedupe_jobs else None,
        wacz=options.wacz,
        metadata_records=options.metadata_records,
        omit_authorization=options.omit_authorization,
        credentials=credentials_by_server([*logins, *urls]),
        warcinfo={"operator": place.operator} if place.operator else {},
    )


async def _lock(descriptor: int, *, until: float) -> bool:
    """Locks a file; False if another holds it at the end of that time."""
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if clock.monotonic() > until:
                return False
        await asyncio.sleep(LOOK_EVERY)


async def announce(store: Store, url: str) -> None:
    """Queues an announcement of a job's start, unless it is queued or has been posted, as in the original."""
    message = f"Archiving {url}"
    if await store.send("ZSCORE", archive.TWEETS_DONE(), message) is None:
        await store.send("ZADD", archive.TWEETS_QUEUE(), "NX", f"{clock.now():.3f}", message)


def judge(ending: RunEnding, last_failure: str) -> tuple[JobState, str]:
    """How a run has ended, and why. A crawl that got no response at all has failed."""
    if ending.reason is EndReason.ABORTED:
        return JobState.ABORTED, ending.message
    counts = ending.counts
    if not has_response(counts):
        return JobState.FAILED, last_failure or ending.message or "No URL was fetched"
    return JobState.COMPLETED, ending.message


def has_response(counts: CrawlCounts) -> bool:
    """Whether any server has answered."""
    return any((counts.r1xx, counts.r2xx, counts.r3xx, counts.r4xx, counts.r5xx))


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
