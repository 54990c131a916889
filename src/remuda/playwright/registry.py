"""The registry of workers, from the worker's side. What a worker says of itself is the truth: when Redis has
lost it, the next beat writes it down again, drain included.
"""

from remuda.base import clock
from remuda.base.ids import WorkerId
from remuda.base.log import get_logger
from remuda.keyspace.key import ChannelName
from remuda.keyspace.playwright import ACTIVE_CONNECTIONS, WORKER_COMMAND
from remuda.playwright.book import BOOK, load
from remuda.playwright.model import ServedBrowser, Status, Worker, WorkerSurplus
from remuda.store import Store

log = get_logger(__name__)

_ANNOUNCE = load(
    "announce.lua",
    *("worker", "endpoint", "version", "status", "seconds", "newcomer", "since", "obstacle"),
)
_CORRECT = load("correct.lua", "worker", "surplus")
_LEAVE = load("leave.lua", "worker", "seconds")

SHUTDOWN = "shutdown"

# Until then a worker that left counts as restarting, unless a new one comes: as long as a machine may take to
# start a browser, but not so long that a fleet which was made smaller cannot restart its workers any more.
REPLACED_WITHIN = 60


async def bury(store: Store, browser: ServedBrowser, worker: WorkerId) -> None:
    """Takes a killed worker out of the registry. The process that started it notices the kill at once."""
    await store.run(_LEAVE, keys=BOOK[browser], args=[worker, REPLACED_WITHIN])


class Registry:
    """One worker's entry. `beat` every `HEARTBEAT_INTERVAL`; all else when it happens."""

    def __init__(self, store: Store, worker: Worker, *, key_ttl: int, lease: float) -> None:
        self._store = store
        self._worker = worker
        self._key_ttl = key_ttl
        self._lease = lease
        self._status = Status.AVAILABLE
        self._lost_until = 0.0
        self._started = int(clock.now() * 1000)
        self._surplus = WorkerSurplus(patience=lease)

    @property
    def command_channel(self) -> ChannelName:
        """Rung with a command: only to be faster than the next beat, the key is the truth."""
        return ChannelName(WORKER_COMMAND(self._worker.browser, self._worker.id))

    async def register(self, *, obstacle: str | None = None) -> None:
        """Makes the worker known, which has just started."""
        await self._announce(newcomer=True, obstacle=obstacle)

    async def beat(self, *, sockets: int | None = None, obstacle: str | None = None) -> bool:
        """Says that the worker is alive; whether it is told to shut down.

        With an obstacle, it takes no new connections until a beat without one.
        With the number of clients that are connected to it, its counter is corrected: what a proxy of another
        make has counted and never takes off again is gone after a lease.
        """
        command, was_lost, shown, leased = await self._announce(obstacle=obstacle)
        if was_lost:
            self._lost_until = clock.monotonic() + self._lease
        if sockets is not None and (
            surplus := self._surplus.look(shown - max(leased, sockets), clock.monotonic())
        ):
            corrected = await self._store.run(
                _CORRECT, keys=BOOK[self._worker.browser], args=[self._worker.id, surplus]
            )
            log.info("count of connections corrected", worker=self._worker.id, surplus=corrected)
        return command == SHUTDOWN

    async def drain(self) -> None:
        """No new connection from now on, whatever happens to Redis; the command that asked for it is done."""
        self._status = Status.DRAINING
        await self._announce()
        await self._store.delete(WORKER_COMMAND(self._worker.browser, self._worker.id))

    async def active(self) -> int | None:
        """How many connections the worker serves; None as long as that cannot be known."""
        # Gateways tell Redis again of connections that it has lost, each within a lease. A worker that drains
        # must not take an empty book for an idle browser.
        if clock.monotonic() < self._lost_until:
            return None
        count = await self._store.hget(ACTIVE_CONNECTIONS(), f"{self._worker.browser}:{self._worker.id}")
        return None if count is None else int(count)

    async def leave(self) -> None:
        """Takes the worker out of the registry, and with it what is left of its connections."""
        await bury(self._store, self._worker.browser, self._worker.id)

    async def _announce(
        self, *, newcomer: bool = False, obstacle: str | None = None
    ) -> tuple[str | None, bool, int, int]:
        worker = self._worker
        command, was_unknown, shown, leased = await self._store.run(
            _ANNOUNCE,
            keys=BOOK[worker.browser],
            args=[
                worker.id,
                worker.endpoint,
                worker.offer,
                self._status,
                self._key_ttl,
                "1" if newcomer else "",
                self._started,
                obstacle or "",
            ],
        )
        return command, bool(was_unknown), shown, leased
