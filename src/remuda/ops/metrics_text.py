"""Metrics as text: Prometheus' exposition format, and the reference page. Pure."""

import math
from collections.abc import Iterator, Sequence

from remuda.ops.metrics import FAMILIES, Family
from remuda.ops.metrics_samples import Reading, Sample

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_PAGE = """\
# Metrics

*Generated from its declarations by `make docs`: do not edit.*

What `GET /metrics` tells, in Prometheus' text format. Families called `webgrid_` have WebGrid's names and
labels; the counters behind them are [keys](keys.md) in Redis, so they outlive every process and each api
role tells the same. A session, slot or role is counted as it is at the moment of the scrape.

| metric | kind | labels | meaning | from |
|---|---|---|---|---|
"""


def render_exposition(reading: Reading, families: Sequence[Family] = FAMILIES) -> str:
    """The text that a scraper is given."""
    return "".join(line + "\n" for family in families for line in _lines(family, reading))


def _lines(family: Family, reading: Reading) -> Iterator[str]:
    yield f"# HELP {family.name} {_escape(family.help)}"
    yield f"# TYPE {family.name} {family.kind}"
    for sample in family.find(reading):
        if math.isnan(sample.value):
            continue
        yield f"{family.name}{sample.suffix}{_labels(sample)} {_number(sample.value)}"


def _labels(sample: Sample) -> str:
    pairs = (f'{name}="{_escape_value(value)}"' for name, value in sample.labels.items())
    return "{" + ",".join(pairs) + "}" if sample.labels else ""


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _escape_value(text: str) -> str:
    return _escape(text).replace('"', '\\"')


def _number(value: float) -> str:
    # Whole numbers without a point: they are counts, and `1e+16` would be none to read.
    return str(int(value)) if value == int(value) else repr(value)


def render_metrics() -> str:
    """docs/reference/metrics.md."""
    return _PAGE + "".join(_row(family) for family in FAMILIES)


def _row(family: Family) -> str:
    labels = ", ".join(f"`{label}`" for label in family.labels)
    sources = ", ".join(f"`{key.pattern}`" for key in family.source)
    return f"| `{family.name}` | {family.kind} | {labels} | {family.help} | {sources} |\n"
