"""One crawl: from its start URLs to finished WARC files, in a directory of its own.

The directory is all the state there is. A crawl that was killed at any moment goes on from it, and the result
has each page once.
"""

import asyncio
import errno
import sqlite3
import time
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import msgspec

from remuda.archive.crawler.cookies import Cookies
from remuda.archive.crawler.discovery import Discovery
from remuda.archive.crawler.fetching import Fetcher, make_spool
from remuda.archive.crawler.frontier import ClaimedUrl, Found, Frontier
from remuda.archive.crawler.model import (
    CrawlCounts,
    CrawlEnd,
    CrawlOrder,
    CrawlSettings,
    EndReason,
    FinishedFile,
    Report,
    StdoutEntry,
)
from remuda.archive.crawler.network import ConnectionPool, Network
from remuda.archive.crawler.recorder import CrawlRecorder
from remuda.archive.crawler.schedule import Schedule
from remuda.archive.crawler.scope import ScopeRules
from remuda.archive.crawler.tally import CrawlTally
from remuda.archive.crawler.visiting import Visits
from remuda.archive.ignores import Ignores
from remuda.archive.urls import host_of, normalise
from remuda.archive.warc.writer import DiskFull
from remuda.base.clock import monotonic, now
from remuda.base.errors import InvalidArgument
from remuda.base.log import get_logger

log = get_logger(__name__)

TICK = 0.2
"""Seconds between two commits, and between two reports of the counts."""
TURN = 200
"""Start URLs that are taken in at a time, while other jobs wait: some 20 ms."""
# Space that is given up when the disk is full, so that the last marks can be written.
_RESERVE = 4 << 20


