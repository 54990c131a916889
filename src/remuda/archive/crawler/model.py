"""What a crawl is asked for, what can change while it runs, what it reports, and how it ended. Pure values.

Durations are float seconds; the milliseconds of `delay_min` and `delay_max` in Redis are converted by the
caller.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

import msgspec

from remuda.archive.warc.records import Compression as Compression
from remuda.base.clock import now

USER_AGENT = "Mozilla/5.0 (compatible; Remuda/0.1; web archiving)"
INF: float = math.inf
SHALLOW = 0
MAX_BODY = 4 << 30
SPLIT_SIZE = 5 << 30


class CrawlScope(StrEnum):
    """Which pages belong to the job. Page requisites always do; links that leave the scope are followed once
    if `offsite_links` is set."""

    ORIGINAL = "original"
    """As ArchiveBot: the hosts of the start URLs; on the host of the URL's own start page only what lies
    under its directory."""
    HOST = "host"
    """The hosts of the start URLs, all of their paths."""
    DOMAIN = "domain"
    """The hosts of the start URLs without a leading `www.`, and all of their subdomains."""
    PREFIX = "prefix"
    """URLs that begin with the directory of a start URL, scheme aside."""


def parse_depth(text: str) -> float:
    """The depth that `inf`, `shallow` or a number stands for; ValueError when it is none."""
    named = {"inf": INF, "shallow": SHALLOW}
    if text in named:
        return named[text]
    if not text.isascii() or not text.isdigit() or len(text) > 6:
        raise ValueError(f"{text!r} is not inf, shallow or a number")
    return int(text)


@dataclass(frozen=True)
class CrawlOrder:
    """What was asked for. It stays the same for the whole job, also when the job is resumed."""

    ident: str
    """The job's ident; its first five characters become part of the file names."""
    urls: tuple[str, ...]
    """The start URL, or the lines of a URL file. They are normalised here; lines that are no URL are
    reported and skipped."""
    slug: str
    """The first part of the file names, such as `example.com-inf`: see `urls.slug_of`."""
    depth: float = INF
    """How many links a page may be away from its start URL: INF, SHALLOW (the page and its requisites), or
    any number."""
    scope: CrawlScope = CrawlScope.ORIGINAL
    no_parent: bool = True
    """With the scope `original`: leave out what is above the start URL's directory."""
    page_requisites: bool = True
    """Fetch images, styles, scripts and frames of each page from wherever they are."""
    obey_robots: bool = False
    sitemaps: bool = True
    """Read `/robots.txt` and `/sitemap.xml` of the start hosts, and the sitemaps they name."""
    max_body: int = MAX_BODY
    """Bytes; longer bodies are cut there and marked with WARC-Truncated."""
    max_redirects: int = 8
    tries: int = 3
    retry_wait: float = 5.0
    """Seconds until a failed URL is tried again, doubled with each try."""
    split_size: int = SPLIT_SIZE
    """Bytes after which the next WARC file is begun."""
    compression: Compression = Compression.GZIP
    dedupe: bool = True
    """Write a revisit record where the job already holds the same payload."""
    wacz: bool = True
    """Pack the finished files as WACZ, too. It takes their size once more."""
    known_payloads: Path | None = None
    """A file that jobs share: payloads that other jobs hold become revisit records too, and this job's
    payloads are added to it at its end. Used only with `dedupe`."""
    metadata_records: bool = False
    """Write a metadata record with the out-links of each page."""
    warcinfo: Mapping[str, str] = field(default_factory=dict)
    """More fields of the warcinfo record, such as `operator`."""
    omit_authorization: bool = False
    """Leave the credentials out of the request records."""
    credentials: Mapping[str, str] = field(default_factory=dict, repr=False)
    """User and password, escaped, by the server that they are sent to: see `urls.credentials_by_server`."""
    cookies: Mapping[str, str] = field(default_factory=dict)
    """Cookies that are sent to the start hosts from the beginning."""


