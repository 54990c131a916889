"""The end of artifacts: of one session's, and of all when a storage is gone for good.

A session's artifacts go as a whole, in an order that a crash cannot harm: first the link to them, then the
files, then the index. Whatever is left over is still in the index, and goes with the next run.
"""

from remuda.base.errors import Lost
from remuda.base.ids import SessionId, is_uuid
from remuda.base.log import get_logger
from remuda.fleet.bell import bell_of, wait_for
from remuda.keyspace import grid, metrics
from remuda.keyspace import storage as keys
from remuda.storage.directory import LocalDirectory
from remuda.storage.index import Index, Librarian
from remuda.storage.model import StorageId
from remuda.store import Store, load_script

log = get_logger(__name__)

_UNLINK = load_script(__file__, "unlink.lua", keys=[grid.SESSION_STORAGE], args=["storage"])

LOOK_EVERY = 5.0


async def ask_deletion(store: Store, session: SessionId, *, storage: StorageId | None = None) -> StorageId:
    """Has the artifacts of a session deleted by the storage that holds them, which is returned.

    It is done as soon as the session has ended and that storage runs. Without `storage`, the session itself
    says where they are; Lost when it does not.
    """
    link = grid.SESSION_STORAGE(session)
    held_by = storage or await store.get(link)
    if held_by is None:
        raise Lost(f"Session {session} has no artifacts")
    unwanted = keys.STORAGE_UNWANTED(held_by)
    async with store.transaction() as transaction:
        transaction.sadd(unwanted, session)
        transaction.delete(link)
        transaction.publish(bell_of(unwanted))
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
        )


class Remover:
    """Removes sessions from one storage."""

    def __init__(
        self, store: Store, storage: StorageId, *, directory: LocalDirectory, librarian: Librarian
    ) -> None:
        self._store = store
        self._storage = storage
        self._directory = directory
        self._librarian = librarian
        self._unwanted = keys.STORAGE_UNWANTED(storage)

    async def remove(self, session: SessionId) -> None:
        """Removes everything that the storage has of a session."""
        await self._store.run(_UNLINK, keys=[grid.SESSION_STORAGE(session)], args=[self._storage])

        def forget(index: Index) -> None:
            self._directory.remove_session(session)
            index.forget_session(session)

        await self._librarian.ask(forget)

    async def heed_next(self, *, look_every: float = LOOK_EVERY) -> None:
        """Waits until somebody wants artifacts deleted, and does it."""
        bell = bell_of(self._unwanted)
        ready = await wait_for(self._store, bell, self._deletable, timeout=None, look_every=look_every)
        for session in ready or ():
            if is_uuid(session):
                await self.remove(SessionId(session))
                log.info("artifacts deleted", storage=self._storage, session=session)
            await self._store.srem(self._unwanted, session)

    async def _deletable(self) -> list[str] | None:
        """Those asked for whose session has ended: an active one would write on, and leave half of it."""
        wanted = await self._store.smembers(self._unwanted)
        active = [self._store.sismember(grid.SESSIONS_ACTIVE(), session) for session in wanted]
        return [session for session, reply in zip(wanted, active, strict=True) if not await reply] or None
