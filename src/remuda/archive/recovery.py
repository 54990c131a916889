"""What becomes of a job whose pipeline has died: it is resumed, so many times; then it has failed, and what
it left on a disk can be found."""

import asyncio
from contextlib import suppress
from pathlib import Path

import msgspec

from remuda.archive.crawler.model import StdoutEntry
from remuda.archive.jobs import HOST_GRACE, Jobs
from remuda.archive.logs import Logs
from remuda.archive.model import ENDED, Ident, JobState, PipelineKey, RunId
from remuda.archive.pipelines import Pipelines
from remuda.archive.records import Record
from remuda.base.errors import RemudaError
from remuda.base.log import get_logger
from remuda.keyspace import archive
from remuda.store import Store

log = get_logger(__name__)

ATTEMPTS = 3
"""To deliver what an ended run has left on a disk. The last one takes its WARC files as they are: what ended
the run may be in the rest."""
ATTEMPTS_FILE = "attempts"


async def recover(store: Store, run: RunId, *, asker: str, max_deaths: int, cause: str) -> bool:
    """Puts a job back into its queue, or fails it if that has been done often enough; whether one of them was
    possible: the asker must be the job's pipeline, or its lease over."""
    jobs, logs = Jobs(store), Logs(store)
    deaths = (await jobs.record(run)).deaths + 1
    if deaths > max_deaths:
        reason = f"{cause}; this was death {deaths}, and {max_deaths} are allowed"
        running = frozenset({JobState.RUNNING})
        is_done = await jobs.finish(run, JobState.FAILED, asker=asker, reason=reason, within=running)
        message = f"Failed: {reason}."
    else:
        is_done = await jobs.requeue(run, asker=asker, has_died=True, grace=HOST_GRACE)
        message = f"{cause}. The job goes back to its queue (death {deaths} of {max_deaths})."
    if is_done:
        log.warning("job recovered", run=run, deaths=deaths, cause=cause)
        await logs.append(run, [msgspec.json.encode(StdoutEntry.of(message))])
    return is_done


async def recover_orphans(store: Store, idents: list[Ident], *, max_deaths: int) -> int:
    """Does the same for these jobs, whose leases are over; for how many. Those that a pipeline of other
    software runs never had a lease, and are left to it."""
    recovered = 0
    for ident in idents:
        pipeline, number = await store.hmget(archive.JOB(ident), "pipeline_id", "run")
        if number is None:
            continue
        run = RunId(f"{ident}-{number}")
        if (await Jobs(store).record(run)).pipeline != pipeline:
            continue
        cause = f"Its pipeline ({pipeline}) has died"
        recovered += await recover(store, run, asker="", max_deaths=max_deaths, cause=cause)
    return recovered


async def bury_pipeline(store: Store, pipeline: PipelineKey, *, max_deaths: int) -> None:
    """Clears away what a pipeline that was killed has left: its jobs are taken from it at once."""
    for ident in await Jobs(store).working():
        holder, number = await store.hmget(archive.JOB(ident), "pipeline_id", "run")
        if holder == pipeline and number is not None:
            run = RunId(f"{ident}-{number}")
            cause = "Its pipeline was killed"
            await recover(store, run, asker=pipeline, max_deaths=max_deaths, cause=cause)
    await Pipelines(store).withdraw(pipeline)


async def find_leftovers(store: Store, directory: Path) -> list[tuple[Path, Record]]:
    """Directories of runs that have ended, apart from those that could not be delivered."""
    jobs, found = Jobs(store), []
    # A run that began anew while its directory was in use has several, the newest with the highest number.
    for path in await asyncio.to_thread(lambda: sorted(directory.glob("*-*/"), reverse=True)):
        with suppress(RemudaError):  # Not a run's, or Redis has lost it, or is away.
            record = await jobs.record(RunId(path.name.partition(".")[0]))
            if record.state in ENDED and attempts_at(path) < ATTEMPTS:
                found.append((path, record))
    return found


def attempts_at(path: Path) -> int:
    """How often it was tried to deliver what is in this directory of a run."""
    try:
        return int((path / ATTEMPTS_FILE).read_text())
    except (OSError, ValueError):
        return 0