@dataclass(frozen=True)
class CrawlSettings:
    """What can be changed while the crawl runs; a change applies at once."""

    delay_min: float = 0.25
    delay_max: float = 0.375
    """A downloader waits a random time between the two after each request, counted per host."""
    concurrency: int = 3
    user_agent: str = USER_AGENT
    ignores: tuple[str, ...] = ()
    """Patterns as the user typed them. Invalid ones are reported once and skipped; those that take too long
    are dropped: see `ignores.py`."""
    suppress_ignore_reports: bool = False
    offsite_links: bool = True
    """Follow links that leave the scope, one hop."""
    skip_duplicate_pages: bool = True
    """Do not follow the links of a page that is the same as one seen before, or whose path repeats itself."""
    is_paused: bool = False


class DownloadEntry(msgspec.Struct, frozen=True, tag="download", tag_field="type"):
    """One URL was fetched, or failed. As ArchiveBot logs it."""

    ts: float
    url: str
    response_code: int
    """0 where there was no response."""
    wget_code: str
    """`OK`, or the reason for the failure."""
    is_error: bool
    """The status is 500 or more, or there was no response."""
    is_warning: bool
    """The status is 400 to 499."""


class IgnoreEntry(msgspec.Struct, frozen=True, tag="ignore", tag_field="type"):
    """A URL matched an ignore pattern. As ArchiveBot logs it."""

    ts: float
    url: str
    pattern: str
    """As the user typed it."""
    source: str
    """`accept_url` when it was found, `handle_pre_response` when it came out of the queue."""


class StdoutEntry(msgspec.Struct, frozen=True, tag="stdout", tag_field="type"):
    """A message of the crawl for people. As ArchiveBot logs it."""

    ts: int
    message: str

    @classmethod
    def of(cls, message: str) -> "StdoutEntry":
        """This message, now."""
        return cls(int(now()), message)


@dataclass(frozen=True)
class CrawlCounts:
    """Totals of the whole job, including what was done before a resume."""

    queued: int = 0
    """URLs ever added to the frontier (`items_queued`)."""
    finished: int = 0
    """URLs that left it, with any outcome (what ArchiveBot's code counts as `items_downloaded`)."""
    downloaded: int = 0
    """URLs that were answered with 2xx or 3xx (what its documentation says `items_downloaded` is)."""
    bytes: int = 0
    """Bytes received, heads included (`bytes_downloaded`)."""
    r1xx: int = 0
    r2xx: int = 0
    r3xx: int = 0
    r4xx: int = 0
    r5xx: int = 0
    runk: int = 0
    errors: int = 0
    warc_bytes: int = 0

    @property
    def waiting(self) -> int:
        """URLs still to be fetched."""
        return self.queued - self.finished


class Report(Protocol):
    """What hears of the crawl. The methods are called on the loop and must return at once.

    After a kill, entries of the last second may come a second time: those pages are fetched again."""

    def downloaded(self, entry: DownloadEntry) -> None: ...

    def ignored(self, entry: IgnoreEntry) -> None:
        """Not called while `suppress_ignore_reports` is set."""

    def said(self, entry: StdoutEntry) -> None: ...

    def dropped(self, pattern: str) -> None:
        """An ignore pattern took too long. It is not used any more, nor is it to be when the crawl is
        resumed."""

    def counted(self, counts: CrawlCounts, current: tuple[str, ...]) -> None:
        """The totals and the URLs being fetched now; at most a few times a second, and once at the end."""


class EndReason(StrEnum):
    """Why a crawl ended."""

    FINISHED = "finished"
    """Every URL was fetched or given up."""
    ABORTED = "aborted"
    FAILED = "failed"
    """It is not resumed any more. What it has is finished."""
    SUSPENDED = "suspended"
    """It was told to stop so that it can be resumed: no WACZ yet."""
    DISK_FULL = "disk_full"
    """All records that were written are kept. It can be resumed when there is space."""


@dataclass(frozen=True)
class FinishedFile:
    """A file that will not change any more."""

    path: Path
    kind: str
    """`warc`, `meta` (the log as a WARC), `cdxj` or `wacz`."""
    size: int
    sha256: str
    """Hexadecimal."""


@dataclass(frozen=True)
class CrawlEnd:
    """How a crawl ended."""

    reason: EndReason
    counts: CrawlCounts
    files: tuple[FinishedFile, ...]
    """Empty if the reason is `suspended` or `disk_full`."""
    message: str = ""
    """More about the reason, for people."""
