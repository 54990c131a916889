"""Keeps a storage within its limits: looks what is there, ends what the dead have left open, evicts what must
go, and says how full it is."""

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from remuda.base import clock
from remuda.base.errors import Lost, RemudaError
from remuda.base.ids import SessionId
from remuda.base.log import get_logger
from remuda.keyspace import grid, metrics
from remuda.storage.directory import LocalDirectory
from remuda.storage.index import Index, Librarian
from remuda.storage.model import Fill, Limits, StorageId, choose_evictions
from remuda.storage.playlists import end_playlists
from remuda.storage.removal import Remover
from remuda.store import Store

log = get_logger(__name__)

SWEEP_EVERY = 60.0
SCAN_EVERY = 24 * 3600.0
"""News may be lost with a Redis that is emptied, and files may be put here by hand."""
SESSIONS_AT_ONCE = 50
"""Sessions that a scan looks at before it lets others near the index."""
EMPTY_FOR = 24 * 3600.0
OPEN_FOR = 30.0
"""Seconds since its last write after which a session that has ended will write no more."""
ENDED_AT_ONCE = 200
"""Sessions whose playlists one run looks at."""


class Sweeper:
    """Sweeps one storage. Run `run()` as a task of the owner's."""

    def __init__(
        self,
        store: Store,
        storage: StorageId,
        *,
        directory: LocalDirectory,
        librarian: Librarian,
        remover: Remover,
        limits: Limits,
    ) -> None:
        self._store = store
        self._storage = storage
        self._directory = directory
        self._librarian = librarian
        self._remover = remover
        self._limits = limits
        self._scanned_at: float | None = None
        self._is_full = False
        self._ended: set[SessionId] = set()
        self._woken = asyncio.Event()

    def report_full(self) -> None:
        """Somebody could not write: makes room now, whatever the disk says of itself."""
        self._is_full = True
        self._woken.set()

    async def run(self, every: float = SWEEP_EVERY) -> None:
        """Sweeps for ever. Outlives whatever goes wrong in one sweep."""
        while True:
            try:
                await self.sweep()
            except (RemudaError, OSError, sqlite3.Error) as error:
                log.error("sweep failed", storage=self._storage, reason=str(error))
            with suppress(TimeoutError):
                async with asyncio.timeout(every):
                    await self._woken.wait()
            self._woken.clear()

    async def sweep(self) -> None:
        """One sweep: a scan if it is due, evictions if they are needed, and the metrics."""
        if self._scanned_at is None:
            await self._librarian.ask(lambda _: self._directory.finish_removals())
        if await self._needs_scan():
            await self.scan()
        await self._end_playlists()
        await self._evict()
        await self._tell(await self._measure())

    # What is there

    async def _needs_scan(self) -> bool:
        if not await self._librarian.ask(lambda index: index.is_complete):
            return True
        if self._scanned_at is None:  # A complete index of an earlier life: nothing hurries.
            self._scanned_at = clock.monotonic()
        return clock.monotonic() - self._scanned_at > SCAN_EVERY

    async def scan(self) -> None:
        """Makes the index say what the directory holds."""
        here = await asyncio.to_thread(self._directory.sessions)
        known = [each.session for each in await self._librarian.ask(lambda index: index.holdings())]
        sessions = sorted({*here, *known})
        for start in range(0, len(sessions), SESSIONS_AT_ONCE):
            await self._scan_some(sessions[start : start + SESSIONS_AT_ONCE])
        await self._librarian.ask(lambda index: index.declare_complete())
        self._scanned_at = clock.monotonic()
        log.info("storage scanned", storage=self._storage, sessions=len(here))

    async def _scan_some(self, sessions: Sequence[SessionId]) -> None:
        def look(index: Index) -> None:
            for session in sessions:
                self._scan_one(index, session)

        await self._librarian.ask(look)

    def _scan_one(self, index: Index, session: SessionId) -> None:
        try:
            artifacts = self._directory.list_session(session)
        except Lost:
            index.forget_session(session)
            return
        index.replace_session(session, artifacts)
        if not artifacts:
            self._directory.remove_if_empty(session, older_than=clock.now() - EMPTY_FOR)

    # What was left open

    async def _end_playlists(self) -> None:
        """Ends the playlists of sessions whose node was killed before it could."""
        active = {SessionId(session) for session in await self._store.smembers(grid.SESSIONS_ACTIVE())}
        holdings = await self._librarian.ask(lambda index: index.holdings())
        self._ended &= {each.session for each in holdings}
        quiet = [each.session for each in holdings if clock.now() - each.modified > OPEN_FOR]
        chosen = [each for each in quiet if each not in active and each not in self._ended][:ENDED_AT_ONCE]

        def end(index: Index) -> None:
            for session in chosen:
                if end_playlists(self._directory.path / session):
                    self._scan_one(index, session)
                    log.info("recording ended", storage=self._storage, session=session)

        await self._librarian.ask(end)
        self._ended.update(chosen)

    # What must go

    async def _evict(self) -> None:
        # Read before the decision: a session that has ended meanwhile is merely spared until the next run.
        active = {SessionId(session) for session in await self._store.smembers(grid.SESSIONS_ACTIVE())}
        holdings = await self._librarian.ask(lambda index: index.holdings())
        fill = await self._measure()
        if self._is_full:
            fill = replace(fill, disk_free=0)
        chosen = choose_evictions(holdings, fill, self._limits, active=active, now=clock.now())
        for session in chosen:
            await self._remover.remove(session)
            log.info("session evicted", storage=self._storage, session=session)
        if fill.excess(self._limits) and not chosen:
            log.error("storage is full", storage=self._storage, used=fill.used, free=fill.disk_free)
        self._is_full = False
        if len(chosen) == self._limits.at_once:
            self._woken.set()

    async def _measure(self) -> Fill:
        used = await self._librarian.ask(lambda index: index.used())
        return await asyncio.to_thread(self._directory.measure, used)

    async def _tell(self, fill: Fill) -> None:
        async with self._store.transaction() as transaction:
            transaction.hset(metrics.METRICS_STORAGE_TOTAL(), {self._storage: fill.capacity(self._limits)})
            transaction.hset(metrics.METRICS_STORAGE_USED(), {self._storage: fill.used})
