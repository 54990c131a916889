"""Everything that is written about a session in Redis, and the only way to change its state.

Whatever is written belongs to a session that is there, and is looked for in the same step: nobody who is
late brings a purged session back. Only beats are not, which expire by themselves.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec

from remuda.base import clock
from remuda.base.ids import ManagerId, OrchestratorId, SessionId
from remuda.fleet.bell import bell_of
from remuda.fleet.liveness import Beat
from remuda.fleet.origin import Origin
from remuda.fleet.tracing import SpanContext, decode_context, encode_context, is_recording
from remuda.grid.capabilities import Capabilities, sets_of
from remuda.grid.model import KEPT_LOG_ENTRIES, LEGAL_ORIGINS, STARTUP_BUCKETS, State, state_of
from remuda.grid.omission import Requested
from remuda.keyspace import grid, metrics
from remuda.keyspace.key import ChannelName
from remuda.keyspace.log_codes import BY_CODE
from remuda.keyspace.metering import TIMER, TIMERS
from remuda.store import ProvidedTransaction, Store, load_script
from remuda.store.commands import stream_entries

_MOVE = load_script(
    __file__,
    "move.lua",
    keys=[
        grid.SESSION_STATUS,
        grid.SESSION_LOG,
        grid.SESSION_ORCHESTRATOR,
        grid.SESSION_HEARTBEAT_MANAGER,
        grid.SESSION_HEARTBEAT_NODE,
        grid.SESSIONS_ACTIVE,
        grid.SESSIONS_TERMINATED,
        metrics.METRICS_SESSIONS_TOTAL,
        metrics.METRICS_SESSIONS_DURATION,
        metrics.METRICS_SESSIONS_LOG,
        grid.SESSION_CAPABILITIES,
        grid.SESSION_REQUESTED_SHORT,
        grid.REQUESTS_LARGE,
        grid.SESSION_ORIGIN,
        TIMER,
        TIMERS,
    ],
    args=[
        "session",
        "state",
        "origins",
        "now",
        "orchestrator",
        "component",
        "level",
        "code",
        "meta",
        "keep",
        "bell",
    ],
)

# A HALT ends every node, a session outlives its recording and does without what was left out, and the proxy
# writes later than it sees.
_NO_CAUSE = ("HALT", "EVENT", "IGNORED", "RFAILURE", "CLOST", "NLOST")


def session_topic(session: SessionId) -> str:
    """What the session is called where its bell is meant, or its ticket in a line."""
    return f"session:{session}"


def session_bell(session: SessionId) -> ChannelName:
    """Rung when the session's state changes, its node has something to say, or its turn has come."""
    return bell_of(session_topic(session))


def manager_beat(session: SessionId) -> Beat:
    return Beat(grid.SESSION_HEARTBEAT_MANAGER(session), ttl=30)


def node_beat(session: SessionId) -> Beat:
    return Beat(grid.SESSION_HEARTBEAT_NODE(session), ttl=60)


def _write_log(transaction: ProvidedTransaction, session: SessionId, code: str, **meta: Any) -> None:
    """Adds an event to the session's log and to the counter of its code."""
    entry = BY_CODE[code]
    fields = {"component": entry.component, "level": entry.level, "code": code, "meta": _json(meta)}
    transaction.xadd(grid.SESSION_LOG(session), fields, about=KEPT_LOG_ENTRIES)
    transaction.hincrby(metrics.METRICS_SESSIONS_LOG(entry.level), code)


