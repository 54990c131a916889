"""The connections of one gateway: each is counted in Redis as long as it is open."""

import asyncio
from collections.abc import Collection

from remuda.base.errors import Unavailable
from remuda.base.ids import ConnectionId, WorkerId, new_id
from remuda.base.log import get_logger
from remuda.fleet.liveness import RENEWALS_PER_TTL
from remuda.fleet.origin import UNKNOWN, Origin
from remuda.fleet.tasks import Tasks, repeat
from remuda.playwright.leases import Leases
from remuda.playwright.model import Outcome, Place, ServedBrowser, WorkerLimits
from remuda.playwright.reaper import Reaper
from remuda.playwright.selector import Selector
from remuda.store import Store

log = get_logger(__name__)


class Connections:
    """Opens and closes connections. Run `run()` as a task of the gateway's, and `finish()` at its end."""

    def __init__(self, store: Store, limits: WorkerLimits) -> None:
        self._selector = Selector(store, limits)
        self._leases = Leases(store, limits)
        self._reaper = Reaper(store, limits)
        self._pause = limits.lease / RENEWALS_PER_TTL
        self._open: set[Place] = set()
        self._tasks = Tasks()
        """What must be waited for before this gateway may end."""
        self._owed: dict[Place, Outcome] = {}

    def __len__(self) -> int:
        return len(self._open)

    async def open(
        self,
        browser: ServedBrowser,
        *,
        version: str = "",
        origin: Origin = UNKNOWN,
        waited: float = 0.0,
        among: Collection[str] = (),
        excluded: Collection[WorkerId] = (),
        unsuited: Collection[WorkerId] = (),
    ) -> Place | None:
        """A place for one more connection; None if all are taken. Raises as `Selector.pick` does."""
        connection = ConnectionId(new_id())
        picking = self._tasks.spawn(
            self._selector.pick(
                browser,
                connection,
                version=version,
                origin=origin,
                waited=waited,
                among=among,
                excluded=excluded,
                unsuited=unsuited,
            ),
            name="pick",
        )
        try:
            place = await asyncio.shield(picking)
        except asyncio.CancelledError:
            # The client has gone, but the question is under way: what it still brings is given back.
            picking.add_done_callback(self._return_picked)
            raise
        if place is not None:
            self._open.add(place)
        return place

    def _return_picked(self, picking: "asyncio.Task[Place | None]") -> None:
        if not picking.cancelled() and picking.exception() is None and (place := picking.result()):
            self.close(place, Outcome.UNUSED)

    def close(self, place: Place, outcome: Outcome = Outcome.UNKNOWN) -> None:
        """Ends a connection. Returns at once, since the end of a client must not wait for Redis."""
        self._open.discard(place)
        self._tasks.spawn(self._give_back(place, outcome), name="give back")

    async def _give_back(self, place: Place, outcome: Outcome) -> None:
        try:
            await self._leases.give_back(place, outcome)
        except Unavailable as error:  # Should this gateway end before the next round, its lease runs out.
            self._owed[place] = outcome
            log.warning("connection not given back", worker=place.worker, reason=error.message)

    async def finish(self) -> None:
        """Ends when everything that was closed has been given back, or cannot be."""
        await self._tasks.finish()

    async def run(self) -> None:
        """Renews what is open, and ends what dead gateways have left, until it is cancelled."""
        await repeat(self.keep, every=self._pause, failure="connections not renewed")

    async def keep(self) -> None:
        """One round."""
        # First its own: after an outage of Redis every lease has run out, also those of living gateways.
        renewed = set(self._open)
        if adopted := await self._leases.renew(list(renewed)):
            log.info("connections counted again", connections=adopted)
        # What was closed meanwhile may have been given back first, and then counted again.
        owed, self._owed = self._owed, {}
        closed = dict.fromkeys(renewed - self._open, Outcome.UNKNOWN)
        for place, outcome in {**closed, **owed}.items():
            self.close(place, outcome)
        for browser in ServedBrowser:
            if healed := await self._leases.sweep(browser):
                log.info("connections of a dead gateway ended", browser=browser, connections=healed)
        if buried := await self._reaper.remove_silent():
            log.info("dead workers cleared away", workers=buried)
        # Last, because other programs may have written anything.
        await self._reaper.adopt_unregistered_workers()
