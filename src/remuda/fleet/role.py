"""A process's life, in four steps that every role goes through: start, serve, drain, stop.

Signals only set flags; the life reads them. The first SIGTERM or Ctrl-C asks for a drain (finish what is
under way), the second ends it at once. Several roles can share a process: they start in order and
leave in the opposite order, and if one of them fails, the process ends, so that it is restarted as a whole.
"""

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from remuda import __version__
from remuda.base import clock
from remuda.base.errors import Broken, RemudaError, Unavailable
from remuda.base.ids import RoleId, new_id
from remuda.base.log import get_logger
from remuda.base.processes import has_died, process_name
from remuda.fleet.lifeline import Lifeline
from remuda.fleet.liveness import RENEWALS_PER_TTL, FieldBeat, Heart
from remuda.fleet.tasks import Tasks, run_until
from remuda.keyspace.fleet import ROLE, ROLES
from remuda.store import Store
from remuda.store.commands import Commands, Value

log = get_logger(__name__)

RECORD_TTL = 15
BEAT_EVERY = RECORD_TTL / RENEWALS_PER_TTL
DRAIN_TIMEOUT = 20.0
STOP_PATIENCE = 5.0
"""So long a process that stops waits for a Redis that is away, with all its commands together: a fail-over
takes less. What it cannot give back then expires, or is swept."""

ROLE_ID = "REMUDA_ROLE_ID"
"""Where a parent says which id the one role of its child has, to know what it leaves if it is killed."""


class Role:
    """Something that a process does. Subclasses fill in the steps they need."""

    name: str = "role"
    address: str = ""
    """Where it listens, as `host:port`, once it has started."""
    scheme: str = "http"
    """What it speaks there: `http` or `https`."""
    warning: str = ""
    """What operators should know of its machine, if anything."""

    def __init__(self) -> None:
        self.id = RoleId(new_id())
        self.wants_to_leave = asyncio.Event()
        """Set by a role whose time has come: its process then drains and ends, as after a signal."""
        self.why_it_leaves = ""
        """What made it want to leave, for the log."""
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

    async def reload(self) -> None:
        """Reads again what it can take over without a restart, such as a certificate."""

    def leave(self, why: str) -> None:
        """Has its process drain and end."""
        self.why_it_leaves = why
        self.wants_to_leave.set()


@dataclass(frozen=True, kw_only=True)
class RoleBeat(FieldBeat):
    """The record of a role that runs, and its place in the list of all."""

    role: RoleId

    def write(self, commands: Commands) -> None:
        super().write(commands)
        commands.zadd(ROLES(), {self.role: clock.now()})


