"""The connections of one gateway: what it has open is kept counted, and nothing else is."""

import asyncio
from collections.abc import Collection
from typing import Any

from remuda.base.errors import RemudaError, Unavailable
from remuda.base.ids import ConnectionId, WorkerId, new_id
from remuda.base.log import get_logger
from remuda.playwright.leases import Leases
from remuda.playwright.model import Browser, Limits, Outcome, Place
from remuda.playwright.reaper import Reaper
from remuda.playwright.selector import Selector
from remuda.store import Store

log = get_logger(__name__)

RENEWALS_PER_LEASE = 3


class Connections:
    """Opens and closes connections. Run `run()` as a task of the gateway's, and `finish()` at its end."""

    def __init__(self, store: Store, limits: Limits) -> None:
        self._selector = Selector(store, limits)
        self._leases = Leases(store, limits)
        self._reaper = Reaper(store, limits)
        self._pause = limits.lease / RENEWALS_PER_LEASE
        self._open: set[Place] = set()
        self._closing: set[asyncio.Task[Any]] = set()
        """What must be waited for before this gateway may end."""
        self._owed: dict[Place, Outcome] = {}

    def __len__(self) -> int:
        return len(self._open)

    async def open(
        self,
        browser: Browser,
        *,
        version: str = "",
        waited: float = 0.0,
        excluded: Collection[WorkerId] = (),
        unsuited: Collection[WorkerId] = (),
    ) -> Place | None:
        """A place for one more connection; None if all are taken. Raises as `Selector.pick` does."""
        connection = ConnectionId(new_id())
        picking = asyncio.create_task(
            self._selector.pick(
                browser, connection, version=version, waited=waited, excluded=excluded, unsuited=unsuited
            ),
            name="pick",
        )
        try:
            place = await asyncio.shield(picking)
        except asyncio.CancelledError:
            # The client has gone, but the question is under way: what it still brings is given back.
            picking.add_done_callback(self._return_picked)
            self._await_end(picking)
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
        self._await_end(asyncio.create_task(self._give_back(place, outcome), name="give back"))

    def _await_end(self, task: asyncio.Task[Any]) -> None:
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _give_back(self, place: Place, outcome: Outcome) -> None:
        try:
            await self._leases.give_back(place, outcome)
        except Unavailable as error:  # Should this gateway end before the next round, its lease runs out.
            self._owed[place] = outcome
            log.warning("connection not given back", worker=place.worker, reason=error.message)

    async def finish(self) -> None:
        """Ends when everything that was closed has been given back, or cannot be."""
        while self._closing:
            await asyncio.wait(self._closing)

    async def run(self) -> None:
        """Renews what is open, and ends what dead gateways have left, until it is cancelled."""
        while True:
            try:
                await self.keep()
            except Unavailable as error:
                log.warning("connections not renewed", open=len(self._open), reason=error.message)
            except RemudaError as error:  # Others write to these keys too, and it may be nonsense.
                log.error("book not kept", open=len(self._open), reason=error.message)
            await asyncio.sleep(self._pause)

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
        for browser in Browser:
            if healed := await self._leases.sweep(browser):
                log.info("connections of a dead gateway ended", browser=browser, connections=healed)
        if buried := await self._reaper.bury_silent():
            log.info("dead workers cleared away", workers=buried)
        # Last: nobody knows what strangers have written.
        await self._reaper.meet_strangers()
