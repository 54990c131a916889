"""Jobs under test."""

from typing import Any

from remuda.archive.jobs import Jobs
from remuda.archive.model import JobState, PipelineKey, candidate_queues
from remuda.archive.pipelines import pipeline_key
from remuda.archive.records import Claim, JobRequest, Record
from remuda.base import clock
from remuda.base.ids import RoleId, new_id
from remuda.fleet.origin import DEFAULT_ACCOUNT, Origin
from remuda.keyspace import archive
from remuda.store import Store

URL = "http://www.example.com/"
IDENT = "eed6rdmqqi18ps2eqfatkjyld"
"""That of the URL, as the original computes it."""
HOST = "here"
ORIGINAL_PIPELINE = "pipeline:d5a0875093c7581a4f0af3c2eb534ada"


def new_pipeline() -> PipelineKey:
    return pipeline_key(RoleId(new_id()))


def origin_of_account(account: str = DEFAULT_ACCOUNT, *, token: str = "") -> Origin:
    return Origin(account=account, address="10.0.0.7", token=token)


async def queue_job(
    store: Store, url: str = URL, *, account: str = DEFAULT_ACCOUNT, token: str = "", **wish: Any
) -> Record:
    """A job that waits for a pipeline."""
    return await Jobs(store).submit(JobRequest(url=url, **wish), origin_of_account(account, token=token))


async def claim_job(
    store: Store, pipeline: PipelineKey | None = None, *, host: str = HOST, lease: int = 15
) -> Claim | None:
    """The next job, claimed by a pipeline of this host."""
    queues = candidate_queues(host, await store.smembers(archive.JOB_TAGS()), takes_large=True)
    return await Jobs(store).claim(pipeline or new_pipeline(), queues, host=host, lease=lease)


async def run_job(store: Store, pipeline: PipelineKey, url: str = URL, **wish: Any) -> Claim:
    """A job that this pipeline runs."""
    await queue_job(store, url, **wish)
    claim = await claim_job(store, pipeline)
    assert claim is not None
    return claim


async def reserve_as_original(store: Store, ident: str = IDENT) -> None:
    """What ArchiveBot's own pipeline writes when it takes the next job and begins with it."""
    assert await store.rpoplpush(archive.PENDING(), archive.WORKING()) == ident
    await store.hset(archive.JOB(ident), {"started_at": clock.now(), "heartbeat": 1})
    await store.hset(archive.JOB(ident), {"pipeline_id": ORIGINAL_PIPELINE})


async def finish_as_original(store: Store, ident: str = IDENT) -> None:
    """What ArchiveBot's own pipeline writes when a job is done."""
    await store.hset(archive.JOB(ident), {"finished_at": int(clock.now())})
    await store.lrem(archive.WORKING(), ident)
    await store.incr(archive.JOBS_COMPLETED())
    for key in (archive.JOB(ident), archive.JOB_LOG(ident), archive.JOB_IGNORES(ident)):
        await store.expire(key, 172_800)
    await store.publish(archive.UPDATES(), ident)


async def state_of_job(store: Store, ident: str = IDENT) -> JobState:
    """The state of a job's newest run."""
    return (await Jobs(store).newest(ident)).state  # type: ignore[arg-type]


async def job_fields(store: Store, ident: str = IDENT) -> dict[str, str]:
    return await store.hgetall(archive.JOB(ident))


_READ_ALL = {
    "string": ("GET",),
    "hash": ("HGETALL",),
    "list": ("LRANGE", 0, -1),
    "set": ("SMEMBERS",),
    "zset": ("ZRANGE", 0, -1),
    "stream": ("XRANGE", "-", "+"),
}


async def keys_that_hold(store: Store, *texts: str) -> set[str]:
    """Every key of the whole Redis that has one of these texts in its value."""
    found = set()
    for key in await store.send("KEYS", "*"):
        kind = await store.send("TYPE", key)
        if kind in _READ_ALL:
            verb, *rest = _READ_ALL[kind]
            value = str(await store.send(verb, key, *rest))
            found |= {key for text in texts if text in value}
    return found
