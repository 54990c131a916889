"""The metering role: replays, rolls up and drops. Any number may run: each replays the spool of its own
machine, and one of them does the rest, under a lease."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from remuda.base.errors import LeaseLost, RemudaError
from remuda.base.log import get_logger
from remuda.fleet.bell import bell_of
from remuda.fleet.liveness import Lease
from remuda.fleet.role import Role
from remuda.fleet.tasks import repeat
from remuda.keyspace.fleet import LEASE
from remuda.metering.forget import Forgetting
from remuda.metering.replay import Replay
from remuda.metering.rollup import Rollup
from remuda.store import Store

log = get_logger(__name__)

LEASE_TTL = 30
ROLL_EVERY = 30.0
DROP_EVERY = 3600.0
LOOK_EVERY = 2.0
"""Seconds between two looks for segments that processes of this machine have left: they cost no request."""


Step = Callable[[], Coroutine[Any, Any, object]]


class MeteringRole(Role):
    """Keeps usage complete and small."""

    name = "metering"

    def __init__(
        self,
        store: Store,
        replay: Replay,
        rollup: Rollup,
        forgetting: Forgetting,
        *,
        replay_every: float,
        roll_every: float = ROLL_EVERY,
        steps: Sequence[tuple[Step, float]] = (),
    ) -> None:
        """`steps` are done too, every so many seconds, by one process at a time."""
        super().__init__()
        self._store = store
        self._replay = replay
        self._rollup = rollup
        self._replay_every = replay_every
        self._roll_every = roll_every
        self._forgetting = forgetting
        self._steps = steps

    async def serve(self) -> None:
        async with asyncio.TaskGroup() as group:
            # A subscription wakes up when Redis is back: then what was spooled is counted at once.
            with self._store.subscribe(bell_of(self.name)) as rings:
                group.create_task(
                    repeat(
                        self._replay.replay_spool,
                        every=min(self._replay_every, LOOK_EVERY),
                        rings=rings,
                        failure="spool not replayed",
                        survives=(OSError,),
                    ),
                    name="replay the spool",
                )
                for step, every in (
                    (self._replay.replay_lists, self._replay_every),
                    (self._roll, self._roll_every),
                    (self._rollup.drop_old, DROP_EVERY),
                    *self._steps,
                ):
                    group.create_task(self._repeat_alone(step, every), name=f"metering {step.__name__}")
                await asyncio.Event().wait()

    async def _roll(self) -> None:
        await self._rollup.run_once()
        await self._forgetting.run_once()

    async def _repeat_alone(self, step: Step, every: float) -> None:
        lease = Lease(
            self._store, LEASE(f"metering:{step.__name__.strip('_')}"), owner=self.id, ttl=LEASE_TTL
        )

        async def do() -> None:
            try:
                async with lease.held():
                    await step()
            except LeaseLost:
                log.debug("another process does it", step=step.__name__)
            except RemudaError:
                raise
            except Exception as error:  # A day that cannot be read must not end the roles beside this one.
                log.error("metering step failed", step=step.__name__, reason=str(error), exc_info=True)

        with self._store.subscribe(bell_of(self.name)) as rings:
            await repeat(do, every=every, rings=rings, failure=f"metering {step.__name__} failed")
