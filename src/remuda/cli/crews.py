"""The processes of `remuda up` that are started when they are wanted: the crews that rooms declare."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial

from remuda.base.config import Config, HerdConfig
from remuda.base.errors import StoreUnavailable
from remuda.base.ids import RoleId
from remuda.cli.child import Child
from remuda.fleet.room import Crew, Growth, Room
from remuda.fleet.tasks import retry_until_redis_returns
from remuda.store import Store

OPEN_AGAIN = 0.1


class Crews:
    """All crews of one herd. Misconfigured when one that is wanted at once cannot be started here."""

    def __init__(self, config: Config, rooms: Sequence[Room]) -> None:
        self._config = config
        self._demands = [demand for room in rooms if (demand := room.demand(config)).crews]
        self._killed: asyncio.Queue[tuple[Crew, RoleId]] = asyncio.Queue()
        self._children = [
            (crew, [self._child_of(crew) for _ in range(crew.count)], self._further_children_of(crew))
            for demand in self._demands
            for crew in demand.crews
        ]
        self.announced = asyncio.Event()
        """Set when clients can wait for what is started here."""

    def _child_of(self, crew: Crew, *, is_further: bool = False) -> Child:
        return Child(
            [crew.role],
            self._config.environ(),
            args=crew.args,
            is_vital=False,
            # A further one that leaves is not replaced unless clients wait again.
            hands_over=crew.hands_over and not is_further,
            rests=crew.rests or is_further,
            on_death=lambda role: self._killed.put_nowait((crew, role)),
        )

    def _further_children_of(self, crew: Crew) -> list[Child]:
        most = crew.growth.most if crew.growth else 0
        return [self._child_of(crew, is_further=True) for _ in range(most)]

    @property
    def children(self) -> list[Child]:
        return [child for _, first, further in self._children for child in (*first, *further)]

    async def keep_running(self, *, after: asyncio.Event) -> None:
        """Starts each crew when it is wanted, and keeps it running from then on."""
        async with AsyncExitStack() as stack:
            store = await self._open_store(stack)
            group = await stack.enter_async_context(asyncio.TaskGroup())
            group.create_task(self._bury_killed(store), name="clear away what killed processes leave")
            group.create_task(self._announce(store), name="announce what can be started")
            # They have time: clients that come earlier wait in line, and no other client is slowed down.
            await after.wait()
            for crew, first, further in self._children:
                group.create_task(self._keep(store, crew, first), name=f"keep {crew.role}")
                turn = asyncio.Lock()
                for child in further:
                    keeping = self._keep_further(store, crew, child, first=first, turn=turn)
                    group.create_task(keeping, name=f"keep further {crew.role}")

    async def _open_store(self, stack: AsyncExitStack) -> Store:
        """Redis, as soon as it answers. Should it never, the herd's other processes say so, and it ends."""
        herd = self._config[HerdConfig]
        while True:
            try:
                store = Store(herd.redis, prefix=herd.prefix, name="up")
                return await stack.enter_async_context(store)
            except StoreUnavailable:
                await asyncio.sleep(OPEN_AGAIN)

    async def _announce(self, store: Store) -> None:
        said = [asyncio.Event() for _ in self._demands]
        async with asyncio.TaskGroup() as group:
            for demand, event in zip(self._demands, said, strict=True):
                group.create_task(demand.announce(store, event), name="announce crews")
            for event in said:
                await event.wait()
            self.announced.set()

    async def _keep(self, store: Store, crew: Crew, children: Sequence[Child]) -> None:
        while True:
            await crew.wanted(store)
            async with asyncio.TaskGroup() as group:
                for child in children:
                    group.create_task(child.keep_running(), name=f"keep {child}")

    async def _keep_further(
        self, store: Store, crew: Crew, child: Child, *, first: Sequence[Child], turn: asyncio.Lock
    ) -> None:
        """Starts one more process whenever those that run are not enough, until it is idle."""
        assert crew.growth is not None
        for each in first:
            await each.ready.wait()
        while True:
            async with asyncio.TaskGroup() as group:
                # One at a time: it may be enough.
                async with turn:
                    await crew.growth.crowded(store)
                    running = group.create_task(child.keep_running(), name=f"keep {child}")
                    await child.ready.wait()
                dismissing = self._dismiss_when_idle(store, crew.growth, child)
                dismissal = group.create_task(dismissing, name=f"dismiss {child}")
                await running
                dismissal.cancel()

    async def _dismiss_when_idle(self, store: Store, growth: Growth, child: Child) -> None:
        while True:
            role = child.role
            await growth.idle(store, role)
            if child.role == role:  # Else it was killed meanwhile, and started again.
                child.ask_to_leave()
                return

    async def _bury_killed(self, store: Store) -> None:
        """Clears away what killed processes have left in Redis, as soon as it answers. Sweeps would do it
        when their keys have expired."""
        while True:
            crew, role = await self._killed.get()
            await retry_until_redis_returns(
                partial(crew.bury, store, role), failure="killed process not cleared away yet", role=role
            )

    def ask_to_leave(self) -> None:
        """Asks those that run to leave; they drain as long as the herd lets them."""
        for child in self.children:
            child.ask_to_leave()
