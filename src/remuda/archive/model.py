"""The life of a job, and what follows from a job's fields. Pure.

                        ┌────────────── its pipeline died or left ──────────────┐
                        ▼                                                       │
    (asked for) ──> queued ──── a pipeline claims it ────> running ─────────────┤
                        │                                                       │
                        ├──> aborted <──────────────────────────────────────────┤
                        └──> failed  <──────────────────────────────────────────┤
                                              completed <───────────────────────┘

A job is a URL of an account; each time it is asked for is a run of it, with a number and a record of its own.
Redis has no field for the state: it follows from the documented fields, as in the original.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, NewType

from msgspec import Meta, Struct

from remuda.archive.crawler.model import Compression, CrawlScope
from remuda.archive.urls import ident_of
from remuda.base.errors import InvalidArgument
from remuda.fleet.origin import DEFAULT_ACCOUNT
from remuda.keyspace import archive
from remuda.keyspace.key import ListName

Ident = NewType("Ident", str)
"""A job: what is asked for again under the same URL is the same job."""
RunId = NewType("RunId", str)
"""One run of a job, such as `43z7a11vo6of3a7i173441dtc-1`. It owns the files."""
PipelineKey = NewType("PipelineKey", str)
"""A pipeline, as jobs name it: the key of its record."""

SHALLOW = "shallow"
INFINITE = "inf"
GLOBAL_IGNORES = "global"
"""The ignore set that every job has, as in the original."""

_IDENT = re.compile("[a-z0-9]{1,64}").fullmatch
_IDENT_LENGTH = 25
_DEPTH = re.compile("inf|shallow|[0-9]{1,6}").fullmatch
_NUMBER = re.compile("[0-9]{1,9}").fullmatch


class JobState(StrEnum):
    """Where a job is in its life."""

    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    ABORTED = "aborted"
    FAILED = "failed"


MOVES: Mapping[JobState, frozenset[JobState]] = {
    JobState.QUEUED: frozenset({JobState.RUNNING, JobState.ABORTED, JobState.FAILED}),
    JobState.RUNNING: frozenset({JobState.QUEUED, JobState.COMPLETED, JobState.ABORTED, JobState.FAILED}),
    # Asked for again: a new run of the same job.
    JobState.COMPLETED: frozenset({JobState.QUEUED}),
    JobState.ABORTED: frozenset({JobState.QUEUED}),
    JobState.FAILED: frozenset({JobState.QUEUED}),
}
"""State -> the states it may move to. The scripts refuse every other move."""

ENDED = frozenset({JobState.COMPLETED, JobState.ABORTED, JobState.FAILED})
OPEN = frozenset({JobState.QUEUED, JobState.RUNNING})


def legal_origins(state: JobState, within: Collection[JobState] = OPEN) -> str:
    """The states from which a job may move to this one in its present run, as the scripts read them."""
    legal = (origin for origin, targets in MOVES.items() if state in targets and origin in within)
    return "".join(f",{origin}," for origin in legal)


def state_of(fields: Mapping[str, str]) -> JobState:
    """The state of a job with these fields."""
    if "finished_at" in fields:
        if fields.get("failed"):
            return JobState.FAILED
        return JobState.ABORTED if fields.get("aborted") else JobState.COMPLETED
    return JobState.RUNNING if fields.get("started_at") else JobState.QUEUED


# Names


def job_ident(url: str, account: str, others: Sequence[str] = ()) -> Ident:
    """The ident of an account's job for this URL, or for this one and others.

    Two accounts may archive one URL at the same time, and neither must learn of the other. So only where
    there is one account is the ident the original's; elsewhere it depends on the account, too.
    """
    salt = "" if account == DEFAULT_ACCOUNT else account
    return Ident(ident_of(url, salt="\n".join((salt, *others)) if others else salt))


def read_ident(text: str) -> Ident:
    """The ident that a person typed, with or without its leading zeros; InvalidArgument if it is none."""
    if not _IDENT(text):
        raise InvalidArgument(f"{text[:100]!r} is not the ident of a job")
    return Ident(text.rjust(_IDENT_LENGTH, "0"))


def run_id(ident: Ident, number: int) -> RunId:
    """The id of a run."""
    return RunId(f"{ident}-{number}")


def ident_of_run(run: RunId) -> Ident:
    """The job of a run."""
    return Ident(run.rpartition("-")[0])


# Queues


def queue_of(depth: str, *, tag: str = "", is_large: bool = False) -> ListName:
    """The queue of a job, as in the original."""
    if is_large and (tag or depth == SHALLOW):
        raise InvalidArgument("A large job can neither be shallow nor be for certain pipelines")
    if tag:
        return archive.PENDING_TAG(tag)
    if depth == SHALLOW:
        return archive.PENDING_AO()
    return archive.PENDING_LARGE() if is_large else archive.PENDING()


def candidate_queues(
    nickname: str, tags: Iterable[str], *, takes_large: bool = False, only_shallow: bool = False
) -> Sequence[ListName]:
    """The queues from which a pipeline takes jobs, the first before the others.

    A tag is a part of the nickname. Shallow jobs come before recursive ones: those take hours (the original
    has the opposite order, which its users asked to change).
    """
    large = [archive.PENDING_LARGE()] if takes_large else []
    if only_shallow:
        return [archive.PENDING_AO(), *large]
    targeted = [archive.PENDING_TAG(tag) for tag in sorted(tags) if tag in nickname]
    return [*targeted, archive.PENDING_AO(), *large, archive.PENDING()]


# What is asked for

Milliseconds = Annotated[int, Meta(ge=0, le=9_999_999)]
Downloaders = Annotated[int, Meta(ge=1, le=99)]
ShortText = Annotated[str, Meta(max_length=1000)]
Pattern = Annotated[str, Meta(min_length=1, max_length=2000)]
MOST_IGNORES = 10_000


def flag(is_set: bool) -> str:
    """A boolean, as the original writes it."""
    return "true" if is_set else ""


class OrderOptions(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What is fixed for a run, beyond the documented fields."""

    scope: CrawlScope = CrawlScope.ORIGINAL
    no_parent: bool = True
    page_requisites: bool = True
    obey_robots: bool = False
    sitemaps: bool = True
    max_body: Annotated[int, Meta(ge=1)] | None = None
    """Bytes after which a body is cut."""
    split_size: Annotated[int, Meta(ge=1 << 20)] | None = None
    """Bytes after which the next WARC file is begun."""
    compression: Compression = Compression.GZIP
    dedupe: bool = True
    dedupe_jobs: bool = False
    """Whether payloads that earlier jobs of the account have are only referred to."""
    wacz: bool = True
    metadata_records: bool = False
    skip_duplicate_pages: bool = True
    omit_authorization: bool = False
    """Whether the records of requests are written without the field `Authorization`."""


