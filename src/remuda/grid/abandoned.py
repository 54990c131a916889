"""Sessions whose manager was killed while it created them: nobody waits for them any more, so they end.

Every manager, orchestrator and gateway looks for them. What one has ended, the others find ended, so it does
not matter how many look, nor which of them was killed. Once a session has ended, its node or its orchestrator
gives the slot back, as always.
"""

import asyncio

from remuda.base.errors import RemudaError
from remuda.base.ids import ManagerId, SessionId
from remuda.base.log import get_logger
from remuda.fleet.line import Lines
from remuda.fleet.presence import LOOK_EVERY, Absences
from remuda.grid.model import State
from remuda.grid.sessions import Sessions, session_topic
from remuda.grid.sweeps.model import code_of_silence
from remuda.grid.sweeps.sessions import survey
from remuda.keyspace import grid
from remuda.store import Store

log = get_logger(__name__)

MESSAGE = "Its manager is gone"


def manager_topic(manager: ManagerId) -> str:
    """What a manager is called where it is present."""
    return f"manager:{manager}"


class Abandoned:
    """Ends what killed managers leave. Run `run()` as a task of the owner's."""

    def __init__(self, store: Store, *, absences: Absences | None = None) -> None:
        self._store = store
        self._sessions = Sessions(store)
        self._lines = Lines(store)
        self._absences = absences or Absences(store)

    async def run(self) -> None:
        """Looks for ever. Outlives any absence of Redis."""
        while True:
            try:
                await self.look()
            except RemudaError as error:
                log.warning("managers not looked for", reason=error.message)
            await asyncio.sleep(LOOK_EVERY)

    async def look(self) -> None:
        """Ends the sessions of every manager that turns out to be gone."""
        managers = [ManagerId(each) for each in await self._store.smembers(grid.MANAGERS_CREATING())]
        topics = {manager_topic(each): each for each in managers}
        for topic in await self._absences.find(list(topics)):
            await self._end_all(topics[topic])

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
            # Its place would keep those behind it from a slot until its lease has run out.
            await self._lines.withdraw(created[session], session_topic(SessionId(session)))
        # Last: should this process be killed as well, the next one does the rest.
        async with self._store.transaction() as transaction:
            transaction.delete(grid.MANAGER_SESSIONS(manager))
            transaction.srem(grid.MANAGERS_CREATING(), manager)
            # Gateways would go on to ask it until its beat has run out.
            transaction.srem(grid.MANAGERS(), manager)
            transaction.delete(grid.MANAGER(manager))
            transaction.expire(grid.MANAGER_HEARTBEAT(manager), 1)
        log.warning("manager gone", manager=manager, sessions=len(created), ended=ended)
