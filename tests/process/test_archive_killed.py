"""A pipeline that is killed again and again in one crawl: the archive has every page once."""

import asyncio
import os
import random
import subprocess
import sys
from pathlib import Path

from warcio.archiveiterator import ArchiveIterator
from warcio.checker import Checker

from jobs import queue_job
from pages_to_archive import Site, serving_site
from remuda.archive.jobs import Jobs
from remuda.archive.logs import Logs
from remuda.archive.model import ENDED, Ident, JobSettings, JobState
from remuda.archive.pipelines import pipeline_key
from remuda.archive.records import Record
from remuda.archive.recovery import bury_pipeline
from remuda.base.ids import RoleId, new_id
from remuda.fleet.role import ROLE_ID
from remuda.keyspace import archive
from remuda.store import Store
from remuda.store.census import take_census
from waiting import eventually

KILLS = 5
DEADLINE = 60.0


def start_pipeline(redis_url: str, data: Path, role: str) -> subprocess.Popen[bytes]:
    environ = {
        "REMUDA_REDIS": redis_url,
        "REMUDA_DATA": str(data),
        "REMUDA_ALLOW_PRIVATE_ADDRESSES": "true",
        "REMUDA_ARCHIVE_MIN_FREE_MEGABYTES": "1",
        ROLE_ID: role,
    }
    command = [sys.executable, "-m", "remuda.cli.main", "run", "pipeline"]
    return subprocess.Popen(command, env={**os.environ, **environ})


def captured(warcs: list[Path], site: Site) -> list[str]:
    """The paths of the site's pages in WARC files."""
    found = []
    for path in warcs:
        with path.open("rb") as stream:
            for record in ArchiveIterator(stream):
                uri = record.rec_headers.get_header("WARC-Target-URI") or ""
                if record.rec_type == "response" and uri.startswith(site.url):
                    found.append("/" + uri.removeprefix(site.url))
    return [path for path in found if path in site.paths]


def are_digests_right(warcs: list[Path]) -> bool:
    class Arguments:
        inputs = tuple(map(str, warcs))
        verbose = False

    checker = Checker(Arguments)
    checker.process_all()
    return not checker.exit_value


async def kill_at_work(store: Store, redis_url: str, data: Path, site: Site, *, after: float) -> None:
    """A pipeline that is killed so many seconds after it has fetched its first page."""
    role, served = new_id(), site.served
    pipeline = start_pipeline(redis_url, data, role)
    try:
        await eventually(lambda: site.served > served, DEADLINE)
        await asyncio.sleep(after)
    finally:
        pipeline.kill()
        pipeline.wait()
    await bury_pipeline(store, pipeline_key(RoleId(role)), max_deaths=KILLS)  # As `remuda up` does.


async def test_the_archive_has_every_page_once_whenever_the_pipeline_is_killed(
    store: Store, redis_url: str, tmp_path: Path
) -> None:
    moments = random.Random(13)
    jobs = Jobs(store)

    async def has_ended() -> Record | None:
        record = await jobs.newest(ident)
        return record if record.state in ENDED else None

    async with serving_site(150) as site:
        steady = JobSettings(delay_min=60, delay_max=60, concurrency=2)
        ident = Ident((await queue_job(store, site.url, settings=steady)).ident)
        for _ in range(KILLS):
            await kill_at_work(store, redis_url, tmp_path, site, after=moments.uniform(0, 0.8))
            assert await store.lrange(archive.PENDING()) == [ident]
        last = start_pipeline(redis_url, tmp_path, new_id())
        try:
            ended = await eventually(has_ended, DEADLINE)
        finally:
            last.terminate()
            await asyncio.to_thread(last.wait)

    assert ended is not None
    assert (ended.state, ended.deaths) == (JobState.COMPLETED, KILLS)
    warcs = list(tmp_path.glob("storage/job_*/*.warc.gz"))
    assert sorted(captured(warcs, site)) == sorted(site.paths)
    assert are_digests_right(warcs)
    logged = {entry.get("url") for entry in await Logs(store).read(ident)}
    assert logged >= {site.url + path[1:] for path in site.paths}
    assert await take_census(store) == []
