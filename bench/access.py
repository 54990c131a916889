"""What a gateway pays for tokens: memory, and time for each request: `python -m bench.access`.

Ten thousand tokens that were seen may take 5 MB, and finding what one grants a small part of the 20 µs that a
request may take longer with tokens than without. After a change every remembered token is read again: how
long that takes, and for how long one step of it keeps Redis from others, is measured too.
"""

import argparse
import asyncio
import gc
import tempfile
import time
import tracemalloc
from pathlib import Path
from statistics import median

import uvloop

from bench.report import Samples, Target, report
from remuda.accounts.access import Access
from remuda.accounts.model import Grant
from remuda.accounts.tokens import Tokens
from remuda.fleet.origin import Scope
from remuda.store import Store
from remuda.store.embedded import embedded_redis

ACCOUNTS = 100
BATCH = 200
FINDS = 10_000
MEMORY = "MB of all tokens"
FIND = "µs to find one"
READ = "ms until all are read again"
COMMAND = "ms of one of its commands"


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    samples = uvloop.run(measure(options.tokens, options.rounds))
    middle = {name: median(values) for of in samples.values() for name, values in of.items()}
    targets = [
        Target(f"{options.tokens:,} remembered tokens", middle[MEMORY], 5.0, "MB", is_ceiling=True),
        Target("finding one of them", middle[FIND], 5.0, "µs", is_ceiling=True),
        Target("a change is known", middle[READ], 500.0, "ms", is_ceiling=True),
        Target("one of its commands", middle[COMMAND], 5.0, "ms", is_ceiling=True),
    ]
    report("access", samples, targets)


async def measure(count: int, rounds: int) -> Samples:
    """Megabytes of what is remembered, microseconds of a look, milliseconds after a change."""
    memory, finds, reads, steps = [], [], [], []
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        async with embedded_redis(Path(directory)) as url, Store(url) as store:
            tokens = await make_tokens(store, count)
            for _ in range(rounds):
                access = Access(store, is_on=True)
                memory.append(await memory_of(access, tokens))
                finds.append(time_finds(access, tokens))
                reads.append(await time_reading_again(access))
                steps.append(await time_a_command(store, access))
    return {
        "remembering": {MEMORY: memory},
        "a request": {FIND: finds},
        "a change": {READ: reads, COMMAND: steps},
    }


async def make_tokens(store: Store, count: int) -> list[str]:
    """So many tokens of a hundred accounts."""
    made = []
    for start in range(0, count, BATCH):
        work = [
            Tokens(store).create(
                f"ci-runner-{number}", account=f"team-{number % ACCOUNTS}", scopes={Scope.USE}
            )
            for number in range(start, min(start + BATCH, count))
        ]
        made += [token for token, _ in await asyncio.gather(*work)]
    return made


async def memory_of(access: Access, tokens: list[str]) -> float:
    """Megabytes that it takes once it has seen all these tokens."""
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for token in tokens:
        found = access.find(token)
        if not isinstance(found, Grant):
            await found
    # Their first uses are noted once, and are not there after that.
    await access._note_uses()
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return (after - before) / 1e6


async def time_reading_again(access: Access) -> float:
    """Milliseconds until a change of one token is known, whichever it was."""
    began = time.perf_counter()
    await access._read_again()
    return (time.perf_counter() - began) * 1e3


async def time_a_command(store: Store, access: Access) -> float:
    """Milliseconds for which one step of reading all again keeps Redis from others, on average: the longest
    one tells only how busy the machine was."""
    await store.send("CONFIG", "RESETSTAT")
    await access._read_again()
    lines = str(await store.send("INFO", "commandstats")).splitlines()
    (of_scripts,) = [line for line in lines if line.startswith("cmdstat_evalsha")]
    return float(of_scripts.partition("usec_per_call=")[2].partition(",")[0]) / 1e3


def time_finds(access: Access, tokens: list[str]) -> float:
    """Microseconds to find what a remembered token grants."""
    shown = (tokens * (FINDS // len(tokens) + 1))[:FINDS]
    began = time.perf_counter()
    for token in shown:
        access.find(token)
    return (time.perf_counter() - began) / FINDS * 1e6


if __name__ == "__main__":
    main()
