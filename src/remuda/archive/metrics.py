"""The metrics of jobs and pipelines."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from remuda.archive.jobs import COUNTERS
from remuda.archive.pipelines import Pipelines
from remuda.fleet.metrics import Metric, MetricKind, Numbers, ReadNumbers, Sample, by, one, or_none
from remuda.fleet.room import Surroundings
from remuda.keyspace import archive
from remuda.keyspace.key import Name


@dataclass(frozen=True)
class JobNumbers:
    """How many jobs wait and run now, and how many have ended how."""

    queued: int
    running: int
    ended: Mapping[str, int]


async def _jobs(on: Surroundings) -> JobNumbers:
    queues = [archive.PENDING(), archive.PENDING_AO(), archive.PENDING_LARGE()]
    lengths = [on.store.llen(queue) for queue in (*queues, archive.WORKING())]
    totals = {str(state): on.store.get(key()) for state, key in COUNTERS.items()}
    tags = await or_none(on.store.smembers(archive.JOB_TAGS()))
    targeted = [on.store.llen(archive.PENDING_TAG(tag)) for tag in tags or ()]
    *waiting, running = [await or_none(reply) or 0 for reply in lengths]
    waiting += [await or_none(reply) or 0 for reply in targeted]
    ended = {state: int(await or_none(reply) or 0) for state, reply in totals.items()}
    return JobNumbers(sum(waiting), running, ended)


async def _count_pipelines(on: Surroundings) -> int:
    return len(await Pipelines(on.store).alive())


def _total(field: str) -> Any:
    def find(found: Mapping[Name, Numbers]) -> list[Sample]:
        return one(found[archive.METRICS_ARCHIVE()][field])

    return find


METRICS: Sequence[Metric[Any]] = (
    Metric(
        "remuda_archive_jobs",
        MetricKind.GAUGE,
        ("state",),
        "Jobs that wait for a pipeline, and that run",
        (archive.PENDING, archive.PENDING_AO, archive.PENDING_LARGE, archive.PENDING_TAG, archive.WORKING),
        _jobs,
        lambda found: by("state", {"queued": found.queued, "running": found.running}),
    ),
    Metric(
        "remuda_archive_jobs_total",
        MetricKind.COUNTER,
        ("state",),
        "Jobs that have ended, by how they did",
        (archive.JOBS_COMPLETED, archive.JOBS_ABORTED, archive.JOBS_FAILED),
        _jobs,
        lambda found: by("state", found.ended),
    ),
    Metric(
        "remuda_archive_pipelines",
        MetricKind.GAUGE,
        (),
        "Pipelines that run",
        (archive.PIPELINES, archive.PIPELINE),
        _count_pipelines,
        lambda count: one(count),
    ),
    *(
        Metric(
            f"remuda_archive_{field}_total",
            MetricKind.COUNTER,
            (),
            meaning[0].upper() + meaning[1:],
            (archive.METRICS_ARCHIVE,),
            ReadNumbers((archive.METRICS_ARCHIVE(),)),
            _total(field),
        )
        for field, meaning in archive.METRICS_ARCHIVE.fields.items()
    ),
)
