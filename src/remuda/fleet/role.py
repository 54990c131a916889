"""A process's life, in four steps that every role goes through: start, serve, drain, stop.

Signals only set flags; the life reads them. The first SIGTERM or Ctrl-C asks for a drain (finish what is
under way), the second ends it at once. Several roles can share a process: they start in order and
leave in the opposite order, and if one of them fails, the process ends so that somebody restarts it whole.
"""

import asyncio
import os
import signal
import socket
from collections.abc import Sequence
from contextlib import suppress

from remuda import __version__
from remuda.base import clock
from remuda.base.errors import Broken, RemudaError, Unavailable
from remuda.base.ids import RoleId, new_id
from remuda.base.log import get_logger
from remuda.fleet.lifeline import Lifeline
from remuda.keyspace.fleet import ROLE, ROLES
from remuda.store import Store

log = get_logger(__name__)

RECORD_TTL = 15
# Beat at a third of the TTL: two lost packets must not look like a death.
BEAT_EVERY = RECORD_TTL / 3
DRAIN_TIMEOUT = 20.0

ROLE_ID = "REMUDA_ROLE_ID"
"""Where a parent says which id the one role of its child has, to know what it leaves if it is killed."""


class Role:
    """Something that a process does. Subclasses fill in the steps they need."""

    name: str = "role"
    address: str = ""
    """Where it listens, as `host:port`, once it has started."""

    def __init__(self) -> None:
        self.id = RoleId(new_id())
        self.wants_to_leave = asyncio.Event()
        """Set by a role whose time has come: its process then drains and ends, as after a signal."""
        self.is_alone = False
        """Whether it has its process to itself, so that its end takes no other role along."""

    async def start(self) -> None:
        """Takes what it needs; raises if it cannot be had."""

    async def serve(self) -> None:
        """Does its work until it is cancelled."""
        await asyncio.Event().wait()

    async def drain(self) -> None:
        """Takes no new work and finishes what is under way."""

    async def stop(self) -> None:
        """Gives back everything that it took. Must also work after a start that failed half-way."""


