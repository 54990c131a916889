"""Finds counters that disagree with their states, and corrects them by events that are written down.

A counter and the newest point of its state are always changed together here. They differ where another writer
was interrupted between the two, or where something was counted that this herd never saw. A correction changes
the present; what was answered about the past stays.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence

from msgspec import Struct

from remuda.base import clock
from remuda.base.ids import new_id
from remuda.fleet.origin import Origin
from remuda.keyspace.metering import (
    ACTIVE,
    CORRECTIONS,
    METER_COUNTER,
    METER_STATE,
    QUOTA_USE,
    RESOURCES,
)
from remuda.metering.model import Level, Precision, Services, slot_of
from remuda.store import Store, load_script
from remuda.store.commands import stream_entries

KEPT = 10_000
BATCH = 200

_CORRECT = load_script(
    __file__,
    "correct.lua",
    keys=[METER_COUNTER, METER_STATE, ACTIVE, CORRECTIONS, QUOTA_USE],
    args=["slot", "value", "resource", "keep", "quota", "field"],
)


class Drift(Struct):
    """A counter that disagrees with its state."""

    service: str
    level: str
    resource: str
    metric: str
    counter: int
    state: int | None
    """The newest point; null if there is none."""


class Correction(Struct):
    """What was corrected."""

    service: str
    level: str
    resource: str
    metric: str
    counter: int
    state: int | None
    value: int
    event: str
    at: str
    account: str = ""
    token: str = ""


class Reconciler:
    """Compares counters with states, and corrects both."""

    def __init__(self, store: Store, services: Services, *, precision: Precision) -> None:
        self._store = store
        self._services = services
        self._precision = precision

    async def find_drift(self, *, limit: int = 1000) -> list[Drift]:
        """The counters that disagree with their states, at most so many."""
        found: list[Drift] = []
        async for drift in self._walk():
            found.append(drift)
            if len(found) == limit:
                break
        return found

    async def _walk(self) -> AsyncIterator[Drift]:
        for service in self._services.values():
            for level in Level if service.states else ():
                key, start = RESOURCES(service.name, level), 0
                while names := await self._store.zrange(key, start, start + BATCH - 1):
                    for drift in await self._compare(service.name, level, names):
                        yield drift
                    start += BATCH

    async def _compare(self, service: str, level: Level, names: Sequence[str]) -> list[Drift]:
        places = [(name, state) for name in names for state in self._services[service].states]
        async with self._store.transaction() as reading:
            replies = [
                (
                    reading.get(METER_COUNTER(service, level, *place)),
                    reading.zrange(METER_STATE(service, level, *place), -1, -1),
                )
                for place in places
            ]
        found = []
        for place, (counter, points) in zip(places, replies, strict=True):
            value, newest = int(await counter or 0), _value_of(await points)
            if value != (newest or 0):
                found.append(Drift(service, level, *place, value, newest))
        return found

    async def reconcile(self, origin: Origin, *, limit: int = 1000) -> list[Correction]:
        """Has every state that disagrees with its counter say what the counter does; what was corrected."""
        drifts = await self.find_drift(limit=limit)
        return list(
            await asyncio.gather(
                *(
                    self.correct(origin, each.service, Level(each.level), each.resource, each.metric)
                    for each in drifts
                )
            )
        )

    async def correct(
        self, origin: Origin, service: str, level: Level, resource: str, metric: str, value: int | None = None
    ) -> Correction:
        """Sets a counter and its state to the value, or the state to the counter, and writes that down."""
        slot, event, at = slot_of(clock.now_ms(), self._precision), new_id(), clock.rfc3339()
        known = {
            "at": at,
            "account": origin.account,
            "token": origin.token,
            "service": service,
            "resourcetype": level.value,
            "resource": resource,
            "metric": metric,
            "event": event,
        }
        counter, state, now = await self._store.run(
            _CORRECT,
            keys=[
                METER_COUNTER(service, level, resource, metric),
                METER_STATE(service, level, resource, metric),
                ACTIVE(service, level, str(slot)),
                CORRECTIONS(),
                *([QUOTA_USE(resource)] if level is Level.ACCOUNTS else []),
            ],
            args=[
                slot,
                "" if value is None else value,
                resource,
                KEPT,
                f"{service}.{metric}",
                *(part for pair in known.items() for part in pair),
            ],
        )
        return Correction(
            service,
            level,
            resource,
            metric,
            int(counter),
            int(state) if state else None,
            int(now),
            event,
            at,
            origin.account,
            origin.token,
        )

    async def corrections(self, *, limit: int = 100) -> list[Correction]:
        """What was corrected, newest first."""
        entries = stream_entries(await self._store.xrevrange(CORRECTIONS(), limit=limit))
        return [
            Correction(
                fields["service"],
                fields["resourcetype"],
                fields["resource"],
                fields["metric"],
                int(fields["counter"]),
                int(fields["state"]) if fields["state"] else None,
                int(fields["value"]),
                fields["event"],
                fields["at"],
                fields["account"],
                fields["token"],
            )
            for _, fields in entries
        ]


def _value_of(points: Sequence[str]) -> int | None:
    value = points[0].partition(":")[0] if points else ""
    return int(value) if value.removeprefix("-").isdecimal() else None
