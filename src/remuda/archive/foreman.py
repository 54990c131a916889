"""The foreman's role, ArchiveBot's backend: acknowledges the heartbeats of jobs, takes jobs from dead
pipelines, and reads the logs of all jobs. Any number may run; one of them works."""

import asyncio

from remuda.archive.jobs import Jobs
from remuda.archive.logs import Logs
from remuda.archive.model import Ident
from remuda.archive.recovery import recover_orphans
from remuda.base import clock
from remuda.base.errors import LeaseLost, RemudaError, Unavailable
from remuda.base.log import get_logger
from remuda.fleet.liveness import Lease
from remuda.fleet.role import Role
from remuda.fleet.sweep import Patience
from remuda.fleet.tasks import repeat
from remuda.keyspace import archive
from remuda.keyspace.fleet import LEASE
from remuda.store import Store

log = get_logger(__name__)

LEASE_TTL = 15
CHECK_EVERY = 2.0
"""Seconds between two liveness checks, as in the original."""
PATIENCE = 5.0
"""Seconds for which a job without a lease is left alone: after an outage of Redis all leases are over,
although their pipelines are alive."""
READ_EVERY = 0.1


class Foreman(Role):
    """Looks after jobs that run."""

    name = "foreman"

    def __init__(
        self,
        store: Store,
        *,
        max_deaths: int,
        check_every: float = CHECK_EVERY,
        patience: float = PATIENCE,
        ask_every: float = LEASE_TTL / 3,
    ) -> None:
        super().__init__()
        self._store = store
        self._jobs = Jobs(store)
        self._logs = Logs(store)
        self._max_deaths = max_deaths
        self._check_every = check_every
        self._ask_every = ask_every
        self._silent = Patience(patience)
        self._working: set[Ident] = set()
        self._lease = Lease(store, LEASE(self.name), owner=self.id, ttl=LEASE_TTL)

    async def serve(self) -> None:
        while True:
            try:
                async with self._lease.held(), asyncio.TaskGroup() as group:
                    checks = repeat(self.check, every=self._check_every, failure="jobs not checked")
                    group.create_task(checks, name="check jobs")
                    group.create_task(self._read_logs(), name="read logs")
            except LeaseLost:
                log.debug("another foreman works")
            except Unavailable as error:
                log.warning("lease not asked for", reason=error.message)
            await asyncio.sleep(self._ask_every)

    async def check(self) -> int:
        """One liveness check; how many jobs were taken from dead pipelines."""
        over = await self._jobs.acknowledge()
        now = clock.monotonic()
        dead = [ident for ident in over if self._silent.is_over(ident, now=now)]
        self._silent.end_round()
        working = set(await self._jobs.working())
        for ident in working:  # For messages that were missed.
            await self._logs.digest(ident)
        for ident in working | self._working:  # A pipeline of other software may have taken or ended it.
            await self._jobs.follow(ident)
        self._working = working
        return await recover_orphans(self._store, dead, max_deaths=self._max_deaths)

    async def _read_logs(self) -> None:
        """Reads the logs of the jobs that `updates` names, for ever."""
        with self._store.subscribe(archive.UPDATES()) as updates:
            while True:
                for ident in dict.fromkeys(await updates.wait()):
                    try:
                        await self._logs.digest(Ident(ident))
                    except RemudaError as error:
                        log.warning("log not read", job=ident[:100], reason=error.message)
                # Many at a time: a message comes for each batch of entries.
                await asyncio.sleep(READ_EVERY)
