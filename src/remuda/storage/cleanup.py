"""Keeps a storage within its limits: looks what is there, finishes what the dead have left open, removes what
must go, and says how full it is.

An owner's artifacts go as a whole, in an order that a crash cannot harm: first the link to them, then the
files, then the index. Whatever is left over is still in the index, and goes with the next run.
"""

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from remuda.base import clock
from remuda.base.errors import InvalidArgument, Lost, RemudaError
from remuda.base.log import get_logger
from remuda.fleet.bell import bell_of, wait_for
from remuda.fleet.ownership import OwnerKind
from remuda.keyspace import metrics
from remuda.keyspace import storage as keys
from remuda.storage.directory import LocalDirectory
from remuda.storage.index import Index, Librarian
from remuda.storage.model import Fill, Holding, Owner, StorageId, StorageLimits, choose_evictions
from remuda.storage.owners import OwnerKinds
from remuda.store import Store

log = get_logger(__name__)

SWEEP_EVERY = 60.0
LOOK_EVERY = 5.0
"""Seconds between two looks for artifacts that are to be deleted, should the bell be missed."""
SCAN_EVERY = 24 * 3600.0
"""News may be lost with a Redis that is emptied, and files may be put here by hand."""
OWNERS_AT_ONCE = 50
"""Owners that a scan looks at before it lets others near the index."""
EMPTY_FOR = 24 * 3600.0
OPEN_FOR = 30.0
"""Seconds since its last write after which an owner that is not active any more will write no more."""
FINISHED_AT_ONCE = 200
"""Owners whose artifacts one run finishes."""


async def ask_deletion(
    store: Store, kind: OwnerKind, owner_id: str, *, storage: StorageId | None = None
) -> StorageId:
    """Has the artifacts of an owner deleted by the storage that holds them, which is returned.

    It is done as soon as the owner is not active any more and that storage runs. Without `storage`, the
    owner's room says where they are; Lost when it knows of none.
    """
    owner = Owner(kind.name, owner_id)
    held_by = storage or await kind.find_storage(owner_id)
    if held_by is None:
        raise Lost(f"{kind.name.capitalize()} {owner_id} has no artifacts")
    unwanted = keys.STORAGE_UNWANTED(held_by)
    async with store.transaction() as transaction:
        transaction.sadd(unwanted, str(owner))
        transaction.publish(bell_of(unwanted))
    # After a crash before this step the storage does it, before it removes the files.
    await kind.unlink(owner_id, held_by)
    return StorageId(held_by)


async def retire_storage(store: Store, storage: StorageId) -> None:
    """Removes what Redis knows of a storage that is gone for good."""
    async with store.transaction() as transaction:
        for counts in (
            metrics.METRICS_STORAGE_TOTAL,
            metrics.METRICS_STORAGE_USED,
            keys.STORAGE_REFUSED_TOTAL,
        ):
            transaction.hdel(counts(), storage)
        transaction.delete(
            keys.STORAGE_METADATA_PENDING(storage),
            keys.STORAGE_METADATA_TAKEN(storage),
            keys.STORAGE_METADATA_REFUSED(storage),
            keys.STORAGE_UNWANTED(storage),
            keys.STORAGE_METERED(storage),
        )


