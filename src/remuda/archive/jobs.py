"""Jobs in Redis, from the request to the end. Each move of a job is one script, which refuses illegal ones.

jobs = Jobs(store)
run = await jobs.submit(request, origin)           # AlreadyExists, AccountLimitReached
claimed = await jobs.claim(pipeline, queues)       # by one pipeline only
await jobs.beat(claimed, pipeline, progress)       # LeaseLost: another has it now
await jobs.finish(claimed.run, JobState.COMPLETED, asker=pipeline)
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from remuda.archive.agents import find_user_agent
from remuda.archive.ignores import patterns_of, validate
from remuda.archive.model import (
    ENDED,
    GLOBAL_IGNORES,
    Ident,
    JobState,
    PipelineKey,
    RunId,
    check_depth,
    job_ident,
    legal_origins,
    queue_of,
    run_id,
)
from remuda.archive.records import MOST_SERVERS, Claim, JobRequest, Progress, Record
from remuda.archive.urls import credentials_by_server, normalise, slug_of
from remuda.base.errors import AccountLimitReached, AlreadyExists, InvalidArgument, Lost
from remuda.fleet.bell import bell_of
from remuda.fleet.origin import DEFAULT_ACCOUNT, Origin
from remuda.keyspace import archive
from remuda.keyspace.fleet import LEASE
from remuda.keyspace.key import ChannelName, ListName, Name, StringName
from remuda.keyspace.metering import TIMER, TIMERS
from remuda.store import Store, any_key, load_script

_SHARED = "job.lua"
_SUBMIT = load_script(
    __file__,
    "submit.lua",
    keys=[
        archive.JOB,
        archive.JOB_IGNORES,
        archive.JOB_LOG,
        any_key("queue"),
        archive.RUNS,
        archive.ALL_RUNS,
        archive.ACCOUNT_RUNS,
        archive.OPEN_JOBS,
        archive.JOB_TAGS,
        archive.CREDENTIALS,
    ],
    args=["ident", "origins", "most", "run", "tag", "bell", "job", "record", "ignores", "logins"],
    shared=_SHARED,
)
_CLAIM = load_script(
    __file__,
    "claim.lua",
    keys=[
        archive.WORKING,
        archive.ALL_RUNS,
        archive.ACCOUNT_RUNS,
        archive.OPEN_JOBS,
        TIMERS,
        any_key("queue"),
    ],
    args=[
        "pipeline",
        "host",
        "seconds",
        "look",
        "account",
        "job",
        "lease",
        "run",
        "runs",
        "timer",
        "credentials",
    ],
    shared=_SHARED,
)
_BEAT = load_script(
    __file__,
    "beat.lua",
    keys=[archive.JOB, LEASE, archive.RUN, TIMER],
    args=["run", "pipeline", "seconds", "job", "record"],
    shared=_SHARED,
)
_REQUEUE = load_script(
    __file__,
    "requeue.lua",
    keys=[
        archive.JOB,
        LEASE,
        archive.RUN,
        any_key("queue"),
        archive.WORKING,
        archive.METRICS_ARCHIVE,
        archive.JOB_TAGS,
    ],
    args=["ident", "run", "origins", "asker", "deaths", "grace", "tag", "bell"],
    shared=_SHARED,
)
_FINISH = load_script(
    __file__,
    "finish.lua",
    keys=[
        archive.JOB,
        LEASE,
        archive.RUN,
        any_key("queue"),
        archive.WORKING,
        archive.JOB_IGNORES,
        archive.JOB_LOG,
        any_key("counter"),
        archive.FINISH_NOTIFICATIONS,
        archive.OPEN_JOBS,
        TIMER,
        TIMERS,
        archive.CREDENTIALS,
    ],
    args=[
        "ident",
        "run",
        "origins",
        "asker",
        "state",
        "record",
        "notification",
        "keep",
        "lingers",
        "updates",
        "settings",
    ],
    shared=_SHARED,
)
_FOLLOW = load_script(
    __file__,
    "follow.lua",
    keys=[archive.JOB, archive.RUN, archive.OPEN_JOBS, TIMER, TIMERS, archive.CREDENTIALS],
    args=["ident", "run", "ends", "lost"],
    shared=_SHARED,
)
_ACKNOWLEDGE = load_script(
    __file__, "acknowledge.lua", keys=[archive.WORKING], args=["most", "job", "lease"], shared=_SHARED
)

LEASE_SECONDS = 15
"""For which a job is its pipeline's after a beat. A pipeline beats every second."""
HOST_GRACE = 60.0
"""Seconds for which a job is left to the machine that has its frontier, after its pipeline has died there."""
LOOK_AT = 50
"""Jobs of a queue that one claim looks at: those before may be another machine's."""
MOST_WORKING = 10_000
KEEP_NOTIFICATIONS = 1000
HERD = "*"
"""Asks for the herd itself: it may end any job."""
LOST = "The job was deleted from Redis"
NOBODY = ""
"""Asks for no pipeline: it may act on jobs whose lease is over."""

