"""The herd as one GraphQL query sees it: each thing is read when it is first asked for, and only once."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from remuda.grid.capabilities import for_viewer
from remuda.grid.view import ActiveSessions, OrchestratorView, SessionView, orchestrators
from remuda.grid.view.mask import mask
from remuda.grid.view.sessions import MAX_CAPABILITIES
from remuda.keyspace import grid
from remuda.web.herd import Herd
from remuda.web.stereotypes import named

MAX_ACTIVE = 2000
"""Active sessions that a query gets to see, the oldest ones."""
AT_ONCE = 32
"""Sessions whose capabilities are in memory at a time: they may carry whole extensions."""

T = TypeVar("T")


class Once(Generic[T]):
    """A read that is done when its result is first asked for; who asks meanwhile waits for it."""

    def __init__(self, read: Callable[[], Awaitable[T]]) -> None:
        self._read = read
        self._lock = asyncio.Lock()
        self._results: list[T] = []

    async def __call__(self) -> T:
        async with self._lock:
            if not self._results:
                self._results.append(await self._read())
        return self._results[0]


class Look:
    """What the resolvers of one query share."""

    def __init__(self, herd: Herd, *, uri: str) -> None:
        self.herd = herd
        self.uri = uri
        self.active: Once[ActiveSessions] = Once(lambda: herd.view.active(limit=MAX_ACTIVE))
        self.orchestrators: Once[list[OrchestratorView]] = Once(lambda: orchestrators(herd.store))
        self._gate = asyncio.Semaphore(AT_ONCE)

    async def requested(self, session: SessionView) -> list[Any]:
        """The capability sets that a session asked for, masked."""
        sets = mask(await self._read(session.id, "requested"))
        return sets if isinstance(sets, list) else [named(each) for each in session.requested]

    async def actual(self, session: SessionView) -> dict[str, Any] | None:
        """The capabilities that a session was given, as others may see them; None before it was given any."""
        found = await self._read(session.id, "actual")
        if isinstance(found, dict):
            front_door = f"ws{self.uri.removeprefix('http')}"
            shown: dict[str, Any] = mask(for_viewer(found, session=session.id, front_door=front_door))
            return shown
        return None if session.actual is None else named(session.actual)

    async def _read(self, session: str, field: str) -> Any:
        """One field of a session's capabilities; None when it is not there, or too big to be shown."""
        key = grid.SESSION_CAPABILITIES(session)
        async with self._gate:
            if await self.herd.store.send("HSTRLEN", key, field) > MAX_CAPABILITIES:
                return None
            text = await self.herd.store.hget(key, field)
            try:
                return None if text is None else msgspec.json.decode(text)
            except msgspec.DecodeError:
                return None


def to_json(value: Mapping[str, Any] | list[Any]) -> str:
    """A text that holds JSON."""
    return msgspec.json.encode(value).decode()
