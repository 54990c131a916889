"""/metrics: looks at Redis when it is asked, and says what it saw in Prometheus' text format.

All reads of a round leave in one write; the second round is for what only the first has named. A key that
is not there counts as 0. A value that cannot be right is skipped and logged: a scrape that fails because of
one of them would blind its operator for all the others.
"""

import asyncio
import math
import re
from collections import Counter
from collections.abc import Awaitable, Collection, Mapping, Sequence
from typing import TypeVar

from remuda.base import clock
from remuda.base.errors import Broken, Refused
from remuda.base.ids import is_uuid
from remuda.base.log import get_logger
from remuda.fleet.role import running_roles
from remuda.grid.model import State, state_of
from remuda.grid.view import orchestrators
from remuda.keyspace import grid, metrics, rules
from remuda.keyspace.key import Name, StringName
from remuda.keyspace.log_codes import LEVELS
from remuda.keyspace.storage import STORAGE_METADATA_PENDING
from remuda.ops.metrics_samples import COUNTERS, METHODS, NUMBERS, Reading
from remuda.ops.metrics_text import render_exposition
from remuda.playwright.view import read_waiting, read_workers
from remuda.store import Store
from remuda.store.memory import read_memory

log = get_logger(__name__)

MAX_SESSIONS = 10_000
"""Active sessions whose state is looked at; beyond that they are only counted."""
BATCH = 1000
"""Sessions in one write: the roles of this process share its connection, and wait behind it."""
MAX_FIELDS = 1000
"""Fields of one hash that are told of."""

_STATUS = re.compile(r"[1-9]\d\d")
_CODE = re.compile(r"[A-Z][A-Z0-9_]{0,63}")
_STORAGE = re.compile(rules.ID)
_FIELD_RULES: Mapping[Name, re.Pattern[str]] = {
    **{metrics.METRICS_HTTP_REQUESTS(method): _STATUS for method in METHODS},
    **{metrics.METRICS_SESSIONS_LOG(level): _CODE for level in LEVELS},
    metrics.METRICS_STORAGE_TOTAL(): _STORAGE,
    metrics.METRICS_STORAGE_USED(): _STORAGE,
}
"""What the fields of a hash must look like where they become the value of a label."""

T = TypeVar("T")


