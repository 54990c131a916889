"""Keeps usage small: time slots that are over are rolled up into one hash a resource, days that are over are
packed, and what is older than is kept is dropped. No answer changes by it.

`remuda:metering:closed` divides time. Before it, usage is read from the rolled-up days, and what is counted
there comes late (`push.lua`). From it on, usage is read from the single keys. It moves only past a time slot
that is rolled up for every resource; until then a resource that is used again is rolled up again.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from remuda.base import clock
from remuda.base.errors import LeaseLost
from remuda.base.log import get_logger
from remuda.fleet.sweep import Scan
from remuda.keyspace.key import Name
from remuda.keyspace.metering import (
    ACTIVE,
    ADOPTED,
    CLOSED,
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
from remuda.metering.model import DAY_MS, Level, Precision, Services, slot_of
from remuda.store import Store, load_script

log = get_logger(__name__)

GRACE_MS = 60_000
"""How long a time slot stays open after its end, for events that are under way."""
MINUTE_MS = 60_000
BATCH = 16
"""Resources that one script rolls up: about a millisecond."""
KEYS_OF_STEP = 2400
"""Keys that are looked at in one step for time slots to roll up, one for each minute, service and level."""
PAGE = 50
UNPACKED_DAYS = 1
"""Whole days that stay in the open form: most of what comes late comes within them."""

_encode = msgspec.msgpack.Encoder().encode
_ROLL = load_script(
    __file__,
    "roll.lua",
    keys=[ACTIVE, UNPACKED],
    args=[
        *("usage", "state", "slots", "days", "label"),
        *("slot", "length", "keep", "names", "late", "resource"),
    ],
)
_CLOSE = load_script(__file__, "close.lua", keys=[CLOSED, ACTIVE], args=["from", "to"])
_REWRITE = load_script(
    __file__,
    "rewrite.lua",
    keys=[ROLLED_SLOTS, ROLLED_DAYS, LATE, LATE_RESOURCES, UNPACKED, METER_STATE],
    args=["day", "before", "after", "totals", "member", "packed", "trim", "pack_with", "late"],
)


class RolledResource(NamedTuple):
    """A resource of a service on a level."""

    service: str
    level: str
    resource: str


def as_bytes(text: str | None) -> bytes:
    """What Redis holds, which is not text: the store reads everything as such, without loss."""
    return b"" if text is None else text.encode(errors="surrogateescape")


class Rollup:
    """Rolls up, packs and drops. Only one process of a herd does that at a time."""

    def __init__(
        self,
        store: Store,
        services: Services,
        *,
        precision: Precision = 15,
        keep_keys: int = 86400,
        keep_days: Mapping[Level, int] | None = None,
        with_utapi: bool = False,
    ) -> None:
        self._store = store
        self._services = services
        self._precision = precision
        self._keep_keys = keep_keys
        self._keep_days = keep_days or {}
        self._with_utapi = with_utapi

    async def run_once(self, now_ms: int | None = None) -> Counter[str]:
        """Does all that is due."""
        now_ms = clock.now_ms() if now_ms is None else now_ms
        done: Counter[str] = Counter()
        if self._with_utapi or not await self._store.exists(ADOPTED()):
            done["adopted"] = await self.adopt(now_ms)
        done["rolled_up"] = await self.close_slots(now_ms)
        done["late"] = await self.add_late()
        done["packed"] = await self.pack_days(now_ms)
        return done

    # Time slots

    async def close_slots(self, now_ms: int) -> int:
        """Rolls up and closes every time slot that is over; how many resources were rolled up."""
        end = slot_of(now_ms - GRACE_MS, self._precision)
        step = max(15, KEYS_OF_STEP // (len(self._services) * len(Level))) * MINUTE_MS
        rolled = 0
        while (closed := await self._store.get(CLOSED())) is not None and int(closed) < end:
            first, rolled_here = int(closed), 0
            # By the minute: what was counted before the precision was changed is found, too.
            slots = range(first, min(end, first + step), MINUTE_MS)
            # By the template, not by the key itself: these are thousands of names.
            keys = {
                Name(template % slot): (service, level, slot)
                for service in self._services
                for level in Level
                for template in [ACTIVE.template(service, level)]
                for slot in slots
            }
            for key in await self._existing(list(keys)):
                rolled_here += await self._roll_slot(*keys[key])
            moved = await self._store.run(
                _CLOSE, keys=[CLOSED(), *keys], args=[closed, min(end, first + step)]
            )
            rolled += rolled_here
            if not moved and not rolled_here and await self._store.get(CLOSED()) != closed:
                raise LeaseLost("Another process rolls up, too")
        return rolled

    async def _existing(self, keys: Sequence[Name]) -> list[Name]:
        """Those of the keys that are there: few of many, so they are asked for in groups first."""
        for size in (len(keys), 50, 1):
            groups = [keys[start : start + size] for start in range(0, len(keys), size)]
            replies = [(group, self._store.exists(*group)) for group in groups]
            keys = [key for group, reply in replies if await reply for key in group]
            if not keys:
                break
        return list(keys)

    async def _roll_slot(self, service: str, level: str, slot: int) -> int:
        active = ACTIVE(service, level, str(slot))
        rolled = 0
        while resources := await self._store.send("SRANDMEMBER", active, BATCH):
            await self._roll(service, level, slot, resources)
            rolled += len(resources)
        return rolled

    async def _roll(self, service: str, level: str, slot: int, resources: Iterable[str]) -> None:
        declared = self._services[service]
        await self._store.run(
            _ROLL,
            keys=[ACTIVE(service, level, str(slot)), UNPACKED()],
            args=[
                Name(METER_USAGE.template(service, level, str(slot))),
                Name(METER_STATE.template(service, level)),
                Name(ROLLED_SLOTS.template(service, level)),
                Name(ROLLED_DAYS.template(service, level)),
                f":{service}:{level}:",
                slot,
                slots_of_day(slot, self._precision),
                self._keep_keys,
                _encode((declared.counted, declared.states)),
                Name(LATE.template(service, level)),
                *resources,
            ],
        )

    # What Utapi has counted

    async def adopt(self, now_ms: int) -> int:
        """Rolls up what another writer has counted, who marks nothing as active; how many time slots."""
        current = slot_of(now_ms - GRACE_MS, self._precision)
        found: set[tuple[str, str, int, str]] = set()
        async for names in Scan(self._store).batches(limit=2**62):
            for name in names:
                match = METER_USAGE.regex.fullmatch(name.removeprefix(self._store.prefix))
                if match is not None and match["service"] in self._services:
                    slot = int(match["timestamp"])
                    found.add((match["service"], match["resourcetype"], slot, match["resource"]))
        for service, level, slot, resource in sorted(found, key=lambda each: each[2]):
            await self._store.send("ZADD", RESOURCES(service, level), "GT", slot, resource)
            if slot < current:
                await self._roll(service, level, slot, [resource])
            else:
                await self._store.sadd(ACTIVE(service, level, str(slot)), resource)
        await self._store.send("SET", CLOSED(), current, "NX")
        await self._store.set(ADOPTED(), clock.rfc3339())
        return len(found)

    # Days

    async def add_late(self) -> int:
        """Adds what came late to the rolled-up days; for how many resources."""
        added = 0
        today = int(await self._store.get(CLOSED()) or 0) // DAY_MS
        for member in await self._store.send("SRANDMEMBER", LATE_RESOURCES(), 1000):
            metered = RolledResource(*member.split(":", 2))
            late = await self._store.hgetall(LATE(*metered))
            for day in sorted(set(map(_day_of, late))):
                # Not packed at once: more of the same day may follow.
                await self._rewrite(metered, day, pack_with=today)
            if not late:
                await self._store.srem(LATE_RESOURCES(), member)
            added += 1
        return added

    async def pack_days(self, now_ms: int) -> int:
        """Packs the days that are over, and drops points of states that are in them; how many days."""
        closed = int(await self._store.get(CLOSED()) or 0)
        newest = closed // DAY_MS - 1 - UNPACKED_DAYS
        packed = 0
        # Only points in packed days: a day in the open form may be rolled up again, from its points.
        trim = min(closed, (newest + 1) * DAY_MS, now_ms - self._keep_keys * 1000)
        due = ("ZRANGE", UNPACKED(), "-inf", newest, "BYSCORE", "LIMIT", 0, 50)
        while members := await self._store.send(*due):
            for member in members:
                day, _, label = member.partition(":")
                await self._rewrite(
                    RolledResource(*label.split(":", 2)), int(day), pack_with=int(day), trim=trim
                )
            packed += len(members)
        return packed

    async def _rewrite(
        self, metered: RolledResource, day: int, *, pack_with: int, trim: int | None = None
    ) -> None:
        """Adds what came late in a day to it. With `trim` the day is over: it is packed, too. If it is new,
        it is packed when the day `pack_with` is."""
        while True:
            async with self._store.transaction() as reading:
                slots = reading.hget(ROLLED_SLOTS(*metered), str(day))
                late = reading.hgetall(LATE(*metered))
            before = as_bytes(await slots)
            numbers = pack.unpack(before) if before else {}
            due = {each: by for each, by in (await late).items() if _day_of(each) == day}
            for each, by in due.items():
                slot, _, name = each.partition(":")
                length = slots_of_day(int(slot), self._precision)
                pack.add(numbers, name, int(slot) - day * DAY_MS, int(by), slots=length)
            is_packed = trim is not None or (bool(before) and pack.is_packed(before))
            states = self._services[metered.service].states if metered.service in self._services else ()
            is_done = await self._store.run(
                _REWRITE,
                keys=[
                    *(ROLLED_SLOTS(*metered), ROLLED_DAYS(*metered), LATE(*metered)),
                    *(LATE_RESOURCES(), UNPACKED()),
                    *(METER_STATE(*metered, state) for state in states),
                ],
                args=[
                    day,
                    before,
                    pack.pack(numbers) if is_packed else pack.encode_open(numbers),
                    pack.encode_totals(pack.totals_of(numbers)),
                    ":".join(metered),
                    int(is_packed),
                    0 if trim is None else trim,
                    pack_with,
                    *(part for pair in due.items() for part in pair),
                ],
            )
            if is_done:
                return

    # Retention

    async def drop_old(self, now_ms: int | None = None) -> Counter[str]:
        """Drops days that are older than is kept, and resources of which nothing else is left."""
        now_ms = clock.now_ms() if now_ms is None else now_ms
        done: Counter[str] = Counter()
        for service in self._services:
            for level in Level:
                if not self._keep_days.get(level):
                    continue
                oldest = now_ms // DAY_MS - self._keep_days[level]
                start = 0
                # In pages: there may be very many. What is dropped moves the others up, until the next time.
                while names := await self._store.zrange(RESOURCES(service, level), start, start + PAGE - 1):
                    done += await self._drop(service, level, names, oldest=oldest)
                    start += PAGE
        return done

    async def _drop(self, service: str, level: Level, names: Sequence[str], *, oldest: int) -> Counter[str]:
        done: Counter[str] = Counter()
        replies = [(name, self._store.send("HKEYS", ROLLED_DAYS(service, level, name))) for name in names]
        for name, reply in replies:
            days = await reply
            old = [day for day in days if int(day) < oldest]
            if not old:
                continue
            # One that is not packed yet came late: it stays for as long as others do before they are packed.
            label = f"{service}:{level}:{name}"
            due = await self._store.send("ZMSCORE", UNPACKED(), *(f"{day}:{label}" for day in old))
            old = [day for day, score in zip(old, due, strict=True) if score is None]
            if not old:
                continue
            keys = ROLLED_SLOTS(service, level, name), ROLLED_DAYS(service, level, name)
            async with self._store.transaction() as dropping:
                for key in keys:
                    dropping.hdel(key, *old)
            done["days_dropped"] += len(old)
            if len(old) == len(days):
                done["resources_forgotten"] += await self._forget_if_empty(service, level, name)
        return done

    async def _forget_if_empty(self, service: str, level: Level, name: str) -> int:
        """1 if the resource has no usage and stores nothing, and was forgotten."""
        states = self._services[service].states
        counters = [METER_COUNTER(service, level, name, state) for state in states]
        values = await asyncio.gather(*(self._store.get(counter) for counter in counters))
        if any(value not in (None, "0") for value in values):
            return 0
        async with self._store.transaction() as forgetting:
            if states:
                series = [METER_STATE(service, level, name, state) for state in states]
                forgetting.delete(*counters, *series)
            forgetting.zrem(RESOURCES(service, level), name)
            forgetting.hdel(OWNERS(service, level), name)
        return 1


def _day_of(late_field: str) -> int:
    return int(late_field.partition(":")[0]) // DAY_MS


def slots_of_day(slot: int, precision: Precision) -> int:
    """How many time slots a day must have for this one to be among them."""
    minutes = next(each for each in (precision, 5, 1) if slot % (each * MINUTE_MS) == 0)
    return DAY_MS // (minutes * MINUTE_MS)
