"""Metrics as rooms declare them: what each means, how it is read from Redis, and which samples that gives.

A key that is not there counts as 0. A value that cannot be right is skipped and logged: a scrape that fails
because of one value would lose all the others, too.
"""

import math
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

from remuda.base.errors import Broken, Refused
from remuda.base.log import get_logger
from remuda.fleet.room import Surroundings
from remuda.keyspace.key import HashName, Key, Name, StringName

log = get_logger(__name__)

T = TypeVar("T")

MAX_FIELDS = 1000
"""Fields of one hash that are exposed."""
WRONG_VALUE = (Broken, Refused, LookupError, ValueError)
"""What reading fails with where a key holds a wrong type or value. Redis being away is not among it."""


class MetricKind(StrEnum):
    """What Prometheus may do with the samples of a metric."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True)
class Sample:
    """One line of the exposition; the suffix is a histogram's `_bucket`, `_sum` or `_count`.

    A value of nan is left out.
    """

    value: float
    labels: Mapping[str, str]
    suffix: str = ""


@dataclass(frozen=True)
class Metric(Generic[T]):
    """One metric of a room. Metrics with an equal `read` share it: a scrape does it once.

    A read calls its first commands before it awaits anything, so that those of all reads leave in one write.
    """

    name: str
    kind: MetricKind
    labels: tuple[str, ...]
    help: str
    source: tuple[Key[Any], ...]
    """The keys that it comes from, for the reference page."""
    read: Callable[[Surroundings], Awaitable[T]]
    find: Callable[[T], Iterable[Sample]]
    """The samples in what was read. Pure."""


async def or_none(reply: Awaitable[T], **known: Any) -> T | None:
    """The reply, or None when what it is about holds a wrong type or value."""
    try:
        return await reply
    except WRONG_VALUE as error:
        log.warning("metric skipped", reason=str(error) or type(error).__name__, **known)
        return None


# Numbers that are read as they stand in Redis


class Numbers(dict[str, float]):
    """The fields of a key. One that is not there is 0, or nan where the key could not be read.

    Not 0 then: a counter that falls looks like a restart.
    """

    def __init__(self, fields: Mapping[str, float], *, missing: float = 0) -> None:
        super().__init__(fields)
        self._missing = missing

    def __missing__(self, field: str) -> float:
        return self._missing


@dataclass(frozen=True)
class ReadNumbers:
    """Reads hashes whose fields are numbers, and strings that are one: they have the field ""."""

    keys: tuple[HashName | StringName, ...]
    fields: re.Pattern[str] | None = None
    """What the names of fields must look like where they become the value of a label."""

    async def __call__(self, on: Surroundings) -> dict[Name, Numbers]:
        get, hgetall = on.store.get, on.store.hgetall
        replies = [(key, get(key) if isinstance(key, StringName) else hgetall(key)) for key in self.keys]
        return {key: await self._numbers(key, reply) for key, reply in replies}

    async def _numbers(self, key: Name, reply: Awaitable[str | dict[str, str] | None]) -> Numbers:
        try:
            found = await reply
        except Broken as error:
            log.warning("metric skipped", key=key, reason=error.message)
            return Numbers({}, missing=math.nan)
        fields = {"": found} if isinstance(found, str) else found or {}
        shown = sorted(fields)[:MAX_FIELDS]
        if len(shown) < len(fields):
            log.warning("metric skipped", key=key, fields=len(fields) - len(shown), reason="too many fields")
        wrong = [name for name in shown if self.fields is not None and not self.fields.fullmatch(name)]
        for name in wrong:
            log.warning("metric skipped", key=key, field=name[:100], reason="not a name that it may have")
        return Numbers({name: _number(key, name, fields[name]) for name in shown if name not in wrong})


def _number(key: Name, name: str, text: str) -> float:
    """The number, or nan when the text is not one or is negative."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if math.isfinite(value) and value >= 0:
        return value
    log.warning("metric skipped", key=key, field=name[:100], value=text[:100], reason="not a count")
    return math.nan


def count_fields(name: str, key: Key[HashName], label: str, meaning: str) -> Metric[Any]:
    """A counter for each declared field of a hash, whose name is the label's value."""

    def find(found: Mapping[Name, Numbers]) -> Iterable[Sample]:
        return by(label, {field: found[key()][field] for field in key.fields})

    return Metric(name, MetricKind.COUNTER, (label,), meaning, (key,), ReadNumbers((key(),)), find)


# Samples


def one(value: float) -> list[Sample]:
    """The sample of a metric without labels."""
    return [Sample(value, {})]


def by(label: str, values: Mapping[str, float]) -> list[Sample]:
    """A sample for each value of a label."""
    return [Sample(value, {label: each}) for each, value in values.items()]


def histogram(counts: Mapping[str, float], total: float, labels: Mapping[str, str]) -> Iterator[Sample]:
    """The samples of a histogram: by upper bound, how many were at most that; the last bound is `+Inf`."""
    for bound, count in counts.items():
        yield Sample(count, {**labels, "le": bound}, "_bucket")
    yield Sample(total, labels, "_sum")
    # The format wants the last bucket and the count to be the same number.
    yield Sample(counts["+Inf"], labels, "_count")