COUNTERS = {
    JobState.COMPLETED: archive.JOBS_COMPLETED,
    JobState.ABORTED: archive.JOBS_ABORTED,
    JobState.FAILED: archive.JOBS_FAILED,
}


class Jobs:
    """All jobs of a herd."""

    def __init__(self, store: Store) -> None:
        self._store = store

    # Asking for one

    async def submit(self, request: JobRequest, origin: Origin, *, most: int = 0) -> Record:
        """Queues a run of a job. AlreadyExists if it waits or runs already, AccountLimitReached if the
        account has `most` jobs."""
        asked = (request.url, *request.urls)
        urls, credentials = list(dict.fromkeys(map(normalise, asked))), credentials_by_server(asked)
        url, depth = urls[0], check_depth(request.depth)
        if any(each.startswith("ftp:") for each in urls):
            raise InvalidArgument("FTP is not supported: a URL begins with http:// or https://")
        if request.url_file and len(urls) > 1:
            raise InvalidArgument("A job has either a file of URLs or several URLs")
        slug = slug_of(url, depth, is_url_file=request.url_file)
        ident = job_ident(url, origin.account, urls[1:])
        queue = queue_of(depth, tag=request.pipeline, is_large=request.large)
        sets = dict.fromkeys([*request.ignore_sets, GLOBAL_IGNORES])
        await validate(request.ignores, origin.account)
        ignores = [*request.ignores, *(pattern for name in sets for pattern in patterns_of(name))]
        prefix, settings = self._store.prefix, request.settings
        job = {
            "url": url,
            "fetch_depth": depth,
            "log_key": prefix + archive.JOB_LOG(ident),
            "ignore_patterns_set_key": prefix + archive.JOB_IGNORES(ident),
            "slug": slug if len(urls) == 1 else f"urls-{slug}",
            "started_by": origin.token or origin.account,
            "started_in": "api",
            **{field: value for field, value in settings.fields().items() if value},
            "user_agent": find_user_agent(settings.user_agent),
            **({"note": request.note} if request.note else {}),
            **({"url_file": url} if request.url_file else {}),
        }
        record = {
            "ident": ident,
            "account": origin.account,
            "token": origin.token,
            "address": origin.address,
            "url": url,
            **({"urls": _json(urls)} if len(urls) > 1 else {}),
            **({"servers": _json(list(credentials)[:MOST_SERVERS])} if credentials else {}),
            "depth": depth,
            "note": request.note,
            "order": _json(request.options),
            "queue": str(queue),
        }
        number, state = await self._store.run(
            _SUBMIT,
            keys=[
                archive.JOB(ident),
                archive.JOB_IGNORES(ident),
                archive.JOB_LOG(ident),
                queue,
                archive.RUNS(ident),
                archive.ALL_RUNS(),
                archive.ACCOUNT_RUNS(origin.account),
                archive.OPEN_JOBS(origin.account),
                archive.JOB_TAGS(),
                archive.CREDENTIALS(ident),
            ],
            args=[
                ident,
                legal_origins(JobState.QUEUED, within=ENDED),
                most,
                Name(archive.RUN.template()),
                request.pipeline,
                queue_bell(),
                _json(job),
                _json(record),
                _json(ignores),
                _json([f"{server.replace('//', f'//{each}@')}/" for server, each in credentials.items()]),
            ],
        )
        if state == "limit":
            raise AccountLimitReached(f"Account {origin.account} has {most} jobs, which is its limit")
        if not number:
            unused = "; the user and password of this request are not used" if credentials else ""
            raise AlreadyExists(f"Job {ident} for {url} is {state} already{unused}")
        return await self.record(run_id(ident, number))

    # Running one

    async def claim(
        self, pipeline: PipelineKey, queues: Sequence[ListName], *, host: str, lease: int = LEASE_SECONDS
    ) -> Claim | None:
        """The next job of these queues, which is the pipeline's from now on; None if there is none."""
        found = await self._store.run(
            _CLAIM,
            keys=[
                archive.WORKING(),
                archive.ALL_RUNS(),
                archive.ACCOUNT_RUNS(DEFAULT_ACCOUNT),
                archive.OPEN_JOBS(DEFAULT_ACCOUNT),
                TIMERS(),
                *queues,
            ],
            args=[
                pipeline,
                host,
                lease,
                LOOK_AT,
                DEFAULT_ACCOUNT,
                Name(archive.JOB.template()),
                _LEASE_TEMPLATE,
                Name(archive.RUN.template()),
                Name(archive.RUNS.template()),
                Name(TIMER.template()),
                Name(archive.CREDENTIALS.template()),
            ],
        )
        return Claim(Ident(found[0]), int(found[1])) if found else None

    async def beat(
        self, claim: Claim, pipeline: PipelineKey, progress: Progress, *, lease: int = LEASE_SECONDS
    ) -> int | None:
        """Says that the pipeline runs the job, and how far it has come; the age of the job's settings. None
        if the job is not its own any more."""
        age: int = await self._store.run(
            _BEAT,
            keys=[archive.JOB(claim.ident), lease_of(claim.ident), archive.RUN(claim.run), TIMER(claim.run)],
            args=[claim.number, pipeline, lease, _json(progress.job), _json(progress.record)],
        )
        return None if age < 0 else age

    async def requeue(
        self, run: RunId, *, asker: str, has_died: bool = False, grace: float = HOST_GRACE
    ) -> bool:
        """Puts a job that runs back into its queue, to be resumed; whether that was possible."""
        record = await self.record(run)
        ident = Ident(record.ident)
        return bool(
            await self._store.run(
                _REQUEUE,
                keys=[
                    archive.JOB(ident),
                    lease_of(ident),
                    archive.RUN(run),
                    record.waits_in,
                    archive.WORKING(),
                    archive.METRICS_ARCHIVE(),
                    archive.JOB_TAGS(),
                ],
                args=[
                    ident,
                    record.number,
                    legal_origins(JobState.QUEUED),
                    asker,
                    int(has_died),
                    grace,
                    record.tag,
                    queue_bell(),
                ],
            )
        )

    async def finish(
        self,
        run: RunId,
        state: JobState,
        *,
        asker: str,
        reason: str = "",
        fields: Mapping[str, str] | None = None,
        within: frozenset[JobState] = frozenset({JobState.QUEUED, JobState.RUNNING}),
    ) -> bool:
        """Ends a run; whether that was possible: it must be in one of these states, and the asker's."""
        record = await self.record(run)
        ident = Ident(record.ident)
        started_by, started_in = await self._store.hmget(archive.JOB(ident), "started_by", "started_in")
        notification = {
            "ident": ident,
            "url": record.url,
            "started_by": started_by,
            "started_in": started_in,
            "aborted": state is JobState.ABORTED,
            **({"failed": True} if state is JobState.FAILED else {}),
        }
        return bool(
            await self._store.run(
                _FINISH,
                keys=[
                    archive.JOB(ident),
                    lease_of(ident),
                    archive.RUN(run),
                    record.waits_in,
                    archive.WORKING(),
                    archive.JOB_IGNORES(ident),
                    archive.JOB_LOG(ident),
                    COUNTERS[state](),
                    archive.FINISH_NOTIFICATIONS(),
                    archive.OPEN_JOBS(record.account),
                    TIMER(run),
                    TIMERS(),
                    archive.CREDENTIALS(ident),
                ],
                args=[
                    ident,
                    record.number,
                    legal_origins(state, within=within),
                    asker,
                    state,
                    _json({"reason": reason, **(fields or {})}),
                    _json(notification),
                    KEEP_NOTIFICATIONS,
                    archive.JOB_LINGERS,
                    archive.UPDATES(),
                    archive.JOB_SETTINGS(ident),
                ],
            )
        )

    async def follow(self, ident: Ident) -> bool:
        """Brings the record of a job's newest run in line with the job, which pipelines and operators of
        other software start, end and delete as well; whether there was a difference."""
        run = await self.current_run(ident)
        if run is None:
            return False
        account = await self._store.hget(archive.RUN(run), "account")
        number = run.rpartition("-")[2]
        return bool(
            await self._store.run(
                _FOLLOW,
                keys=[
                    archive.JOB(ident),
                    archive.RUN(run),
                    archive.OPEN_JOBS(account or DEFAULT_ACCOUNT),
                    TIMER(run),
                    TIMERS(),
                    archive.CREDENTIALS(ident),
                ],
                args=[ident, number, "".join(f",{state}," for state in ENDED), LOST],
            )
        )

    async def acknowledge(self) -> list[Ident]:
        """The liveness check of all jobs that run; those whose lease is over."""
        over = await self._store.run(
            _ACKNOWLEDGE,
            keys=[archive.WORKING()],
            args=[MOST_WORKING, Name(archive.JOB.template()), _LEASE_TEMPLATE],
        )
        return _documented(over)

    # Looking

    async def waiting(self, queues: Sequence[ListName]) -> list[Ident]:
        """The jobs that wait in these queues, as far as a claim looks at them."""
        replies = [self._store.lrange(queue, -LOOK_AT, -1) for queue in queues]
        return _documented([ident for reply in replies for ident in await reply])

    async def working(self) -> list[Ident]:
        """The jobs that pipelines run."""
        return _documented(await self._store.lrange(archive.WORKING()))

    async def record(self, run: RunId) -> Record:
        """The record of a run; Lost if there is none."""
        found = await self._store.hgetall(archive.RUN(run))
        if not found:
            raise Lost(f"There is no run {run}")
        return msgspec.convert(found, Record, strict=False)

    async def credentials(self, ident: Ident) -> list[str]:
        """URLs with the users and passwords that a job was asked for with. For its pipeline only."""
        return await self._store.lrange(archive.CREDENTIALS(ident))

    async def current_run(self, ident: Ident) -> RunId | None:
        """The newest run of a job; None if there never was one."""
        newest = await self._store.zrange(archive.RUNS(ident), -1, -1)
        return run_id(ident, int(newest[0])) if newest else None

    async def newest(self, ident: Ident, *, limited_to: str | None = None) -> Record:
        """The record of a job's newest run; Lost if there is no such job, or it is another account's."""
        run = await self.current_run(ident)
        record = None if run is None else await self.record(run)
        if record is None or limited_to not in (None, record.account):
            raise no_job(ident)
        return record

    async def runs_of(self, ident: Ident) -> list[RunId]:
        """All runs of a job, the newest first."""
        numbers = await self._store.zrange(archive.RUNS(ident))
        return [run_id(ident, int(number)) for number in reversed(numbers)]


def _documented(idents: Sequence[str]) -> list[Ident]:
    """Those of the documented form. Shorter ones are jobs that only the original's pipelines can run."""
    return [Ident(each) for each in idents if archive.JOB.regex.fullmatch(each)]


def no_job(ident: str) -> Lost:
    """There is no such job, or not for this client."""
    return Lost(f"There is no job {ident[:100]!r}")


def lease_of(ident: Ident) -> StringName:
    """The lease of the pipeline that runs a job."""
    return LEASE(f"job:{ident}")


_LEASE_TEMPLATE = Name(LEASE.template().replace("%s", "job:%s"))


def queue_bell() -> ChannelName:
    """Rung when a job waits for a pipeline."""
    return bell_of("archive:queue")


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
