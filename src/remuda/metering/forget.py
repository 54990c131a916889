"""Forgets the usage of buckets that were deleted, where the config says so, some time after their end.

A bucket is forgotten when the time slot of its end is rolled up, and only if it was not used since. All
that it has is found by its name and its rolled-up days: nothing is scanned.
"""

from collections import Counter

from remuda.base import clock
from remuda.keyspace.key import Name
from remuda.keyspace.metering import (
    CLOSED,
    DELETED,
    LATE,
    LATE_RESOURCES,
    METER_COUNTER,
    METER_STATE,
    METER_USAGE,
    OWNERS,
    RESOURCES,
    ROLLED_DAYS,
    ROLLED_SLOTS,
    UNPACKED,
)
from remuda.metering import pack
from remuda.metering.model import DAY_MS, Precision, Services, slot_of
from remuda.metering.rollup import RolledResource, as_bytes
from remuda.store import Store

BATCH = 500


class Forgetting:
    """Forgets deleted buckets, so many seconds after their end."""

    def __init__(
        self, store: Store, services: Services, *, after: int, precision: Precision, keep_keys: int
    ) -> None:
        self._store = store
        self._services = services
        self._after = after
        self._precision = precision
        self._keep_keys = keep_keys

    async def run_once(self, now: float | None = None) -> Counter[str]:
        """Forgets all that is due."""
        now = clock.now() if now is None else now
        done: Counter[str] = Counter()
        closed = int(await self._store.get(CLOSED()) or 0)
        due = await self._store.send("ZRANGE", DELETED(), "-inf", now - self._after, "BYSCORE", "WITHSCORES")
        for member, deleted_at in due:
            metered = RolledResource(*member.split(":", 2))
            last_slot = slot_of(int(deleted_at) * 1000, self._precision)
            if last_slot >= closed:
                continue
            used_at = await self._store.send("ZSCORE", RESOURCES(*metered[:2]), metered.resource)
            if used_at is not None and float(used_at) > last_slot:
                done["used_again"] += 1
            else:
                await self._forget(metered, since=int((now - self._keep_keys) * 1000))
                done["forgotten"] += 1
            await self._store.zrem(DELETED(), member)
        return done

    async def _forget(self, metered: RolledResource, *, since: int) -> None:
        singles, days = await self._single_keys(metered, since=since)
        for start in range(0, len(singles), BATCH):
            await self._store.send("UNLINK", *singles[start : start + BATCH])
        label = ":".join(metered)
        states = self._services[metered.service].states if metered.service in self._services else ()
        async with self._store.transaction() as forgetting:
            for state in states:
                forgetting.delete(METER_STATE(*metered, state), METER_COUNTER(*metered, state))
            forgetting.send("UNLINK", ROLLED_SLOTS(*metered), ROLLED_DAYS(*metered), LATE(*metered))
            forgetting.srem(LATE_RESOURCES(), label)
            forgetting.hdel(OWNERS(*metered[:2]), metered.resource)
            forgetting.zrem(RESOURCES(*metered[:2]), metered.resource)
            if days:
                forgetting.zrem(UNPACKED(), *(f"{day}:{label}" for day in days))

    async def _single_keys(self, metered: RolledResource, *, since: int) -> tuple[list[Name], list[str]]:
        """The keys of its time slots that have not expired yet, and all its days."""
        days = await self._store.send("HKEYS", ROLLED_SLOTS(*metered))
        template = METER_USAGE.template(*metered[:2])
        names = []
        for day in days:
            if (int(day) + 1) * DAY_MS < since:
                continue
            blob = as_bytes(await self._store.hget(ROLLED_SLOTS(*metered), day))
            for column, numbers in (pack.unpack(blob) if blob else {}).items():
                width = DAY_MS // len(numbers)
                slots = (int(day) * DAY_MS + index * width for index, number in enumerate(numbers) if number)
                names += [Name(template % (slot, metered.resource, column)) for slot in slots]
        return names, days
