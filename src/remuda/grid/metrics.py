"""The metrics of the grid.

Those called `webgrid_` have the names and labels that WebGrid gave them, so its dashboards and alerts go on
working; those that it planned and never built are here too. What is called `remuda_` is our own.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from remuda.base import clock
from remuda.base.ids import is_uuid
from remuda.base.log import get_logger
from remuda.fleet.metrics import (
    Metric,
    MetricKind,
    Numbers,
    ReadNumbers,
    Sample,
    by,
    count_fields,
    histogram,
    one,
    or_none,
)
from remuda.fleet.room import Surroundings
from remuda.grid.model import STARTUP_BUCKETS, State, state_of
from remuda.grid.view import OrchestratorView, orchestrators
from remuda.keyspace import grid, metrics
from remuda.keyspace.key import Name
from remuda.keyspace.log_codes import LEVELS, LOG_CODES
from remuda.store import Store

log = get_logger(__name__)

MAX_SESSIONS = 10_000
"""Active sessions whose state is looked at; beyond that they are only counted."""
BATCH = 1000
"""Sessions in one write: the roles of this process share its connection, and wait behind it."""

STATES = tuple(state for state in State if state is not State.TERMINATED)
"""The states of a session that has not ended."""


# Counters


def _log_entries(found: Mapping[Name, Numbers]) -> Iterator[Sample]:
    for level in LEVELS:
        counted = found[metrics.METRICS_SESSIONS_LOG(level)]
        declared = [entry.code for entry in LOG_CODES if entry.level == level]
        for code in dict.fromkeys([*declared, *counted]):
            yield Sample(counted[code], {"level": level, "code": code})


def _startups(found: Mapping[Name, Numbers]) -> Iterable[Sample]:
    # The key `count` is not read: it may be one ahead of the last bucket.
    counted = found[metrics.METRICS_STARTUP_BUCKETS()]
    counts = {bound: counted[bound] for bound in (*map(str, STARTUP_BUCKETS), "+Inf")}
    return histogram(counts, found[metrics.METRICS_STARTUP_SUM()][""], {})


# Orchestrators and their slots


async def _orchestrators(on: Surroundings) -> list[OrchestratorView]:
    return await orchestrators(on.store)


def _alive(found: Sequence[OrchestratorView]) -> list[OrchestratorView]:
    """Those whose slots count: a session cannot have the slot of a dead orchestrator."""
    return [each for each in found if each.alive]


def _all_slots(orchestrator: OrchestratorView) -> int:
    return len(orchestrator.slots)


def _free_slots(orchestrator: OrchestratorView) -> int:
    return orchestrator.available if orchestrator.in_service else 0


def _slots(count: Callable[[OrchestratorView], int]) -> Callable[[Sequence[OrchestratorView]], list[Sample]]:
    return lambda found: one(sum(map(count, _alive(found))))


def _slots_by_browser(
    count: Callable[[OrchestratorView], int],
) -> Callable[[Sequence[OrchestratorView]], list[Sample]]:
    def find(found: Sequence[OrchestratorView]) -> list[Sample]:
        slots: Counter[str] = Counter()
        for each in _alive(found):
            # Several versions of one browser share the slots, which must not count twice.
            slots.update({name: count(each) for name in {browser.name for browser in each.browsers}})
        return by("browser", dict(sorted(slots.items())))

    return find


def _orchestrator_states(found: Sequence[OrchestratorView]) -> list[Sample]:
    alive, serving = len(_alive(found)), sum(each.in_service for each in found)
    return by("state", {"alive": serving, "draining": alive - serving, "dead": len(found) - alive})


# Sessions


@dataclass(frozen=True)
class ActiveCounts:
    """How many sessions are in each state, and for how long some have been waiting for a slot."""

    states: Counter[State] = field(default_factory=Counter)
    waits: list[float] = field(default_factory=list)


async def _count_active(on: Surroundings) -> ActiveCounts:
    # Not SMEMBERS, whose answer has no bound; of a set that is small enough this is all of it.
    ids = await on.store.send("SRANDMEMBER", grid.SESSIONS_ACTIVE(), MAX_SESSIONS)
    if len(ids) == MAX_SESSIONS:
        log.warning("sessions not all looked at", looked_at=MAX_SESSIONS)
    counts = ActiveCounts()
    for start in range(0, len(ids), BATCH):
        await _count_some(on.store, [each for each in ids[start : start + BATCH] if is_uuid(each)], counts)
    return counts


async def _count_some(store: Store, ids: Sequence[str], counts: ActiveCounts) -> None:
    # Awaited one after the other, all being under way: a task for each would take longer than Redis.
    asked = [(each, store.hgetall(grid.SESSION_STATUS(each))) for each in ids]
    statuses = {each: status for each, reply in asked if (status := await or_none(reply, session=each))}
    states = {each: state for each, status in statuses.items() if (state := state_of(status)) is not None}
    counts.states.update(states.values())
    queued = [each for each, state in states.items() if state is State.QUEUED]
    slots = [(each, store.exists(grid.SESSION_SLOT(each))) for each in queued]
    waiting = [each for each, holds_slot in slots if not await holds_slot]
    now = clock.now()
    for each in waiting:
        try:
            waited = max(0.0, round(now - clock.parse_rfc3339(statuses[each][State.QUEUED.stamp]), 3))
        except ValueError:
            waited = 0.0  # Another program wrote the time in another form; the session waits nevertheless.
        counts.waits.append(waited)


METRICS: Sequence[Metric[Any]] = (
    Metric(
        "webgrid_session_status_codes_total",
        MetricKind.COUNTER,
        ("level", "code"),
        "Entries written to session logs",
        (metrics.METRICS_SESSIONS_LOG,),
        ReadNumbers(
            tuple(metrics.METRICS_SESSIONS_LOG(level) for level in LEVELS),
            re.compile(r"[A-Z][A-Z0-9_]{0,63}"),
        ),
        _log_entries,
    ),
    Metric(
        "webgrid_session_startup_duration_seconds",
        MetricKind.HISTOGRAM,
        (),
        "Time from a request to its session, for successful requests",
        (metrics.METRICS_STARTUP_BUCKETS, metrics.METRICS_STARTUP_SUM),
        ReadNumbers((metrics.METRICS_STARTUP_BUCKETS(), metrics.METRICS_STARTUP_SUM())),
        _startups,
    ),
    count_fields(
        "webgrid_session_total",
        metrics.METRICS_SESSIONS_TOTAL,
        "stage",
        "Sessions that have entered each state",
    ),
    count_fields(
        "webgrid_session_duration_seconds_total",
        metrics.METRICS_SESSIONS_DURATION,
        "stage",
        "Time that sessions have spent in each state, added when they leave it",
    ),
    Metric(
        "webgrid_sessions_active",
        MetricKind.GAUGE,
        (),
        "Sessions that have not ended",
        (grid.SESSIONS_ACTIVE,),
        lambda on: on.store.scard(grid.SESSIONS_ACTIVE()),
        one,
    ),
    Metric(
        "webgrid_sessions_terminated",
        MetricKind.GAUGE,
        (),
        "Ended sessions whose data is still kept",
        (grid.SESSIONS_TERMINATED,),
        lambda on: on.store.scard(grid.SESSIONS_TERMINATED()),
        one,
    ),
    Metric(
        "webgrid_slots_allocated",
        MetricKind.GAUGE,
        (),
        "Slots of live orchestrators, free or in use",
        (grid.ORCHESTRATOR_SLOTS,),
        _orchestrators,
        _slots(_all_slots),
    ),
    Metric(
        "webgrid_slots_available",
        MetricKind.GAUGE,
        (),
        "Free slots of live orchestrators",
        (grid.ORCHESTRATOR_SLOTS_AVAILABLE,),
        _orchestrators,
        _slots(_free_slots),
    ),
    Metric(
        "webgrid_browser_slots",
        MetricKind.GAUGE,
        ("browser",),
        "Slots that can start this browser; a slot counts once for each of its browsers",
        (grid.ORCHESTRATOR_SLOTS, grid.ORCHESTRATOR_BROWSERS),
        _orchestrators,
        _slots_by_browser(_all_slots),
    ),
    Metric(
        "webgrid_browser_slots_total",
        MetricKind.GAUGE,
        ("browser",),
        "The same as webgrid_browser_slots, under the name that was documented first",
        (grid.ORCHESTRATOR_SLOTS, grid.ORCHESTRATOR_BROWSERS),
        _orchestrators,
        _slots_by_browser(_all_slots),
    ),
    Metric(
        "webgrid_browser_slots_available",
        MetricKind.GAUGE,
        ("browser",),
        "Free slots that can start this browser",
        (grid.ORCHESTRATOR_SLOTS_AVAILABLE, grid.ORCHESTRATOR_BROWSERS),
        _orchestrators,
        _slots_by_browser(_free_slots),
    ),
    count_fields(
        "webgrid_slots_reclaimed_total",
        metrics.METRICS_SLOTS_RECLAIMED,
        "source",
        "Lost slots that were recovered, because their session was dead or no session held them",
    ),
    Metric(
        "remuda_orchestrators",
        MetricKind.GAUGE,
        ("state",),
        "Orchestrators by state: in service, draining, or dead and not yet purged",
        (grid.ORCHESTRATORS, grid.ORCHESTRATOR_HEARTBEAT, grid.ORCHESTRATOR_DRAIN),
        _orchestrators,
        _orchestrator_states,
    ),
    Metric(
        "remuda_sessions",
        MetricKind.GAUGE,
        ("state",),
        "Sessions by current state",
        (grid.SESSIONS_ACTIVE, grid.SESSION_STATUS),
        _count_active,
        lambda found: by("state", {state: found.states[state] for state in STATES}),
    ),
    Metric(
        "remuda_queue_length",
        MetricKind.GAUGE,
        (),
        "Sessions that wait for a slot",
        (grid.SESSION_STATUS, grid.SESSION_SLOT),
        _count_active,
        lambda found: one(len(found.waits)),
    ),
    Metric(
        "remuda_queue_longest_wait_seconds",
        MetricKind.GAUGE,
        (),
        "Longest current waiting time in the queue",
        (grid.SESSION_STATUS, grid.SESSION_SLOT),
        _count_active,
        lambda found: one(max(found.waits, default=0)),
    ),
)
