"""Brings news of files from Redis to the index, and loses none of it.

An entry is moved to a list of its own, written to the index, committed, and only then taken off that list.
What is on it is what is worked on, after a crash as much as at any other time; so an entry may be written
twice, which changes nothing, since the index is told what the file is and not what the entry says of it.
"""

import asyncio
import errno
import sqlite3
from collections.abc import Callable, Sequence

from remuda.base import clock
from remuda.base.errors import InvalidArgument, Unavailable
from remuda.base.log import get_logger
from remuda.fleet.bell import LOOK_EVERY, bell_of, wait_for
from remuda.keyspace import storage as keys
from remuda.storage.directory import LocalDirectory
from remuda.storage.index import Index, Librarian
from remuda.storage.model import Artifact, StorageId, read_news
from remuda.store import Store

log = get_logger(__name__)

BATCH = 200
KEEP_REFUSED = 100
LONGEST_REFUSED = 1000
RETRY_AFTER = 1.0


class Intake:
    """Takes entries of one storage. Run `run()` as a task of the owner's."""

    def __init__(
        self,
        store: Store,
        storage: StorageId,
        *,
        directory: LocalDirectory,
        librarian: Librarian,
        on_full: Callable[[], None],
    ) -> None:
        self._store = store
        self._storage = storage
        self._directory = directory
        self._librarian = librarian
        self._on_full = on_full
        self._pending = keys.STORAGE_METADATA_PENDING(storage)
        self._taken = keys.STORAGE_METADATA_TAKEN(storage)

    async def run(self, *, look_every: float = LOOK_EVERY, retry_after: float = RETRY_AFTER) -> None:
        """Takes and writes for ever. Outlives an absence of Redis and a full disk."""
        bell = bell_of(self._pending)
        while True:
            try:
                entries = await wait_for(self._store, bell, self._take, timeout=None, look_every=look_every)
                await self._settle(entries or [])
            except Unavailable as error:
                log.warning("news unread", storage=self._storage, reason=error.message)
                await asyncio.sleep(retry_after)
            except (sqlite3.Error, OSError) as error:
                # Nothing is lost: the entries stay where they are until they can be written.
                log.error("news kept", storage=self._storage, reason=str(error))
                if _is_full(error):
                    self._on_full()
                await asyncio.sleep(retry_after)

    async def _take(self) -> list[str] | None:
        """The entries to work on: those of an earlier try, else the oldest that wait."""
        if left := await self._store.lrange(self._taken):
            return left
        count = min(await self._store.llen(self._pending), BATCH)
        # Documented as appended to, so taken from the left. Not a ReliableQueue, which takes one at a time
        # from the right: a commit for each entry would be the slowest part of all.
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
                news.append(read_news(entry, now=clock.now()))
            except InvalidArgument as error:
                log.error("news refused", storage=self._storage, reason=error.message)
                refused.append(entry)
        return news, refused

    def _write(self, index: Index, news: Sequence[Artifact]) -> None:
        found, gone = [], []
        for told in news:
            seen = self._directory.find(told.place)
            if seen is None:  # Evicted or deleted since: nothing to note, and nothing wrong either.
                gone.append(told.place)
                continue
            accessed = min(max(told.accessed, seen.accessed), clock.now())
            found.append(Artifact(seen.place, seen.size, seen.modified, accessed))
        index.record(found, gone=gone)


def _is_full(error: sqlite3.Error | OSError) -> bool:
    """Whether it is room that is missing."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
