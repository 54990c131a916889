"""What writers of artifacts use: a place to write to, and a word to the storage when a file was written.

The writer needs no index and no storage that runs: its word waits in Redis.
"""

import asyncio
from contextlib import suppress
from pathlib import Path

from remuda.base import clock
from remuda.base.errors import Lost, SessionLost, Unavailable
from remuda.base.ids import SessionId
from remuda.fleet.bell import bell_of
from remuda.keyspace.grid import SESSION_STATUS, SESSION_STORAGE
from remuda.keyspace.storage import STORAGE_METADATA_PENDING
from remuda.storage.directory import LocalDirectory
from remuda.storage.model import Artifact, Place, StorageId, parse_place, write_news
from remuda.store import Store


class ArtifactWriter:
    """Writes artifacts of sessions into a storage's directory."""

    def __init__(self, store: Store, storage_id: StorageId, directory: Path) -> None:
        self._store = store
        self._storage = storage_id
        self._directory = LocalDirectory(directory)

    async def open_session(self, session: SessionId) -> Path:
        """The directory for a session's artifacts; from now on the session says where they lie.

        Lost when there is no such session any more. Unavailable when the directory cannot be made, because
        the disk is full for instance.
        """
        path = self._directory.path / session
        try:
            path.mkdir(exist_ok=True)
        except OSError as error:
            raise Unavailable(f"No artifacts can be written to {path}: {error.strerror}") from error
        async with self._store.transaction_provided(SESSION_STATUS(session)) as transaction:
            transaction.set(SESSION_STORAGE(session), self._storage)
        if not transaction.is_done:
            with suppress(OSError):  # It may hold what was written while the session was there.
                path.rmdir()
            raise SessionLost(f"There is no session {session} that could have artifacts")
        return path

    async def announce(self, session: SessionId, *names: str) -> None:
        """Tells the storage that these files were written or changed; Lost when one of them is not there."""
        places = [parse_place(f"{session}/{name}") for name in names]
        if not places:
            return
        artifacts = await asyncio.to_thread(self._find, places)
        pending = STORAGE_METADATA_PENDING(self._storage)
        async with self._store.transaction() as transaction:
            transaction.rpush(pending, *map(write_news, artifacts))
            transaction.publish(bell_of(pending))

    def _find(self, places: list[Place]) -> list[Artifact]:
        now = clock.now()
        found = []
        for place in places:
            artifact = self._directory.find(place)
            if artifact is None:
                raise Lost(f"There is no artifact {place} to tell of")
            found.append(Artifact(place, artifact.size, artifact.modified, now))
        return found