class Cleanup:
    """Cleans up in one storage. Run `run()` and `heed_deletions()` as tasks of the role's."""

    def __init__(
        self,
        store: Store,
        storage: StorageId,
        *,
        kinds: OwnerKinds,
        directory: LocalDirectory,
        librarian: Librarian,
        limits: StorageLimits,
    ) -> None:
        self._store = store
        self._storage = storage
        self._kinds = kinds
        self._directory = directory
        self._librarian = librarian
        self._limits = limits
        self._scanned_at: float | None = None
        self._is_full = False
        self._finished: dict[Owner, float] = {}
        """Owners whose artifacts are complete, with the last write by then: there may be others later."""
        self._woken = asyncio.Event()

    def report_full(self) -> None:
        """A write has failed for want of room: makes room now, whatever the disk says of itself."""
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
        if not await self._librarian.ask(lambda index: index.is_complete):
            await self.scan()
        elif self._scanned_at is None:  # A complete index of an earlier life: nothing hurries.
            self._scanned_at = clock.monotonic()
        elif clock.monotonic() - self._scanned_at > SCAN_EVERY:
            await self.scan()
        await self._finish()
        await self._evict()
        fill = await self._measure()
        async with self._store.transaction() as transaction:
            transaction.hset(metrics.METRICS_STORAGE_TOTAL(), {self._storage: fill.capacity(self._limits)})
            transaction.hset(metrics.METRICS_STORAGE_USED(), {self._storage: fill.used})

    # What is there

    async def scan(self) -> None:
        """Makes the index say what the directory holds."""
        here = [each for each in await asyncio.to_thread(self._directory.owners) if each in self._kinds]
        known = [each.owner for each in await self._librarian.ask(lambda index: index.holdings())]
        owners = sorted({*here, *known})
        for start in range(0, len(owners), OWNERS_AT_ONCE):
            await self._librarian.ask(partial(self._scan_some, owners[start : start + OWNERS_AT_ONCE]))
        await self._librarian.ask(lambda index: index.declare_complete())
        await asyncio.to_thread(self._directory.remove_stray_accounts)
        self._scanned_at = clock.monotonic()
        log.info("storage scanned", storage=self._storage, owners=len(here))

    def _scan_some(self, owners: Sequence[Owner], index: Index) -> None:
        for owner in owners:
            try:
                artifacts = self._directory.list_owner(owner)
            except Lost:
                index.forget_owner(owner)
                continue
            index.replace_owner(owner, artifacts)
            if not artifacts:
                self._directory.remove_if_empty(owner, older_than=clock.now() - EMPTY_FOR)

    async def _look(self) -> tuple[list[Holding], set[Owner]]:
        """What is held of owners of known kinds, and which of them are active."""
        held = await self._librarian.ask(lambda index: index.holdings())
        holdings = [each for each in held if each.owner in self._kinds]
        # Asked last: a job with old artifacts may have been started again, and needs them.
        return holdings, await self._kinds.active(each.owner for each in holdings)

    # What was left open

    async def _finish(self) -> None:
        """Has rooms complete what owners have left half-written that were killed, for instance."""
        holdings, active = await self._look()
        left = [
            each
            for each in holdings
            if each.owner not in active
            and clock.now() - each.modified > OPEN_FOR
            and self._finished.get(each.owner) != each.modified
        ]
        chosen = {each.owner: each.modified for each in left[:FINISHED_AT_ONCE]}

        def finish(index: Index) -> None:
            for owner in chosen:
                try:
                    if not self._kinds[owner].finish(self._directory.path_of(owner)):
                        continue
                except Exception:
                    # Its files may be anything. It is tried again when it has written again.
                    log.exception("artifacts not finished", storage=self._storage, **{owner.kind: owner.id})
                    continue
                self._scan_some([owner], index)
                log.info("artifacts finished", storage=self._storage, **{owner.kind: owner.id})

        await self._librarian.ask(finish)
        held = {each.owner for each in holdings}
        self._finished = {each: at for each, at in self._finished.items() if each in held} | chosen

    # What must go

    async def _evict(self) -> None:
        holdings, active = await self._look()
        fill = await self._measure()
        if self._is_full:
            fill = replace(fill, disk_free=0)
        chosen = choose_evictions(
            holdings,
            fill,
            self._limits,
            retentions=self._kinds.retentions,
            active=active,
            now=clock.now(),
        )
        for owner in chosen:
            try:
                await self.remove(owner)
            except OSError as error:
                # The others go nevertheless, and this one is tried again with the next run.
                log.error("artifacts not evicted", storage=self._storage, reason=f"{owner}: {error}")
                continue
            log.info("artifacts evicted", storage=self._storage, **{owner.kind: owner.id})
        if fill.excess(self._limits) and not chosen:
            log.error("storage is full", storage=self._storage, used=fill.used, free=fill.disk_free)
        self._is_full = False
        if len(chosen) == self._limits.at_once:
            self._woken.set()

    async def _measure(self) -> Fill:
        used = await self._librarian.ask(lambda index: index.used())
        return await asyncio.to_thread(self._directory.measure, used)

    async def remove(self, owner: Owner) -> None:
        """Removes everything that the storage has of an owner."""
        await self._kinds[owner].unlink(owner.id, self._storage)

        def forget(index: Index) -> None:
            self._directory.remove_owner(owner)
            index.forget_owner(owner)

        await self._librarian.ask(forget)

    # What is to be deleted

    async def heed_deletions(self, *, look_every: float = LOOK_EVERY) -> None:
        """Waits until artifacts are to be deleted (`ask_deletion`), and deletes them."""
        unwanted = keys.STORAGE_UNWANTED(self._storage)

        async def find_deletable() -> list[Owner] | None:
            owners = []
            for name in await self._store.smembers(unwanted):
                try:
                    owners.append(Owner.parse(name))
                except InvalidArgument as error:
                    log.error("deletion refused", storage=self._storage, reason=error.message)
                    await self._store.srem(unwanted, name)
            # One of an unknown kind waits for a storage that can ask whether it is active.
            known = [each for each in owners if each in self._kinds]
            # An active one would write on, and leave half of it.
            active = await self._kinds.active(known)
            return [each for each in known if each not in active] or None

        ready = await wait_for(
            self._store, bell_of(unwanted), find_deletable, timeout=None, look_every=look_every
        )
        for owner in ready or ():
            await self.remove(owner)
            log.info("artifacts deleted", storage=self._storage, **{owner.kind: owner.id})
            await self._store.srem(unwanted, str(owner))
