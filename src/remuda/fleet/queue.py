"""A queue that loses nothing: what is taken stays on its taker's own list until it is done.

First in, first out. If the taker dies, `reclaim` puts what it had back at the front, oldest first. Every
step is one atomic move, so a crash between any two leaves each item on exactly one list.
"""

from remuda.fleet.bell import LOOK_EVERY, bell_of, wait_for
from remuda.keyspace.key import ListName
from remuda.store import Store


class ReliableQueue:
    """A list of waiting items and, for one owner, a list of those it works on."""

    def __init__(self, store: Store, *, waiting: ListName, working: ListName) -> None:
        self._store = store
        self._waiting = waiting
        self._working = working
        self._bell = bell_of(waiting)

    async def put(self, item: str) -> None:
        """Appends an item and wakes a taker."""
        async with self._store.transaction() as transaction:
            transaction.lpush(self._waiting, item)
            transaction.publish(self._bell)

    async def take(self, timeout: float | None = None, *, look_every: float = LOOK_EVERY) -> str | None:
        """The oldest item, now on the owner's list; None if none came in time."""

        async def move() -> str | None:
            return await self._store.rpoplpush(self._waiting, self._working)

        return await wait_for(self._store, self._bell, move, timeout=timeout, look_every=look_every)

    async def done(self, item: str) -> bool:
        """Takes the item off the owner's list; False if it was not there (any more)."""
        return bool(await self._store.lrem(self._working, item))

    async def taken(self) -> list[str]:
        """What the owner works on, oldest first: after a restart, what it must finish or give back."""
        return (await self._store.lrange(self._working))[::-1]

    async def reclaim(self, working: ListName) -> int:
        """Puts back everything on a dead owner's list; how many items that were."""
        count = 0
        # Newest first onto the serving end, so that the oldest ends up in front.
        while await self._store.send("LMOVE", working, self._waiting, "LEFT", "RIGHT") is not None:
            count += 1
        if count:
            await self._store.publish(self._bell)
        return count
