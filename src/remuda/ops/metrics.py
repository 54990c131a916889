"""What /metrics tells, declared once: the exposition and the reference page are both made from this. Pure.

Families called `webgrid_` have the names and labels that WebGrid gave them, so its dashboards and alerts go
on working; those that it planned and never built are here too. What is called `remuda_` is our own.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from remuda import __version__
from remuda.keyspace import fleet, grid, metrics, playwright, storage
from remuda.keyspace.key import Key
from remuda.ops import metrics_samples as samples
from remuda.ops.metrics_samples import Reading, Sample


class Kind(StrEnum):
    """What Prometheus may do with a family's samples."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True)
class Family:
    """One metric: what it means, the keys that it comes from, and how its samples are found in a reading."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str
    source: tuple[Key[Any], ...]
    find: Callable[[Reading], Iterable[Sample]]


FAMILIES = (
    Family(
        "webgrid_proxy_http_requests_total",
        Kind.COUNTER,
        ("method", "code"),
        "Requests answered at the front door, by HTTP method and status",
        (metrics.METRICS_HTTP_REQUESTS,),
        samples.requests,
    ),
    Family(
        "webgrid_proxy_http_net_bytes_total",
        Kind.COUNTER,
        ("direction",),
        "Bytes of the bodies that went through the front door",
        (metrics.METRICS_HTTP_BYTES,),
        samples.fields(metrics.METRICS_HTTP_BYTES, "direction"),
    ),
    Family(
        "webgrid_session_status_codes_total",
        Kind.COUNTER,
        ("level", "code"),
        "Entries written to session logs",
        (metrics.METRICS_SESSIONS_LOG,),
        samples.log_entries,
    ),
    Family(
        "webgrid_session_startup_duration_seconds",
        Kind.HISTOGRAM,
        (),
        "Time from a request to its session, of those that got one",
        (metrics.METRICS_STARTUP_BUCKETS, metrics.METRICS_STARTUP_SUM),
        samples.startups,
    ),
    Family(
        "webgrid_session_total",
        Kind.COUNTER,
        ("stage",),
        "Sessions that have entered each stage of their life",
        (metrics.METRICS_SESSIONS_TOTAL,),
        samples.fields(metrics.METRICS_SESSIONS_TOTAL, "stage"),
    ),
    Family(
        "webgrid_session_duration_seconds_total",
        Kind.COUNTER,
        ("stage",),
        "Time that sessions have spent in each stage, added when they leave it",
        (metrics.METRICS_SESSIONS_DURATION,),
        samples.fields(metrics.METRICS_SESSIONS_DURATION, "stage"),
    ),
    Family(
        "webgrid_sessions_active",
        Kind.GAUGE,
        (),
        "Sessions that have not ended",
        (grid.SESSIONS_ACTIVE,),
        lambda reading: samples.one(reading.active),
    ),
    Family(
        "webgrid_sessions_terminated",
        Kind.GAUGE,
        (),
        "Sessions that have ended and are still remembered",
        (grid.SESSIONS_TERMINATED,),
        lambda reading: samples.one(reading.terminated),
    ),
    Family(
        "webgrid_slots_allocated",
        Kind.GAUGE,
        (),
        "Slots of the orchestrators that are alive, free or taken",
        (grid.ORCHESTRATOR_SLOTS,),
        samples.slots(samples.all_slots),
    ),
    Family(
        "webgrid_slots_available",
        Kind.GAUGE,
        (),
        "Slots of the orchestrators that are alive that a session may take",
        (grid.ORCHESTRATOR_SLOTS_AVAILABLE,),
        samples.slots(samples.free_slots),
    ),
    Family(
        "webgrid_browser_slots",
        Kind.GAUGE,
        ("browser",),
        "Slots that can start this browser; one that can start several counts for each",
        (grid.ORCHESTRATOR_SLOTS, grid.ORCHESTRATOR_BROWSERS),
        samples.slots_by_browser(samples.all_slots),
    ),
    Family(
        "webgrid_browser_slots_total",
        Kind.GAUGE,
        ("browser",),
        "The same as webgrid_browser_slots, under the name that was documented first",
        (grid.ORCHESTRATOR_SLOTS, grid.ORCHESTRATOR_BROWSERS),
        samples.slots_by_browser(samples.all_slots),
    ),
    Family(
        "webgrid_browser_slots_available",
        Kind.GAUGE,
        ("browser",),
        "Those of them that a session may take",
        (grid.ORCHESTRATOR_SLOTS_AVAILABLE, grid.ORCHESTRATOR_BROWSERS),
        samples.slots_by_browser(samples.free_slots),
    ),
    Family(
        "webgrid_slots_reclaimed_total",
        Kind.COUNTER,
        ("source",),
        "Slots that had to be taken back, because their session was dead or nobody held them",
        (metrics.METRICS_SLOTS_RECLAIMED,),
        samples.fields(metrics.METRICS_SLOTS_RECLAIMED, "source"),
    ),
    Family(
        "webgrid_storage_disk_bytes_limit",
        Kind.GAUGE,
        ("id",),
        "How much each storage may hold",
        (metrics.METRICS_STORAGE_TOTAL,),
        samples.storages(metrics.METRICS_STORAGE_TOTAL),
    ),
    Family(
        "webgrid_storage_disk_bytes_total",
        Kind.GAUGE,
        ("id",),
        "The same as webgrid_storage_disk_bytes_limit, under WebGrid's name",
        (metrics.METRICS_STORAGE_TOTAL,),
        samples.storages(metrics.METRICS_STORAGE_TOTAL),
    ),
    Family(
        "webgrid_storage_disk_bytes_used",
        Kind.GAUGE,
        ("id",),
        "How much each storage holds",
        (metrics.METRICS_STORAGE_USED,),
        samples.storages(metrics.METRICS_STORAGE_USED),
    ),
    Family(
        "remuda_build_info",
        Kind.GAUGE,
        ("version",),
        "Always 1; the version of Remuda that answers",
        (),
        lambda _reading: [Sample(1, {"version": __version__})],
    ),
    Family(
        "remuda_redis_memory_bytes",
        Kind.GAUGE,
        (),
        "Memory that Redis takes",
        (),
        lambda reading: samples.one(None if reading.memory is None else reading.memory.used),
    ),
    Family(
        "remuda_redis_memory_limit_bytes",
        Kind.GAUGE,
        (),
        "Memory that Redis may take; 0 when there is no limit",
        (),
        lambda reading: samples.one(None if reading.memory is None else reading.memory.limit),
    ),
    Family(
        "remuda_roles_up",
        Kind.GAUGE,
        ("role",),
        "Roles that run",
        (fleet.ROLES, fleet.ROLE),
        lambda reading: samples.by("role", reading.roles),
    ),
    Family(
        "remuda_orchestrators",
        Kind.GAUGE,
        ("state",),
        "Orchestrators that are alive and in service, draining, or dead and not yet forgotten",
        (grid.ORCHESTRATORS, grid.ORCHESTRATOR_HEARTBEAT, grid.ORCHESTRATOR_DRAIN),
        samples.orchestrators,
    ),
    Family(
        "remuda_sessions",
        Kind.GAUGE,
        ("state",),
        "Sessions that are in each state now",
        (grid.SESSIONS_ACTIVE, grid.SESSION_STATUS),
        samples.states,
    ),
    Family(
        "remuda_queue_length",
        Kind.GAUGE,
        (),
        "Sessions that wait for a slot",
        (grid.SESSION_STATUS, grid.SESSION_SLOT),
        samples.queue_length,
    ),
    Family(
        "remuda_queue_longest_wait_seconds",
        Kind.GAUGE,
        (),
        "For how long the first of them has been waiting",
        (grid.SESSION_STATUS, grid.SESSION_SLOT),
        samples.longest_wait,
    ),
    Family(
        "remuda_storage_news",
        Kind.GAUGE,
        ("id",),
        "Files that the index of a storage does not know yet",
        (storage.STORAGE_METADATA_PENDING,),
        lambda reading: samples.by("id", reading.news),
    ),
    Family(
        "remuda_playwright_workers",
        Kind.GAUGE,
        ("browser", "status"),
        "Playwright workers; a suspected one did not answer a gateway, a silent one is dead or cut off",
        (playwright.PLAYWRIGHT_WORKERS, playwright.WORKER, playwright.PLAYWRIGHT_SUSPECTS),
        samples.workers,
    ),
    Family(
        "remuda_playwright_connections",
        Kind.GAUGE,
        ("browser",),
        "Playwright connections that are open",
        (playwright.ACTIVE_CONNECTIONS,),
        samples.connections,
    ),
    Family(
        "remuda_playwright_queue_length",
        Kind.GAUGE,
        ("browser",),
        "Playwright clients that wait for a place",
        (fleet.LINE_ORDER,),
        samples.clients_waiting,
    ),
    Family(
        "remuda_playwright_queue_longest_wait_seconds",
        Kind.GAUGE,
        ("browser",),
        "For how long the first of them has been waiting",
        (fleet.LINE_ORDER,),
        samples.longest_client_wait,
    ),
    Family(
        "remuda_playwright_wait_seconds",
        Kind.HISTOGRAM,
        ("browser",),
        "Time from a Playwright client's request to each worker that it was given",
        (playwright.PLAYWRIGHT_WAITS,),
        samples.finished_client_waits,
    ),
    *(
        Family(
            f"remuda_playwright_{what}_total",
            Kind.COUNTER,
            ("browser",),
            meaning[0].upper() + meaning[1:],
            (playwright.PLAYWRIGHT_TOTALS,),
            samples.playwright_total(what),
        )
        for what, meaning in playwright.PLAYWRIGHT_TOTALS.fields.items()
    ),
)
