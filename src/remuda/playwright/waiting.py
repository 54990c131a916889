"""A place for every client: at once where there is one, else in its turn.

Workers of one browser and version have one line (fleet/line.py), which all gateways share, and so have those
that do not tell their version. A client stands in the line of every version that can serve it: its own and
those that do not tell theirs, or all of them if it does not tell its own. So a place goes to the account with
the fewest browsers among all that the worker can serve, and clients that no worker could both serve do not
wait for each other.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager, suppress

from remuda.base import clock
from remuda.base.errors import Draining, NoWorker, StoreUnavailable, Unavailable
from remuda.base.ids import WorkerId, new_id
from remuda.fleet.bell import LOOK_EVERY, bell_of
from remuda.fleet.line import LinePlace, Lines
from remuda.fleet.tasks import repeat
from remuda.fleet.uses import Uses
from remuda.keyspace.playwright import ANY_VERSION, PLAYWRIGHT_OBSTACLES, PLAYWRIGHT_OFFERS
from remuda.playwright.book import freed_bell
from remuda.playwright.connections import Connections
from remuda.playwright.demand import check_startable
from remuda.playwright.model import Outcome, Place, ServedBrowser
from remuda.playwright.wish import PlaywrightWish
from remuda.store import Store

# Of each version. More than are tried before a client has found its worker, and few enough for every pick.
MOST_UNSUITED = 100
# After a Redis that may have lost its data: workers and starters have told it of themselves again by then.
UNSURE = 15.0
# Gateways and workers are often started together, and a gateway is there first.
EARLY = 60.0
# Redis may be gone for a moment only.
LOOK_AGAIN = 0.2


def line_of(browser: ServedBrowser, offer: str) -> str:
    """The line of clients that wait for a worker of this version."""
    return f"playwright:{browser}:{offer}"


def ticket_of(version: str) -> str:
    """A new ticket; it tells the version of its client, which the line does not."""
    return f"{version or ANY_VERSION}:{new_id()}"


def offers_for(version: str, offers: Iterable[str], *, is_refused: bool) -> list[str]:
    """Of the versions on offer, those whose workers serve this client for all that is known.

    A version that `is_refused` by a worker that does not tell its own does not wait for such workers: at the
    head of their line it would hold up those that they serve.
    """
    if not version:
        return list(offers)
    return [each for each in offers if each == version or (each == ANY_VERSION and not is_refused)]


class WaitingRoom:
    """Where the clients of one gateway get their places. Run `run()` as a task of the gateway's."""

    def __init__(
        self,
        store: Store,
        connections: Connections,
        uses: Uses,
        *,
        patience: float,
        longest: int,
        expected: Collection[ServedBrowser] = (),
    ) -> None:
        self._store = store
        self._connections = connections
        self._uses = uses
        self._lines = Lines(store)
        self._patience = patience
        self._longest = longest
        self._expected = expected
        """Browsers that something else starts."""
        self._limits: set[asyncio.Timeout] = set()
        self._waiting: dict[LinePlace, tuple[PlaywrightWish, list[str]]] = {}
        """What each wants, and by which offers its lines were chosen."""
        self._unsuited: dict[str, dict[WorkerId, None]] = {}
        """By version, workers that have refused it. An id is one worker's for ever, and so is its version."""
        self._began = clock.monotonic()
        self._unsure_until = 0.0
        self._offered_until: dict[ServedBrowser, float] = {}
        """When this gateway last saw that there are workers of a browser, and for how long that counts."""
        self._is_closed = False

    async def run(self) -> None:
        """Keeps the places in line of waiting clients, until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._lines.run(), name="keep lines")
            group.create_task(self._watch_redis(), name="watch for the return of Redis")
            follow = repeat(self._follow_offers, every=LOOK_EVERY, failure="offers not looked at")
            group.create_task(follow, name="follow offers")

    async def _follow_offers(self) -> None:
        """Moves waiting clients to the lines in which they can be served now."""
        browsers = {wish.browser for wish, _ in self._waiting.values()}
        offers = {browser: await self._read_offers(browser) for browser in browsers}
        for place, (wish, _) in list(self._waiting.items()):
            if wish.browser in offers:
                self._move(place, wish, offers[wish.browser])

    def _move(self, place: LinePlace, wish: PlaywrightWish, offers: list[str]) -> None:
        self._waiting[place] = wish, offers
        place.move_to(self._lines_for(wish, offers))

    async def _read_offers(self, browser: ServedBrowser) -> list[str]:
        return await self._store.zrange(PLAYWRIGHT_OFFERS(browser))

    def _lines_for(self, wish: PlaywrightWish, offers: Iterable[str]) -> list[str]:
        """The lines of a client. Where nothing serves it for certain, that of its own version: whatever comes
        may do."""
        suited = offers_for(wish.version, offers, is_refused=wish.version in self._unsuited)
        return [line_of(wish.browser, each) for each in suited or [wish.version or ANY_VERSION]]

    def _among(self, wish: PlaywrightWish, offers: Iterable[str], lines: Collection[str]) -> list[str]:
        """The versions whose places a client may take that is next in these lines; empty for all."""
        if wish.version in self._unsuited:
            return []
        return [each for each in offers if line_of(wish.browser, each) in lines]

    async def _watch_redis(self) -> None:
        # This bell never rings: it only tells when Redis is back.
        with self._store.subscribe(bell_of("playwright:returns")) as rings:
            while True:
                await rings.wait()
                self._unsure_until = clock.monotonic() + UNSURE

    def close(self) -> None:
        """Refuses the clients that wait, and all that come."""
        self._is_closed = True
        for limit in self._limits:
            limit.reschedule(asyncio.get_running_loop().time())

    async def find(
        self, wish: PlaywrightWish, use: str, *, came: float, failed: Collection[WorkerId] = ()
    ) -> Place:
        """A place, before the patience is over. BrowserNotOffered or VersionNotOffered at once,
        AccountLimitReached, LineFull or Unavailable.

        The client `came` at this moment of the monotonic clock. `use` is what it is called among what its
        account uses: taken here, and given back by the caller. `failed` are workers that it has tried in
        vain.
        """
        async with self._open():
            while True:
                try:
                    # After a worker's failure, the use is already counted.
                    if not failed:
                        await self._uses.take(wish.origin.account, use)
                    return await self._find(wish, use, came=came, failed=failed)
                except StoreUnavailable:
                    if clock.monotonic() > came + self._patience:
                        raise
                    await asyncio.sleep(LOOK_AGAIN)

    def note_unsuited(self, worker: WorkerId, version: str) -> None:
        """Remembers that this worker refuses clients of this version."""
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

    async def _find(
        self, wish: PlaywrightWish, use: str, *, came: float, failed: Collection[WorkerId]
    ) -> Place:
        offers = await self._read_offers(wish.browser)
        lines = self._lines_for(wish, offers)
        # After a worker's failure, the client does not go to the end of the line again.
        free = lines if failed else [each for each in lines if await self._lines.is_empty(each)]
        if free:
            try:
                among = () if failed else self._among(wish, offers, free)
                place = await self._pick(wish, came=came, among=among, failed=failed)
                if place is not None:
                    self._uses.hold_soon(wish.origin.account, use)
                    return place
            except NoWorker:
                await self._check_startable(wish.browser)
        return await self._wait_in_line(offers, wish, use, came=came)

    async def _pick(
        self,
        wish: PlaywrightWish,
        *,
        came: float,
        among: Collection[str],
        failed: Collection[WorkerId] = (),
    ) -> Place | None:
        waited = clock.monotonic() - came
        place = await self._connections.open(
            wish.browser,
            version=wish.version,
            origin=wish.origin,
            waited=waited,
            among=among,
            excluded=failed,
            unsuited=list(self._unsuited.get(wish.version, ())),
        )
        self._offered_until[wish.browser] = clock.monotonic() + UNSURE
        return place

    async def _check_startable(self, browser: ServedBrowser) -> None:
        """BrowserNotOffered if it is certain that nothing would start a worker of this browser."""
        if clock.monotonic() > max(self._unsure_until, self._offered_until.get(browser, 0.0)):
            is_early = clock.monotonic() < self._began + EARLY
            await check_startable(self._store, browser, expected=self._expected, is_early=is_early)

    async def _wait_in_line(self, offers: list[str], wish: PlaywrightWish, use: str, *, came: float) -> Place:
        failure = Unavailable(f"No {wish} became free within {self._patience:g} s")
        found: Place | None = None

        # No worker is excluded here: the first client in line must not leave a place unused. A worker that
        # failed is not picked before its next heartbeat.
        async def look() -> Place | None:
            nonlocal failure, found
            try:
                among = self._among(wish, self._waiting[standing][1], standing.heads)
                if not among:  # Nothing served it for certain when its lines were chosen.
                    self._move(standing, wish, await self._read_offers(wish.browser))
                    if not standing.heads & standing.lines:
                        return None  # It is called again where it stands now.
                    among = self._among(wish, self._waiting[standing][1], standing.heads)
                found = await self._pick(wish, came=came, among=among)
                if found is not None:
                    # Before the line is left: by the time that the next is called, it counts.
                    await self._uses.hold(wish.origin.account, use)
                return found
            except NoWorker as error:
                await self._check_startable(wish.browser)
                failure = NoWorker(f"{error.message}, and none came within {self._patience:g} s")
                return None
            except StoreUnavailable:
                return None

        try:
            lines, ticket = self._lines_for(wish, offers), ticket_of(wish.version)
            account = wish.origin.account
            async with self._lines.wait(lines, ticket, account=account, longest=self._longest) as standing:
                timeout = max(0.0, came + self._patience - clock.monotonic())
                self._waiting[standing] = wish, offers
                try:
                    await standing.served(freed_bell(wish.browser), look, timeout=timeout)
                finally:
                    del self._waiting[standing]
                if found is None:
                    message = f"{failure.message}; {await _position(standing)}"
                    obstacles = await self._obstacles(wish.browser)
                    raise type(failure)("; ".join([message, *obstacles]), retry_after=self._patience)
        except BaseException:
            # To count it and to leave the line takes a moment, in which the client may leave too.
            if found is not None:
                self._connections.close(found, Outcome.UNUSED)
            raise
        return found

    async def _obstacles(self, browser: ServedBrowser) -> list[str]:
        """Why workers of this browser take no client now."""
        with suppress(Unavailable):
            return sorted(set((await self._store.hgetall(PLAYWRIGHT_OBSTACLES(browser))).values()))
        return []


async def _position(standing: LinePlace) -> str:
    with suppress(Unavailable):
        await standing.ask_position()
    ahead = standing.position - 1
    return "no client was ahead in the queue" if ahead < 1 else f"clients ahead in the queue: {ahead}"
