"""What operators need: sweeps, metrics, the doctor."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from remuda import __version__
from remuda.base.config import Interval, option
from remuda.fleet.metrics import Metric, MetricKind, Sample, by, one
from remuda.fleet.role import Role, running_roles
from remuda.fleet.room import RoleKind, Room, Surroundings, role_kinds
from remuda.keyspace import fleet
from remuda.store.memory import Memory, read_memory

if TYPE_CHECKING:
    from remuda.fleet.route import Route


@dataclass(frozen=True, kw_only=True)
class OpsConfig:
    """How often the herd cleans up."""

    gc_interval: Interval = option(60, "Seconds between two clean-ups of what killed processes left behind.")


def _gc(on: Surroundings) -> Role:
    from remuda.ops.gc import Gc

    sweeps = {name: sweep for room in on.rooms for name, sweep in room.sweeps(on).items()}
    return Gc(on.store, sweeps, interval=on.config[OpsConfig].gc_interval)


def _routes(on: Surroundings) -> Sequence["Route"]:
    from remuda.fleet.route import text_route
    from remuda.ops.exporter import MEDIA_TYPE, expose

    return [text_route("/metrics", "Metrics in the format of Prometheus", MEDIA_TYPE, partial(expose, on))]


async def _version(_on: Surroundings) -> str:
    return __version__


async def _memory(on: Surroundings) -> Memory:
    return await read_memory(on.store)


async def _count_roles(on: Surroundings) -> dict[str, int]:
    """How many of each role run, also of those that rooms declare and none of which runs."""
    running = Counter(record["name"] for record in await running_roles(on.store))
    declared = role_kinds(on.rooms)
    return {name: running[name] for name in (*declared, *sorted(running.keys() - declared.keys()))}


METRICS: Sequence[Metric[Any]] = (
    Metric(
        "remuda_build_info",
        MetricKind.GAUGE,
        ("version",),
        "Always 1; the label is the version of Remuda",
        (),
        _version,
        lambda version: [Sample(1, {"version": version})],
    ),
    Metric(
        "remuda_redis_memory_bytes",
        MetricKind.GAUGE,
        (),
        "Memory that Redis uses",
        (),
        _memory,
        lambda memory: one(memory.used),
    ),
    Metric(
        "remuda_redis_memory_limit_bytes",
        MetricKind.GAUGE,
        (),
        "Memory limit of Redis; 0 means no limit",
        (),
        _memory,
        lambda memory: one(memory.limit),
    ),
    Metric(
        "remuda_roles_up",
        MetricKind.GAUGE,
        ("role",),
        "Running roles",
        (fleet.ROLES, fleet.ROLE),
        _count_roles,
        lambda running: by("role", running),
    ),
)

ROOM = Room(
    name="ops",
    config=[OpsConfig],
    roles=[RoleKind(name="gc", make=_gc)],
    routes=_routes,
    about="What operators watch",
    metrics=lambda: METRICS,
)
