"""The JSON API of jobs and pipelines. Another account's job is answered like one that does not exist."""

from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from remuda.accounts.audit import Audit
from remuda.archive.artifacts import JobArtifacts
from remuda.archive.ending import abort_job
from remuda.archive.ignores import named_sets, patterns_of
from remuda.archive.jobs import Jobs, no_job
from remuda.archive.logs import KEEP, Logs
from remuda.archive.model import ENDED, Ident, read_ident, run_id
from remuda.archive.pipelines import Pipelines, PipelineView
from remuda.archive.records import JobRequest, Record
from remuda.archive.settings import ChangedIgnores, IgnoresChange, JobSettingsEditor, SettingsChange
from remuda.archive.usage import ARCHIVE
from remuda.archive.view import JobDetail, JobsView, JobView
from remuda.base.errors import InvalidArgument, Lost
from remuda.base.log import get_logger
from remuda.fleet.live import LiveStreams, LogFollowers, event, numbered
from remuda.fleet.origin import Scope
from remuda.fleet.route import EVENT_STREAM, Route, origin_of
from remuda.keyspace import archive
from remuda.metering.quotas import Quotas
from remuda.storage.cleanup import ask_deletion
from remuda.storage.model import Owner
from remuda.storage.sharing import Share, ShareRequest, Sharing
from remuda.storage.usage import ARTIFACTS
from remuda.store import Store

log = get_logger(__name__)

MAX_BODY = 1 << 20
"""Bytes of a request: it may have thousands of ignore patterns."""
RECENT = 30
"""Runs that the live list has, beside those that have not ended."""

Seconds = Annotated[float, Meta(ge=0)]


class JobsQuery(Struct):
    """Which runs: the newest `limit` of them in this `state`, or of those that have not ended (`open`);
    `before` is the cursor of the page before."""

    state: Literal["", "open", "queued", "running", "completed", "aborted", "failed"] = ""
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    before: Seconds | None = None


class JobPage(Struct):
    """Runs of jobs, the newest first; `cursor` is the `before` of the next page, null on the last."""

    jobs: list[JobView]
    cursor: float | None


class RunQuery(Struct):
    """Which run of the job; by default the newest."""

    run: Annotated[int, Meta(ge=1)] | None = None


class JobLogQuery(Struct):
    """Entries after this index, oldest first, at most `limit`; below zero the newest."""

    after: int = -1
    limit: Annotated[int, Meta(ge=1, le=KEEP)] = 200


class JobLog(Struct):
    """Entries of a job's log."""

    entries: list[dict[str, Any]]


class JobAfterQuery(Struct):
    """Follow the log after this index."""

    after: int = 0


class IgnoreList(Struct):
    """The ignore patterns of a job."""

    ignores: list[str]


class IgnoreSet(Struct):
    """A named set of ignore patterns."""

    name: str
    patterns: list[str]


class IgnoreSets(Struct):
    """Every named set."""

    sets: list[IgnoreSet]


class PipelineList(Struct):
    """Pipelines that run."""

    pipelines: list[PipelineView]


class FileShareRequest(ShareRequest):
    """For how long a file is shared, such as 12h or 7d; the default is 7d. `credentials` is true if those who
    read it may have the user and password that are in its records of requests."""

    credentials: bool = False


class DeletedFiles(Struct):
    """The run whose files are deleted."""

    ident: str
    run: int


