"""Counts events: each exactly once, at every level, in one atomic script for all that are pushed at a time.

Callers that push at the same time share a round trip: while one batch is under way the next one gathers. What
several events of a batch add to one key is added up here, so that a busy bucket costs Redis little. Awaiting
`push` means that Redis has acknowledged the event, or, while Redis is away, that the local spool has.

What clients push is refused when a hard quota that it adds to is used up. What the herd itself pushes is
always counted: it was used.
"""

import asyncio
import hashlib
import secrets
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

import msgspec
from msgspec import Struct

from remuda.base import clock
from remuda.base.errors import InvalidArgument, RemudaError, StoreUnavailable
from remuda.base.log import get_logger
from remuda.fleet.services import Params
from remuda.fleet.tasks import Tasks
from remuda.fleet.uses import quota_error
from remuda.keyspace.key import Name
from remuda.keyspace.metering import (
    ACTIVE,
    AHEAD,
    CLOSED,
    DELETED,
    LATE,
    LATE_RESOURCES,
    METER_COUNTER,
    METER_EVENT,
    METER_LOCATION,
    METER_STATE,
    METER_USAGE,
    METERING_METRICS,
    OWNERS,
    QUOTA_EVENTS,
    QUOTA_USE,
    QUOTAS,
    RESOURCES,
    ROLLED_DAYS,
    ROLLED_SLOTS,
    SEEN_EVENTS,
    USAGE_TOTALS,
)
from remuda.metering.model import Change, Counting, Level, Precision, Services, find_change, slot_of
from remuda.metering.s3 import DELETE_BUCKET, S3
from remuda.metering.spool import Spool
from remuda.store import Store, load_script
from remuda.store.commands import Value
from remuda.store.wire import CommandRefused

log = get_logger(__name__)

MAX_BATCH = 128
"""Events of one script: Redis does nothing else meanwhile, so it has to be over in a few milliseconds."""
MAX_UNDER_WAY = 2
"""Batches that are under way at a time: one in Redis while the next is prepared."""
MAX_EVENT_ID = 200
FUTURE_MS = 15 * 60_000
"""How far ahead of ours the clock of a client may be."""
OLDEST = 10**12
"""Milliseconds of the first time slot that has thirteen digits, in 2001."""

_TEMPLATES = tuple(
    Name(key.template())
    for key in (
        SEEN_EVENTS,
        METER_USAGE,
        METER_STATE,
        METER_COUNTER,
        METER_LOCATION,
        ACTIVE,
        LATE,
        RESOURCES,
        OWNERS,
        METER_EVENT,
    )
)
_PUSH = load_script(
    __file__,
    "push.lua",
    keys=[CLOSED, LATE_RESOURCES, METERING_METRICS, DELETED, AHEAD, QUOTA_EVENTS],
    args=[
        *("seen", "usage", "state", "counter", "location"),
        *("active", "late", "resources", "owners", "channel"),
        *("remember", "precision", "keep", "slots", "days", "batch"),
        *("quotas", "quota_use", "totals"),
    ],
    shared="quotas.lua",
)
_QUOTAS = (Name(QUOTAS.template()), Name(QUOTA_USE.template()), Name(USAGE_TOTALS.template()))
_KEYS = (CLOSED(), LATE_RESOURCES(), METERING_METRICS(), DELETED(), AHEAD(), QUOTA_EVENTS())
_ALL_COUNTED: list[list[Any]] = [[], [], []]
_OWNED = frozenset((Level.BUCKETS.value, Level.USERS.value))
_encode = msgspec.msgpack.Encoder().encode


class Event(Struct, frozen=True, gc=False):
    """One event that was checked."""

    id: str
    service: str
    action: str
    params: Params
    timestamp: int
    """Milliseconds; its time slot is found from it."""
    change: Change
    digest: bytes
    """What is remembered of its id."""
    scope: str = ""
    """The account that has pushed it, if that may only add to its own."""


@dataclass
class Pushed:
    """What became of a list of events."""

    accepted: int = 0
    duplicates: int = 0
    spooled: int = 0
    """Of the accepted, those that wait on the local disk until Redis is back."""


class _Admission(Struct, gc=False):
    """Whether what one caller pushes at a time may be counted. Once the first of it was, the rest is, too."""

    quotas: frozenset[tuple[str, str, tuple[str, ...]]]
    """Account, service, and what of it is added to: those hard quotas must not be used up."""
    is_given: bool = False


_FOR_HERD = _Admission(frozenset(), is_given=True)


class _Waiting(Struct, gc=False):
    event: Event
    admission: _Admission
    done: asyncio.Future[str]


