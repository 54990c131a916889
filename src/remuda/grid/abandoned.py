"""Sessions whose manager was killed while it created them: no client waits for them any more, so they end.

Every manager, orchestrator and gateway looks for them. What one has ended, the others find ended, so it does
not matter how many look, nor which of them was killed. Once a session has ended, its node or its orchestrator
gives the slot back, as always.

A manager listens to a channel of its own, and Redis knows at once when it no longer does: the kernel closes
the connection of a killed process. The connection of a busy process stays, however long it gets no CPU, so
load is never taken for a death. A machine that lost its power or its network closes nothing: that is what
beats are for, which take longer (fleet/liveness.py).
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from remuda.base import clock
from remuda.base.errors import Unavailable
from remuda.base.ids import ManagerId
from remuda.base.log import get_logger
from remuda.fleet.origin import DEFAULT_ACCOUNT
from remuda.fleet.tasks import repeat
from remuda.fleet.uses import return_use
from remuda.grid.model import State
from remuda.grid.sessions import Sessions
from remuda.grid.sweeps.model import code_of_silence
from remuda.grid.sweeps.sessions import survey
from remuda.keyspace import grid
from remuda.keyspace.key import ChannelName
from remuda.store import Store

log = get_logger(__name__)

MESSAGE = "Its manager is gone"
LOOK_EVERY = 1.0
LOOKS = 3
"""Looks in a row that must find a manager absent. A live one that loses its connection has a new one within
the first second."""
CALM_AFTER = 30.0
"""Seconds without a verdict after Redis was away. Then everybody comes back, and those whose connection hangs
need their time-outs to notice it."""


Id = TypeVar("Id", bound=str)


@contextmanager
def present(store: Store, member: str, *, kind: str = "manager") -> Iterator[None]:
    """The manager, or what else it is, is there for as long as the block lasts, through every new
    connection."""
    with store.subscribe(_channel(kind, member)):
        yield


async def find_absent(store: Store, members: Iterable[Id], *, kind: str = "manager") -> list[Id]:
    """Those of the members that do not listen at this moment: killed, or with their connection just lost."""
    asked = list(members)
    counts = await store.count_listeners([_channel(kind, each) for each in asked])
    return [each for each, count in zip(asked, counts, strict=True) if not count]


def _channel(kind: str, member: str) -> ChannelName:
    return grid.PRESENCE(f"{kind}:{member}")


class Absences:
    """Finds the managers, or what else they are, that are gone, in looks about `LOOK_EVERY` seconds apart."""

    def __init__(
        self, store: Store, *, kind: str = "manager", looks: int = LOOKS, calm_after: float = CALM_AFTER
    ) -> None:
        self._store = store
        self._kind = kind
        self._looks = looks
        self._calm_after = calm_after
        self._calm_at = 0.0
        self._connection = store.connection_number
        self._missed: dict[str, int] = {}

    async def find(self, members: Sequence[Id]) -> list[Id]:
        """Those of the members that are gone: absent in this look and in those before it.

        Counted in looks, not in seconds: while this process itself is stopped, it does not look.
        """
        try:
            absent = await find_absent(self._store, members, kind=self._kind)
        except Unavailable:
            self._start_over()
            raise
        if self._connection != self._store.connection_number:
            self._start_over()
        if clock.monotonic() < self._calm_at:
            return []
        self._missed = {each: self._missed.get(each, 0) + 1 for each in absent}
        return [each for each in absent if self._missed[each] >= self._looks]

    def _start_over(self) -> None:
        self._connection = self._store.connection_number
        self._calm_at = clock.monotonic() + self._calm_after
        self._missed.clear()


class Abandoned:
    """Ends what killed managers leave. Run `run()` as a task of the owner's."""

    def __init__(self, store: Store, *, absences: Absences | None = None) -> None:
        self._store = store
        self._sessions = Sessions(store)
        self._absences = absences or Absences(store)

    async def run(self) -> None:
        """Looks for ever. Outlives any absence of Redis."""
        await repeat(self.look, every=LOOK_EVERY, failure="managers not looked for")

    async def look(self) -> None:
        """Ends the sessions of every manager that turns out to be gone."""
        managers = [ManagerId(each) for each in await self._store.smembers(grid.MANAGERS_CREATING())]
        for gone in await self._absences.find(managers):
            await self._end_all(gone)

    async def _end_all(self, manager: ManagerId) -> None:
        created = await self._store.hgetall(grid.MANAGER_SESSIONS(manager))
        surveyed, _ = await survey(self._store, created)
        ended = 0
        for session, vitals in surveyed:
            if vitals.state not in (State.QUEUED, State.PENDING):
                continue
            ended += await self._sessions.move(
                session,
                State.TERMINATED,
                code=code_of_silence(vitals),
                origins=(State.QUEUED, State.PENDING),
                message=MESSAGE,
            )
            # Its place in the queue is gone by now: tickets run out sooner than a manager is missed.
            # With a slot it may have a browser too: then its use ends with that (Slots.release).
            if not await self._store.exists(grid.SESSION_SLOT(session)):
                await return_use(self._store, created[session] or DEFAULT_ACCOUNT, session)
        # Last: should this process be killed as well, the next one does the rest.
        async with self._store.transaction() as transaction:
            transaction.delete(grid.MANAGER_SESSIONS(manager))
            transaction.srem(grid.MANAGERS_CREATING(), manager)
            # Gateways would go on to ask it until its beat has run out.
            transaction.srem(grid.MANAGERS(), manager)
            transaction.delete(grid.MANAGER(manager), grid.MANAGER_SCHEME(manager))
            transaction.expire(grid.MANAGER_HEARTBEAT(manager), 1)
        log.warning("manager gone", manager=manager, sessions=len(created), ended=ended)
