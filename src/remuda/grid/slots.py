"""Slots: the right to start one node. Never lost and never given twice, because each is at any moment in
exactly one place: free (available or reclaimed) or held by one session.

A slot's id is `<orchestrator>/<number>`, so a slot always knows whom it goes back to, also when the
session that held it never got further than the queue.
"""

from collections.abc import Sequence
from typing import Any

from remuda.base.ids import OrchestratorId, SessionId, SlotId
from remuda.fleet.bell import bell_of
from remuda.fleet.uses import return_use
from remuda.grid.model import KEPT_LOG_ENTRIES
from remuda.keyspace import grid, metrics
from remuda.keyspace.fleet import BELL
from remuda.keyspace.key import ChannelName, Key, ListName, Name
from remuda.store import Store, load_script

_CLAIM = load_script(
    __file__,
    "claim.lua",
    keys=[
        grid.SESSION_STATUS,
        grid.SESSION_SLOT,
        grid.SESSION_LOG,
        metrics.METRICS_SESSIONS_LOG,
        grid.ORCHESTRATOR_SLOTS_AVAILABLE,
    ],
    args=["session", "keep", "backlog", "holders", "bell", "orchestrators"],
)
_RELEASE = load_script(
    __file__,
    "release.lua",
    keys=[grid.SESSION_SLOT, grid.SESSION_ORCHESTRATOR],
    args=["reclaimed", "holders", "bell"],
)
_RECLAIM = load_script(
    __file__,
    "reclaim.lua",
    keys=[
        grid.ORCHESTRATOR_SLOTS_AVAILABLE,
        grid.ORCHESTRATOR_SLOTS_RECLAIMED,
        grid.ORCHESTRATOR_HOLDERS,
        metrics.METRICS_SLOTS_RECLAIMED,
    ],
    args=["slot", "status", "heartbeat.manager", "heartbeat.node", "slots"],
)
_RETIRE = load_script(
    __file__,
    "retire.lua",
    keys=[grid.ORCHESTRATOR_SLOTS, grid.ORCHESTRATOR_SLOTS_AVAILABLE, grid.ORCHESTRATOR_SLOTS_RECLAIMED],
    args=["slot"],
)


# So many at a time: a thousand at once would keep Redis from everything else for 8 ms.
RECLAIM_BATCH = 100


def freed_bell() -> ChannelName:
    """Rung when a slot has become available anywhere, or a new orchestrator has come."""
    return bell_of("slots")


def owner_of(slot: SlotId) -> OrchestratorId:
    """The orchestrator that a slot belongs to."""
    return OrchestratorId(slot.rpartition("/")[0])


def _template(key: Key[Any]) -> Name:
    return Name(key.template())


def _bell_template(key: Key[ListName]) -> Name:
    return Name(BELL.pattern.replace("{topic}", key.template()))


class Slots:
    """The slots of all orchestrators, as sessions take them and give them back."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def claim(self, session: SessionId, candidates: Sequence[OrchestratorId]) -> SlotId | None:
        """A slot of one of the candidates, now held by the session, which waits in that one's backlog."""
        slot = await self._store.run(
            _CLAIM,
            keys=[
                grid.SESSION_STATUS(session),
                grid.SESSION_SLOT(session),
                grid.SESSION_LOG(session),
                metrics.METRICS_SESSIONS_LOG("info"),
                *(grid.ORCHESTRATOR_SLOTS_AVAILABLE(candidate) for candidate in candidates),
            ],
            args=[
                session,
                KEPT_LOG_ENTRIES,
                _template(grid.ORCHESTRATOR_BACKLOG),
                _template(grid.ORCHESTRATOR_HOLDERS),
                _bell_template(grid.ORCHESTRATOR_BACKLOG),
                *candidates,
            ],
        )
        return None if slot is None else SlotId(slot)

    async def release(self, session: SessionId, *, account: str | None = None) -> SlotId | None:
        """Gives the session's slot back, and with it what its account uses. Only call it when the session's
        browser is gone. `account` is whose session it is, where Redis may have forgotten."""
        account = account or await self._store.hget(grid.SESSION_ORIGIN(session), "account")
        slot = await self._store.run(
            _RELEASE,
            keys=[grid.SESSION_SLOT(session), grid.SESSION_ORCHESTRATOR(session)],
            args=[
                _template(grid.ORCHESTRATOR_SLOTS_RECLAIMED),
                _template(grid.ORCHESTRATOR_HOLDERS),
                _bell_template(grid.ORCHESTRATOR_SLOTS_RECLAIMED),
            ],
        )
        # Apart from the slot: should this process be killed in between, the use ends with its lease.
        if account:
            await return_use(self._store, account, session)
        return None if slot is None else SlotId(slot)