ACCEPTED, DUPLICATE, SPOOLED = "accepted", "duplicate", "spooled"


@dataclass(frozen=True, kw_only=True)
class PushRules:
    """How events are counted, as the config says."""

    precision: Precision = 15
    counting: Counting = Counting()
    remember: int = 6 * 3600
    """Seconds for which the id of an event is known at least."""
    keep_keys: int = 86400
    """Seconds for which the single keys of a time slot stay after it was rolled up."""
    forgets_deleted: bool = False
    """Whether a deleted bucket is to be forgotten."""


class Metering:
    """Where everything that is used is pushed. One object for a process."""

    def __init__(
        self,
        store: Store,
        *,
        services: Services | None = None,
        rules: PushRules | None = None,
        spool: Spool | None = None,
    ) -> None:
        self.services = services or Services([S3])
        self.rules = rules or PushRules()
        self._fixed: tuple[Value, ...] = (
            *_TEMPLATES,
            self.rules.remember,
            self.rules.precision * 60_000,
            self.rules.keep_keys,
            Name(ROLLED_SLOTS.template()),
            Name(ROLLED_DAYS.template()),
        )
        self._store = store
        self._spool = spool
        self._waiting: list[_Waiting] = []
        self._under_way = 0
        self._is_flush_due = False
        self._replies: set[asyncio.Future[Any]] = set()
        self._tasks = Tasks()
        self._loop = asyncio.get_running_loop()
        # Ids of events that came without one: unique, and cheaper than a UUID.
        self._own_ids = count()
        self._own_prefix = secrets.token_hex(8)

    # Checking

    def check(
        self,
        action: str,
        params: Params,
        *,
        service: str = S3.name,
        event_id: str | None = None,
        timestamp: int | None = None,
        scope: str = "",
    ) -> Event:
        """The event, ready to be pushed; InvalidArgument names the field that is wrong.

        The same id in another `scope` is another event: one account cannot use up the ids of another.
        """
        now = clock.now_ms()
        if timestamp is None:
            timestamp = now
        elif type(timestamp) is not int or not OLDEST <= timestamp <= now + FUTURE_MS:
            raise InvalidArgument(
                f"timestamp is {timestamp!r:.50}; it must be milliseconds since 1970, and not in the future"
            )
        if event_id is None:
            event_id = f"{self._own_prefix}-{next(self._own_ids)}"
        elif not 0 < len(event_id) <= MAX_EVENT_ID:
            raise InvalidArgument(f"id is {event_id!r:.50}; it must have 1 to {MAX_EVENT_ID} characters")
        change = find_change(self.services.find(service), action, params, self.rules.counting)
        text = f"{scope}\n{service}\n{event_id}".encode(errors="surrogatepass")
        digest = hashlib.blake2b(text, digest_size=10).digest()
        return Event(event_id, service, action, params, timestamp, change, digest, scope)

    # Pushing

    async def push(
        self,
        action: str,
        params: Params,
        *,
        service: str = S3.name,
        event_id: str | None = None,
        timestamp: int | None = None,
    ) -> bool:
        """Counts one event; False if its id was counted before, and nothing was changed. AccountLimitReached
        if a hard quota that it adds to is used up."""
        event = self.check(action, params, service=service, event_id=event_id, timestamp=timestamp)
        return await self._enqueue(event, _admission_of((event,))) != DUPLICATE

    async def push_list(self, events: Sequence[Event]) -> Pushed:
        """Counts what a client has pushed. AccountLimitReached if a hard quota that one of the events adds to
        is used up: then none of them is counted."""
        return await self._push(events, _admission_of(events))

    async def push_all(self, events: Sequence[Event]) -> Pushed:
        """Counts what the herd has used, whatever the quotas are. If that fails half-way, all can be pushed
        again: none counts twice."""
        return await self._push(events, _FOR_HERD)

    async def spool_list(self, events: Sequence[Event]) -> Pushed:
        """Keeps the events on the local disk; replay counts them when Redis is back."""
        if self._spool is None:
            raise StoreUnavailable("Redis is away, and there is no spool")
        lines = {event.digest: spool_line(event, was_sent=False) for event in reversed(events)}
        await self._spool.append(list(lines.values())[::-1])
        return Pushed(len(lines), len(events) - len(lines), len(lines))

    async def _push(self, events: Sequence[Event], admission: _Admission) -> Pushed:
        pushing = [self._enqueue(event, admission) for event in events]
        outcomes = await asyncio.gather(*pushing, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        duplicates, spooled = outcomes.count(DUPLICATE), outcomes.count(SPOOLED)
        return Pushed(len(events) - duplicates, duplicates, spooled)

    def _enqueue(self, event: Event, admission: _Admission) -> asyncio.Future[str]:
        waiting = _Waiting(event, admission, self._loop.create_future())
        self._waiting.append(waiting)
        if not self._is_flush_due and self._under_way < MAX_UNDER_WAY:
            # At the end of this tick: whatever else is pushed in it goes along.
            self._is_flush_due = True
            self._loop.call_soon(self._flush)
        return waiting.done

    def _flush(self) -> None:
        self._is_flush_due = False
        while self._waiting and self._under_way < MAX_UNDER_WAY:
            batch, self._waiting = self._waiting[:MAX_BATCH], self._waiting[MAX_BATCH:]
            self._under_way += 1
            if len({waiting.event.digest for waiting in batch}) < len(batch) or not self._store.is_connected:
                self._tasks.spawn(self._commit(batch), name="push events")
                continue
            # Nearly always all goes well: that needs no task.
            reply = self._store.start(_PUSH, keys=_KEYS, args=self._arguments(batch))
            self._replies.add(reply)
            reply.add_done_callback(partial(self._on_reply, batch))

    def _arguments(self, batch: Sequence[_Waiting]) -> tuple[Value, ...]:
        return (*self._fixed, _encode_batch(batch, self.rules), *_QUOTAS)

    def _on_reply(self, batch: list[_Waiting], reply: asyncio.Future[Any]) -> None:
        self._replies.discard(reply)
        if reply.cancelled() or reply.exception() is not None or reply.result() != _ALL_COUNTED:
            self._tasks.spawn(self._commit(batch, reply), name="push events")
            return
        for waiting in batch:
            _settle(waiting, ACCEPTED)
        self._under_way -= 1
        self._flush()

    async def _commit(self, batch: list[_Waiting], reply: Awaitable[Any] | None = None) -> None:
        """Does what is left to do for a batch, of which a script may have been sent already."""
        try:
            await self._count(batch, reply)
        except RemudaError as error:
            _fail(batch, error)
        except BaseException as error:
            _fail(batch, StoreUnavailable("The events were not counted"))
            if not isinstance(error, asyncio.CancelledError):
                log.exception("events not counted")
            raise
        finally:
            self._under_way -= 1
            self._flush()

    async def _count(self, batch: Sequence[_Waiting], reply: Awaitable[Any] | None) -> None:
        """Counts each event of a batch once. Its copies hear of it when that is done, and hear the same."""
        firsts = {waiting.event.digest: waiting for waiting in reversed(batch)}
        copies = [waiting for waiting in batch if firsts[waiting.event.digest] is not waiting]
        refused = await self._count_each(list(firsts.values())[::-1], reply)
        for copy in copies:
            if (error := refused.get(copy.event.digest)) is not None:
                _fail([copy], error)
            else:
                _settle(copy, DUPLICATE)

    async def _count_each(
        self, fresh: list[_Waiting], reply: Awaitable[Any] | None
    ) -> dict[bytes, RemudaError]:
        """Counts events that all have different ids; by their digests, those that a quota has refused."""
        refused: dict[bytes, RemudaError] = {}
        was_sent = reply is not None
        while fresh:
            if reply is None and self._spool is not None and not self._store.is_connected:
                await self._keep(self._spool, fresh, was_sent=was_sent)
                break
            was_sent = True
            try:
                repeated, failed, spent = await (
                    reply or self._store.run(_PUSH, keys=_KEYS, args=self._arguments(fresh))
                )
            except StoreUnavailable:
                if self._spool is None:
                    raise
                await self._keep(self._spool, fresh, was_sent=True)
                break
            except CommandRefused as error:
                if reply is None or "NOSCRIPT" not in error.message:
                    raise
                reply = None
                continue
            reply = None
            if failed:
                log.error("keys not counted", keys=failed[:10], reason="they hold something else")
            if spent:
                refused |= (errors := _refuse(fresh, spent))
                fresh = [waiting for waiting in fresh if waiting.event.digest not in errors]
                continue
            if not repeated:
                for waiting in fresh:
                    _settle(waiting, ACCEPTED)
                break
            places = set(repeated)
            for place in places:
                _settle(fresh[place], DUPLICATE)
            fresh = [waiting for place, waiting in enumerate(fresh) if place not in places]
        return refused

    async def _keep(self, spool: Spool, batch: Sequence[_Waiting], *, was_sent: bool) -> None:
        """Writes the events to the local disk; `was_sent` if Redis may have counted them nevertheless."""
        await spool.append([spool_line(waiting.event, was_sent=was_sent) for waiting in batch])
        for waiting in batch:
            _settle(waiting, SPOOLED)

    async def finish(self) -> None:
        """Waits until all that was pushed is counted or spooled."""
        while self._waiting or self._under_way:
            if self._replies:
                await asyncio.wait(self._replies)
            await self._tasks.finish()
            await asyncio.sleep(0)


def _admission_of(events: Sequence[Event]) -> _Admission:
    return _Admission(
        frozenset(
            [
                (event.change.account, event.service, event.change.gains)
                for event in events
                if event.change.account
            ]
        )
    )


def _refuse(batch: Sequence[_Waiting], spent: Sequence[Sequence[Any]]) -> dict[bytes, RemudaError]:
    """Refuses what adds to quotas that are used up; the digests of that, with the errors."""
    errors = {
        (account, name): quota_error(
            account, name, limit=limit, used=used, period=period, frees_at=ends / 1000
        )
        for account, name, limit, used, period, ends in spent
    }
    refused: dict[bytes, RemudaError] = {}
    for waiting in batch:
        wanted = (
            errors.get((account, f"{service}.{gain}"))
            for account, service, gains in waiting.admission.quotas
            for gain in gains
        )
        error = next(filter(None, wanted), None)
        if error is not None and not waiting.admission.is_given:
            _fail([waiting], error)
            refused[waiting.event.digest] = error
    return refused


def _encode_batch(batch: Sequence[_Waiting], rules: PushRules) -> bytes:
    """The batch as push.lua reads it: what several events add to one resource is added up.

    In MessagePack: as single arguments 64 events take Redis as long, and Python four times as long.
    """
    ids: list[str] = []
    messages: list[str] = []
    deleted: list[str] = []
    # The resources of one event have the same added, and share what says so.
    shared: dict[Any, list[str]] = {}
    added: dict[tuple[str, int, str, str, str], tuple[dict[str, int], dict[str, int]]] = {}
    quotas: set[tuple[str, str, tuple[str, ...]]] = set()
    for waiting in batch:
        event = waiting.event
        change, digest, service = event.change, event.digest, event.service
        if not waiting.admission.is_given:
            quotas |= waiting.admission.quotas
        ids += (digest[8:].hex()[1:], str(int.from_bytes(digest[:8], signed=True)))
        if change.message:
            messages += (service, change.bucket, change.message)
            if event.action == DELETE_BUCKET and rules.forgets_deleted:
                deleted.append(f"{service}:buckets:{change.bucket}")
        slot = slot_of(event.timestamp, rules.precision)
        if len(batch) == 1:
            targets = shared.setdefault((service, slot, change.counts, change.moves), [])
            for level, resource in change.targets:
                targets += (level, resource, change.account if level in _OWNED else "")
            break
        for level, resource in change.targets:
            account = change.account if level in _OWNED else ""
            counts, moves = added.setdefault((service, slot, level, resource, account), ({}, {}))
            for measure, by in change.counts:
                counts[measure] = counts.get(measure, 0) + by
            for state, by in change.moves:
                moves[state] = moves.get(state, 0) + by
    for (service, slot, level, resource, account), (counts, moves) in added.items():
        same = (service, slot, tuple(counts.items()), tuple(moves.items()))
        shared.setdefault(same, []).extend((level, resource, account))
    changes = [
        (service, slot, _flatten(counts), _flatten(moves), targets)
        for (service, slot, counts, moves), targets in shared.items()
    ]
    return _encode((ids, changes, messages, deleted, list(quotas)))


def _flatten(numbers: Sequence[tuple[str, int]]) -> list[str]:
    return [part for name, by in numbers for part in (name, str(by))]


def spool_line(event: Event, *, was_sent: bool) -> bytes:
    """The event as a line of the spool: the documented element of Utapi's list, and what replay needs."""
    return msgspec.json.encode(
        {
            "action": event.action,
            "reqUid": event.id,
            "params": event.params,
            "timestamp": event.timestamp,
            "service": event.service,
            "digest": event.digest.hex(),
            "sent": was_sent,
            **({"scope": event.scope} if event.scope else {}),
        }
    )


def _settle(waiting: _Waiting, outcome: str) -> None:
    if outcome is not DUPLICATE:
        waiting.admission.is_given = True
    if not waiting.done.done():
        waiting.done.set_result(outcome)


def _fail(batch: Sequence[_Waiting], error: RemudaError) -> None:
    for waiting in batch:
        if not waiting.done.done():
            waiting.done.set_exception(error)
