"""What a turn in the fair queue costs Redis, by the size of the crowd: `python -m bench.fairness`.

A client joins a line, is told its place, gets a browser, by which the turn of its account moves behind those
of others, leaves, and gives the browser back. None of these steps may hold Redis up for a millisecond while a
thousand accounts have ten thousand clients waiting, nor grow with the crowd. Redis measures that itself, in
its slow log: 99 of 100 must be quicker. How long a client waits for a step is compared with a ZADD, in the
same run.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Awaitable
from pathlib import Path
from statistics import median, quantiles

import uvloop

from bench.report import Samples, Target, report
from remuda.base.ids import new_id
from remuda.fleet.line import _Line
from remuda.fleet.uses import Uses
from remuda.keyspace.key import ZSetName
from remuda.store import Store
from remuda.store.embedded import embedded_redis

CROWDS = ((1, 1), (10, 100), (1_000, 10_000))
"""Accounts, and clients that wait, of all of them."""
LINE = "bench:chrome"
LEASE = 3600.0
BATCH = 500
ASKING = "asking the position"
STEPS = ("joining", ASKING, "getting a browser", "leaving as the head", "giving it back")
ROUND_TRIP, PLAIN = "round trip of a step", "round trip of a ZADD"


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=300)
    samples = uvloop.run(measure(parser.parse_args().rounds))
    largest, smallest = column(CROWDS[-1]), column(CROWDS[0])
    slowest = max(quantiles(samples[step][largest], n=100)[98] for step in STEPS)
    growth = max(
        median(samples[step][largest]) / median(samples[step][smallest])
        for step in STEPS
        if step != ASKING  # It reads the turn of each account, but only when a client's time is up.
    )
    waited = median(samples[ROUND_TRIP][largest]) / median(samples[PLAIN][largest])
    targets = [
        Target("slowest step in Redis, 99th percentile", slowest / 1000, 1.0, "ms", is_ceiling=True),
        Target("dearest growth from the smallest crowd", growth, 3.0, is_ceiling=True),
        Target("round trip of a step to that of a ZADD", waited, 4.0, is_ceiling=True),
    ]
    report("fairness", samples, targets)


def column(crowd: tuple[int, int]) -> str:
    accounts, waiting = crowd
    return f"{accounts:,} accounts, {waiting:,} waiting, µs"


async def measure(rounds: int) -> Samples:
    """Microseconds of each step in Redis, and of the round trips, by what was done and in which crowd."""
    samples: Samples = {step: {} for step in (*STEPS, ROUND_TRIP, PLAIN)}
    for crowd in CROWDS:
        with tempfile.TemporaryDirectory(prefix="bench-") as directory:
            async with embedded_redis(Path(directory)) as url, Store(url) as store:
                await populate(store, crowd)
                await store.send("CONFIG", "SET", "slowlog-log-slower-than", 0, "slowlog-max-len", 100)
                await measure_crowd(store, crowd, rounds, samples)
    return samples


async def populate(store: Store, crowd: tuple[int, int]) -> None:
    """So many that wait, of accounts that have a browser or two already."""
    accounts, waiting = crowd
    line, uses = _Line(store, LINE, lease=LEASE), Uses(store, lease=LEASE)
    for start in range(0, accounts, BATCH):
        numbers = range(start, min(start + BATCH, accounts))
        await asyncio.gather(
            *(uses.hold(f"account-{number}", new_id()) for number in numbers for _ in range(1 + number % 2))
        )
    for start in range(0, waiting, BATCH):
        names = [f"account-{number % accounts}" for number in range(start, min(start + BATCH, waiting))]
        await asyncio.gather(*(line.join(name, new_id(), arrival="", longest=None) for name in names))


async def measure_crowd(store: Store, crowd: tuple[int, int], rounds: int, samples: Samples) -> None:
    line, uses = _Line(store, LINE, lease=LEASE), Uses(store, lease=LEASE)
    spent: dict[str, list[float]] = {step: [] for step in samples}

    async def time_step(step: str, work: Awaitable[object]) -> None:
        await store.send("SLOWLOG", "RESET")
        began = time.perf_counter()
        await work
        spent[ROUND_TRIP if step in STEPS else PLAIN].append((time.perf_counter() - began) * 1e6)
        if step in STEPS:
            entries = await store.send("SLOWLOG", "GET", -1)
            spent[step].append(sum(us for _, _, us, command, *_ in entries if command[0] != "SLOWLOG"))

    for turn in range(rounds):
        # Without a browser it is the head at once, and its leaving calls the next.
        newcomer, ticket = f"newcomer-{turn}", new_id()
        await time_step("joining", line.join(newcomer, ticket, arrival="", longest=None))
        await time_step(ASKING, line.position(newcomer, ticket))
        await time_step("leaving as the head", line.leave(newcomer, ticket))
        # The account at the head gets a browser, whereupon another is called.
        account, use = f"account-{turn % crowd[0]}", new_id()
        await time_step("getting a browser", uses.hold(account, use))
        await time_step("giving it back", uses.give_back(account, use))
        await time_step(PLAIN, plain(store, use))
    for step, values in spent.items():
        samples[step][column(crowd)] = values


async def plain(store: Store, member: str) -> None:
    await store.zadd(ZSetName("bench:plain"), {member: 1})


if __name__ == "__main__":
    main()