class OwnSlots:
    """The slots of one orchestrator, as it looks after them."""

    def __init__(self, store: Store, orchestrator: OrchestratorId, *, count: int) -> None:
        self._store = store
        self._wanted = [SlotId(f"{orchestrator}/{number}") for number in range(1, count + 1)]
        self._all = grid.ORCHESTRATOR_SLOTS(orchestrator)
        self._available = grid.ORCHESTRATOR_SLOTS_AVAILABLE(orchestrator)
        self._reclaimed = grid.ORCHESTRATOR_SLOTS_RECLAIMED(orchestrator)
        self._holders = grid.ORCHESTRATOR_HOLDERS(orchestrator)
        self.reclaimed_bell = bell_of(self._reclaimed)

    async def adjust(self) -> None:
        """Makes the slots as many as wanted. One that a session holds is taken away when it comes back."""
        existing = set(await self._store.smembers(self._all))
        for slot in self._wanted:
            if slot not in existing:
                async with self._store.transaction() as transaction:
                    transaction.sadd(self._all, slot)
                    transaction.rpush(self._reclaimed, slot)
        for surplus in existing.difference(self._wanted):
            await self._retire(SlotId(surplus))

    async def make_anew(self) -> None:
        """Makes all slots, of which Redis has lost the list; what is left of them is a search's for lost ones
        that was under way."""
        await self._store.delete(self._available, self._reclaimed, self._holders)
        await self.adjust()

    async def _retire(self, slot: SlotId) -> None:
        await self._store.run(_RETIRE, keys=[self._all, self._available, self._reclaimed], args=[slot])

    async def recycle(self) -> int:
        """Makes every slot that was given back available again, and wakes those who wait for one."""
        count = 0
        while (slot := await self._store.rpoplpush(self._reclaimed, self._available)) is not None:
            count += 1
            if slot not in self._wanted:
                await self._retire(SlotId(slot))
        if count:
            await self._store.publish(freed_bell())
        return count

    async def reclaim(self) -> tuple[list[SessionId], list[SlotId]]:
        """Sessions that hold a slot but are dead, and orphaned slots, which are already on their way back."""
        dead: list[SessionId] = []
        orphaned: list[SlotId] = []
        slots = sorted(await self._store.smembers(self._all))
        for start in range(0, len(slots), RECLAIM_BATCH):
            dead_here, orphaned_here = await self._reclaim_some(slots[start : start + RECLAIM_BATCH])
            dead += dead_here
            orphaned += orphaned_here
        return dead, orphaned

    async def _reclaim_some(self, slots: Sequence[str]) -> tuple[list[SessionId], list[SlotId]]:
        dead, orphaned = await self._store.run(
            _RECLAIM,
            keys=[self._available, self._reclaimed, self._holders, metrics.METRICS_SLOTS_RECLAIMED()],
            args=[
                _template(grid.SESSION_SLOT),
                _template(grid.SESSION_STATUS),
                _template(grid.SESSION_HEARTBEAT_MANAGER),
                _template(grid.SESSION_HEARTBEAT_NODE),
                *slots,
            ],
        )
        return dead, orphaned

    async def count_dead(self) -> None:
        """Counts a slot that was taken back from a dead session."""
        await self._store.hincrby(metrics.METRICS_SLOTS_RECLAIMED(), "dead")
