"""Jobs and their runs, as a person wants to see them. Times are RFC 3339; names are camel case in JSON."""

import asyncio
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from remuda.archive.crawler.model import CrawlCounts
from remuda.archive.jobs import Jobs
from remuda.archive.model import ENDED, Ident, JobSettings, JobState, OrderOptions, RunId
from remuda.archive.pipeline.delivery import ArchiveFile
from remuda.archive.records import Record
from remuda.base import clock
from remuda.keyspace import archive
from remuda.store import Store

BATCH = 200


class CountsView(Struct, rename="camel"):
    """What a run has done. `waiting` are the URLs still to be fetched, `bytes` those that were received."""

    queued: int
    finished: int
    waiting: int
    downloaded: int
    bytes: int
    warc_bytes: int
    errors: int
    r1xx: int
    r2xx: int
    r3xx: int
    r4xx: int
    r5xx: int
    runk: int


class SettingsView(Struct, rename="camel"):
    """The settings of a job, with the number of its ignore patterns. Delays are in milliseconds."""

    delay_min: int
    delay_max: int
    concurrency: int
    user_agent: str
    suppress_ignore_reports: bool
    no_offsite_links: bool
    paused: bool
    age: int
    ignores: int


class FileView(Struct):
    """A finished file, and where to get it below the front door."""

    name: str
    kind: str
    size: int
    sha256: str
    path: str


class JobView(Struct, rename="camel", kw_only=True):
    """A run of a job. `state` is queued, running, completed, aborted or failed; `reason` says why it failed.
    `aborting` is true while its pipeline ends it, `current` are the URLs that are being fetched."""

    ident: str
    run: int
    url: str
    depth: str
    state: JobState
    reason: str
    account: str
    started_by: str
    note: str
    queued_at: str
    started_at: str | None
    finished_at: str | None
    seconds: float
    """How long it has run."""
    pipeline: str
    deaths: int
    aborting: bool
    counts: CountsView
    current: list[str]
    settings: SettingsView | None
    """None once the job's record has expired."""
    files: list[FileView]


class JobDetail(JobView, kw_only=True):
    """The same with what was asked for, the servers that it has a user and password for, the ignore patterns
    that took too long and are not used any more, and the numbers of all runs of the job, the newest first."""

    options: OrderOptions
    credentials_for: list[str]
    dropped_ignores: list[str]
    runs: list[int]


class JobsView:
    """Reads jobs."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._jobs = Jobs(store)

    async def page(
        self, *, limited_to: str | None, limit: int, before: float | None = None, state: str = ""
    ) -> tuple[list[JobView], float | None]:
        """Runs that were queued before a moment, the newest first, and before which moment the next page
        begins. With the state `open` those that have not ended."""
        index = archive.ALL_RUNS() if limited_to is None else archive.ACCOUNT_RUNS(limited_to)
        found: list[Record] = []
        while len(found) < limit:
            high = "+inf" if before is None else f"({before!r}"
            scored = await self._store.send(
                "ZRANGE", index, high, "-inf", "BYSCORE", "REV", "LIMIT", 0, BATCH, "WITHSCORES"
            )
            for record, before in await self._records(scored):
                if _is_wanted(record, state):
                    found.append(record)
                    if len(found) == limit:
                        return await self._views(found), before
            if len(scored) < BATCH:
                break
            before = float(scored[-1][1])
        return await self._views(found), None

    async def _views(self, records: Sequence[Record]) -> list[JobView]:
        """The runs, all read in one write."""
        return list(await asyncio.gather(*map(self._view, records)))

    async def job(self, ident: Ident, *, limited_to: str | None, number: int | None = None) -> JobDetail:
        """A run of a job, by default the newest; Lost if it is another account's."""
        record = await self._jobs.newest(ident, limited_to=limited_to)
        runs = await self._jobs.runs_of(ident)
        if number is not None and number != record.number:
            record = await self._jobs.record(RunId(f"{ident}-{number}"))
        view = await self._view(record)
        return JobDetail(
            **{name: getattr(view, name) for name in view.__struct_fields__},
            options=record.options,
            credentials_for=record.credentials_for,
            dropped_ignores=record.dropped,
            runs=[int(run.rpartition("-")[2]) for run in runs],
        )

    async def _records(self, scored: Sequence[tuple[str, float]]) -> list[tuple[Record, float]]:
        replies = [(self._store.hgetall(archive.RUN(run)), score) for run, score in scored]
        return [
            (msgspec.convert(found, Record, strict=False), float(score))
            for reply, score in replies
            if (found := await reply)
        ]

    async def _view(self, record: Record) -> JobView:
        settings, is_aborting = await self._settings(record)
        counts = msgspec.json.decode(record.counts, type=CrawlCounts)
        ended = record.finished_at or clock.now()
        return JobView(
            ident=record.ident,
            run=record.number,
            url=record.url,
            depth=record.depth,
            state=record.state,
            reason=record.reason,
            account=record.account,
            started_by=record.token or record.account,
            note=record.note,
            queued_at=clock.rfc3339(record.queued_at),
            started_at=None if record.started_at is None else clock.rfc3339(record.started_at),
            finished_at=None if record.finished_at is None else clock.rfc3339(record.finished_at),
            seconds=0.0 if record.started_at is None else round(max(0.0, ended - record.started_at), 3),
            pipeline=record.pipeline,
            deaths=record.deaths,
            aborting=is_aborting and record.state not in ENDED,
            counts=_count(counts),
            current=msgspec.json.decode(record.current, type=list[str]),
            settings=settings,
            files=_files_of(record),
        )

    async def _settings(self, record: Record) -> tuple[SettingsView | None, bool]:
        ident = Ident(record.ident)
        reply, count = self._store.hgetall(archive.JOB(ident)), self._store.scard(archive.JOB_IGNORES(ident))
        fields, ignores = await reply, await count
        if fields.get("run") != str(record.number):
            return None, False
        settings = JobSettings.read(fields)
        view = SettingsView(
            **{name: getattr(settings, name) for name in JobSettings.__struct_fields__},
            age=int(fields.get("settings_age", 0)),
            ignores=ignores,
        )
        return view, bool(fields.get("abort_requested"))


def _count(counts: CrawlCounts) -> CountsView:
    return CountsView(**{name: getattr(counts, name) for name in CountsView.__struct_fields__})


def _is_wanted(record: Record, state: str) -> bool:
    if state == "open":
        return record.state not in ENDED
    return not state or record.state == state


def _files_of(record: Record) -> list[FileView]:
    if not record.storage:
        return []
    files = msgspec.json.decode(record.files, type=list[ArchiveFile])
    base = f"/storage/{record.storage}/job_{record.run}"
    return [FileView(each.name, each.kind, each.size, each.sha256, f"{base}/{each.name}") for each in files]