class JobSettings(Struct, frozen=True, rename="camel"):
    """What can be changed while a job runs. Delays are in milliseconds, as in Redis."""

    delay_min: Milliseconds = 250
    delay_max: Milliseconds = 375
    concurrency: Downloaders = 3
    user_agent: ShortText = ""
    """Empty for the default."""
    suppress_ignore_reports: bool = True
    no_offsite_links: bool = False
    paused: bool = False

    def __post_init__(self) -> None:
        if self.delay_min > self.delay_max:
            raise InvalidArgument(f"delay_min ({self.delay_min}) is more than delay_max ({self.delay_max})")

    def fields(self) -> dict[str, str]:
        """The settings as fields of the job's hash: a boolean is `true` or the empty string."""
        return {
            "delay_min": str(self.delay_min),
            "delay_max": str(self.delay_max),
            "concurrency": str(self.concurrency),
            "user_agent": self.user_agent,
            "suppress_ignore_reports": flag(self.suppress_ignore_reports),
            "no_offsite_links": flag(self.no_offsite_links),
            "paused": flag(self.paused),
        }

    @classmethod
    def read(cls, fields: Mapping[str, str]) -> "JobSettings":
        """The settings in a job's hash; for what is missing or wrong there, the defaults."""
        names = ("delay_min", "delay_max", "concurrency")
        numbers = {name: int(fields[name]) for name in names if _NUMBER(fields.get(name, ""))}
        defaults = cls()
        delay_min = numbers.get("delay_min", defaults.delay_min)
        return cls(
            delay_min=delay_min,
            # Two changes at a time, or other software, may have set it lower.
            delay_max=max(delay_min, numbers.get("delay_max", defaults.delay_max)),
            concurrency=numbers.get("concurrency") or defaults.concurrency,
            user_agent=fields.get("user_agent", ""),
            suppress_ignore_reports=bool(fields.get("suppress_ignore_reports")),
            no_offsite_links=bool(fields.get("no_offsite_links")),
            paused=bool(fields.get("paused")),
        )


SETTINGS_FIELDS = tuple(JobSettings().fields())


def check_depth(depth: str) -> str:
    """The depth; InvalidArgument if it is none."""
    if not _DEPTH(depth):
        raise InvalidArgument(f"The depth {depth[:20]!r} is not inf, shallow or a number")
    return depth
