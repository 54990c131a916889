"""Sessions without a heartbeat, and those that ended long enough ago to be purged.

A slot is never freed here: the session's node or its orchestrator does that, because they know when the
browser is gone. Nor is a session purged that still holds one: the process that frees it may still write about
the session.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from remuda.base import clock
from remuda.base.ids import SessionId, SlotId, is_uuid
from remuda.base.log import get_logger
from remuda.fleet.sweep import BATCH, PER_RUN, Patience, Scan, work_on
from remuda.grid.model import State
from remuda.grid.sessions import Sessions
from remuda.grid.sweeps.model import PATIENCE, Vitals, code_of_silence, is_old, is_silent
from remuda.keyspace import grid
from remuda.keyspace.key import Name
from remuda.keyspace.metering import TIMER
from remuda.store import Store, load_script
from remuda.store.memory import NEARLY_FULL, Memory, read_memory

log = get_logger(__name__)

_SURVEY = load_script(
    __file__,
    "survey.lua",
    keys=[grid.SESSIONS_ACTIVE, grid.SESSIONS_TERMINATED],
    args=["status", "heartbeat.manager", "heartbeat.node", "slot", "origin", "sessions", "timer", "session"],
)
_PURGE = load_script(
    __file__,
    "purge_session.lua",
    keys=[*grid.SESSION_KEYS, grid.SESSIONS_ACTIVE, grid.SESSIONS_TERMINATED],
    args=["session", "terminatedAt", "slots", "sessions"],
)

Surveyed = tuple[SessionId, Vitals]


async def survey(store: Store, ids: Iterable[str]) -> tuple[list[Surveyed], int]:
    """The sessions with their vitals, and how many of them were in the wrong set. Invalid ids and sessions
    that cannot be read are logged and left out."""
    sessions = []
    for each in dict.fromkeys(ids):
        if is_uuid(each):
            sessions.append(SessionId(each))
        else:
            log.warning("entry is not a session", entry=each)
    surveyed, mended = [], 0
    for start in range(0, len(sessions), BATCH):
        batch = sessions[start : start + BATCH]
        for session, found in zip(batch, await _look_at(store, batch), strict=True):
            if isinstance(found, str):
                log.warning("session not swept", session=session, reason=found)
                continue
            *stamps, manager, node, slot, was_mended, is_metered_on = found
            status = {state.stamp: stamp for state, stamp in zip(State, stamps, strict=True) if stamp}
            vitals = Vitals(
                status, bool(manager), bool(node), SlotId(slot) if slot else None, bool(is_metered_on)
            )
            surveyed.append((session, vitals))
            mended += was_mended
    return surveyed, mended


async def _look_at(store: Store, sessions: Sequence[SessionId]) -> list[str | list[Any]]:
    keys = (
        grid.SESSION_STATUS,
        grid.SESSION_HEARTBEAT_MANAGER,
        grid.SESSION_HEARTBEAT_NODE,
        grid.SESSION_SLOT,
        grid.SESSION_ORIGIN,
        grid.SESSIONS_OF,
        TIMER,
    )
    found: list[str | list[Any]] = await store.run(
        _SURVEY,
        keys=[grid.SESSIONS_ACTIVE(), grid.SESSIONS_TERMINATED()],
        args=[*(Name(key.template()) for key in keys), *sessions],
    )
    return found


class SessionSweeps:
    """Ends the sessions without a heartbeat, and purges those that ended long ago."""

    def __init__(
        self, store: Store, *, retention: float, patience: float = PATIENCE, per_run: int = PER_RUN
    ) -> None:
        self._store = store
        self._sessions = Sessions(store)
        self._retention = retention
        self._kept_for = retention
        self._per_run = per_run
        self._patience = Patience(patience)
        self._active = Scan(store, grid.SESSIONS_ACTIVE())
        self._terminated = Scan(store, grid.SESSIONS_TERMINATED())

    async def end_silent(self) -> Counter[str]:
        """Ends every active session that stays without a beat."""
        counts = Counter[str]()
        async for batch in self._active.batches(limit=self._per_run):
            surveyed, counts_of_batch = await self.mend(batch)
            counts += counts_of_batch
            silent = [each for each in surveyed if is_silent(each[1])]
            counts["sessions_ended"] += await work_on(silent, self._end)
        if self._active.is_through:
            self._patience.end_round()
        return counts

    async def _end(self, surveyed: Surveyed) -> bool:
        session, vitals = surveyed
        if not self._patience.is_over(session, now=clock.monotonic()):
            return False
        who = "node" if vitals.state is State.ALIVE else "manager"
        # If it has beaten again since the survey, the outcome is the same as a moment later:
        # the node is told that the session has ended, and ends as well.
        return await self._sessions.move(
            session, State.TERMINATED, code=code_of_silence(vitals), message=f"Its {who} stopped beating"
        )

    async def purge_old(self) -> Counter[str]:
        """Purges sessions that ended longer ago than they are to be kept."""
        counts = Counter[str]()
        self._adapt(await read_memory(self._store))
        # No index by time: looking at 5,000 sessions a run costs less than one more key to keep in step,
        # and a session may be purged some minutes late.
        async for batch in self._terminated.batches(limit=self._per_run):
            surveyed, counts_of_batch = await self.mend(batch)
            counts += counts_of_batch
            old = [each for each in surveyed if self._is_old(*each)]
            counts["sessions_purged"] += await work_on(old, lambda each: self._purge(*each))
        return counts

    def _adapt(self, memory: Memory) -> None:
        """Keeps history for a shorter time while memory is short: it must not keep new sessions out."""
        if memory.share >= NEARLY_FULL:
            self._kept_for /= 2
            log.warning("history shortened", kept_for=round(self._kept_for), redis=str(memory))
        elif memory.share < NEARLY_FULL / 2:
            self._kept_for = min(self._retention, 2 * self._kept_for)

    def _is_old(self, session: SessionId, vitals: Vitals) -> bool:
        try:
            return is_old(vitals, now=clock.now(), retention=self._kept_for)
        except ValueError as error:
            log.warning("session not swept", session=session, reason=str(error))
            return False

    async def mend(self, ids: Iterable[str]) -> tuple[list[Surveyed], Counter[str]]:
        """Puts each session into the set where it belongs; what belongs in none is purged. The others."""
        surveyed, mended = await survey(self._store, ids)
        nothing = [each for each in surveyed if each[1].state is None]
        purged = await work_on(nothing, lambda each: self._purge(*each))
        for session, vitals in surveyed:
            if vitals.is_metered_on:  # Refused, as it has ended; but its timer ends with that, too.
                await self._sessions.move(session, State.TERMINATED, code="TERM")
        counts = Counter(sessions_mended=mended, remains_purged=purged)
        return [each for each in surveyed if each[1].state is not None], counts

    async def _purge(self, session: SessionId, vitals: Vitals) -> bool:
        purged = await self._store.run(
            _PURGE,
            keys=[
                *(key(session) for key in grid.SESSION_KEYS),
                grid.SESSIONS_ACTIVE(),
                grid.SESSIONS_TERMINATED(),
            ],
            args=[
                session,
                vitals.status.get(State.TERMINATED.stamp, ""),
                Name(grid.ORCHESTRATOR_SLOTS.template()),
                Name(grid.SESSIONS_OF.template()),
            ],
        )
        return bool(purged)
