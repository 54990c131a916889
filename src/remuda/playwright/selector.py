"""Which worker serves a client: decided, and counted, in one step by `selector.lua`.

Its cost does not grow with the fleet. Workers with a free place stand in an index by browser and version,
ordered as the document asks. Ineligible workers are visited once, to evict them.
"""

from collections.abc import Collection, Sequence

import msgspec

from remuda.base import clock
from remuda.base.errors import NoWorker, VersionNotOffered
from remuda.base.ids import ConnectionId, WorkerId
from remuda.fleet.origin import UNKNOWN, Origin
from remuda.keyspace.playwright import ANY_VERSION
from remuda.playwright.book import BOOK, load
from remuda.playwright.model import Place, ServedBrowser, WorkerLimits, wait_bucket
from remuda.store import Store

_SELECT = load(
    "selector.lua",
    "browser",
    "concurrent",
    "lifetime",
    "now",
    "connection",
    "version",
    "lease",
    "waited",
    "bucket",
    "origin",
    "among",
    "unsuited",
    "excluded",
)


class Selector:
    """Picks workers."""

    def __init__(self, store: Store, limits: WorkerLimits) -> None:
        self._store = store
        self._limits = limits

    async def pick(
        self,
        browser: ServedBrowser,
        connection: ConnectionId,
        *,
        version: str = "",
        origin: Origin = UNKNOWN,
        waited: float = 0.0,
        among: Collection[str] = (),
        excluded: Collection[WorkerId] = (),
        unsuited: Collection[WorkerId] = (),
    ) -> Place | None:
        """A place for the connection, None if all are taken; NoWorker or VersionNotOffered if none will do.

        A client of a version gets a worker of that version, else one that does not tell its own; but none of
        those that are `excluded` this time, nor of those that are `unsuited`, since they have refused the
        version. If its versions are given, the worker is `among` these. For how long the client has `waited`
        is kept for the metrics.
        """
        since = int(clock.now())
        limits = self._limits
        endpoint, *rest = await self._store.run(
            _SELECT,
            keys=BOOK[browser],
            args=[
                browser,
                limits.concurrent,
                limits.lifetime,
                since,
                connection,
                version,
                limits.lease,
                f"{waited:.3f}",
                wait_bucket(waited),
                msgspec.json.encode(origin.fields()),
                " ".join(among),
                len(unsuited),
                *unsuited,
                *excluded,
            ],
        )
        if endpoint is None:
            workers, suited, *offers = rest
            if unsuited and not suited:  # Those that do not tell their version have refused this one.
                offers = [each for each in offers if each not in (version, ANY_VERSION)]
            check_offer(browser, version, workers=workers, offers=offers)
            return None
        return Place(browser, WorkerId(rest[0]), endpoint, connection, since, origin)


def check_offer(browser: ServedBrowser, version: str, *, workers: int, offers: Sequence[str]) -> None:
    """NoWorker if the browser has none, VersionNotOffered if none of them speaks the client's version."""
    if not workers and not offers:
        raise NoWorker(f"There is no worker with {browser} (`{browser.worker_command}` is one)")
    if version and not {version, ANY_VERSION}.intersection(offers):
        by_number = sorted(offers, key=lambda offer: [int(part) for part in offer.split(".")])
        known = ", ".join(by_number) or "none that tells its version"
        raise VersionNotOffered(
            f"No {browser} here speaks Playwright {version}; on offer: {known}. Install one of these where "
            f"the client runs, or Playwright {version} where a worker does"
        )
