"""What the doctor asks of metering: whether events wait to be counted, or cannot be."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from remuda.base import clock
from remuda.base.config import Config, HerdConfig
from remuda.base.errors import RemudaError
from remuda.fleet.room import Check, CheckState, Question, Topic
from remuda.keyspace.metering import POISON
from remuda.metering.room import spool_directory
from remuda.metering.spool import segments
from remuda.store import Store
from remuda.store.embedded import url_of

TIMEOUT = 3.0
OLD = 900.0
"""Seconds after which events in the spool have waited too long: a running herd replays them at once."""


def look_at_metering(config: Config) -> list[Check]:
    """What waits on this machine, and what was set aside in Redis."""
    return [
        judge_spool([clock.now() - _written_at(path) for path in segments(spool_directory(config))]),
        judge_poison(_count_poison(config)),
    ]


def _written_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return clock.now()


def judge_spool(ages: Sequence[float]) -> Check:
    """Events that could not be counted wait for a short time only."""
    if not ages:
        return Check("usage spool", CheckState.OK, "no events wait to be counted")
    found = f"{len(ages)} files of events, the oldest {max(ages):.0f} s old"
    if max(ages) < OLD:
        return Check("usage spool", CheckState.OK, found)
    advice = "a running herd counts them: start it with this data directory, and see its log"
    return Check("usage spool", CheckState.WARN, found, advice)


def judge_poison(count: int | None) -> Check:
    """No event had to be set aside."""
    if count is None:
        return Check("usage set aside", CheckState.OK, "not looked at, since Redis does not run")
    if not count:
        return Check("usage set aside", CheckState.OK, "every event could be counted")
    advice = "see them with `remuda metering poison`, and drop them with `remuda metering poison --drop`"
    return Check("usage set aside", CheckState.WARN, f"{count} events that cannot be counted", advice)


def _count_poison(config: Config) -> int | None:
    herd = config[HerdConfig]
    url = herd.redis or url_of(herd.data / "redis")
    if not url:
        return None

    async def count() -> int:
        async with Store(url, prefix=herd.prefix, name="doctor", timeout=TIMEOUT) as store:
            return await store.llen(POISON())

    try:
        return asyncio.run(count())
    except RemudaError:
        return None


QUESTIONS: Sequence[Question] = (Question(Topic.HERD, look_at_metering),)
