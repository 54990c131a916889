"""What writers of artifacts use: a place to write to, and a word to the storage when a file was written.

The writer needs no index and no storage that runs: its word waits in Redis.
"""

import asyncio
import math
from pathlib import Path

from remuda.base import clock
from remuda.base.errors import Lost, Unavailable
from remuda.fleet.bell import bell_of
from remuda.fleet.ownership import OwnerKind
from remuda.keyspace.storage import STORAGE_METADATA_PENDING
from remuda.storage.directory import LocalDirectory
from remuda.storage.model import Artifact, ArtifactPath, Owner, StorageId, parse_path, write_news
from remuda.store import Store


class ArtifactWriter:
    """Writes artifacts of one kind of owner into a storage's directory."""

    def __init__(self, store: Store, kind: OwnerKind, *, storage: StorageId, directory: Path) -> None:
        self._store = store
        self._kind = kind
        self._storage = storage
        self._directory = LocalDirectory(directory)

    async def open(self, owner_id: str) -> Path:
        """The directory for an owner's artifacts; from now on its room knows where they lie, and the storage
        to which account they belong.

        Lost when there is no such owner any more. Unavailable when the directory cannot be made, because the
        disk is full for instance.
        """
        owner = Owner(self._kind.name, owner_id)
        path = self._directory.path_of(owner)
        account = await self._kind.account_of(owner_id)
        try:
            path.mkdir(exist_ok=True)
            if account is not None:
                self._directory.note_account(owner, account)
        except OSError as error:
            raise Unavailable(f"No artifacts can be written to {path}: {error.strerror}") from error
        if not await self._kind.link(owner_id, self._storage):
            # It may hold what was written while the owner was there.
            self._directory.remove_if_empty(owner, older_than=math.inf)
            raise Lost(f"There is no {self._kind.name} {owner_id} that could have artifacts")
        return path

    async def announce(self, owner_id: str, *names: str) -> None:
        """Tells the storage that these files were written or changed; Lost when one of them is not there."""
        owner = Owner(self._kind.name, owner_id)
        paths = [parse_path(f"{owner}/{name}") for name in names]
        if not paths:
            return
        artifacts = await asyncio.to_thread(self._find, paths)
        pending = STORAGE_METADATA_PENDING(self._storage)
        async with self._store.transaction() as transaction:
            transaction.rpush(pending, *map(write_news, artifacts))
            transaction.publish(bell_of(pending))

    def _find(self, paths: list[ArtifactPath]) -> list[Artifact]:
        now = clock.now()
        found = []
        for path in paths:
            artifact = self._directory.find(path)
            if artifact is None:
                raise Lost(f"There is no artifact {path} to announce")
            found.append(Artifact(path, artifact.size, artifact.modified, now))
        return found
