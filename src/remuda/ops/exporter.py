"""/metrics: does the reads of all metrics that rooms declare, and renders what they found in Prometheus' text
format. The reference page is made from the same declarations.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from remuda.base.log import get_logger
from remuda.fleet.metrics import WRONG_VALUE, Metric, Sample
from remuda.fleet.room import Room, Surroundings

log = get_logger(__name__)

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_PAGE = """\
# Metrics

*Generated from its declarations by `make docs`: do not edit.*

`GET /metrics` returns these in Prometheus' text format. Metrics with the prefix `webgrid_` have the names
and labels of WebGrid. The counters are [keys](keys.md) in Redis, so they survive restarts and every api role
returns the same values. Sessions, slots and roles are counted at the moment of the scrape.

| metric | kind | labels | meaning | from |
|---|---|---|---|---|
"""


def all_metrics(rooms: Sequence[Room]) -> list[Metric[Any]]:
    """Every metric of these rooms."""
    return [metric for room in rooms for metric in room.metrics()]


async def expose(on: Surroundings) -> str:
    """The exposition as of now; StoreUnavailable while Redis is away."""
    metrics = all_metrics(on.rooms)
    reads = list(dict.fromkeys(metric.read for metric in metrics))

    async def do(read: Callable[[Surroundings], Awaitable[Any]]) -> Any:
        return await read(on)

    # Each begins as a task, not here: commands that are called in one tick of the loop leave in one write.
    outcomes = await asyncio.gather(*map(do, reads), return_exceptions=True)
    found = dict(zip(reads, outcomes, strict=True))
    exposition = []
    for metric in metrics:
        try:
            if isinstance(outcome := found[metric.read], BaseException):
                raise outcome
            exposition.append(render_metric(metric, metric.find(outcome)))
        except WRONG_VALUE as error:
            log.warning("metric skipped", metric=metric.name, reason=str(error) or type(error).__name__)
            exposition.append(render_metric(metric, ()))
    return "".join(exposition)


def render_metric(metric: Metric[Any], samples: Iterable[Sample]) -> str:
    """The text of a metric with these samples."""
    lines = [f"# HELP {metric.name} {_escape(metric.help)}", f"# TYPE {metric.name} {metric.kind}"]
    for sample in samples:
        value = sample.value
        if math.isnan(value):
            continue
        pairs = ",".join(f'{name}="{_escape_label(label)}"' for name, label in sample.labels.items())
        labels = f"{{{pairs}}}" if pairs else ""
        # Whole numbers without a point: they are counts, and `1e+16` is hard to read.
        number = str(int(value)) if value == int(value) else repr(value)
        lines.append(f"{metric.name}{sample.suffix}{labels} {number}")
    return "".join(line + "\n" for line in lines)


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _escape_label(text: str) -> str:
    return _escape(text).replace('"', '\\"')


def render_page(metrics: Iterable[Metric[Any]]) -> str:
    """docs/reference/metrics.md."""
    rows = []
    for metric in metrics:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        sources = ", ".join(f"`{key.pattern}`" for key in metric.source)
        rows.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} | {sources} |\n")
    return _PAGE + "".join(rows)
