"""The gc role: every room's sweeps, under one lease. Any number may run; one of them works.

A sweep that fails is logged and does not keep the others from theirs. Whatever a killed gc leaves half
done, the next one finishes: each sweep looks at what is there, not at what was done before.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping

from remuda.base.errors import LeaseLost, RemudaError, Unavailable
from remuda.base.log import get_logger
from remuda.fleet.liveness import Lease
from remuda.fleet.role import Role
from remuda.fleet.sweep import Sweep
from remuda.keyspace.fleet import LEASE
from remuda.store import Store

log = get_logger(__name__)

LEASE_TTL = 15
# Not more often: a few seconds without a gc do no harm.
ASK_EVERY = LEASE_TTL / 3


class Gc(Role):
    """Sweeps what the dead left behind."""

    name = "gc"

    def __init__(
        self, store: Store, sweeps: Mapping[str, Sweep], *, interval: float, ask_every: float = ASK_EVERY
    ) -> None:
        super().__init__()
        self._sweeps = sweeps
        self._interval = interval
        self._ask_every = ask_every
        self._lease = Lease(store, LEASE(self.name), owner=self.id, ttl=LEASE_TTL)

    async def serve(self) -> None:
        while True:
            try:
                async with self._lease.held():
                    while True:
                        await self.run_once()
                        await asyncio.sleep(self._interval)
            except LeaseLost:
                log.debug("another gc works")
            except Unavailable as error:
                log.warning("lease not asked for", reason=error.message)
            await asyncio.sleep(self._ask_every)

    async def run_once(self) -> Counter[str]:
        """Runs each sweep once; what they did."""
        done = Counter[str]()
        for name, sweep in self._sweeps.items():
            try:
                done += await sweep()
            except RemudaError as error:
                log.warning("sweep failed", sweep=name, reason=error.message)
            except Exception as error:  # A bug in one sweep must not let the rest pile up.
                log.error("sweep failed", sweep=name, reason=str(error), exc_info=True)
        if done:
            log.info("swept", **done)
        return done
