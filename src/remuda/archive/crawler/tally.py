"""What a crawl tells about itself: log entries, which also go into its own log, and counts."""

from dataclasses import asdict

import msgspec

from remuda.archive.crawler.model import CrawlCounts, DownloadEntry, IgnoreEntry, Report, StdoutEntry
from remuda.archive.crawler.recorder import CrawlRecorder
from remuda.base.clock import now


class CrawlTally:
    """Counts and reports. The counts are those of the whole job, also of before a resume."""

    def __init__(self, report: Report, recorder: CrawlRecorder, stored: bytes | None) -> None:
        """`stored` are the counts of the last commit, as JSON."""
        self._report = report
        self._recorder = recorder
        self._counts: dict[str, int] = asdict(CrawlCounts())
        if stored:
            self._counts |= msgspec.json.decode(stored, type=dict[str, int])
        self.suppresses_ignores = False

    def add(self, name: str, number: int = 1) -> None:
        """Counts up."""
        self._counts[name] += number

    def set(self, name: str, number: int) -> None:
        self._counts[name] = number

    def counts(self) -> CrawlCounts:
        return CrawlCounts(**self._counts)

    def download(self, url: str, status: int, code: str) -> None:
        """A response, or the failure to get one."""
        is_error = status >= 500 or code != "OK"
        entry = DownloadEntry(now(), url, status, code, is_error, 400 <= status < 500)
        # As ArchiveBot's: half-open classes, and everything else unknown.
        self._counts[f"r{status // 100}xx" if 100 <= status < 600 else "runk"] += 1
        # As `digest.lua` counts `error_count`: 4xx and 5xx as documented, and failures without a status.
        self._counts["errors"] += 400 <= status < 600 or (status < 100 and is_error)
        self._recorder.add_log(entry)
        self._report.downloaded(entry)

    def ignored(self, url: str, pattern: str, source: str = "accept_url") -> None:
        entry = IgnoreEntry(now(), url, pattern, source)
        self._recorder.add_log(entry)
        if not self.suppresses_ignores:
            self._report.ignored(entry)

    def dropped(self, pattern: str, reason: str) -> None:
        """An ignore pattern is not used any more."""
        self.say(reason)
        self._report.dropped(pattern)

    def loop(self, url: str) -> None:
        self.say(f"LOOP {url} repeats itself; it is not followed.")

    def unread(self, url: str, reason: str) -> None:
        """A document was not read for links; `reason` says what became of the process that was to read it."""
        self.say(f"HEAVY {url} is not read for links: the process that does so {reason}.")

    def say(self, message: str) -> None:
        """A message for people."""
        entry = StdoutEntry.of(message)
        self._recorder.add_log(entry)
        self._report.said(entry)
