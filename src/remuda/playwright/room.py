"""Browsers by Playwright."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from remuda.accounts.room import is_auth_on
from remuda.base.config import Config, Count, Interval, Percent, Port, option
from remuda.base.errors import Misconfigured
from remuda.fleet.role import Role
from remuda.fleet.room import Demand, EndUses, OverviewPart, Question, RoleKind, Room, Surroundings
from remuda.fleet.sweep import Sweep
from remuda.playwright.usage import PLAYWRIGHT

if TYPE_CHECKING:
    from remuda.fleet.metrics import Metric
    from remuda.fleet.route import Route
    from remuda.playwright.view import PlaywrightOverview

BrowserType = Literal["chromium", "firefox", "webkit"]
Isolation = Literal["auto", "shared", "own"]

BEATS_PER_KEY_TTL = 3
"""A worker's key must outlive two lost beats."""


@dataclass(frozen=True, kw_only=True)
class PlaywrightConfig:
    """Workers and their connections."""

    browser: BrowserType = option("chromium", "Browser of a worker.", also=("BROWSER_TYPE",))
    playwright_isolation: Isolation = option(
        "auto",
        "Whether Playwright clients share a worker's browser unless they ask for their own (shared), or "
        "always get one each (own); auto means own where clients need a token, else shared. For a worker, "
        "which of both it serves.",
    )
    playwright_warm: Count = option(
        0, "Browsers that a worker of the isolation `own` starts in advance; each one takes memory."
    )
    playwright_timeout: Count = option(
        0, "Seconds after which a Playwright connection is ended; 0 means never."
    )
    playwright_idle: Count = option(
        0, "Seconds without a message from its client after which a connection is ended; 0 means never."
    )
    playwright_workers: Count = option(
        1, "Workers that `remuda up` starts for each browser, once a client waits for it; 0 means none."
    )
    playwright_max_workers: Count = option(
        0,
        "Workers of each browser at most: `remuda up` starts one more when clients wait although all have "
        "started; 0 means one for each processor.",
    )
    playwright_spare_idle: Interval = option(
        300, "Seconds without a connection after which a worker beyond playwright_workers leaves."
    )
    playwright_eager: str = option(
        "", "Browsers, separated by commas, whose workers `remuda up` starts at once."
    )
    playwright_browser: BrowserType = option(
        "chromium", "Browser for Playwright clients that do not name one.", also=("DEFAULT_BROWSER_TYPE",)
    )
    playwright_concurrent: Interval = option(
        5, "Concurrent connections of a worker.", also=("MAX_CONCURRENT_SESSIONS",)
    )
    playwright_lifetime: Interval = option(
        50, "Connections after which a worker restarts.", also=("MAX_LIFETIME_SESSIONS",)
    )
    playwright_restart_share: Percent = option(
        25, "Percent of a browser's workers, at least one, that may be restarting at the same time."
    )
    playwright_wait: Interval = option(
        30, "Seconds for which a client waits for a free place.", also=("WORKER_SELECT_TIMEOUT",)
    )
    playwright_expected: str = option(
        "",
        "Browsers, separated by commas, whose workers are started on demand by other software, such as a "
        "scaler; clients of a browser that nothing can start are refused at once.",
    )
    playwright_queue: Count = option(100, "Clients that may wait for a browser at the same time.")
    playwright_dial: Interval = option(
        5, "Seconds within which a worker must answer before another one is tried."
    )
    playwright_lease: Interval = option(
        20, "Seconds after which the connections of a dead gateway no longer count."
    )
    playwright_beat: Interval = option(
        5, "Seconds between two beats of a worker.", also=("HEARTBEAT_INTERVAL",)
    )
    playwright_key_ttl: Interval = option(
        60, "Seconds for which a worker counts as alive after a beat.", also=("REDIS_KEY_TTL",)
    )
    playwright_command_ttl: Interval = option(
        60, "Seconds after which a shutdown command for a worker expires.", also=("SHUTDOWN_COMMAND_TTL",)
    )
    playwright_drain: Interval = option(300, "Seconds that a worker waits for its connections on shutdown.")
    playwright_reaper_interval: Interval = option(
        300,
        "Seconds between two searches for dead workers.",
        also=("REAPER_RUN_INTERVAL",),
    )
    playwright_host: str = option(
        "",
        "The same as advertise, for workers only.",
        also=("PRIVATE_HOSTNAME",),
    )
    playwright_port: Port = option(0, "Port of a worker; 0 means any free port.")

    def __post_init__(self) -> None:
        if self.playwright_key_ttl < BEATS_PER_KEY_TTL * self.playwright_beat:
            raise Misconfigured(
                f"playwright_key_ttl (REDIS_KEY_TTL) is {self.playwright_key_ttl}, which is less than "
                f"{BEATS_PER_KEY_TTL} beats of {self.playwright_beat} seconds"
            )


def are_browsers_own(config: Config) -> bool:
    """Whether each client gets a browser of its own without asking for it."""
    isolation = config[PlaywrightConfig].playwright_isolation
    return is_auth_on(config) if isolation == "auto" else isolation == "own"


def _worker(on: Surroundings) -> Role:
    from remuda.fleet.leftovers import check_temporary_directory, holder_name
    from remuda.playwright.worker import WorkerRole

    # Only what cannot work: a path that is too long for the longest name may do for years.
    check_temporary_directory(name=len(holder_name()))
    return WorkerRole(on.store, on.config, tls=on.tls)


def _drain_worker(config: Config) -> float:
    return float(config[PlaywrightConfig].playwright_drain)


def _demand(config: Config) -> Demand:
    from remuda.playwright.crews import worker_demand

    return worker_demand(config)


def _routes(on: Surroundings) -> Sequence["Route"]:
    from remuda.playwright.http import playwright_routes

    return playwright_routes(on.store)


def _overview(on: Surroundings) -> "OverviewPart[PlaywrightOverview]":
    from remuda.playwright.view import PlaywrightOverview, read_overview, without_time

    return OverviewPart(PlaywrightOverview, partial(read_overview, on.store), without_time)


def _sweeps(on: Surroundings) -> Mapping[str, Sweep]:
    from remuda.playwright.model import WorkerLimits
    from remuda.playwright.reaper import playwright_sweeps

    return playwright_sweeps(on.store, WorkerLimits.of(on.config[PlaywrightConfig]))


def _end_uses(on: Surroundings) -> EndUses:
    from remuda.playwright.revoked import end_connections

    return partial(end_connections, on.store)


def _metrics() -> Sequence["Metric[Any]"]:
    from remuda.playwright.metrics import METRICS

    return METRICS


def _questions() -> Sequence[Question]:
    from remuda.playwright.doctor import QUESTIONS

    return QUESTIONS


ROOM = Room(
    name="playwright",
    config=[PlaywrightConfig],
    roles=[
        RoleKind(
            name="worker",
            make=_worker,
            drain=_drain_worker,
            needs_own_process=True,
            ends_with_herd=True,
            starts_browsers=True,
            # Its clients are connected to its browser server, which raises its limit itself.
            raises_limit=False,
        )
    ],
    demand=_demand,
    routes=_routes,
    about="Browsers by Playwright: workers, connections, and clients that wait",
    overview=_overview,
    sweeps=_sweeps,
    end_uses=_end_uses,
    services=[PLAYWRIGHT],
    metrics=_metrics,
    questions=_questions,
)
