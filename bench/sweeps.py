"""What sweeping a hundred thousand sessions costs Redis and the gc: `python -m bench.sweeps`.

However much there is to sweep, no command may hold Redis up for more than 5 ms, since everybody else waits
meanwhile. Redis measures that itself, in its slow log.
"""

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from statistics import median

import uvloop

from bench.report import Samples, Target, report
from bench.slots import slowest, watch_commands
from remuda.base.ids import SessionId, new_id
from remuda.fleet.origin import UNKNOWN
from remuda.grid.model import State
from remuda.grid.omission import encode_request
from remuda.grid.sessions import Sessions
from remuda.grid.sweeps import grid_sweeps
from remuda.store import Store
from remuda.store.embedded import embedded_redis

BATCH = 1000
COMMAND = "ms of its slowest command"
WEEK = 604800.0


def main() -> None:
    """Measure, print and keep."""
    options = parse()
    samples = uvloop.run(measure(options.sessions, options.runs))
    # Of each kind of run the median: a command during which Redis had to wait for a processor counts in full.
    worst = max(median(of[COMMAND]) for of in samples.values())
    report("sweeps", samples, [Target("slowest command", worst, 5.0, "ms", is_ceiling=True)])


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=5)
    return parser.parse_args()


async def measure(sessions: int, runs: int) -> Samples:
    """What runs of the gc cost when there is nothing to do, and when everything is to be purged."""
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        async with embedded_redis(Path(directory)) as url, Store(url) as store:
            await populate(store, sessions)
            await watch_commands(store)
            kept = await sweep(store, runs, "that finds nothing", retention=WEEK)
            return kept | await sweep(store, runs, "that purges all it can", retention=0.0)


async def populate(store: Store, sessions: int) -> None:
    """So many sessions that have ended, and a tenth as many that wait."""
    for start in range(0, sessions, BATCH):
        await asyncio.gather(*(end_one(store, number) for number in range(start, start + BATCH)))


async def end_one(store: Store, number: int) -> None:
    session = SessionId(new_id())
    await Sessions(store).create(session, requested=encode_request([{}]), origin=UNKNOWN)
    if number % 10:
        await Sessions(store).move(session, State.TERMINATED, code="CLEFT")


async def sweep(store: Store, runs: int, what: str, *, retention: float) -> Samples:
    """Milliseconds of each run, and of the slowest command in it."""
    runs_ms: list[float] = []
    commands_ms: list[float] = []
    sweeps = grid_sweeps(store, retention=retention)

    async def run() -> None:
        for each in sweeps.values():
            await each()

    for _ in range(runs):
        began = time.perf_counter()
        commands_ms.append(await slowest(store, run()))
        runs_ms.append((time.perf_counter() - began) * 1000)
    return {f"a run {what}": {"ms": runs_ms, COMMAND: commands_ms}}


if __name__ == "__main__":
    main()
