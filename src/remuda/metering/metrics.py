"""What metering tells at /metrics of its own work."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from remuda.fleet.metrics import Metric, MetricKind, Numbers, ReadNumbers, Sample, count_fields, one
from remuda.fleet.room import Surroundings
from remuda.keyspace.metering import METERING_METRICS, POISON, USAGE_TOTALS


async def _poison(on: Surroundings) -> int:
    return await on.store.llen(POISON())


_FIELD = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,254})? [A-Za-z][A-Za-z0-9]{0,63}")


async def _usage(on: Surroundings) -> Mapping[str, Numbers]:
    names = [service.name for room in on.rooms for service in room.services]
    found = await ReadNumbers(tuple(map(USAGE_TOTALS, names)), _FIELD)(on)
    return {name: found[USAGE_TOTALS(name)] for name in names}


def _by_account(found: Mapping[str, Numbers]) -> Iterator[Sample]:
    for service, totals in found.items():
        for field, value in totals.items():
            account, _, measure = field.partition(" ")
            yield Sample(value, {"service": service, "account": account, "measure": measure})


METRICS: Sequence[Metric[Any]] = (
    count_fields(
        "remuda_metering_events_total",
        METERING_METRICS,
        "outcome",
        "Events that were counted, came twice or late, were replayed or set aside; keys that failed",
    ),
    Metric(
        "remuda_metering_poison",
        MetricKind.GAUGE,
        (),
        "Events that cannot be replayed and wait for an operator",
        (POISON,),
        _poison,
        one,
    ),
    Metric(
        "remuda_usage_total",
        MetricKind.COUNTER,
        ("service", "account", "measure"),
        "What each account has used; an empty account stands for all beyond a number that is bearable",
        (USAGE_TOTALS,),
        _usage,
        _by_account,
    ),
)
