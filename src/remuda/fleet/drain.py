"""Finish, then go: counts what is under way, refuses what is new, and says when the last is done."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from remuda.base.errors import Draining


class Drain:
    """The door of something that can be asked to leave."""

    def __init__(self) -> None:
        self._under_way = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self.is_begun = False

    @property
    def under_way(self) -> int:
        return self._under_way

    @contextmanager
    def work(self) -> Iterator[None]:
        """One piece of work; Draining once the drain has begun."""
        if self.is_begun:
            raise Draining
        self._under_way += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._idle.set()

    def begin(self) -> None:
        """From now on refuses new work."""
        self.is_begun = True

    async def finished(self, timeout: float) -> bool:
        """Waits for what is under way; False if some of it is not done in time."""
        try:
            async with asyncio.timeout(timeout):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True