class Sessions:
    """The sessions of a fleet."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def create(
        self,
        session: SessionId,
        *,
        requested: Requested,
        origin: Origin,
        user_agent: str = "",
        labels: Mapping[str, str] | None = None,
        trace: SpanContext | None = None,
        manager: ManagerId | None = None,
    ) -> None:
        """Writes a new session down as queued. Its beat comes with it, so no sweep finds it dead.

        `manager` creates it: should that one be killed, it ends.
        """
        now = clock.rfc3339()
        async with self._store.transaction() as transaction:
            transaction.hset(grid.SESSION_STATUS(session), {State.QUEUED.stamp: now})
            transaction.hset(grid.SESSION_CAPABILITIES(session), {"requested": requested.whole})
            if requested.short is not None:
                transaction.set(grid.SESSION_REQUESTED_SHORT(session), requested.short)
                waiting = f"{len(requested.whole)} {origin.shares_as}"
                transaction.hset(grid.REQUESTS_LARGE(), {session: waiting})
            client = {"host": origin.address, "userAgent": user_agent, "lastSeen": now}
            transaction.hset(grid.SESSION_DOWNSTREAM(session), client)
            transaction.hset(grid.SESSION_ORIGIN(session), origin.fields())
            if origin.account:
                transaction.sadd(grid.SESSIONS_OF(origin.account), session)
            if labels:
                transaction.hset(grid.SESSION_METADATA(session), labels)
            if trace is not None:
                telemetry = {"traceID": trace.trace_id, "context": encode_context(trace)}
                transaction.hset(grid.SESSION_TELEMETRY_CREATION(session), telemetry)
            manager_beat(session).write(transaction)
            if manager is not None:
                transaction.hset(grid.MANAGER_SESSIONS(manager), {session: origin.account})
                transaction.sadd(grid.MANAGERS_CREATING(), manager)
            transaction.sadd(grid.SESSIONS_ACTIVE(), session)
            transaction.hincrby(metrics.METRICS_SESSIONS_TOTAL(), State.QUEUED)

    async def reserve(self, session: SessionId) -> bool:
        """Takes an id that was not chosen here; False if there is, or was, a session of that name."""
        stamp = State.QUEUED.stamp
        return bool(await self._store.hsetnx(grid.SESSION_STATUS(session), stamp, clock.rfc3339()))

    async def unreserve(self, session: SessionId) -> None:
        """Gives up an id that was reserved, for a session that is not to be."""
        await self._store.delete(grid.SESSION_STATUS(session))

    async def account(self, session: SessionId) -> str | None:
        """Whose session it is; None when there is none."""
        return await self._store.hget(grid.SESSION_ORIGIN(session), "account") or None

    async def move(
        self,
        session: SessionId,
        state: State,
        *,
        code: str,
        orchestrator: OrchestratorId | None = None,
        origins: Sequence[State] | None = None,
        **meta: Any,
    ) -> bool:
        """Moves the session on and logs the code; False when it is in no state to go there from.

        `origins` are the states it may be moved from, where those are fewer than all legal ones.
        """
        entry = BY_CODE[code]
        legal = [origin for origin in LEGAL_ORIGINS[state] if origins is None or origin in origins]
        moved, _ = await self._store.run(
            _MOVE,
            keys=[
                grid.SESSION_STATUS(session),
                grid.SESSION_LOG(session),
                grid.SESSION_ORCHESTRATOR(session),
                grid.SESSION_HEARTBEAT_MANAGER(session),
                grid.SESSION_HEARTBEAT_NODE(session),
                grid.SESSIONS_ACTIVE(),
                grid.SESSIONS_TERMINATED(),
                metrics.METRICS_SESSIONS_TOTAL(),
                metrics.METRICS_SESSIONS_DURATION(),
                metrics.METRICS_SESSIONS_LOG(entry.level),
                grid.SESSION_CAPABILITIES(session),
                grid.SESSION_REQUESTED_SHORT(session),
                grid.REQUESTS_LARGE(),
                grid.SESSION_ORIGIN(session),
                TIMER(session),
                TIMERS(),
            ],
            args=[
                session,
                state,
                "".join(f",{origin}" for origin in legal) + ",",
                clock.rfc3339(),
                orchestrator or "",
                entry.component,
                entry.level,
                code,
                _json(meta),
                KEPT_LOG_ENTRIES,
                session_bell(session),
            ],
        )
        return bool(moved)

    def _about(self, session: SessionId) -> AbstractAsyncContextManager[ProvidedTransaction]:
        return self._store.transaction_provided(grid.SESSION_STATUS(session))

    async def log(self, session: SessionId, code: str, **meta: Any) -> None:
        """Logs an event that changes no state."""
        async with self._about(session) as transaction:
            _write_log(transaction, session, code, **meta)

    async def boot(self, session: SessionId, *, is_warm: bool) -> None:
        """Writes down that the session has a node, which beats from now on, and whose driver starts."""
        async with self._about(session) as transaction:
            node_beat(session).write(transaction)
            _write_log(transaction, session, "BOOT")
            # Of a warm node, that was long ago.
            _write_log(transaction, session, "DSTART", **({"warm": True} if is_warm else {}))

    async def open(
        self,
        session: SessionId,
        *,
        upstream: Mapping[str, str | int],
        actual: Mapping[str, Any],
        is_tls: bool = False,
    ) -> None:
        """Writes down where the session's node listens and what its browser is."""
        async with self._about(session) as transaction:
            transaction.hset(grid.SESSION_UPSTREAM(session), upstream)
            if is_tls:
                transaction.set(grid.SESSION_SCHEME(session), "https")
            transaction.hset(grid.SESSION_CAPABILITIES(session), {"actual": _json(actual)})
            _write_log(transaction, session, "LSINIT")
            transaction.publish(session_bell(session))

    async def note_seen(self, session: SessionId, at: float) -> None:
        """Writes down when the session's client was last heard of."""
        async with self._about(session) as transaction:
            transaction.hset(grid.SESSION_DOWNSTREAM(session), {"lastSeen": clock.rfc3339(at)})

    async def labels(self, session: SessionId) -> dict[str, str]:
        """What the client calls the session."""
        return await self._store.hgetall(grid.SESSION_METADATA(session))

    async def add_labels(self, session: SessionId, labels: Mapping[str, str]) -> None:
        """Writes labels down, beside those that are there."""
        async with self._about(session) as transaction:
            transaction.hset(grid.SESSION_METADATA(session), labels)

    async def state(self, session: SessionId) -> State | None:
        """The state of the session; None when there is none."""
        return state_of(await self._store.hgetall(grid.SESSION_STATUS(session)))

    async def is_seen(self, session: SessionId, *, limited_to: str | None) -> bool:
        """Whether a client that sees nothing but this account's sees the session; None: it sees them all."""
        return limited_to is None or await self.account(session) == limited_to

    async def requested(self, session: SessionId) -> list[Capabilities] | None:
        """What the client asked for: the capability sets; None when there is no such session."""
        text = await self._store.hget(grid.SESSION_CAPABILITIES(session), "requested")
        return None if text is None else sets_of(msgspec.json.decode(text))

    async def trace(self, session: SessionId) -> SpanContext | None:
        """The span that the session was created in; None if it is not known, or spans are not recorded."""
        if not is_recording():
            return None
        return decode_context(await self._store.hget(grid.SESSION_TELEMETRY_CREATION(session), "context"))

    async def last_words(self, session: SessionId) -> tuple[str, dict[str, Any]] | None:
        """Why the session ended: code and meta of its first failure, else of what came before the HALT."""
        entries = [
            fields for _, fields in stream_entries(await self._store.xrange(grid.SESSION_LOG(session)))
        ]
        # The first failure is the cause and what fails after it the consequence.
        failures = [entry for entry in entries if entry.get("level", "").lower() == "fail"]
        causes = failures[:1] or [entry for entry in entries if entry.get("code") not in _NO_CAUSE][-1:]
        return next(((cause.get("code", ""), read_meta(cause.get("meta", ""))) for cause in causes), None)

    async def count_startup(self, seconds: float) -> None:
        """Adds a start-up that succeeded to the histogram; buckets are cumulative."""
        async with self._store.transaction() as transaction:
            transaction.incr(metrics.METRICS_STARTUP_COUNT())
            transaction.send("INCRBYFLOAT", metrics.METRICS_STARTUP_SUM(), f"{seconds:.3f}")
            for bucket in STARTUP_BUCKETS:
                if seconds <= bucket:
                    transaction.hincrby(metrics.METRICS_STARTUP_BUCKETS(), str(bucket))
            transaction.hincrby(metrics.METRICS_STARTUP_BUCKETS(), "+Inf")


def read_meta(text: str) -> dict[str, Any]:
    """The additional information of a log entry. Other software writes plain text there."""
    try:
        meta = msgspec.json.decode(text)
    except msgspec.DecodeError:
        meta = text
    return meta if isinstance(meta, dict) else {"message": text} if text else {}


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
