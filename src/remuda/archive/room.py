"""Sites to WARC: jobs, and the pipelines that run them."""

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remuda.archive.usage import ARCHIVE
from remuda.base.config import Config, Count, HerdConfig, Interval, option
from remuda.fleet.ownership import OwnerKind, Retention
from remuda.fleet.role import Role
from remuda.fleet.room import Demand, EndUses, Question, RoleKind, Room, Surroundings
from remuda.fleet.sweep import Sweep
from remuda.metering.room import precision_of, services_of

if TYPE_CHECKING:
    from remuda.fleet.metrics import Metric
    from remuda.fleet.route import Route

_DAY = 86400.0


@dataclass(frozen=True, kw_only=True)
class ArchiveConfig:
    """Jobs and pipelines."""

    allow_private_addresses: bool = option(
        False,
        "Whether crawls may reach private, loopback and link-local addresses, to archive one's own network.",
    )
    archive_directory: str = option(
        "", "Directory for crawls that run; by default `archive` in the data directory."
    )
    archive_pipelines: Count = option(1, "Pipelines that `remuda up` starts, once a job waits; 0 means none.")
    archive_concurrent: Interval = option(2, "Jobs that a pipeline runs at the same time.")
    archive_idle: Interval = option(
        60, "Seconds without a job after which a pipeline that `remuda up` has started ends."
    )
    archive_nickname: str = option(
        "", "Nickname of a pipeline, which jobs can be meant for; by default the name of its machine."
    )
    archive_large: bool = option(False, "Whether a pipeline takes large jobs, too.")
    archive_only_shallow: bool = option(False, "Whether a pipeline takes only shallow jobs.")
    archive_min_free_megabytes: Count = option(
        1000, "Megabytes that must be free on the disk of a pipeline's crawls, or it takes no job."
    )
    archive_min_memory_megabytes: Count = option(
        200, "Megabytes of memory that must be free on a pipeline's machine, or it takes no job."
    )
    archive_deaths: Count = option(
        5, "How often a job is resumed after its pipeline has died, before it has failed."
    )
    archive_jobs_per_account: Count = option(
        100, "Jobs that an account may have waiting and running at the same time; 0 means any number."
    )
    archive_keep_days: Count = option(
        0, "Days for which the files of a job are kept after its end; 0 means for ever."
    )
    archive_user_agent: str = option(
        "Mozilla/5.0 (compatible; Remuda/0.1; web archiving)",
        "User-Agent of crawls; name a contact in it if you crawl much.",
    )
    archive_operator: str = option("", "Operator named in the WARC files.")
    archive_proxy: str = option(
        "", "Proxy for all crawls: http://host:port or socks5://host:port.", secret=True
    )
    archive_announce: bool = option(
        False, "Whether the start of each job is queued for announcement, for all to see."
    )


def archive_directory(config: Config) -> Path:
    """Where crawls that run keep their frontier and files."""
    named = config[ArchiveConfig].archive_directory
    return Path(named) if named else config[HerdConfig].data.absolute() / "archive"


def nickname_of(config: Config) -> str:
    """What pipelines of this machine are called."""
    return config[ArchiveConfig].archive_nickname or socket.gethostname().partition(".")[0]


def _pipeline(on: Surroundings) -> Role:
    from remuda.archive.pipeline.role import Pipeline

    return Pipeline(on.store, on.config)


def _foreman(on: Surroundings) -> Role:
    from remuda.archive.foreman import Foreman

    return Foreman(on.store, max_deaths=on.config[ArchiveConfig].archive_deaths)


def _drain(_config: Config) -> float:
    from remuda.archive.pipeline.role import DRAIN

    return DRAIN


def _demand(config: Config) -> Demand:
    from remuda.archive.demand import pipeline_demand

    return pipeline_demand(config)


def _routes(on: Surroundings) -> Sequence["Route"]:
    from remuda.archive.http import ArchiveApi
    from remuda.metering.quotas import Quotas

    quotas = Quotas(on.store, services_of(on), precision=precision_of(on.config))
    most_jobs = on.config[ArchiveConfig].archive_jobs_per_account
    return ArchiveApi(on.store, most_jobs=most_jobs, quotas=quotas).routes()


def _sweeps(on: Surroundings) -> Mapping[str, Sweep]:
    from remuda.archive.sweeps import archive_sweeps

    return archive_sweeps(on.store)


def _owners(on: Surroundings) -> Sequence[OwnerKind]:
    from remuda.archive.artifacts import KEPT_FOR_EVER, JobArtifacts

    days = on.config[ArchiveConfig].archive_keep_days
    retention = Retention(seconds=days * _DAY, eviction_rank=None) if days else KEPT_FOR_EVER
    return [JobArtifacts(on.store, retention)]


def _end_uses(on: Surroundings) -> EndUses:
    from remuda.archive.ending import end_jobs

    return partial(end_jobs, on.store)


def _metrics() -> Sequence["Metric[Any]"]:
    from remuda.archive.metrics import METRICS

    return METRICS


def _questions() -> Sequence[Question]:
    from remuda.archive.doctor import QUESTIONS

    return QUESTIONS


ROOM = Room(
    name="archive",
    config=[ArchiveConfig],
    roles=[
        RoleKind(name="foreman", make=_foreman),
        RoleKind(name="pipeline", make=_pipeline, drain=_drain, needs_own_process=True),
    ],
    demand=_demand,
    routes=_routes,
    about="Sites to WARC: jobs, and the pipelines that run them",
    sweeps=_sweeps,
    owners=_owners,
    services=[ARCHIVE],
    end_uses=_end_uses,
    metrics=_metrics,
    questions=_questions,
)
