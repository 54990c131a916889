"""Whether a request still fits into Redis. Refused before anything is written: a Redis that is full could not
even take down how a session ends."""

from collections import Counter

from remuda.base.errors import StoreFull
from remuda.base.log import get_logger
from remuda.fleet.fairness import leaves_as_much
from remuda.fleet.tasks import repeat
from remuda.grid.omission import Requested
from remuda.keyspace import grid
from remuda.store import Store
from remuda.store.memory import FULL, NEARLY_FULL, Memory, read_memory

log = get_logger(__name__)

LOOK_EVERY = 1.0
IN_TRANSIT = 3
"""How often a request takes its size while Redis takes it in: in the buffer it comes by, as a value, and in
the buffer for the disk."""


class Admission:
    """What a manager asks before it writes a session down. Run `run()` as a task of the owner's."""

    def __init__(self, store: Store, *, waiting_bytes: int) -> None:
        self._store = store
        self._waiting_bytes = waiting_bytes
        self._memory = Memory(0, 0)
        self._since = 0
        """Bytes that were admitted since the last look."""
        self._has_warned = False

    async def run(self) -> None:
        """Looks at the memory of Redis for ever."""
        await repeat(self.look, every=LOOK_EVERY, failure="memory of redis unknown")

    async def look(self) -> None:
        """Reads how much memory there is, and warns before it runs out."""
        self._since = 0
        self._memory = await read_memory(self._store)
        is_short = self._memory.share >= NEARLY_FULL
        if is_short and not self._has_warned:
            log.warning("redis nearly full", used=self._memory.used, limit=self._memory.limit)
        self._has_warned = is_short

    async def admit(self, requested: Requested, *, account: str = "") -> None:
        """Takes note of a request that is about to be written; StoreFull when it does not fit. Where accounts
        share the memory for large ones, each leaves others as much as it takes."""
        size = len(requested.whole) + len(requested.short or b"")
        limit = self._memory.limit
        if limit and self._memory.used + self._since + IN_TRANSIT * size > FULL * limit:
            raise StoreFull(
                f"Redis is full: {self._memory} are in use, which leaves too little for a request of "
                f"{size / 1e6:.1f} MB. No session was created; see the option redis_megabytes"
            )
        if requested.short is not None:
            await self._check_waiting(len(requested.whole), account)
        self._since += size

    async def _check_waiting(self, size: int, account: str) -> None:
        waiting: Counter[str] = Counter()
        for each in await self._store.hvals(grid.REQUESTS_LARGE()):
            size_of_one, _, by = each.partition(" ")
            waiting[by] += int(size_of_one)
        held, theirs, room = waiting.total(), waiting[account], self._waiting_bytes
        if account and not leaves_as_much(size, theirs=theirs, held=held, room=room):
            whose, taken = f" of the account {account!r}", theirs
        elif held + size > room:
            whose, taken = "", held
        else:
            return
        raise StoreFull(
            f"Requests with large capabilities{whose} take {taken / 1e6:.0f} of {room / 1e6:.0f} MB "
            f"while they wait for a browser, and this one takes {size / 1e6:.0f}; try again later, or see "
            "the option waiting_megabytes"
        )
