"""What is swept of the archive: pipelines that are gone, tags of empty queues, old announcements, and records
of jobs that other software has ended."""

from collections import Counter
from collections.abc import Mapping

from remuda.archive.jobs import Jobs
from remuda.archive.model import Ident
from remuda.archive.pipelines import Pipelines
from remuda.base import clock
from remuda.fleet.sweep import PER_RUN, Scan, Sweep
from remuda.keyspace import archive
from remuda.store import Store

ANNOUNCEMENTS_KEPT = 30 * 86400.0
"""Seconds, as in the original."""


def archive_sweeps(store: Store) -> Mapping[str, Sweep]:
    """All sweeps of this room that look at Redis only."""
    scan, open_scan = Scan(store), Scan(store)

    async def sweep_pipelines() -> Counter[str]:
        """Takes pipelines off the list that are gone."""
        pipelines, gone = Pipelines(store), 0
        for each in await pipelines.listed():
            if not await pipelines.is_alive(each):
                await pipelines.withdraw(each)
                gone += 1
        return Counter(pipelines_purged=gone)

    async def sweep_tags() -> Counter[str]:
        """Finds queues for certain pipelines that other software has filled, and forgets empty ones."""
        prefix = store.prefix + archive.PENDING_TAG.template().replace("%s", "")
        found = set()
        async for names in scan.batches(limit=PER_RUN):
            found |= {name.removeprefix(prefix) for name in names if name.startswith(prefix)}
        tags = {tag for tag in found if archive.PENDING_TAG.regex.fullmatch(f"pending:{tag}")}
        known = set(await store.smembers(archive.JOB_TAGS()))
        empty = [tag for tag in known if not await store.llen(archive.PENDING_TAG(tag))]
        if new := tags - known:
            await store.sadd(archive.JOB_TAGS(), *new)
        for tag in empty:
            await store.srem(archive.JOB_TAGS(), tag)
            if await store.llen(archive.PENDING_TAG(tag)):  # A job has come in between.
                await store.sadd(archive.JOB_TAGS(), tag)
        return Counter(tags_found=len(new), tags_forgotten=len(empty))

    async def sweep_announcements() -> Counter[str]:
        """Forgets announcements of more than thirty days ago."""
        limit = clock.now() - ANNOUNCEMENTS_KEPT
        keys = archive.TWEETS_DONE(), archive.TWEETS_QUEUE()
        forgotten = [await store.zremrange_by_score(key, "-inf", limit) for key in keys]
        return Counter(announcements_forgotten=sum(forgotten))

    async def sweep_open_jobs() -> Counter[str]:
        """Finds the ends of jobs that other software has ended or deleted while no foreman looked."""
        jobs, followed = Jobs(store), 0
        prefix = store.prefix + archive.OPEN_JOBS.template().replace("%s", "")
        async for names in open_scan.batches(limit=PER_RUN):
            for name in names:
                if name.startswith(prefix):
                    idents = await store.smembers(archive.OPEN_JOBS(name.removeprefix(prefix)))
                    followed += sum([await jobs.follow(Ident(ident)) for ident in idents])
        return Counter(jobs_followed=followed)

    return {
        "pipelines": sweep_pipelines,
        "job tags": sweep_tags,
        "open jobs": sweep_open_jobs,
        "announcements": sweep_announcements,
    }