class Life:
    """Runs roles from start to stop. `stop_asked` ends the serving, `hurry` ends the draining."""

    def __init__(self, store: Store, roles: Sequence[Role], *, drain_timeout: float = DRAIN_TIMEOUT) -> None:
        self._store = store
        self._roles = list(roles)
        for role in self._roles:
            role.is_alone = len(self._roles) == 1
        self._drain_timeout = drain_timeout
        self._started_at = clock.rfc3339()
        self._process = process_name(os.getpid())
        self._heart = Heart(store)
        self.on_ready: Callable[[], None] = lambda: None
        """Called when all roles serve."""
        self.on_leaving: Callable[[], None] = lambda: None
        """Called when they begin to drain."""
        self.stop_asked = asyncio.Event()
        self.hurry = asyncio.Event()
        self._why = "a role failed"
        self._tasks = Tasks()

    def ask_stop(self, why: str = "it was told to") -> None:
        """What a signal does: first asks to leave, then to hurry."""
        if self.stop_asked.is_set():
            self.hurry.set()
        else:
            self._why = why
            self.stop_asked.set()

    def ask_stop_at_once(self, why: str = "it was told to") -> None:
        """Asks to leave, whatever is under way."""
        self.ask_stop(why)
        self.hurry.set()

    def ask_reload(self) -> None:
        """Has every role read again what it can."""
        for role in self._roles:
            self._tasks.spawn(self._reload(role), name=f"reload {role.name}")

    async def _reload(self, role: Role) -> None:
        try:
            await role.reload()
        except Exception as error:  # What it had before stays in force.
            _log_failure("reload failed", role, error)
        else:
            log.info("reloaded", role=role.name)

    async def run(self, lifeline: Lifeline | None = None) -> None:
        """The whole life. Raises what made a role fail."""
        started: list[Role] = []
        try:
            # Given up half-way when it is asked to stop: a start can take long.
            await run_until(self.stop_asked.wait(), self._start_in_order(started), name="start")
            if self.stop_asked.is_set():
                return
            await self._announce()
            for role in self._roles:
                where = {"listening": role.address} if role.address else {}
                log.info("started", role=role.name, id=role.id, version=__version__, **where)
            if lifeline is not None:
                lifeline.say_ready()
            self.on_ready()
            await self._serve()
            if lifeline is not None:
                lifeline.say_leaving()
            self.on_leaving()
            await self._drain(started)
        finally:
            asyncio.get_running_loop().call_later(STOP_PATIENCE, self._store.hasten)
            for role in started:
                try:
                    await role.stop()
                except Exception as error:  # One role that cannot stop must not keep the others from it.
                    _log_failure("stop failed", role, error)
            await self._withdraw()
            log.info("left", roles=[role.name for role in self._roles], why=self._why)

    async def _start_in_order(self, started: list[Role]) -> None:
        for role in self._roles:
            started.insert(0, role)
            await role.start()

    async def _serve(self) -> None:
        tasks = [asyncio.create_task(role.serve(), name=f"serve {role.name}") for role in self._roles]
        tasks.append(asyncio.create_task(self._heart.run(), name="beat of the roles"))
        ends = [asyncio.create_task(self.stop_asked.wait(), name="stop asked")]
        ends += [asyncio.create_task(role.wants_to_leave.wait(), name="leave") for role in self._roles]
        try:
            done, _ = await asyncio.wait([*ends, *tasks], return_when=asyncio.FIRST_COMPLETED)
            for task in done.difference(ends):
                task.result()
                raise Broken(f"{task.get_name()} ended by itself")
            if not self.stop_asked.is_set():
                self._why = next((role.why_it_leaves for role in self._roles if role.why_it_leaves), "")
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

    # The record in Redis

    async def _announce(self) -> None:
        await drop_dead_roles(self._store)
        for role in await running_roles(self._store):
            if not are_compatible(__version__, role["version"]):
                log.warning(
                    "versions too far apart", own=__version__, role=role["name"], version=role["version"]
                )
        await self._heart.start(*map(self._beat, self._roles))

    def _beat(self, role: Role) -> RoleBeat:
        def record() -> dict[str, Value]:
            return {
                "name": role.name,
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "version": __version__,
                "startedAt": self._started_at,
                "beatAt": clock.rfc3339(),
                "address": role.address,
                "scheme": role.scheme,
                "process": self._process,
                "warning": role.warning,
            }

        return RoleBeat(ROLE(role.id), record, BEAT_EVERY, RECORD_TTL, role=role.id)

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
    """Has SIGTERM and Ctrl-C ask the life to stop, and SIGHUP to reload; in a terminal, that is the signal of
    its end, and so of the life's."""
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT, *([signal.SIGHUP] if os.isatty(0) else [])):
        loop.add_signal_handler(signum, life.ask_stop, signum.name)
    if not os.isatty(0):
        loop.add_signal_handler(signal.SIGHUP, life.ask_reload)


def are_compatible(one: str, other: str) -> bool:
    """Whether roles of these versions may run in one herd, as during an upgrade: what one minor version
    writes to Redis, or asks of another process, the next and the previous one understand."""
    try:
        (major, minor), (other_major, other_minor) = (map(int, each.split(".")[:2]) for each in (one, other))
    except ValueError:  # Not a version of ours.
        return False
    return major == other_major and abs(minor - other_minor) <= 1


async def drop_dead_roles(store: Store) -> None:
    """Withdraws the records of this machine's processes that were killed. They would be believed until they
    expire, and requests for such a role would be sent to a port where nothing listens."""
    dead = [role["id"] for role in await running_roles(store) if has_died(role.get("process", ""))]
    if dead:
        async with store.transaction() as transaction:
            for role_id in dead:
                transaction.delete(ROLE(role_id))
            transaction.zrem(ROLES(), *dead)


async def running_roles(store: Store) -> list[dict[str, str]]:
    """The records of all roles that beat, each with its `id`, in the order of their start."""
    # Not by their scores: the clocks of machines differ, and a Redis without memory takes no new score. The
    # record lives on in it.
    replies = [(role_id, store.hgetall(ROLE(role_id))) for role_id in await store.zrange(ROLES())]
    records = [(role_id, await reply) for role_id, reply in replies]
    # A role that beats is back with its next beat.
    if gone := [role_id for role_id, record in records if not record]:
        await store.zrem(ROLES(), *gone)
    found = [{"id": role_id, **record} for role_id, record in records if record]
    return sorted(found, key=lambda record: (record["startedAt"], record["name"]))
