"""How much memory bodies may take that a relay holds whole, all together and of one account. A request beyond
that waits, unread, and keeps no request of another account waiting."""

import asyncio
from collections import Counter, deque
from typing import NamedTuple

from remuda.fleet.fairness import leaves_as_much

SMALL = 64 * 1024
"""Up to this size, a body has a room that large ones cannot take: a quarter of the whole."""


class Bodies:
    """The room for them. Where accounts share it, each leaves others as much as it takes; bodies without an
    account may have all that is left. The only body of an account gets in whatever its size, unless others
    have more than half: so each has its turn, however little room there is."""

    def __init__(self, room: int) -> None:
        self._small, self._large = _Room(room // 4), _Room(room - room // 4)

    @property
    def held(self) -> int:
        """Bytes that are taken."""
        return self._small.held + self._large.held

    def take(self, size: int, *, account: str = "", own: int = 0) -> bool:
        """Take room for a body if there is any and no other of its account waits for it; `own` is what it has
        already."""
        before, after = self._room_for(own), self._room_for(own + size)
        if not own or before is after:
            return after.take(size, account, own)
        if not after.take(own + size, account, 0):
            return False
        before.give_back(own, account)
        return True

    async def wait(self, size: int, *, account: str = "") -> None:
        """Take room for a body as soon as there is some; in an account, first come, first served."""
        await self._room_for(size).wait(size, account)

    def give_back(self, size: int, *, account: str = "") -> None:
        """A body is gone; those who wait get its room."""
        self._room_for(size).give_back(size, account)

    def _room_for(self, size: int) -> "_Room":
        return self._small if size <= SMALL else self._large


class _Place(NamedTuple):
    size: int
    turn: asyncio.Future[None]


class _Room:
    """The room for small bodies, or for large ones."""

    def __init__(self, size: int) -> None:
        self.held = 0
        self._size = size
        self._held_by: Counter[str] = Counter()
        self._lines: dict[str, deque[_Place]] = {}
        """Those who wait, by account."""

    def take(self, size: int, account: str, own: int) -> bool:
        # One that has a part already goes on: those who wait for its end would wait longer.
        if (account in self._lines and not own) or not self._fits(size, account, own):
            return False
        self._add(size, account)
        return True

    async def wait(self, size: int, account: str) -> None:
        place = _Place(size, asyncio.get_running_loop().create_future())
        self._lines.setdefault(account, deque()).append(place)
        try:
            await place.turn
        except asyncio.CancelledError:
            line = self._lines.get(account) or deque()
            if place in line:
                line.remove(place)
                self._call_next()
            else:
                self.give_back(size, account)
            raise

    def give_back(self, size: int, account: str) -> None:
        self._add(-size, account)
        self._call_next()

    def _add(self, size: int, account: str) -> None:
        self.held += size
        self._held_by[account] += size
        if not self._held_by[account]:
            del self._held_by[account]

    def _call_next(self) -> None:
        # Accounts that hold least come first. One whose next body does not fit keeps no other waiting: else a
        # client could, by announcing large ones.
        for account in sorted(self._lines, key=self._held_by.__getitem__):
            line = self._lines[account]
            while line and self._fits(line[0].size, account, 0):
                place = line.popleft()
                self._add(place.size, account)
                if not place.turn.done():
                    place.turn.set_result(None)
            if not line:
                del self._lines[account]

    def _fits(self, size: int, account: str, own: int) -> bool:
        theirs = self._held_by[account]
        if theirs == own and self.held - own <= self._size // 2:
            return True
        if account:
            return leaves_as_much(size, theirs=theirs, held=self.held, room=self._size)
        return self.held + size <= self._size
