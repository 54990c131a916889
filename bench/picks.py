"""What it costs Redis to pick a Playwright worker, by the size of the fleet: `python -m bench.picks`.

Whoever waits for a place asks again and again, so the answer of a full fleet must be as cheap as a pick, and
neither may grow with the fleet. Redis measures both itself, in its slow log.
"""

import argparse
import asyncio
import tempfile
from collections.abc import Awaitable
from pathlib import Path
from statistics import median
from typing import TypeVar

import uvloop

from bench.report import Samples, Target, report
from remuda.base.ids import ConnectionId, WorkerId, new_id
from remuda.playwright.leases import Leases
from remuda.playwright.model import Place, ServedBrowser, Worker, WorkerLimits
from remuda.playwright.registry import Registry
from remuda.playwright.selector import Selector
from remuda.store import Store
from remuda.store.embedded import embedded_redis

FLEETS = (10, 100, 1_000, 5_000)
LIMITS = WorkerLimits(concurrent=2, lease=3600)
BATCH = 200

T = TypeVar("T")


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    samples = uvloop.run(measure(parser.parse_args().rounds))
    targets = [
        Target(f"{what}, {FLEETS[-1]:,} workers to {FLEETS[0]}", growth(by_fleet), 2.0, is_ceiling=True)
        for what, by_fleet in samples.items()
    ]
    report("picks", samples, targets)


def column(fleet: int) -> str:
    return f"{fleet:,} workers, µs"


def growth(by_fleet: dict[str, list[float]]) -> float:
    """How many times dearer it is in the largest fleet than in the smallest."""
    return median(by_fleet[column(FLEETS[-1])]) / median(by_fleet[column(FLEETS[0])])


async def measure(rounds: int) -> Samples:
    """Microseconds of each command, by what was done and in which fleet."""
    samples: Samples = {"a pick": {}, "a place given back": {}, "no place in a full fleet": {}}
    for fleet in FLEETS:
        with tempfile.TemporaryDirectory(prefix="bench-") as directory:
            async with embedded_redis(Path(directory)) as url, Store(url) as store:
                await populate(store, fleet)
                await store.send("CONFIG", "SET", "slowlog-log-slower-than", 0, "slowlog-max-len", 100)
                await measure_fleet(store, fleet, rounds, samples)
    return samples


async def populate(store: Store, fleet: int) -> None:
    """So many workers, which a first half of the connections they may have is already at."""
    workers = [Worker(ServedBrowser.CHROMIUM, WorkerId(new_id()), "ws://host/", "1.62") for _ in range(fleet)]
    for start in range(0, fleet, BATCH):
        entries = [Registry(store, each, key_ttl=3600, lease=3600) for each in workers[start : start + BATCH]]
        await asyncio.gather(*(each.register() for each in entries))
    await fill(store, fleet * LIMITS.concurrent // 2)


async def fill(store: Store, connections: int) -> None:
    for start in range(0, connections, BATCH):
        await asyncio.gather(*(pick(store) for _ in range(min(BATCH, connections - start))))


async def measure_fleet(store: Store, fleet: int, rounds: int, samples: Samples) -> None:
    picks, ends, refusals = [], [], []
    for _ in range(rounds):
        spent, place = await timed(store, pick(store))
        picks.append(spent)
        assert place is not None
        ends.append((await timed(store, Leases(store, LIMITS).give_back(place)))[0])
    await fill(store, fleet * LIMITS.concurrent)
    for _ in range(rounds):
        spent, place = await timed(store, pick(store))
        refusals.append(spent)
        assert place is None
    for what, values in zip(samples, (picks, ends, refusals), strict=True):
        samples[what][column(fleet)] = values


async def pick(store: Store) -> Place | None:
    return await Selector(store, LIMITS).pick(ServedBrowser.CHROMIUM, ConnectionId(new_id()), version="1.62")


async def timed(store: Store, work: Awaitable[T]) -> tuple[float, T]:
    """The microseconds that the script took in Redis, and what the work gave."""
    await store.send("SLOWLOG", "RESET")
    result = await work
    entries = await store.send("SLOWLOG", "GET", -1)
    return sum(us for _, _, us, command, *_ in entries if command[0] == "EVALSHA"), result


if __name__ == "__main__":
    main()
