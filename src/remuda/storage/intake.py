"""Brings news of files from Redis to the index, and loses none of it.

An entry is moved to a list of its own, written to the index, committed, and only then taken off that list.
What is on it is what is worked on, after a crash as much as at any other time; so an entry may be written
twice, which changes nothing, since the index is told what the file is and not what the entry says of it.
"""

import asyncio
import errno
import sqlite3
from collections.abc import Callable, Sequence
from functools import partial

from remuda.base import clock
from remuda.base.errors import InvalidArgument
from remuda.base.log import get_logger
from remuda.fleet.bell import LOOK_EVERY, bell_of, wait_for
from remuda.fleet.tasks import repeat
from remuda.keyspace import storage as keys
from remuda.storage.directory import LocalDirectory
from remuda.storage.index import Index, Librarian
from remuda.storage.model import Artifact, StorageId, read_news
from remuda.storage.owners import OwnerKinds
from remuda.store import Store

log = get_logger(__name__)

BATCH = 200
KEEP_REFUSED = 100
LONGEST_REFUSED = 1000


class Intake:
    """Takes entries of one storage. Run `run()` as a task of the owner's."""

    def __init__(
        self,
        store: Store,
        storage: StorageId,
        *,
        kinds: OwnerKinds,
        directory: LocalDirectory,
        librarian: Librarian,
        on_full: Callable[[], None],
    ) -> None:
        self._store = store
        self._storage = storage
        self._kinds = kinds
        self._directory = directory
        self._librarian = librarian
        self._on_full = on_full
        self._pending = keys.STORAGE_METADATA_PENDING(storage)
        self._taken = keys.STORAGE_METADATA_TAKEN(storage)

    async def run(self, *, look_every: float = LOOK_EVERY) -> None:
        """Takes and writes for ever. Outlives an absence of Redis and a full disk."""
        take_in = partial(self._take_in, look_every)
        survives = (sqlite3.Error, OSError)
        await repeat(take_in, every=0.0, failure="news kept", survives=survives, storage=self._storage)

    async def _take_in(self, look_every: float) -> None:
        """Waits for entries and writes them. Whatever fails, they stay on a list until they are written."""
        bell = bell_of(self._pending)
        entries = await wait_for(self._store, bell, self._take, timeout=None, look_every=look_every)
        try:
            await self._settle(entries or [])
        except (sqlite3.Error, OSError) as error:
            if _is_full(error):
                self._on_full()
            raise

    async def _take(self) -> list[str] | None:
        """The entries to work on: those of an earlier try, else the oldest that wait."""
        if left := await self._store.lrange(self._taken):
            return left
        count = min(await self._store.llen(self._pending), BATCH)
        # Documented as appended to, so taken from the left. Not one at a time: a commit for each entry would
        # be the slowest part of all.
        moves = [self._store.send("LMOVE", self._pending, self._taken, "LEFT", "RIGHT") for _ in range(count)]
        await asyncio.gather(*moves)
        return await self._store.lrange(self._taken) or None

    async def _settle(self, entries: Sequence[str]) -> None:
        """Writes the entries to the index, then takes them off the list."""
        news, refused = self._sort(entries)
        await self._librarian.ask(lambda index: self._write(index, news))
        async with self._store.transaction() as transaction:
            for entry in entries:
                transaction.lrem(self._taken, entry)
            if refused:
                aside = keys.STORAGE_METADATA_REFUSED(self._storage)
                transaction.rpush(aside, *(entry[:LONGEST_REFUSED] for entry in refused))
                transaction.send("LTRIM", aside, -KEEP_REFUSED, -1)
                transaction.hincrby(keys.STORAGE_REFUSED_TOTAL(), self._storage, len(refused))

    def _sort(self, entries: Sequence[str]) -> tuple[list[Artifact], list[str]]:
        """What the entries tell of, and those that tell of nothing."""
        news, refused = [], []
        for entry in entries:
            try:
                told = read_news(entry, now=clock.now())
                if told.path.owner not in self._kinds:
                    raise InvalidArgument(f"This storage does not know the kind of owner of {told.path}")
                news.append(told)
            except InvalidArgument as error:
                log.error("news refused", storage=self._storage, reason=error.message)
                refused.append(entry)
        return news, refused

    def _write(self, index: Index, news: Sequence[Artifact]) -> None:
        found, gone = [], []
        for told in news:
            seen = self._directory.find(told.path)
            if seen is None:  # Evicted or deleted since: nothing to note, and nothing wrong either.
                gone.append(told.path)
                continue
            accessed = min(max(told.accessed, seen.accessed), clock.now())
            found.append(Artifact(seen.path, seen.size, seen.modified, accessed))
        index.record(found, gone=gone)


def _is_full(error: sqlite3.Error | OSError) -> bool:
    """Whether it is room that is missing."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
