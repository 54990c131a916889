"""Connections count as long as their gateway says that they go on. One whose gateway died is over when its
lease is, so no counter stays wrong for longer than that.
"""

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter

import msgspec

from remuda.playwright.book import BOOK, load
from remuda.playwright.model import Outcome, Place, ServedBrowser, WorkerLimits
from remuda.store import Store
from remuda.store.commands import Value

_GIVE_BACK = load(
    "give_back.lua",
    "worker",
    "connection",
    "concurrent",
    "lifetime",
    "percent",
    "seconds",
    "outcome",
)
_RENEW = load("renew.lua", "concurrent", "lease", "connections")
_SWEEP = load("sweep.lua", "concurrent", "lifetime", "percent", "seconds", "most")

# So many at a time: Redis does nothing else meanwhile.
BATCH = 100


class Leases:
    """The leases of all connections."""

    def __init__(self, store: Store, limits: WorkerLimits) -> None:
        self._store = store
        self._limits = limits

    async def give_back(self, place: Place, outcome: Outcome = Outcome.UNKNOWN) -> bool:
        """Ends a connection; False if it was not counted any more. Twice does no harm.

        A worker that has failed is passed over until its next heartbeat; if it fails again before it has
        served a client, for longer each time. If it is the only worker, it is tried again soon.
        """
        limits = self._limits
        args: list[Value] = [
            place.worker,
            place.connection,
            limits.concurrent,
            limits.lifetime,
            limits.restart_share,
            limits.command_ttl,
            outcome,
        ]
        return bool(await self._store.run(_GIVE_BACK, keys=BOOK[place.browser], args=args))

    async def renew(self, places: Sequence[Place]) -> int:
        """Prolongs the leases of connections that go on; how many of them Redis had lost."""
        adopted = 0
        for browser, group in groupby(sorted(places, key=attrgetter("browser")), attrgetter("browser")):
            of_browser = list(group)
            for start in range(0, len(of_browser), BATCH):
                args: list[Value] = [self._limits.concurrent, self._limits.lease]
                for place in of_browser[start : start + BATCH]:
                    args += [place.worker, place.connection, place.since, msgspec.json.encode(place.origin)]
                adopted += await self._store.run(_RENEW, keys=BOOK[browser], args=args)
        return adopted

    async def sweep(self, browser: ServedBrowser) -> int:
        """Ends connections whose lease is over, some at a time; how many. Also has workers restart whose turn
        has come."""
        limits = self._limits
        args = [limits.concurrent, limits.lifetime, limits.restart_share, limits.command_ttl, BATCH]
        healed: int = await self._store.run(_SWEEP, keys=BOOK[browser], args=args)
        return healed
