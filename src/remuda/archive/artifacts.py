"""A run of a job as an owner of artifacts: what the storage asks the archive about it."""

from collections.abc import Collection

from remuda.archive.model import OPEN
from remuda.fleet.origin import Scope
from remuda.fleet.ownership import OwnerKind, Retention
from remuda.keyspace import archive
from remuda.store import Store, load_script

_UNLINK = load_script(__file__, "unlink.lua", keys=[archive.RUN], args=["storage"])

KEPT_FOR_EVER = Retention(seconds=None, eviction_rank=None)
BATCH = 500


class JobArtifacts(OwnerKind):
    """Runs of jobs. Unlike recordings they are made to be kept: by default they stay for ever."""

    name = "job"
    scope = Scope.ARCHIVE

    def __init__(self, store: Store, retention: Retention = KEPT_FOR_EVER) -> None:
        super().__init__(retention)
        self._store = store

    async def active(self, ids: Collection[str]) -> set[str]:
        active, runs = set(), [each for each in ids if _is_run(each)]
        for start in range(0, len(runs), BATCH):
            batch = runs[start : start + BATCH]
            states = [self._store.hget(archive.RUN(each), "state") for each in batch]
            active |= {each for each, state in zip(batch, states, strict=True) if (await state) in OPEN}
        return active

    async def account_of(self, owner_id: str) -> str | None:
        return await self._store.hget(archive.RUN(owner_id), "account") if _is_run(owner_id) else None

    async def link(self, owner_id: str, storage: str) -> bool:
        async with self._store.transaction_provided(archive.RUN(owner_id)) as transaction:
            transaction.hset(archive.RUN(owner_id), {"storage": storage})
        return transaction.is_done

    async def find_storage(self, owner_id: str) -> str | None:
        return await self._store.hget(archive.RUN(owner_id), "storage") if _is_run(owner_id) else None

    async def unlink(self, owner_id: str, storage: str) -> None:
        if _is_run(owner_id):
            await self._store.run(_UNLINK, keys=[archive.RUN(owner_id)], args=[storage])


def _is_run(owner_id: str) -> bool:
    """Whether this can be a run: a directory in the storage may be called anything."""
    return archive.RUN.regex.fullmatch(archive.RUN.pattern.replace("{run}", owner_id)) is not None
