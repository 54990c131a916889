"""Who is there: a process listens to a channel of its own, and Redis knows at once when it no longer does.

The kernel closes the connection of a killed process, so its death shows within seconds. The connection of a
busy process stays, however long it gets no CPU, so load is never taken for a death. A machine that lost its
power or its network closes nothing: that is what beats are for, which take longer (fleet/liveness.py).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from remuda.base import clock
from remuda.base.errors import Unavailable
from remuda.keyspace.fleet import PRESENCE
from remuda.store import Store

LOOK_EVERY = 1.0
LOOKS = 3
"""Looks in a row that must find somebody absent. A live process that loses its connection has a new one
within the first second."""
CALM_AFTER = 30.0
"""Seconds without a verdict after Redis was away. Then everybody comes back, and those whose connection hangs
need their time-outs to notice it."""


@contextmanager
def present(store: Store, topic: str) -> Iterator[None]:
    """Is there for as long as the block lasts, through every new connection."""
    with store.subscribe(PRESENCE(topic)):
        yield


class Absences:
    """Finds who is gone, in looks about `LOOK_EVERY` seconds apart."""

    def __init__(self, store: Store, *, looks: int = LOOKS, calm_after: float = CALM_AFTER) -> None:
        self._store = store
        self._looks = looks
        self._calm_after = calm_after
        self._calm_at = 0.0
        self._connection = store.connection_number
        self._missed: dict[str, int] = {}

    async def find(self, topics: Sequence[str]) -> list[str]:
        """Those of the topics whose process is gone: absent in this look and in those before it.

        Counted in looks, not in seconds: where this process itself stood still, nobody was looked for.
        """
        try:
            counts = await self._store.count_listeners([PRESENCE(topic) for topic in topics])
        except Unavailable:
            self._start_over()
            raise
        if self._connection != self._store.connection_number:
            self._start_over()
        if clock.monotonic() < self._calm_at:
            return []
        absent = [topic for topic, count in zip(topics, counts, strict=True) if not count]
        self._missed = {topic: self._missed.get(topic, 0) + 1 for topic in absent}
        return [topic for topic, missed in self._missed.items() if missed >= self._looks]

    def _start_over(self) -> None:
        self._connection = self._store.connection_number
        self._calm_at = clock.monotonic() + self._calm_after
        self._missed.clear()
