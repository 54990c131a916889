"""The pipelines of `remuda up`: started when a job waits, or one has ended whose files are still to be saved;
gone when there was none for a while.

Most herds archive nothing, and need not keep a process for it.
"""

from remuda.archive.jobs import Jobs, queue_bell
from remuda.archive.model import candidate_queues
from remuda.archive.pipelines import pipeline_key
from remuda.archive.recovery import bury_pipeline, find_leftovers
from remuda.archive.room import ArchiveConfig, archive_directory, nickname_of
from remuda.base.config import Config
from remuda.base.errors import Unavailable
from remuda.base.ids import RoleId
from remuda.fleet.bell import wait_for
from remuda.fleet.room import Crew, Demand
from remuda.keyspace import archive
from remuda.store import Store

LOOK_EVERY = 5.0
"""Seconds; for a ring that got lost, and for jobs of other software."""


def pipeline_demand(config: Config) -> Demand:
    """The pipelines that `remuda up` starts."""
    options, nickname = config[ArchiveConfig], nickname_of(config)
    directory = archive_directory(config)

    async def wanted(store: Store) -> None:
        async def does_job_wait() -> bool | None:
            try:
                queues = candidate_queues(
                    nickname,
                    await store.smembers(archive.JOB_TAGS()),
                    takes_large=options.archive_large,
                    only_shallow=options.archive_only_shallow,
                )
                waiting = await Jobs(store).waiting(queues)
                return bool(waiting or await find_leftovers(store, directory)) or None
            except Unavailable:
                return None

        await wait_for(store, queue_bell(), does_job_wait, timeout=None, look_every=LOOK_EVERY)

    async def bury(store: Store, role: RoleId) -> None:
        await bury_pipeline(store, pipeline_key(role), max_deaths=options.archive_deaths)

    if not options.archive_pipelines:
        return Demand()
    crew = Crew(role="pipeline", count=options.archive_pipelines, rests=True, wanted=wanted, bury=bury)
    return Demand(crews=[crew])
