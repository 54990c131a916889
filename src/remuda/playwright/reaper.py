"""Removes workers that died without deregistering, and adopts workers that other programs registered.

Both are found the same way: by the counters, by overdue beats, and by a search among the keys. Never all at
once: Redis serves clients meanwhile.
"""

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

from remuda.base import clock
from remuda.base.ids import WorkerId
from remuda.fleet.sweep import BATCH, Patience, Scan, Sweep
from remuda.keyspace.playwright import ACTIVE_CONNECTIONS, LIFETIME_CONNECTIONS, PLAYWRIGHT_WORKERS, WORKER
from remuda.playwright.book import BOOK, load
from remuda.playwright.leases import Leases
from remuda.playwright.model import ServedBrowser, WorkerLimits
from remuda.store import Store

_REAP = load("reaper.lua", "now", "threshold", "concurrent", "seconds", "certain", "workers")
_SILENT = load("silent.lua", "workers")

# Beyond the time for which a worker is believed: its clock may be wrong, or Redis may have been away.
STALE_AFTER_TTLS = 2
# Twice the time between two beats: one that was only cut off from Redis has registered again by then.
SILENCE = 10.0


class Reaper:
    """Keeps the book in line with the workers there are."""

    def __init__(self, store: Store, limits: WorkerLimits, *, silence: float = SILENCE) -> None:
        self._store = store
        self._limits = limits
        self._silence = silence
        self._patience = Patience(silence)
        """With workers whose key is gone, as this process has seen it."""
        self._looked = 0.0
        self._due = 0.0
        self._counters = [Scan(store, ACTIVE_CONNECTIONS()), Scan(store, LIFETIME_CONNECTIONS())]
        self._keys = Scan(store)

    async def sweep(self) -> Counter[str]:
        """Looks at all workers, at most every `reaper_interval` seconds; says how many it reaped."""
        if clock.monotonic() < self._due:
            return Counter()
        self._due = clock.monotonic() + self._limits.reaper_interval
        reaped = 0
        async for names in self._find():
            reaped += await self.look_at(names)
        for browser in ServedBrowser:
            silent = await self._store.zrange_by_score(PLAYWRIGHT_WORKERS(browser), "-inf", await self._now())
            reaped += await self.look_at(f"{browser}:{worker}" for worker in silent)
        return +Counter({"workers_reaped": reaped})

    async def remove_silent(self) -> int:
        """Reaps workers whose key has been gone for a while, with their counters; how many.

        Asked again and again: a worker's key dies with it, and only its absence in several looks is
        certain. After an absence of Redis, or of this process, the looks begin anew.
        """
        now = clock.monotonic()
        if now - self._looked > max(self._silence, 2 * self._limits.lease):
            self._patience = Patience(self._silence)
        self._looked = now
        names = []
        for browser in ServedBrowser:
            workers = await self._store.zrange(PLAYWRIGHT_WORKERS(browser))
            for start in range(0, len(workers), BATCH):
                batch = workers[start : start + BATCH]
                silent = await self._store.run(_SILENT, keys=BOOK[browser], args=batch)
                names += [f"{browser}:{worker}" for worker in silent]
        gone = [name for name in names if self._patience.is_over(name, now=now)]
        self._patience.end_round()
        return await self.look_at(gone, certain=True)

    async def adopt_unregistered_workers(self) -> bool:
        """Takes up workers that are counted but not in the book, if there are any; whether there were."""
        counted = self._store.send("HLEN", ACTIVE_CONNECTIONS())
        known = [self._store.zcard(PLAYWRIGHT_WORKERS(browser)) for browser in ServedBrowser]
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

    async def look_at(self, names: Iterable[str], *, certain: bool = False) -> int:
        """Reaps those of these workers that are stale, takes up the others; how many were reaped.

        When it is `certain`, one whose key is gone is dead.
        """
        by_browser: dict[ServedBrowser, list[WorkerId]] = {}
        for name in names:
            if match := WORKER.regex.fullmatch(f"worker:{name}"):
                by_browser.setdefault(ServedBrowser(match["browser"]), []).append(WorkerId(match["worker"]))
        reaped = 0
        for browser, workers in by_browser.items():
            for start in range(0, len(workers), BATCH):
                reaped += await self._look_at_some(browser, workers[start : start + BATCH], certain=certain)
        return reaped

    async def _look_at_some(
        self, browser: ServedBrowser, workers: Sequence[WorkerId], *, certain: bool
    ) -> int:
        reaped: int = await self._store.run(
            _REAP,
            keys=BOOK[browser],
            args=[
                await self._now(),
                STALE_AFTER_TTLS * self._limits.key_ttl,
                self._limits.concurrent,
                # An unregistered worker has no heartbeat: it counts as alive until the look after the next.
                max(3 * self._limits.reaper_interval, self._limits.key_ttl),
                "1" if certain else "",
                *workers,
            ],
        )
        return reaped

    async def _now(self) -> int:
        """Redis' clock: it is the one that beats are stamped with."""
        seconds, _ = await self._store.send("TIME")
        return int(seconds)


def playwright_sweeps(store: Store, limits: WorkerLimits) -> Mapping[str, Sweep]:
    """This room's sweeps by name; each says what it did. Gateways end the connections of one that died
    themselves; the gc does it too, for the case that none of them is left."""
    leases = Leases(store, limits)

    async def end_connections() -> Counter[str]:
        return +Counter(
            {"connections_ended": sum([await leases.sweep(browser) for browser in ServedBrowser])}
        )

    return {"workers": Reaper(store, limits).sweep, "connections": end_connections}