class Crawl:
    """Runs once. `apply`, `abort` and `suspend` are called on the same loop while `run` is awaited."""

    def __init__(
        self,
        order: CrawlOrder,
        directory: Path,
        settings: CrawlSettings,
        report: Report,
        *,
        network: Network,
        dropped_ignores: Iterable[str] = (),
    ) -> None:
        """`directory` is new, or that of the crawl of the same order to resume. Finished files lie in it;
        `directory/state` can be removed after the end. `dropped_ignores` are patterns that have taken too
        long before."""
        self._order = order
        self._directory = directory
        self._settings = settings
        self._report = report
        self._network = network
        self._dropped_ignores = dropped_ignores
        self._end: asyncio.Future[EndReason] | None = None
        self._asked_end: EndReason | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._wake: asyncio.TimerHandle | None = None
        self._current: dict[int, str] = {}
        self._is_torn = False

    # From outside

    def apply(self, settings: CrawlSettings) -> None:
        """These settings apply at once, also to downloaders that are waiting."""
        before, self._settings = self._settings, settings
        if self._end is None or self._end.done() or settings == before:
            return
        self._use(settings, has_new_ignores=settings.ignores != before.ignores)
        self._schedule.apply(settings)
        self._dispatch()

    def abort(self) -> None:
        """Ends the crawl within a second. Responses that are incomplete by then are dropped; the files are
        finished, with `-aborted` in their names."""
        self._finish(EndReason.ABORTED)

    def conclude(self) -> None:
        """Ends the crawl where it is; the files are finished under their usual names."""
        self._finish(EndReason.FAILED)

    def suspend(self) -> None:
        """Ends the crawl within a second so that it can be resumed, for instance when the pipeline drains."""
        self._finish(EndReason.SUSPENDED)

    async def run(self) -> CrawlEnd:
        """Crawls to the end. Cancelling it is like a suspension. Only a broken directory raises."""
        try:
            await self._open()
        except (DiskFull, OSError, sqlite3.Error) as error:
            if not _is_full(error):
                raise
            return CrawlEnd(EndReason.DISK_FULL, CrawlCounts(), (), "The disk is full.")
        assert self._end is not None
        try:
            self._start(self._tick(), name="crawl ticker")
            self._dispatch()
            reason = await self._end
            await self._stop_tasks()
            reason = self._commit_last(reason)
        except BaseException as error:
            await self._stop_tasks()
            if isinstance(error, asyncio.CancelledError):
                self._commit_last(EndReason.SUSPENDED)
            self._close()
            raise
        return await self._end_with(reason)

    def _start(self, work: Coroutine[None, None, None], *, name: str) -> None:
        """A task whose failure ends the crawl."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        assert self._end is not None
        if not self._end.done():
            self._end.set_exception(error)

    # Opening

    async def _open(self) -> None:
        state = self._directory / "state"
        spool = make_spool(state / "spool")
        with self._reserve.open("wb") as reserve:
            reserve.write(bytes(_RESERVE))
        with ExitStack() as opened:
            self._frontier = frontier = Frontier(state / "frontier.sqlite3")
            opened.callback(frontier.close)
            moment = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now()))
            new_name = f"{self._order.slug}-{moment}-{self._order.ident[:5]}"
            name = frontier.read_note("name") or new_name.encode()
            sizes = msgspec.json.decode(frontier.read_note("files") or b"{}", type=dict[str, int])
            self._recorder = CrawlRecorder(self._order, self._directory, name=name.decode(), sizes=sizes)
            opened.callback(self._recorder.close)
            self._prepare(spool)
            if await self._seed(is_new=frontier.read_note("name") is None):
                frontier.write_note("name", name)
            self._commit()
            opened.pop_all()
        self._end = asyncio.get_running_loop().create_future()
        if self._settings is not self._discovery.settings:  # They have changed meanwhile.
            self._use(self._settings, has_new_ignores=True)
            self._schedule.apply(self._settings)
        self._schedule.list_hosts(frontier.hosts())
        if self._asked_end is not None:
            self._finish(self._asked_end)

    def _prepare(self, spool: Path) -> None:
        """Makes the parts of the crawl, with what the frontier remembers."""
        order, frontier, recorder = self._order, self._frontier, self._recorder
        self._tally = tally = CrawlTally(self._report, recorder, frontier.read_note("counts"))
        if recorder.lost_from is not None:
            lost = frontier.reset_beyond(*recorder.lost_from)
            tally.add("finished", -lost)
            tally.say(f"{lost} records were lost in a power cut; their URLs are fetched again.")
        self._cookies = Cookies(frontier.read_note("cookies"))
        self._connections = ConnectionPool(
            self._network,
            spool,
            on_resolved=recorder.note_addresses,
            on_certificate=recorder.note_certificate,
        )
        self._fetcher = Fetcher(
            self._network,
            self._connections,
            self._cookies,
            credentials=order.credentials,
            max_body=order.max_body,
        )
        self._scope = scope = ScopeRules(order, frontier.start_urls())
        ignores = Ignores(
            primary_url=order.urls[0] if order.urls else "",
            dropped=self._dropped_ignores,
            on_wrong=tally.say,
            on_dropped=tally.dropped,
        )
        self._discovery = Discovery(
            order, frontier, scope, ignores, on_ignored=tally.ignored, on_loop=tally.loop
        )
        self._schedule = Schedule(frontier, self._settings)
        self._visits = Visits(
            order,
            frontier,
            recorder,
            tally,
            fetcher=self._fetcher,
            discovery=self._discovery,
            schedule=self._schedule,
            on_found=self._dispatch,
        )
        self._use(self._settings, has_new_ignores=True)

    async def _seed(self, *, is_new: bool) -> bool:
        """Begins with the start URLs that can be fetched; a crawl that is resumed only learns its scope.
        False if it is to end before it has all of them."""
        starts: dict[str, None] = {}
        async for line in self._in_turns(self._order.urls):
            with suppress(InvalidArgument):
                url = normalise(line)
                if not url.startswith("ftp:"):
                    starts[url] = None
                    self._scope.extend(url)
        if not is_new or self._is_cut_short:
            return False
        left_out = len(self._order.urls) - len(starts)
        if left_out:
            self._tally.say(
                f"{left_out} start URLs are left out: they occur twice, or are not URLs of web sites."
            )
        async for url in self._in_turns(starts):
            host = host_of(url)
            for name, value in self._order.cookies.items():
                self._cookies.give(host, name, value)
            if not self._discovery.admits(url):
                continue
            self._frontier.add([Found(url, host, 0, 0, 0, 0, 0)])
            if self._order.sitemaps:
                self._frontier.add(self._discovery.sitemaps_of(url, self._frontier.id_of(url) or 0))
        return not self._is_cut_short

    async def _in_turns(self, urls: Iterable[str]) -> AsyncIterator[str]:
        """The same, with a pause for other jobs now and then: a file of URLs may have a million. It stops
        when the crawl is to end."""
        for number, url in enumerate(urls, 1):
            yield url
            if number % TURN == 0:
                await asyncio.sleep(0)
                if self._is_cut_short:
                    return

    @property
    def _is_cut_short(self) -> bool:
        """Whether the crawl is to end while it takes in its start URLs; a few of them are no matter."""
        return self._asked_end is not None and len(self._order.urls) > TURN

    def _use(self, settings: CrawlSettings, *, has_new_ignores: bool) -> None:
        self._fetcher.user_agent = " ".join(settings.user_agent.split())
        self._tally.suppresses_ignores = settings.suppress_ignore_reports
        ignores = self._discovery.ignores
        if has_new_ignores:
            ignores.change(settings.ignores)
        self._discovery.apply(settings)
        delays = f"[{settings.delay_min * 1000:.0f}, {settings.delay_max * 1000:.0f}]"
        self._tally.say(
            f"Settings updated:  {settings.concurrency} workers, {len(ignores)} ignores, "
            f"delay min/max: {delays} ms, "
            f"{'suppressing' if settings.suppress_ignore_reports else 'showing'} ignore reports"
            f"{', paused' if settings.is_paused else ''}"
        )

    # Scheduling

    def _dispatch(self) -> None:
        """Starts as many downloads as may run now; notices the end."""
        if self._end is None or self._end.done():
            return
        while (claim := self._next()) is not None:
            self._start(self._download(claim), name="downloader")
        if self._schedule.in_flight or self._settings.is_paused:
            return
        if self._schedule.next_time() is None and self._frontier.next_due() is None:
            self._finish(EndReason.FINISHED)

    def _next(self) -> ClaimedUrl | None:
        """The next URL to fetch now, if there is one and a downloader for it."""
        if (
            self._settings.is_paused
            or self._schedule.in_flight >= self._settings.concurrency
            or self._end is None
            or self._end.done()
        ):
            return None
        moment = monotonic()
        claim = self._schedule.pick(moment)
        if claim is None and (at := self._schedule.next_time()) is not None:
            if self._wake is not None:
                self._wake.cancel()
            self._wake = asyncio.get_running_loop().call_later(max(0.001, at - moment), self._dispatch)
        return claim

    async def _download(self, first: ClaimedUrl) -> None:
        """One downloader: it goes on as long as there is something to fetch at once."""
        claim: ClaimedUrl | None = first
        while claim is not None:
            has_fetched = False
            self._current[claim.id] = claim.url
            try:
                has_fetched = await self._visits.visit(claim)
            except sqlite3.Error as error:
                if not _is_full(error):
                    raise
                # Perhaps half of what this page led to is in the transaction: all of it is given up.
                self._is_torn = True
                self._finish(EndReason.DISK_FULL)
            except Exception as error:  # A page must not end a crawl.
                if _is_full(error):
                    self._finish(EndReason.DISK_FULL)
                    return
                log.exception("page failed", url=claim.url, ident=self._order.ident)
                self._visits.give_up(claim, f"{type(error).__name__}: {error}")
            finally:
                del self._current[claim.id]
                self._schedule.release(claim, monotonic(), has_fetched=has_fetched)
            claim = self._next()
        self._dispatch()

    def _finish(self, reason: EndReason) -> None:
        self._asked_end = reason
        if self._end is not None and not self._end.done():
            self._end.set_result(reason)

    # Marks

    async def _tick(self) -> None:
        """Commits, reports, hands out what is due for another try."""
        reported: CrawlCounts | None = None
        while True:
            await asyncio.sleep(TICK)
            try:
                if self._visits.is_dirty:
                    self._commit()
            except (DiskFull, sqlite3.Error) as error:
                if not _is_full(error):
                    raise
                self._is_torn = isinstance(error, sqlite3.Error)
                self._finish(EndReason.DISK_FULL)
                return
            if (counts := self._tally.counts()) != reported:
                self._report.counted(counts, tuple(self._current.values()))
                reported = counts
            self._connections.close(unused_only=True)
            self._schedule.list_hosts(self._frontier.take_due(now()))
            self._dispatch()

    def _commit(self) -> None:
        self._visits.is_dirty = False
        self._tally.set("queued", self._frontier.count_urls())
        sizes = self._recorder.sizes()
        self._tally.set("warc_bytes", self._recorder.warc_bytes)
        if self._cookies.has_changed:
            self._frontier.write_note("cookies", self._cookies.dump())
        self._frontier.commit(self._tally.counts(), sizes)

    # The end

    async def _stop_tasks(self) -> None:
        if self._wake is not None:
            self._wake.cancel()
        tasks: list[asyncio.Future[Any]] = [*self._tasks, *self._visits.robots.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._discovery.ignores.close()
        await self._visits.reader.close()
        self._connections.stop()

    def _commit_last(self, reason: EndReason) -> EndReason:
        """Writes the last marks, in the reserve if need be; the reason of the end."""
        if self._is_torn:
            return reason
        if reason is EndReason.DISK_FULL:
            self._reserve.unlink(missing_ok=True)
        try:
            self._commit()
        except (DiskFull, sqlite3.Error) as error:
            if not _is_full(error):
                raise
            # What has no mark is cut off when the crawl is resumed.
            return EndReason.DISK_FULL
        return reason

    @property
    def _reserve(self) -> Path:
        return self._directory / "state" / "reserve"

    def _close(self) -> None:
        self._recorder.close()
        self._frontier.close()

    async def _end_with(self, reason: EndReason) -> CrawlEnd:
        counts = self._tally.counts()
        files: list[FinishedFile] = []
        message = ""
        if reason in (EndReason.FINISHED, EndReason.ABORTED, EndReason.FAILED):
            self._reserve.unlink(missing_ok=True)
            is_aborted = reason is EndReason.ABORTED
            payloads = list(self._frontier.payloads()) if self._order.known_payloads else []
            try:
                files = await asyncio.to_thread(
                    self._recorder.finish, is_aborted=is_aborted, payloads=payloads
                )
            except (OSError, DiskFull) as error:
                if not _is_full(error):
                    raise
                reason = EndReason.DISK_FULL
            self._frontier.close()
        else:
            self._close()
        if reason is EndReason.DISK_FULL:
            message = "The disk is full. All records until then are kept; the job can be resumed."
            self._report.said(StdoutEntry.of(message))
        self._report.counted(counts, ())
        return CrawlEnd(reason, counts, tuple(files), message)


def _is_full(error: BaseException) -> bool:
    if isinstance(error, DiskFull):
        return True
    if isinstance(error, sqlite3.Error):
        full = ("SQLITE_FULL", "SQLITE_IOERR_WRITE", "SQLITE_IOERR_SHMSIZE")
        return getattr(error, "sqlite_errorname", "") in full
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
