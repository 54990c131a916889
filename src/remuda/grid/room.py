"""The grid: browsers by WebDriver."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from remuda.accounts.room import AccountsConfig
from remuda.base.config import Config, Count, HerdConfig, Interval, option
from remuda.fleet.browsers import BrowserConfig
from remuda.fleet.internal import internal_hosts_of
from remuda.fleet.ownership import OwnerKind, Retention
from remuda.fleet.role import Role
from remuda.fleet.room import EndUses, OverviewPart, Question, RoleKind, Room, Surroundings
from remuda.fleet.sweep import Sweep
from remuda.grid.usage import GRID

if TYPE_CHECKING:
    from remuda.fleet.metrics import Metric
    from remuda.fleet.route import Route
    from remuda.grid.view.overview import GridOverview

FrameRate = Annotated[int, msgspec.Meta(ge=1, le=30)]
Pixels = Annotated[str, msgspec.Meta(pattern=r"^\d{2,4}x\d{2,4}$")]


@dataclass(frozen=True, kw_only=True)
class GridConfig:
    """How many sessions there are, what they may take, and what is kept of them."""

    slots: Count = option(0, "Concurrent WebDriver sessions; 0 means one per CPU core.")
    body_megabytes: Interval = option(
        256,
        "Megabytes of request bodies in a manager's memory, of an account with tokens at most half; further "
        "requests wait, then get 503.",
    )
    waiting_megabytes: Interval = option(
        256,
        "Megabytes in Redis for large capabilities, such as extensions, of sessions that wait for a browser; "
        "of an account with tokens at most half.",
    )
    warm: Count = option(
        0, "Browsers started in advance for sessions with default capabilities; each one takes memory."
    )
    browser_hang: Count = option(
        60, "Seconds without an answer of browser or driver after which a session ends; 0 means never."
    )
    orchestrator_drain: Count = option(
        300,
        "Seconds that an orchestrator in a process of its own waits for its sessions on shutdown.",
    )
    chromedriver: str = option("", "Path of ChromeDriver; by default it is searched for.")
    geckodriver: str = option("", "Path of geckodriver; by default it is searched for.")
    webkit: str = option("", "Path of WebKitGTK's MiniBrowser; by default it is searched for.")
    record: bool = option(False, "Record a video of every session, unless its client turns it off.")
    record_size: Pixels = option("1280x720", "Default size of videos in pixels.")
    record_rate: FrameRate = option(10, "Default frame rate of videos, in frames per second.")
    session_retention: Count = option(
        604800, "Seconds for which log, times and capabilities of an ended session are kept."
    )
    storage_retention: Count = option(
        2_592_000,
        "Seconds for which a session's artifacts are kept after their last change; 0 means for ever.",
    )


def _manager(on: Surroundings) -> Role:
    from remuda.fleet.permits import Allowance
    from remuda.grid.manager import Manager

    options = on.config[GridConfig]
    return Manager(
        on.store,
        hosts=internal_hosts_of(on.config, on.store, on.tls),
        body_bytes=options.body_megabytes * 1_000_000,
        waiting_bytes=options.waiting_megabytes * 1_000_000,
        allowed=Allowance.of(on.config[BrowserConfig].allow_browser_args),
        ticket_lifetime=on.config[AccountsConfig].ticket_lifetime,
    )


def _orchestrator(on: Surroundings) -> Role:
    from remuda.base.disk import find_lack, places_of
    from remuda.fleet.leftovers import check_temporary_directory, holder_name
    from remuda.grid.orchestrator.local import LocalProvisioner
    from remuda.grid.orchestrator.role import Orchestrator, keep_id

    # Only what cannot work: a path that is too long for the longest name may do for years.
    check_temporary_directory(name=len(holder_name()))
    herd, options = on.config[HerdConfig], on.config[GridConfig]
    return Orchestrator(
        on.store,
        LocalProvisioner(on.config, redis_url=herd.redis, certificate=on.tls.certificate),
        orchestrator_id=keep_id(herd.data / "orchestrator-id"),
        slots=options.slots or os.cpu_count() or 1,
        find_obstacle=partial(find_lack, places_of(herd.data), megabytes=herd.min_free_megabytes),
    )


def _drain_orchestrator(config: Config) -> float:
    return float(config[GridConfig].orchestrator_drain)


def _routes(on: Surroundings) -> Sequence["Route"]:
    from remuda.grid.http import grid_routes

    return grid_routes(on.store)


def _overview(on: Surroundings) -> "OverviewPart[GridOverview]":
    from remuda.grid.view.overview import GridOverview, read_overview, without_time

    return OverviewPart(GridOverview, partial(read_overview, on.store), without_time)


async def _check_readiness(on: Surroundings) -> str:
    from remuda.grid.view.overview import check_readiness

    return await check_readiness(on.store)


def _sweeps(on: Surroundings) -> Mapping[str, Sweep]:
    from remuda.base.confinement import protection_of
    from remuda.fleet.leftovers import sweep_orphans
    from remuda.grid.sweeps import grid_sweeps

    retention = on.config[GridConfig].session_retention
    sweep = partial(sweep_orphans, protection_of(on.config).users)
    return {**grid_sweeps(on.store, retention=retention), "orphans": sweep}


def _owners(on: Surroundings) -> Sequence[OwnerKind]:
    from remuda.grid.artifacts import SessionArtifacts

    retention = float(on.config[GridConfig].storage_retention)
    return [SessionArtifacts(on.store, Retention(seconds=retention or None))]


def _end_uses(on: Surroundings) -> EndUses:
    from remuda.grid.revoked import end_sessions

    return partial(end_sessions, on.store)


def _metrics() -> Sequence["Metric[Any]"]:
    from remuda.grid.metrics import METRICS

    return METRICS


def _questions() -> Sequence[Question]:
    from remuda.grid.doctor import QUESTIONS

    return QUESTIONS


ROOM = Room(
    name="grid",
    config=[GridConfig],
    roles=[
        RoleKind(name="manager", make=_manager),
        # With other roles in its process it does not wait for its sessions: `remuda up` ends when told to.
        RoleKind(
            name="orchestrator", make=_orchestrator, drain_alone=_drain_orchestrator, starts_browsers=True
        ),
    ],
    routes=_routes,
    about="Browsers by WebDriver: sessions, orchestrators, and the paths of Selenium Grid and Selenoid",
    overview=_overview,
    check_readiness=_check_readiness,
    sweeps=_sweeps,
    owners=_owners,
    end_uses=_end_uses,
    services=[GRID],
    metrics=_metrics,
    questions=_questions,
)
