"""How much memory bodies may take that a relay holds whole. A request beyond that waits, unread."""

import asyncio
from collections import deque

# A quarter of the room is for bodies up to this size: a few large ones must not keep all others out.
SMALL = 64 * 1024


class Bodies:
    """The room for them. A large body gets in, too, when there are only small ones, so that each has its turn
    however little room there is."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._in_line: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.held = 0

    def take(self, size: int, *, own: int = 0) -> bool:
        """Take room for a body if there is any and no other waits for it; `own` is what it has already."""
        if not self._fits(size, own) or (self._in_line and size > SMALL):
            return False
        self.held += size
        return True

    def hold(self, size: int) -> None:
        """Count a body that is here already."""
        self.held += size

    async def wait(self, size: int) -> None:
        """Take room for a body as soon as there is some; first come, first served."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        place = (size, turn)
        self._in_line.append(place)
        try:
            await turn
        except asyncio.CancelledError:
            if place in self._in_line:
                self._in_line.remove(place)
                self._call_next()
            else:
                self.give_back(size)
            raise

    def give_back(self, size: int) -> None:
        """A body is gone; those who wait get its room."""
        self.held -= size
        self._call_next()

    def _call_next(self) -> None:
        while self._in_line and self._fits(self._in_line[0][0], 0):
            size, turn = self._in_line.popleft()
            self.held += size
            if not turn.done():
                turn.set_result(None)

    def _fits(self, size: int, own: int) -> bool:
        if size <= SMALL:
            return self.held + size <= self._room
        return self.held + size <= self._room - self._room // 4 or self.held - own <= self._room // 4