class ArchiveApi:
    """Starts jobs, shows them, changes and ends them."""

    def __init__(self, store: Store, *, most_jobs: int, quotas: Quotas) -> None:
        self._store = store
        self._quotas = quotas
        self._most_jobs = most_jobs
        self._jobs = Jobs(store)
        self._view = JobsView(store)
        self._settings = JobSettingsEditor(store)
        self._logs = Logs(store)
        self._pipelines = Pipelines(store)
        self._audit = Audit(store)
        self._sharing = Sharing(store)
        self._followers = LogFollowers()
        self._live = LiveStreams("jobs", self._read_list)

    # Jobs

    async def list_jobs(self, request: Request, query: JobsQuery) -> JobPage:
        limited_to = origin_of(request).limited_to
        return JobPage(
            *await self._view.page(
                limited_to=limited_to, limit=query.limit, before=query.before, state=query.state
            )
        )

    async def create_job(self, request: Request, body: JobRequest) -> JobDetail:
        origin = origin_of(request)
        await self._quotas.check(origin.account, (ARCHIVE.name, ARTIFACTS.name))
        record = await self._jobs.submit(body, origin, most=self._most_jobs)
        log.info("job queued", run=record.run, url=record.url, account=origin.account)
        await self._audit.record(origin, "job.create", record.run, url=record.url)
        return await self._view.job(Ident(record.ident), limited_to=None)

    async def get_job(self, request: Request, query: RunQuery) -> JobDetail:
        record = await self._find(request)
        return await self._view.job(Ident(record.ident), limited_to=None, number=query.run)

    async def change_settings(self, request: Request, body: SettingsChange) -> JobDetail:
        record = await self._find(request)
        await self._settings.change(Ident(record.ident), body)
        changed = {name: value for name, value in msgspec.to_builtins(body).items() if value is not None}
        await self._audit.record(origin_of(request), "job.set", record.run, **changed)
        return await self._view.job(Ident(record.ident), limited_to=None)

    async def pause_job(self, request: Request) -> JobDetail:
        return await self.change_settings(request, SettingsChange(paused=True))

    async def resume_job(self, request: Request) -> JobDetail:
        return await self.change_settings(request, SettingsChange(paused=False))

    async def abort(self, request: Request) -> JobDetail:
        record = await self._find(request)
        if await abort_job(self._store, record):
            await self._audit.record(origin_of(request), "job.abort", record.run)
        return await self._view.job(Ident(record.ident), limited_to=None)

    async def delete_files(self, request: Request, query: RunQuery) -> DeletedFiles:
        """Has the files of a run deleted; its record stays."""
        newest = await self._find(request)
        number = query.run or newest.number
        run = newest.run if number == newest.number else f"{newest.ident}-{number}"
        kind = JobArtifacts(self._store)
        if await kind.find_storage(run) is None or await kind.active([run]):
            raise Lost(f"Run {number} of job {newest.ident} has no files")
        await ask_deletion(self._store, kind, run)
        await self._audit.record(origin_of(request), "artifacts.delete", run)
        return DeletedFiles(newest.ident, number)

    async def share_file(self, request: Request, query: RunQuery, body: FileShareRequest) -> Share:
        """A URL under which anybody may read a file of a run."""
        newest, name = await self._find(request), request.path_params["name"]
        shown = await self._view.job(Ident(newest.ident), limited_to=None, number=query.run)
        kind = next((each.kind for each in shown.files if each.name == name), None)
        if kind is None:
            raise Lost(f"Run {shown.run} of job {shown.ident} has no file {name[:200]!r}")
        has_credentials = shown.credentials_for and not shown.options.omit_authorization
        if has_credentials and not body.credentials and kind in ("warc", "wacz"):
            servers = ", ".join(shown.credentials_for)[:200]
            raise InvalidArgument(
                f"{name} has the user and password for {servers} in its records of requests. Run the job "
                "with the option omitAuthorization, or share the file with `credentials` true."
            )
        run = run_id(Ident(shown.ident), shown.run)
        storage = await JobArtifacts(self._store).find_storage(run)
        if storage is None:
            raise Lost(f"The files of run {shown.run} of job {shown.ident} are deleted")
        owner = Owner(JobArtifacts.name, run)
        return await self._sharing.share(origin_of(request), body, storage=storage, owner=owner, names=[name])

    async def _find(self, request: Request) -> Record:
        text = request.path_params["ident"]
        try:
            return await self._jobs.newest(read_ident(text), limited_to=origin_of(request).limited_to)
        except (InvalidArgument, Lost):
            raise no_job(text) from None

    # Ignores

    async def list_ignores(self, request: Request) -> IgnoreList:
        record = await self._find(request)
        return IgnoreList(sorted(await self._store.smembers(archive.JOB_IGNORES(record.ident))))

    async def change_ignores(self, request: Request, body: IgnoresChange) -> ChangedIgnores:
        record = await self._find(request)
        origin = origin_of(request)
        changed = await self._settings.change_ignores(Ident(record.ident), body, account=origin.account)
        details = {"added": changed.added, "removed": changed.removed}
        await self._audit.record(origin, "job.ignores", record.run, **details)
        return changed

    async def list_ignore_sets(self, _request: Request) -> IgnoreSets:
        return IgnoreSets([IgnoreSet(name, list(patterns_of(name))) for name in named_sets()])

    # Logs

    async def get_log(self, request: Request, query: JobLogQuery) -> JobLog:
        record = await self._find(request)
        return JobLog(await self._logs.read(Ident(record.ident), after=query.after, limit=query.limit))

    async def follow_log(self, request: Request, query: JobAfterQuery) -> AsyncIterator[bytes] | Response:
        """The log as it grows, until the job has ended."""
        record = await self._find(request)
        told = request.headers.get("Last-Event-ID", "")
        after = int(told) if told.isdigit() and len(told) < 16 else query.after
        limited_to = origin_of(request).limited_to
        self._followers.check(limited_to)
        if record.state in ENDED and not await self._logs.read(Ident(record.ident), after=after, limit=1):
            # HTML 9.2.3: after a 204 an EventSource does not come back.
            return Response(status_code=204)
        ident = Ident(record.ident)

        async def read() -> tuple[list[bytes], bool]:
            nonlocal after
            # Asked before the log is read: whatever was written before the end is in it.
            state = await self._store.hget(archive.RUN(record.run), "state")
            entries = await self._logs.read(ident, after=after)
            if not entries:
                return [], state in (None, *ENDED)
            after = int(entries[-1].get("seq", after))
            return [numbered(after, event("entries", entries))], False

        channel = archive.JOB_LINES(ident)
        return self._followers.follow(self._store, channel, read, limited_to=limited_to, look_every=1.0)

    # Everything at once, for the dashboard

    async def watch(self, request: Request) -> AsyncIterator[bytes]:
        return self._live.watch(origin_of(request).limited_to)

    async def _read_list(self, limited_to: str | None) -> dict[str, Any]:
        """What has not ended, what ended last, and for operators the pipelines."""
        unfinished, _ = await self._view.page(limited_to=limited_to, limit=200, state="open")
        recent, _ = await self._view.page(limited_to=limited_to, limit=RECENT)
        known = {(each.ident, each.run) for each in unfinished}
        jobs = [*unfinished, *(each for each in recent if (each.ident, each.run) not in known)]
        for each in jobs:  # It changes by itself; the page counts on.
            each.seconds = 0.0 if each.finished_at is None else each.seconds
        pipelines = await self._pipelines.alive() if limited_to is None else []
        shown = [
            {"id": each.id, "nickname": each.nickname, "status": each.status, "obstacle": each.obstacle}
            | {"jobs": each.jobs, "concurrent": each.concurrent, "diskAvailable": each.disk_available}
            for each in pipelines
        ]
        return {"jobs": jobs, "pipelines": shown}

    # Pipelines

    async def list_pipelines(self, _request: Request) -> PipelineList:
        return PipelineList(await self._pipelines.alive())

    async def drain_pipeline(self, request: Request) -> PipelineView:
        found = await self._pipelines.drain(request.path_params["pipeline"])
        await self._audit.record(origin_of(request), "pipeline.drain", found.id)
        return found

    async def undrain_pipeline(self, request: Request) -> PipelineView:
        found = await self._pipelines.drain(request.path_params["pipeline"], undo=True)
        await self._audit.record(origin_of(request), "pipeline.resume", found.id)
        return found

    def routes(self) -> Sequence[Route]:
        job = "/api/archive/jobs/{ident}"
        scope = Scope.ARCHIVE
        return [
            Route(
                "GET",
                "/api/archive/jobs",
                "Runs of jobs, the newest first",
                self.list_jobs,
                JobPage,
                query=JobsQuery,
                scope=scope,
            ),
            Route(
                "POST",
                "/api/archive/jobs",
                "Start a job: archive a site; 409 if the same job waits or runs",
                self.create_job,
                JobDetail,
                body=JobRequest,
                example={"url": "https://www.example.org/", "depth": "inf", "ignoreSets": ["global"]},
                max_body=MAX_BODY,
                scope=scope,
            ),
            Route(
                "GET",
                job,
                "A job, with its newest run or another one",
                self.get_job,
                JobDetail,
                query=RunQuery,
                scope=scope,
            ),
            Route(
                "PATCH",
                job,
                "Change settings of a job; they apply at once",
                self.change_settings,
                JobDetail,
                body=SettingsChange,
                example={"concurrency": 2, "delayMin": 500, "delayMax": 1000},
                scope=scope,
            ),
            Route("POST", f"{job}/pause", "Pause a job", self.pause_job, JobDetail, scope=scope),
            Route("POST", f"{job}/resume", "Resume a job", self.resume_job, JobDetail, scope=scope),
            Route(
                "POST",
                f"{job}/abort",
                "Abort a job; what was archived is kept",
                self.abort,
                JobDetail,
                scope=scope,
            ),
            Route(
                "DELETE",
                f"{job}/artifacts",
                "Delete the files of a run; its record stays",
                self.delete_files,
                DeletedFiles,
                query=RunQuery,
                scope=scope,
            ),
            Route(
                "POST",
                f"{job}/artifacts/{{name}}/share",
                "A URL under which anybody can read a file of a run for a while",
                self.share_file,
                Share,
                query=RunQuery,
                body=FileShareRequest,
                example={"expires": "7d"},
                scope=scope,
            ),
            Route(
                "GET",
                f"{job}/ignores",
                "The ignore patterns of a job",
                self.list_ignores,
                IgnoreList,
                scope=scope,
            ),
            Route(
                "PATCH",
                f"{job}/ignores",
                "Add and remove ignore patterns; they apply at once",
                self.change_ignores,
                ChangedIgnores,
                body=IgnoresChange,
                example={"add": ["/calendar/"]},
                max_body=MAX_BODY,
                scope=scope,
            ),
            Route(
                "GET",
                f"{job}/log",
                "The log of a job: its last entries, or those after an index",
                self.get_log,
                JobLog,
                query=JobLogQuery,
                scope=scope,
            ),
            Route(
                "GET",
                f"{job}/log/live",
                "The log of a job, live, as Server-Sent Events; 204 if the log is complete",
                self.follow_log,
                EVENT_STREAM,
                query=JobAfterQuery,
                scope=scope,
            ),
            Route(
                "GET",
                "/api/archive/live",
                "Jobs whenever something has changed, as Server-Sent Events",
                self.watch,
                EVENT_STREAM,
                scope=scope,
            ),
            Route(
                "GET",
                "/api/archive/ignore-sets",
                "The named sets of ignore patterns",
                self.list_ignore_sets,
                IgnoreSets,
                scope=scope,
            ),
            Route("GET", "/api/archive/pipelines", "Pipelines", self.list_pipelines, PipelineList),
            Route(
                "POST",
                "/api/archive/pipelines/{pipeline}/drain",
                "Have a pipeline take no more jobs, and leave after those it has",
                self.drain_pipeline,
                PipelineView,
            ),
            Route(
                "DELETE",
                "/api/archive/pipelines/{pipeline}/drain",
                "Have a pipeline take jobs again",
                self.undrain_pipeline,
                PipelineView,
            ),
        ]
