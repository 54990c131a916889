"""A session as an owner of artifacts: what the storage asks the grid about it."""

from collections.abc import Collection
from pathlib import Path

from remuda.base.ids import SessionId
from remuda.fleet.ownership import OwnerKind, Retention
from remuda.grid.node.recording.hls import end_playlists
from remuda.grid.sessions import Sessions
from remuda.keyspace import grid
from remuda.storage.model import SESSION
from remuda.store import Store, load_script

_UNLINK = load_script(__file__, "unlink.lua", keys=[grid.SESSION_STORAGE], args=["storage"])


class SessionArtifacts(OwnerKind):
    """Sessions. A recording is all that they keep so far."""

    name = SESSION

    def __init__(self, store: Store, retention: Retention | None = None) -> None:
        super().__init__(retention or Retention())
        self._store = store

    async def active(self, ids: Collection[str]) -> set[str]:
        # All that are active, however many are asked for: a herd has far fewer than a storage holds.
        return set(ids).intersection(await self._store.smembers(grid.SESSIONS_ACTIVE()))

    async def account_of(self, owner_id: str) -> str | None:
        return await Sessions(self._store).account(SessionId(owner_id))

    async def link(self, owner_id: str, storage: str) -> bool:
        session = SessionId(owner_id)
        async with self._store.transaction_provided(grid.SESSION_STATUS(session)) as transaction:
            transaction.set(grid.SESSION_STORAGE(session), storage)
        return transaction.is_done

    async def find_storage(self, owner_id: str) -> str | None:
        return await self._store.get(grid.SESSION_STORAGE(owner_id))

    async def unlink(self, owner_id: str, storage: str) -> None:
        await self._store.run(_UNLINK, keys=[grid.SESSION_STORAGE(owner_id)], args=[storage])

    def finish(self, directory: Path) -> bool:
        """Ends the playlists of a session whose node was killed before it could."""
        return end_playlists(directory)
