"""Counts the time of sessions, connections and jobs, exactly once, whatever is killed.

What begins and ends one writes its timer in the same step (grid/move.lua, playwright/book.lua,
archive/claim.lua and finish.lua), and so does what it uses on the way (archive/beat.lua). The seconds and
amounts of a time slot follow from the timer alone, and so do the ids of the events: whichever process counts
them, however often, they are counted once. A timer stays until all of it is counted.
"""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from remuda.base import clock
from remuda.base.log import get_logger
from remuda.keyspace.metering import TIMER, TIMERS
from remuda.metering.push import Event, Metering
from remuda.store import Store, load_script

log = get_logger(__name__)

COUNT_EVERY = 1.0
BATCH = 100
"""Timers that are looked at in one step."""
GRACE_MS = 5_000
"""How long after its end a time slot is counted of what goes on: the clocks of two machines differ."""
PER_RUN = 5_000
"""Timers of one run: the others wait for the next."""

_ADVANCE = load_script(
    __file__, "advance.lua", keys=[TIMER, TIMERS], args=["timer", "counted", "next", "amounts"]
)

Amounts = dict[str, int]
"""`<action>:<parameter>` -> how much of it since the timer began."""


@dataclass(frozen=True)
class Timer:
    """Something that lasts, in milliseconds since 1970."""

    id: str
    service: str
    account: str
    began: int
    ended: int | None = None
    counted: int | None = None
    """Until when its time is counted; None: not even that it began."""
    seen: int | None = None
    """When it was last known to go on, where something has to say so again and again."""
    amounts: Mapping[int, Amounts] = field(default_factory=dict)
    """What else is counted: what it came to in each minute."""
    counted_amounts: Amounts = field(default_factory=dict)

    @classmethod
    def read(cls, timer: str, fields: Mapping[str, str]) -> "Timer | None":
        """The timer in a hash; None if it is gone or not whole."""
        if not fields.keys() >= {"service", "account", "began"}:
            return None
        ended, counted, seen = (
            None if (text := fields.get(name)) is None else int(text) for name in ("ended", "counted", "seen")
        )
        amounts: dict[int, Amounts] = {}
        counted_amounts: Amounts = {}
        for name, value in fields.items():
            moment, _, amount = name.partition(":")
            if moment == "counted" and amount:
                counted_amounts[amount] = int(value)
            elif moment.isdecimal():
                amounts.setdefault(int(moment), {})[amount] = int(value)
        return cls(
            timer,
            fields["service"],
            fields["account"],
            int(fields["began"]),
            ended,
            counted,
            seen,
            amounts,
            counted_amounts,
        )

    def amounts_by(self, moment: int) -> Amounts:
        """What all amounts had come to at a moment; at its end, that is all of them."""
        is_over = self.ended is not None and moment >= self.ended
        known = dict(self.counted_amounts)
        for minute in sorted(self.amounts):
            if minute < moment or is_over:
                known |= self.amounts[minute]
        return known

    def seconds_by(self, moment: int) -> int:
        """Seconds of its time until a moment. One that has begun counts, and so do those of all time slots
        add up to those of the whole."""
        end = moment if self.ended is None else min(moment, self.ended)
        return max(0, -(-(end - self.began) // 1000))


def count_until(timer: Timer, *, now: int, precision: int) -> int:
    """Until when the timer can be counted: to its end, or to that of the last time slot that is over, and in
    which it was seen to the end."""
    if timer.ended is not None:
        return max(timer.began, timer.ended)
    moment = now - GRACE_MS
    if timer.seen is not None:
        moment = min(moment, timer.seen)
    return max(timer.began, moment - moment % precision)


def events_of(timer: Timer, metering: Metering, *, until: int, precision: int) -> Iterator[Event]:
    """The events for what is not yet counted of a timer. The same time slot always makes the same event."""
    service = metering.services.find(timer.service)
    if service.timed is None:
        return
    start, time = service.timed
    whose = {"accountId": timer.account} if timer.account else {}
    if timer.counted is None:
        yield metering.check(
            start, whose, service=service.name, event_id=f"{timer.id}/{start}", timestamp=timer.began
        )
    slot = timer.began if timer.counted is None else timer.counted
    slot -= slot % precision
    moment, amounts = max(min(slot, until), timer.began), timer.counted_amounts
    while slot < until:
        moment = max(slot, timer.began)
        seconds = timer.seconds_by(min(slot + precision, until)) - timer.seconds_by(slot)
        if seconds:
            params = {**whose, "seconds": seconds}
            event_id = f"{timer.id}/{slot}"
            yield metering.check(time, params, service=service.name, event_id=event_id, timestamp=moment)
        slot += precision
        before, amounts = amounts, timer.amounts_by(min(slot, until))
        yield from _amount_events(timer, metering, before, amounts, moment)
    # The rest of one that has ended before its last minute is counted, as the clocks of two machines have it.
    yield from _amount_events(timer, metering, amounts, timer.amounts_by(until), moment)


def _amount_events(
    timer: Timer, metering: Metering, before: Amounts, after: Amounts, moment: int
) -> Iterator[Event]:
    service = metering.services.find(timer.service)
    for action in sorted({name.partition(":")[0] for name in after}):
        names = {param: f"{action}:{param}" for param in service.by_name[action].needs}
        added = {param: after.get(name, 0) - before.get(name, 0) for param, name in names.items()}
        if any(added.values()):
            params = {"accountId": timer.account, **added} if timer.account else added
            # Not by the time slot: what a slow clock adds to one that is counted is counted with the next.
            event_id = "/".join([timer.id, action, *(str(before.get(name, 0)) for name in names.values())])
            yield metering.check(action, params, service=service.name, event_id=event_id, timestamp=moment)


class Timers:
    """Counts what timers tell. `is_on` is false where the herd does not meter itself: then they are only
    cleared away."""

    def __init__(self, store: Store, metering: Metering, *, is_on: bool = True) -> None:
        self._store = store
        self._metering = metering
        self._is_on = is_on
        self._precision = metering.rules.precision * 60_000

    async def count_timers(self) -> int:
        """Counts all that is due; how many timers that were."""
        done = 0
        while done < PER_RUN:
            now = clock.now_ms()
            due = await self._store.send("ZRANGE", TIMERS(), "-inf", now, "BYSCORE", "LIMIT", 0, BATCH)
            if not due:
                break
            hashes = [self._store.hgetall(TIMER(each)) for each in due]
            timers = {each: Timer.read(each, await fields) for each, fields in zip(due, hashes, strict=True)}
            known = [timer for timer in timers.values() if timer is not None]
            if lost := [each for each, timer in timers.items() if timer is None]:
                await self._store.zrem(TIMERS(), *lost)
            await self._count(known, now)
            done += len(due)
        return done

    async def _count(self, timers: list[Timer], now: int) -> None:
        until = {timer.id: count_until(timer, now=now, precision=self._precision) for timer in timers}
        if self._is_on:
            events = [
                event
                for timer in timers
                for event in events_of(
                    timer, self._metering, until=until[timer.id], precision=self._precision
                )
            ]
            await self._metering.push_all(events)
        # Not before all is counted. After a crash just here, the same events come again, and count once.
        over = now - GRACE_MS
        over -= over % self._precision
        await asyncio.gather(
            *(
                self._store.run(
                    _ADVANCE,
                    keys=[TIMER(timer.id), TIMERS()],
                    args=[
                        timer.id,
                        until[timer.id],
                        # Soon again, if the time slot is over and it was not seen since.
                        now + GRACE_MS if until[timer.id] < over else over + self._precision + GRACE_MS,
                        *(part for amount in timer.amounts_by(until[timer.id]).items() for part in amount),
                    ],
                )
                for timer in timers
            )
        )
