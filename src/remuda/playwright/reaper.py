"""Workers that died without a word are cleared away; those that came without Remuda's book are taken up.

Both are found the same way: whoever a counter names, whoever should have beaten by now, and whoever a search
among the keys finds. Never all at once: Redis serves clients meanwhile.
"""

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence

from remuda.base import clock
from remuda.base.ids import WorkerId
from remuda.fleet.scan import BATCH, Scan
from remuda.keyspace.playwright import ACTIVE_CONNECTIONS, LIFETIME_CONNECTIONS, PLAYWRIGHT_WORKERS, WORKER
from remuda.playwright.book import BOOK, load
from remuda.playwright.model import Browser, Limits
from remuda.store import Store

_REAP = load("reaper.lua", "now", "threshold", "concurrent", "seconds", "workers")

# Beyond the time for which a worker is believed: its clock may be wrong, or Redis may have been away.
STALE_AFTER_TTLS = 2


class Reaper:
    """Keeps the book in line with the workers there are."""

    def __init__(self, store: Store, limits: Limits) -> None:
        self._store = store
        self._limits = limits
        self._due = 0.0
        self._counters = [Scan(store, ACTIVE_CONNECTIONS()), Scan(store, LIFETIME_CONNECTIONS())]
        self._keys = Scan(store)

    async def sweep(self) -> Counter[str]:
        """Looks at everybody, at most every `reaper_interval` seconds; says how many workers it reaped."""
        if clock.monotonic() < self._due:
            return Counter()
        self._due = clock.monotonic() + self._limits.reaper_interval
        reaped = 0
        async for names in self._find():
            reaped += await self.look_at(names)
        for browser in Browser:
            silent = await self._store.zrange_by_score(PLAYWRIGHT_WORKERS(browser), "-inf", await self._now())
            reaped += await self.look_at(f"{browser}:{worker}" for worker in silent)
        return +Counter({"workers_reaped": reaped})

    async def meet_strangers(self) -> bool:
        """Takes up workers that are counted but not in the book, if there are any; whether there were."""
        counted = self._store.send("HLEN", ACTIVE_CONNECTIONS())
        known = [self._store.zcard(PLAYWRIGHT_WORKERS(browser)) for browser in Browser]
        if await counted <= sum([await count for count in known]):
            return False
        async for batch in Scan(self._store, ACTIVE_CONNECTIONS()).batches():
            await self.look_at(batch[::2])
        return True

    async def _find(self) -> AsyncIterator[Sequence[str]]:
        """Workers as `<browser>:<worker>`, in batches."""
        for counter in self._counters:
            async for batch in counter.batches():
                yield batch[::2]
        async for batch in self._keys.batches():
            names = (name.removeprefix(self._store.prefix) for name in batch)
            matches = (WORKER.regex.fullmatch(name) for name in names)
            yield [f"{match['browser']}:{match['worker']}" for match in matches if match]

    async def look_at(self, names: Iterable[str]) -> int:
        """Reaps those of these workers that are stale, takes up the others; how many were reaped."""
        by_browser: dict[Browser, list[WorkerId]] = {}
        for name in names:
            if match := WORKER.regex.fullmatch(f"worker:{name}"):
                by_browser.setdefault(Browser(match["browser"]), []).append(WorkerId(match["worker"]))
        reaped = 0
        for browser, workers in by_browser.items():
            for start in range(0, len(workers), BATCH):
                reaped += await self._look_at_some(browser, workers[start : start + BATCH])
        return reaped

    async def _look_at_some(self, browser: Browser, workers: Sequence[WorkerId]) -> int:
        reaped: int = await self._store.run(
            _REAP,
            keys=BOOK[browser],
            args=[
                await self._now(),
                STALE_AFTER_TTLS * self._limits.key_ttl,
                self._limits.concurrent,
                # Nobody else says that a stranger is alive: it is believed until the look after the next.
                max(3 * self._limits.reaper_interval, self._limits.key_ttl),
                *workers,
            ],
        )
        return reaped

    async def _now(self) -> int:
        """Redis' clock: it is the one that beats are stamped with."""
        seconds, _ = await self._store.send("TIME")
        return int(seconds)
