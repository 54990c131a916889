"""What is asked for, and what is written down of each run of a job."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from remuda.archive.model import (
    INFINITE,
    MOST_IGNORES,
    Ident,
    JobSettings,
    JobState,
    OrderOptions,
    Pattern,
    RunId,
    ShortText,
    queue_of,
    run_id,
)
from remuda.fleet.origin import DEFAULT_ACCOUNT
from remuda.keyspace.key import ListName

StartUrl = Annotated[str, Meta(max_length=8192)]
MOST_SERVERS = 100
"""Servers with a user and password that are named in a record; a file of URLs may have very many."""


class JobRequest(Struct, kw_only=True, rename="camel"):
    """A job to start. `urls` are start URLs beside `url`; with `urlFile`, `url` is that of a text file with a
    start URL on each line. Users and passwords in URLs are sent to their servers only, and shown nowhere.
    `depth` is `inf`, `shallow` or a number of links; `pipeline` is a part of the
    nickname of the pipelines that may take it."""

    url: StartUrl
    urls: Annotated[list[StartUrl], Meta(max_length=10_000)] = []
    url_file: bool = False
    depth: str = INFINITE
    note: ShortText = ""
    settings: JobSettings = JobSettings()
    options: OrderOptions = OrderOptions()
    ignores: Annotated[list[Pattern], Meta(max_length=MOST_IGNORES)] = []
    ignore_sets: list[str] = []
    pipeline: str = ""
    large: bool = False


class Record(Struct, rename="camel", kw_only=True):
    """The record of a run, see the key `remuda:run:{run}`."""

    ident: str
    number: int
    account: str = DEFAULT_ACCOUNT
    token: str = ""
    address: str = ""
    url: str
    urls: str = "[]"
    servers: str = "[]"
    depth: str = INFINITE
    note: str = ""
    order: str = "{}"
    queue: str = ""
    state: JobState = JobState.QUEUED
    reason: str = ""
    queued_at: float = 0.0
    started_at: float | None = None
    finished_at: float | None = None
    pipeline: str = ""
    host: str = ""
    deaths: int = 0
    shipped: int = 0
    current: str = "[]"
    counts: str = "{}"
    settings: str = "{}"
    dropped_ignores: str = "[]"
    files: str = "[]"
    storage: str = ""

    @property
    def run(self) -> RunId:
        return run_id(Ident(self.ident), self.number)

    @property
    def waits_in(self) -> ListName:
        """Its queue. What other software has queued has none in its record until it is claimed."""
        return ListName(self.queue) if self.queue else queue_of(self.depth)

    @property
    def tag(self) -> str:
        """What must be in the nickname of its pipeline; empty for any."""
        return self.queue.partition(":")[2]

    @property
    def start_urls(self) -> list[str]:
        """Where it begins; not the URLs in a file."""
        return msgspec.json.decode(self.urls, type=list[str]) or [self.url]

    @property
    def credentials_for(self) -> list[str]:
        """The servers that it has a user and password for, or the first of them."""
        return msgspec.json.decode(self.servers, type=list[str])

    @property
    def dropped(self) -> list[str]:
        """The ignore patterns that took too long."""
        return msgspec.json.decode(self.dropped_ignores, type=list[str])

    @property
    def options(self) -> OrderOptions:
        return msgspec.json.decode(self.order, type=OrderOptions)


@dataclass(frozen=True)
class Claim:
    """A job that a pipeline has taken."""

    ident: Ident
    number: int

    @property
    def run(self) -> RunId:
        return run_id(self.ident, self.number)


@dataclass(frozen=True)
class Progress:
    """How far a run has come."""

    job: Mapping[str, str]
    """Fields of the job's hash."""
    record: Mapping[str, str]
    """Fields of the run's record."""
