"""The storage's role: one per directory, it indexes, serves and evicts the artifacts in it.

The id of the role is the storage's own, so that whoever knows the one finds the address of the other.
"""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path

from remuda.base.errors import RemudaError, Unavailable
from remuda.base.ids import RoleId
from remuda.base.log import get_logger
from remuda.fleet.http_server import HttpServer
from remuda.fleet.role import Role
from remuda.fleet.secret import HerdSecret
from remuda.storage.directory import LocalDirectory
from remuda.storage.identity import Ownership, keep_storage_id
from remuda.storage.index import Librarian
from remuda.storage.intake import Intake
from remuda.storage.model import Limits
from remuda.storage.removal import Remover, retire_storage
from remuda.storage.serving import Serving
from remuda.storage.sweeper import SWEEP_EVERY, Sweeper
from remuda.store import Store

log = get_logger(__name__)

FLUSH_EVERY = 5.0
CHECK_EVERY = 10.0
RETRY_AFTER = 1.0


class Storage(Role):
    """A directory of artifacts."""

    name = "storage"

    def __init__(
        self,
        store: Store,
        directory: Path,
        *,
        limits: Limits,
        host: str = "127.0.0.1",
        sweep_every: float = SWEEP_EVERY,
        check_every: float = CHECK_EVERY,
    ) -> None:
        super().__init__()
        self.storage_id = keep_storage_id(directory)
        self.id = RoleId(self.storage_id)
        self._store = store
        self._sweep_every = sweep_every
        self._check_every = check_every
        self._ownership = Ownership(directory)
        self._held = ExitStack()
        files = LocalDirectory(directory)
        self._librarian = Librarian(directory)
        self._remover = Remover(store, self.storage_id, directory=files, librarian=self._librarian)
        self._sweeper = Sweeper(
            store,
            self.storage_id,
            directory=files,
            librarian=self._librarian,
            remover=self._remover,
            limits=limits,
        )
        self._intake = Intake(
            store,
            self.storage_id,
            directory=files,
            librarian=self._librarian,
            on_full=self._sweeper.report_full,
        )
        self._serving = Serving(self.storage_id, files)
        self._secret = HerdSecret(store)
        self._server = HttpServer(self._serving, host=host, guard=self._secret)

    # Its life

    async def start(self) -> None:
        self._held.enter_context(self._ownership)
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
            group.create_task(self._sweeper.run(self._sweep_every), name="sweep")
            group.create_task(self._keep(self._remover.heed_next, "deletion failed"), name="delete")
            group.create_task(self._keep(self._flush_later, "accesses lost"), name="note accesses")

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

    async def _keep(self, do: Callable[[], Awaitable[None]], failure: str) -> None:
        """Does it for ever, whatever goes wrong."""
        while True:
            try:
                await do()
            except (RemudaError, OSError, sqlite3.Error) as error:
                log.error(failure, storage=self.storage_id, reason=str(error))
                await asyncio.sleep(RETRY_AFTER)

    async def _flush_later(self) -> None:
        await asyncio.sleep(FLUSH_EVERY)
        await self._flush()

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
                is_there = await asyncio.to_thread(self._ownership.is_valid)
                if not is_there:
                    log.error("storage directory is gone", storage=self.storage_id)
                    await retire_storage(self._store, self.storage_id)
            except (Unavailable, OSError) as error:
                log.warning("storage not checked", storage=self.storage_id, reason=str(error))
                is_there = True