class Life:
    """Runs roles from start to stop. `stop_asked` ends the serving, `hurry` ends the draining."""

    def __init__(self, store: Store, roles: Sequence[Role], *, drain_timeout: float = DRAIN_TIMEOUT) -> None:
        self._store = store
        self._roles = list(roles)
        for role in self._roles:
            role.is_alone = len(self._roles) == 1
        self._drain_timeout = drain_timeout
        self._started_at = clock.rfc3339()
        self.stop_asked = asyncio.Event()
        self.hurry = asyncio.Event()

    def ask_stop(self) -> None:
        """What a signal does: first asks to leave, then to hurry."""
        (self.hurry if self.stop_asked.is_set() else self.stop_asked).set()

    def ask_stop_at_once(self) -> None:
        """Asks to leave, whatever is under way."""
        self.stop_asked.set()
        self.hurry.set()

    async def run(self, lifeline: Lifeline | None = None) -> None:
        """The whole life. Raises what made a role fail."""
        started: list[Role] = []
        try:
            await self._start(started)
            if self.stop_asked.is_set():
                return
            await self._announce()
            if lifeline is not None:
                lifeline.say_ready()
            await self._serve()
            if lifeline is not None:
                lifeline.say_leaving()
            await self._drain(started)
        finally:
            for role in started:
                await self._stop(role)
            await self._withdraw()

    async def _start(self, started: list[Role]) -> None:
        """Starts the roles, or gives up half-way when it is asked to stop: a start can take long."""
        starts = asyncio.create_task(self._start_in_order(started), name="start")
        stop = asyncio.create_task(self.stop_asked.wait(), name="stop asked")
        try:
            await asyncio.wait([starts, stop], return_when=asyncio.FIRST_COMPLETED)
            if starts.done():
                starts.result()
        finally:
            for task in (starts, stop):
                task.cancel()
            await asyncio.gather(starts, stop, return_exceptions=True)

    async def _start_in_order(self, started: list[Role]) -> None:
        for role in self._roles:
            started.insert(0, role)
            await role.start()

    async def _serve(self) -> None:
        tasks = [asyncio.create_task(role.serve(), name=f"serve {role.name}") for role in self._roles]
        tasks.append(asyncio.create_task(self._beat(), name="beat of the roles"))
        ends = [asyncio.create_task(self.stop_asked.wait(), name="stop asked")]
        ends += [asyncio.create_task(role.wants_to_leave.wait(), name="leave") for role in self._roles]
        try:
            done, _ = await asyncio.wait([*ends, *tasks], return_when=asyncio.FIRST_COMPLETED)
            for task in done.difference(ends):
                task.result()
                raise Broken(f"{task.get_name()} ended by itself")
        finally:
            for task in (*ends, *tasks):
                task.cancel()
            await asyncio.gather(*ends, *tasks, return_exceptions=True)

    async def _drain(self, roles: Sequence[Role]) -> None:
        drains = asyncio.create_task(self._drain_in_order(roles), name="drain")
        hurry = asyncio.create_task(self.hurry.wait(), name="hurry")
        await asyncio.wait([drains, hurry], timeout=self._drain_timeout, return_when=asyncio.FIRST_COMPLETED)
        if not drains.done():
            log.warning("drain cut short", reason="asked twice" if self.hurry.is_set() else "time is up")
        for task in (drains, hurry):
            task.cancel()
        await asyncio.gather(drains, hurry, return_exceptions=True)

    async def _drain_in_order(self, roles: Sequence[Role]) -> None:
        for role in roles:
            try:
                await role.drain()
            except Exception as error:  # One role that cannot drain must not keep the others from it.
                _log_failure("drain failed", role, error)

    async def _stop(self, role: Role) -> None:
        try:
            await role.stop()
        except Exception as error:  # Nor from stopping.
            _log_failure("stop failed", role, error)

    # The record in Redis

    async def _announce(self) -> None:
        now = clock.now()
        async with self._store.transaction() as transaction:
            for role in self._roles:
                transaction.hset(ROLE(role.id), self._record(role, now))
                transaction.expire(ROLE(role.id), RECORD_TTL)
                transaction.zadd(ROLES(), {role.id: now})
            transaction.zremrange_by_score(ROLES(), "-inf", now - RECORD_TTL)

    def _record(self, role: Role, now: float) -> dict[str, str | int]:
        return {
            "name": role.name,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "version": __version__,
            "startedAt": self._started_at,
            "beatAt": clock.rfc3339(now),
            "address": role.address,
        }

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_EVERY)
            with suppress(
                Unavailable
            ):  # The store has logged it, and a missed beat is made good by the next.
                await self._announce()

    async def _withdraw(self) -> None:
        try:
            async with self._store.transaction() as transaction:
                for role in self._roles:
                    transaction.delete(ROLE(role.id))
                    transaction.zrem(ROLES(), role.id)
        except Unavailable as error:
            log.warning("roles not withdrawn", reason=error.message)


def _log_failure(event: str, role: Role, error: Exception) -> None:
    log.error(event, role=role.name, reason=str(error), exc_info=not isinstance(error, RemudaError))


def install_signals(life: Life) -> None:
    """Has SIGTERM and Ctrl-C ask the life to stop."""
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, life.ask_stop)


async def running_roles(store: Store) -> list[dict[str, str]]:
    """The records of all roles that beat, each with its `id`, in the order of their start."""
    ids = await store.zrange_by_score(ROLES(), clock.now() - RECORD_TTL, "+inf")
    records = [(role_id, store.hgetall(ROLE(role_id))) for role_id in ids]
    found = [{"id": role_id, **record} for role_id, reply in records if (record := await reply)]
    return sorted(found, key=lambda record: (record["startedAt"], record["name"]))
