"""A place for every client: at once where there is one, else in its turn.

Clients of one browser and version stand in one line, whichever gateway they came to. Those of different
versions do not wait for each other, since no worker could serve both.
"""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress

from remuda.base import clock
from remuda.base.errors import Draining, NoWorker, StoreUnavailable, Unavailable
from remuda.base.ids import WorkerId, new_id
from remuda.fleet.bell import bell_of
from remuda.fleet.line import Lines
from remuda.fleet.line import Place as Standing
from remuda.keyspace.playwright import ANY_VERSION
from remuda.playwright.book import freed_bell
from remuda.playwright.connections import Connections
from remuda.playwright.demand import check_startable
from remuda.playwright.model import Browser, Outcome, Place
from remuda.playwright.wish import Wish
from remuda.store import Store

# Of each version. More than are tried before a client has found its worker, and few enough for every pick.
MOST_UNSUITED = 100
# After a Redis that may have lost its data: workers and starters have told it of themselves again by then.
UNSURE = 15.0
# Gateways and workers are often started together, and a gateway is there first.
EARLY = 60.0
# Redis may be gone for a moment only.
LOOK_AGAIN = 0.2


class WaitingRoom:
    """Where the clients of one gateway get their places. Run `run()` as a task of the gateway's."""

    def __init__(
        self,
        store: Store,
        connections: Connections,
        *,
        patience: float,
        longest: int,
        expected: Collection[Browser] = (),
    ) -> None:
        self._store = store
        self._connections = connections
        self._lines = Lines(store)
        self._patience = patience
        self._longest = longest
        self._expected = expected
        """Browsers that something else starts."""
        self._limits: set[asyncio.Timeout] = set()
        self._unsuited: dict[str, dict[WorkerId, None]] = {}
        """By version, workers that have refused it. An id is one worker's for ever, and so is its version."""
        self._began = clock.monotonic()
        self._unsure_until = 0.0
        self._offered_until: dict[Browser, float] = {}
        """When this gateway last saw that there are workers of a browser, and for how long that counts."""
        self._is_closed = False

    async def run(self) -> None:
        """Keeps the places in line of those who wait, until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._lines.run(), name="keep lines")
            group.create_task(self._watch_redis(), name="watch for the return of Redis")

    async def _watch_redis(self) -> None:
        # Nobody rings this bell: only the return of Redis is heard.
        with self._store.subscribe(bell_of("playwright:returns")) as rings:
            while True:
                await rings.wait()
                self._unsure_until = clock.monotonic() + UNSURE

    def close(self) -> None:
        """Sends away those who wait, and all who come."""
        self._is_closed = True
        for limit in self._limits:
            limit.reschedule(asyncio.get_running_loop().time())

    async def find(self, wish: Wish, *, came: float, failed: Collection[WorkerId] = ()) -> Place:
        """A place, before the patience is over. BrowserNotOffered or VersionNotOffered at once, LineFull or
        Unavailable.

        The client `came` at this moment of the monotonic clock. `failed` are workers that it has
        tried in vain.
        """
        async with self._open():
            while True:
                try:
                    return await self._find(wish, came=came, failed=failed)
                except StoreUnavailable:
                    if clock.monotonic() > came + self._patience:
                        raise
                    await asyncio.sleep(LOOK_AGAIN)

    def note_unsuited(self, worker: WorkerId, version: str) -> None:
        """Remembers that this worker refuses clients of this version, for all who come."""
        known = self._unsuited.setdefault(version, {})
        known[worker] = None
        if len(known) > MOST_UNSUITED:
            del known[next(iter(known))]

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[None]:
        if self._is_closed:
            raise Draining
        try:
            async with asyncio.timeout(None) as limit:
                self._limits.add(limit)
                yield
        except TimeoutError:
            raise Draining from None
        finally:
            self._limits.discard(limit)

    async def _find(self, wish: Wish, *, came: float, failed: Collection[WorkerId]) -> Place:
        line = f"playwright:{wish.browser}:{wish.version or ANY_VERSION}"
        # Whoever was let down by a worker has had its turn, and does not start again at the end of the line.
        if failed or await self._lines.is_empty(line):
            try:
                place = await self._pick(wish, came=came, failed=failed)
                if place is not None:
                    return place
            except NoWorker:
                await self._check_startable(wish.browser)
        return await self._wait_in_line(line, wish, came=came)

    async def _pick(self, wish: Wish, *, came: float, failed: Collection[WorkerId] = ()) -> Place | None:
        waited = clock.monotonic() - came
        place = await self._connections.open(
            wish.browser,
            version=wish.version,
            waited=waited,
            excluded=failed,
            unsuited=list(self._unsuited.get(wish.version, ())),
        )
        self._offered_until[wish.browser] = clock.monotonic() + UNSURE
        return place

    async def _check_startable(self, browser: Browser) -> None:
        """BrowserNotOffered if it is certain that nothing would start a worker of this browser."""
        if clock.monotonic() > max(self._unsure_until, self._offered_until.get(browser, 0.0)):
            is_early = clock.monotonic() < self._began + EARLY
            await check_startable(self._store, browser, expected=self._expected, is_early=is_early)

    async def _wait_in_line(self, line: str, wish: Wish, *, came: float) -> Place:
        failure = Unavailable(f"No {wish} became free within {self._patience:g} s")

        # Nobody is excluded here: who stands first in line must not leave a place to nobody. A worker that
        # failed is not picked before it has beaten again.
        async def look() -> Place | None:
            nonlocal failure
            try:
                return await self._pick(wish, came=came)
            except NoWorker as error:
                await self._check_startable(wish.browser)
                failure = NoWorker(f"{error.message}, and none came within {self._patience:g} s")
                return None
            except StoreUnavailable:
                return None

        found = None
        try:
            async with self._lines.wait(line, new_id(), longest=self._longest) as standing:
                timeout = max(0.0, came + self._patience - clock.monotonic())
                found = await standing.served(freed_bell(wish.browser), look, timeout=timeout)
                if found is None:
                    raise type(failure)(
                        f"{failure.message}; {await _position(standing)}", retry_after=self._patience
                    )
        except BaseException:
            # Leaving the line takes a moment, in which the client may leave too.
            if found is not None:
                self._connections.close(found, Outcome.UNUSED)
            raise
        return found


async def _position(standing: Standing) -> str:
    with suppress(Unavailable):
        await standing.join()
    ahead = standing.position - 1
    return "nobody was ahead in line" if ahead < 1 else f"{ahead} were ahead in line"