class Exporter:
    """Exposes a herd's metrics. The roles named are told of even when none of them runs."""

    def __init__(self, store: Store, *, roles: Collection[str] = ()) -> None:
        self._store = store
        self._roles = tuple(roles)

    async def expose(self) -> str:
        """The exposition as of now; StoreUnavailable when there is no Redis to look at."""
        return render_exposition(await self.read())

    async def read(self) -> Reading:
        """The herd as of now."""
        numbers, active, terminated, found, roles, sessions = await asyncio.gather(
            self._numbers(),
            _or_none(self._store.scard(grid.SESSIONS_ACTIVE())),
            _or_none(self._store.scard(grid.SESSIONS_TERMINATED())),
            _or_none(orchestrators(self._store)),
            _or_none(self._count_roles()),
            _or_none(self._sessions()),
        )
        workers, clients, news, memory = await asyncio.gather(
            _or_none(read_workers(self._store)),
            _or_none(read_waiting(self._store)),
            self._news(numbers),
            _or_none(read_memory(self._store)),
        )
        states, waits = sessions or (None, None)
        return Reading(
            numbers=numbers,
            active=active,
            terminated=terminated,
            memory=memory,
            orchestrators=found,
            roles=roles,
            sessions=states,
            waits=waits,
            news=news,
            workers=workers,
            clients=clients,
        )

    async def _numbers(self) -> dict[Name, dict[str, float]]:
        hashes = [_or_none(self._store.hgetall(key)) for key in COUNTERS]
        strings = [_or_none(self._number(key)) for key in NUMBERS]
        replies = await asyncio.gather(*hashes, *strings)
        found = zip((*COUNTERS, *NUMBERS), replies, strict=True)
        return {key: _usable(key, fields) for key, fields in found if fields is not None}

    async def _number(self, key: StringName) -> dict[str, str]:
        text = await self._store.get(key)
        return {} if text is None else {"": text}

    async def _count_roles(self) -> dict[str, int]:
        running = Counter(record["name"] for record in await running_roles(self._store))
        return {name: running[name] for name in (*self._roles, *sorted(running.keys() - set(self._roles)))}

    async def _news(self, numbers: Mapping[Name, Mapping[str, float]]) -> dict[str, int]:
        keys = (metrics.METRICS_STORAGE_TOTAL(), metrics.METRICS_STORAGE_USED())
        storages = sorted({each for key in keys for each in numbers.get(key, {})})
        replies = await asyncio.gather(
            *(_or_none(self._store.llen(STORAGE_METADATA_PENDING(each))) for each in storages)
        )
        return {each: count for each, count in zip(storages, replies, strict=True) if count is not None}

    # Sessions

    async def _sessions(self) -> tuple[Counter[State], list[float]]:
        """How many sessions are in each state, and for how long some have been waiting for a slot."""
        # Not SMEMBERS, whose answer has no bound; of a set that is small enough this is all of it.
        ids = await self._store.send("SRANDMEMBER", grid.SESSIONS_ACTIVE(), MAX_SESSIONS)
        if len(ids) == MAX_SESSIONS:
            log.warning("sessions not all looked at", looked_at=MAX_SESSIONS)
        states: Counter[State] = Counter()
        waits: list[float] = []
        for start in range(0, len(ids), BATCH):
            statuses = await self._statuses([each for each in ids[start : start + BATCH] if is_uuid(each)])
            states.update(state for status in statuses.values() if (state := state_of(status)) is not None)
            waits += await self._waits(statuses)
        return states, waits

    async def _statuses(self, ids: Sequence[str]) -> dict[str, dict[str, str]]:
        # Awaited one after the other, all being under way: a task for each would take longer than Redis.
        replies = [(each, self._store.hgetall(grid.SESSION_STATUS(each))) for each in ids]
        return {each: status for each, reply in replies if (status := await _or_none(reply))}

    async def _waits(self, statuses: Mapping[str, Mapping[str, str]]) -> list[float]:
        queued = [each for each, status in statuses.items() if state_of(status) is State.QUEUED]
        replies = [(each, self._store.exists(grid.SESSION_SLOT(each))) for each in queued]
        waiting = [each for each, holds_slot in replies if not await holds_slot]
        now = clock.now()
        return [_age(statuses[each][State.QUEUED.stamp], now) for each in waiting]


async def _or_none(reply: Awaitable[T]) -> T | None:
    """The reply, or None when what it is about has been written by somebody who should not have."""
    try:
        return await reply
    except (Broken, Refused, LookupError, ValueError) as error:
        log.warning("metric skipped", reason=str(error) or type(error).__name__)
        return None


def _usable(key: Name, fields: Mapping[str, str]) -> dict[str, float]:
    """The fields as numbers, without those whose name cannot be right."""
    rule = _FIELD_RULES.get(key)
    shown = sorted(fields)[:MAX_FIELDS]
    if len(shown) < len(fields):
        log.warning("metric skipped", key=key, fields=len(fields) - len(shown), reason="too many fields")
    wrong = [name for name in shown if rule is not None and not rule.fullmatch(name)]
    for name in wrong:
        log.warning("metric skipped", key=key, field=name[:100], reason="not a name that it may have")
    return {name: _number(key, name, fields[name]) for name in shown if name not in wrong}


def _number(key: Name, name: str, text: str) -> float:
    """The number, or nan when it is none or less than nothing."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if math.isfinite(value) and value >= 0:
        return value
    log.warning("metric skipped", key=key, field=name[:100], value=text[:100], reason="not a count")
    return math.nan


def _age(stamp: str, now: float) -> float:
    try:
        return max(0.0, round(now - clock.parse_rfc3339(stamp), 3))
    except ValueError:
        return 0.0  # Somebody else wrote it, in a form of theirs; it waits nevertheless.
