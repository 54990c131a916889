"""The storage's role: one per directory, it indexes, serves and evicts the artifacts in it.

The id of the role is the storage's own, so that its address is found by that.
"""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Iterable
from contextlib import ExitStack
from pathlib import Path

from remuda.accounts.shares import Shares
from remuda.base.errors import Unavailable
from remuda.base.hosts import LOOPBACK_ONLY, InternalHosts
from remuda.base.ids import RoleId
from remuda.base.log import get_logger
from remuda.fleet.http_server import HttpServer
from remuda.fleet.ownership import OwnerKind
from remuda.fleet.role import Role
from remuda.fleet.secret import HerdSecret
from remuda.fleet.tasks import repeat
from remuda.metering.push import Metering
from remuda.storage.cleanup import SWEEP_EVERY, Cleanup, retire_storage
from remuda.storage.directory import DirectoryLock, LocalDirectory, keep_storage_id
from remuda.storage.index import Librarian
from remuda.storage.intake import Intake
from remuda.storage.meter import SETTLE_EVERY, ArtifactMeter
from remuda.storage.model import StorageLimits
from remuda.storage.owners import OwnerKinds
from remuda.storage.serving import Serving
from remuda.store import Store

log = get_logger(__name__)

FLUSH_EVERY = 5.0
CHECK_EVERY = 10.0


class Storage(Role):
    """A directory of artifacts."""

    name = "storage"

    def __init__(
        self,
        store: Store,
        directory: Path,
        *,
        kinds: Iterable[OwnerKind],
        limits: StorageLimits,
        hosts: InternalHosts = LOOPBACK_ONLY,
        sweep_every: float = SWEEP_EVERY,
        check_every: float = CHECK_EVERY,
        metering: Metering | None = None,
    ) -> None:
        """Meters what it holds where there is a `metering`."""
        super().__init__()
        self.storage_id = keep_storage_id(directory)
        self.id = RoleId(self.storage_id)
        self._store = store
        self._sweep_every = sweep_every
        self._check_every = check_every
        self._lock = DirectoryLock(directory)
        self._held = ExitStack()
        files, known = LocalDirectory(directory), OwnerKinds(kinds)
        self._librarian = Librarian(directory)
        self._cleanup = Cleanup(
            store, self.storage_id, kinds=known, directory=files, librarian=self._librarian, limits=limits
        )
        self._intake = Intake(
            store,
            self.storage_id,
            kinds=known,
            directory=files,
            librarian=self._librarian,
            on_full=self._cleanup.report_full,
        )
        self._meter: ArtifactMeter | None = None
        if metering is not None:
            self._meter = ArtifactMeter(
                store, self.storage_id, metering, kinds=known, librarian=self._librarian
            )
        self._secret = HerdSecret(store)
        self._serving = Serving(self.storage_id, files, kinds=known, shares=Shares(self._secret))
        self.scheme = hosts.scheme
        self._server = HttpServer(self._serving, hosts=hosts, guard=self._secret)

    # Its life

    async def start(self) -> None:
        self._held.enter_context(self._lock)
        await self._librarian.start()
        await self._secret.read()
        self.address = await self._server.start()

    async def serve(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._server.serve(), name="http")
            work = group.create_task(self._work(), name="storage work")
            await self._until_gone()
            work.cancel()

    async def _work(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._intake.run(), name="take news")
            group.create_task(self._cleanup.run(self._sweep_every), name="sweep")
            deletions = self._keep(self._cleanup.heed_deletions, every=0.0, failure="deletion failed")
            group.create_task(deletions, name="delete")
            accesses = self._keep(self._flush, every=FLUSH_EVERY, failure="accesses lost")
            group.create_task(accesses, name="note accesses")
            if self._meter is not None:
                settle = self._keep(self._meter.settle, every=SETTLE_EVERY, failure="artifacts not metered")
                group.create_task(settle, name="meter artifacts")

    async def drain(self) -> None:
        await self._server.stop()

    async def stop(self) -> None:
        await self._server.stop()
        try:
            await self._flush()
        except (sqlite3.Error, OSError) as error:
            log.warning("accesses lost", storage=self.storage_id, reason=str(error))
        await self._librarian.stop()
        self._held.close()

    # Its loops

    async def _keep(self, do: Callable[[], Awaitable[None]], *, every: float, failure: str) -> None:
        """Does it for ever, whatever goes wrong."""
        survives = (OSError, sqlite3.Error)
        await repeat(do, every=every, failure=failure, survives=survives, storage=self.storage_id)

    async def _flush(self) -> None:
        """Brings to the index which artifacts were read. Not at once: a player reads a file in many parts."""
        accesses = self._serving.take_accesses()
        if accesses:
            await self._librarian.ask(lambda index: index.touch(accesses))

    async def _until_gone(self) -> None:
        """Waits until the directory is taken away, and takes the storage out of Redis then."""
        is_there = True
        while is_there:
            await asyncio.sleep(self._check_every)
            try:
                is_there = await asyncio.to_thread(self._lock.is_valid)
                if not is_there:
                    log.error("storage directory is gone", storage=self.storage_id)
                    if self._meter is not None:
                        await self._meter.forget()
                    await retire_storage(self._store, self.storage_id)
            except (Unavailable, OSError) as error:
                log.warning("storage not checked", storage=self.storage_id, reason=str(error))
                is_there = True
