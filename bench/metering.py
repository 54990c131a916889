"""What metering costs: events through `push`, listings, and memory: `python -m bench.metering`.

A putObject at four levels is twelve writes and more: two counters, an operation, bytes and two states at each
of buckets, accounts, users and the service. So `redis-benchmark`'s pipelined INCR, divided by twelve, is what
events a second are measured by, on the same Redis and in the same run. One caller, who waits for each event,
has another limit: what `redis-benchmark` reaches with one connection and a script of as many commands.
"""

import argparse
import asyncio
import random
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from statistics import median

import uvloop

from bench.report import Samples, Target, report
from remuda.base import clock
from remuda.base.ids import new_id
from remuda.fleet.services import OBJECTS, STORAGE
from remuda.keyspace.key import Name
from remuda.keyspace.metering import (
    ACTIVE,
    ADOPTED,
    CLOSED,
    METER_STATE,
    METER_USAGE,
    RESOURCES,
    ROLLED_DAYS,
    ROLLED_SLOTS,
)
from remuda.metering.listing import Listing, answer
from remuda.metering.model import DAY_MS, Level, Services, slot_of
from remuda.metering.push import Metering
from remuda.metering.rollup import Rollup
from remuda.metering.s3 import S3
from remuda.metering.usage import TimeRange, UsageReader
from remuda.store import Store
from remuda.store.embedded import embedded_redis
from remuda.store.url import parse_url

WRITES = 12
COMMANDS = 42
"""What Redis does for a putObject at four levels, beside decoding it."""
CALLERS = 64
SLOT_MS = 900_000
SERVICES = Services([S3])
COLUMNS = ("PutObject", "GetObject", "DeleteObject", "HeadObject", "incomingBytes", "outgoingBytes")
"""What a busy bucket has a number of in every time slot, beside its two states."""
SLOW_US = 5000

EVENTS = "events/s"
PIPELINED = "pipelined INCR/s"
SCRIPTS = "scripts/s, one caller"
READ = "ms"


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--buckets", type=int, default=1000)
    options = parser.parse_args()
    samples, kilobytes, slow = uvloop.run(measure(options.rounds, options.days, options.buckets))
    limit = samples["redis-benchmark"][PIPELINED]

    def share(what: str) -> float:
        return median(
            ours / (theirs / WRITES) for ours, theirs in zip(samples[what][EVENTS], limit, strict=True)
        )

    scripts = samples["redis-benchmark"][SCRIPTS]
    of_scripts = median(
        ours / theirs for ours, theirs in zip(samples["one caller"][EVENTS], scripts, strict=True)
    )

    def middle(what: str) -> float:
        return median(samples[what][READ])

    targets = [
        Target("64 callers, of the limit", share("64 callers, 1,000 buckets"), 0.25),
        Target("64 callers in one bucket, of the limit", share("64 callers, one bucket"), 0.25),
        Target("one caller", median(samples["one caller"][EVENTS]), 5000, "events/s"),
        Target("one caller, of such scripts", of_scripts, 0.5),
        Target("30 days", middle("list 30 days"), 5.0, "ms", is_ceiling=True),
        Target("a year", middle("list a year"), 20.0, "ms", is_ceiling=True),
        Target(f"{options.buckets:,} buckets", middle("list a day of all"), 500.0, "ms", is_ceiling=True),
        Target("a year of a busy bucket", kilobytes, 1000.0, "kB", is_ceiling=True),
        Target("commands over 5 ms", slow, 0, is_ceiling=True),
    ]
    report("metering", samples, targets)


async def measure(rounds: int, days: int, buckets: int) -> tuple[Samples, float, float]:
    """Every number; the kilobytes of the busy bucket; how many commands took Redis longer than they may."""
    samples: Samples = {}

    def note(what: str, name: str, value: float) -> None:
        samples.setdefault(what, {}).setdefault(name, []).append(value)

    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        async with embedded_redis(Path(directory)) as url, Store(url) as store:
            for _ in range(rounds):
                rate = await asyncio.to_thread(pipelined_incr, url)
                note("redis-benchmark", PIPELINED, rate)
                note("redis-benchmark", SCRIPTS, await asyncio.to_thread(scripts_of_one_caller, url))
                note("64 callers, 1,000 buckets", EVENTS, await push_rate(store, CALLERS, 300, 1000))
                note("64 callers, one bucket", EVENTS, await push_rate(store, CALLERS, 300, 1))
                note("one caller", EVENTS, await push_rate(store, 1, 3000, 1000))
                await store.send("FLUSHALL")
            await fill_year(store, days)
            await fill_day(store, buckets)
            await store.send("CONFIG", "SET", "slowlog-log-slower-than", SLOW_US)
            await store.send("SLOWLOG", "RESET")
            # A range that begins and ends within a day: both ends are read by time slot.
            end = slot_of(clock.now_ms(), 15) - 1
            for _ in range(rounds * 4):
                note("list 30 days", READ, await list_time(store, ["busy"], end - 30 * DAY_MS + 1, end))
                note("list a year", READ, await list_time(store, ["busy"], end - days * DAY_MS + 1, end))
            names = [f"b{number}" for number in range(buckets)]
            for _ in range(rounds):
                note("list a day of all", READ, await list_time(store, names, end - DAY_MS + 1, end))
            slow = float(await store.send("SLOWLOG", "LEN"))
            return samples, await kilobytes_of(store, "busy"), slow


def pipelined_incr(url: str) -> float:
    """INCRs a second, 64 in a write, from 50 connections."""
    return redis_benchmark(url, "-t", "incr", "-P", "64", "-n", "400000")


def scripts_of_one_caller(url: str) -> float:
    """Scripts a second that do as much as an event, but nothing with it, one after another."""
    script = f"for number = 1, {COMMANDS} do redis.call('INCRBY', 'bench:' .. number, '1024') end"
    return redis_benchmark(url, "-c", "1", "-n", "3000", "EVAL", script, "0")


def redis_benchmark(url: str, *options: str) -> float:
    """Requests a second that redis-benchmark makes with these options."""
    program = shutil.which("redis-benchmark")
    if program is None:
        raise SystemExit("redis-benchmark is missing: apt-get install redis-tools")
    redis = parse_url(url)
    command = [program, "-s", redis.path, "-a", redis.password, "--csv", *options]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return float(lines[-1].split('","')[1].strip('"'))


async def push_rate(store: Store, callers: int, each: int, buckets: int) -> float:
    """Events a second: callers that each wait for one event before they push the next."""
    metering = Metering(store)
    run = new_id()

    async def call(caller: int) -> None:
        for number in range(caller * each, (caller + 1) * each):
            bucket = number % buckets
            params = {
                "bucket": f"b{bucket}",
                "accountId": f"a{bucket % 100}",
                "userId": f"u{bucket % 300}",
                "newByteLength": 1024,
                "oldByteLength": None,
            }
            assert await metering.push("putObject", params, event_id=f"{run}-{number}"), "counted before"

    await call(callers)  # Loads the script, and makes the keys of this time slot.
    began = time.perf_counter()
    await asyncio.gather(*map(call, range(callers)))
    return callers * each / (time.perf_counter() - began)


async def fill_year(store: Store, days: int) -> None:
    """A bucket that was busy in every time slot of so many days, rolled up as it went."""
    chance = random.Random(1)
    first = slot_of(clock.now_ms(), 15) - days * DAY_MS
    await store.set(CLOSED(), first)
    await store.set(ADOPTED(), clock.rfc3339())
    state = {STORAGE: 10**11, OBJECTS: 10**6}
    for day in range(days):
        slots = range(first + day * DAY_MS, first + (day + 1) * DAY_MS, SLOT_MS)
        for slot in slots:
            write_slot(store, "busy", slot, chance)
            for name, by in ((STORAGE, 50_000_000), (OBJECTS, 300)):
                state[name] += chance.randint(-by, by)
                store.zadd(METER_STATE("s3", "buckets", "busy", name), {f"{state[name]}:{slot}": slot})
        await store.send("ZADD", RESOURCES("s3", "buckets"), slots[-1], "busy")
        # The single keys of all but the last day would have expired by now.
        rollup = Rollup(store, SERVICES, keep_keys=86400 if day >= days - 2 else 1)
        await rollup.run_once(min(first + (day + 1) * DAY_MS + 120_000, clock.now_ms()))


async def fill_day(store: Store, buckets: int) -> None:
    """Buckets that were busy for the last day, rolled up."""
    chance = random.Random(2)
    closed = int(await store.get(CLOSED()) or 0)
    first = slot_of(clock.now_ms(), 15) - DAY_MS
    await store.set(CLOSED(), first)
    for number in range(buckets):
        for slot in range(first, first + DAY_MS, SLOT_MS):
            write_slot(store, f"b{number}", slot, chance)
        await store.send("ZADD", RESOURCES("s3", "buckets"), first + DAY_MS - SLOT_MS, f"b{number}")
    await Rollup(store, SERVICES).close_slots(clock.now_ms())
    assert int(await store.get(CLOSED()) or 0) >= closed


def write_slot(store: Store, bucket: str, slot: int, chance: random.Random) -> None:
    """What a push of thousands of events leaves of one time slot."""
    pairs: list[str | int] = []
    template = METER_USAGE.template("s3", "buckets", str(slot), bucket)
    for name in COLUMNS:
        greatest = 100_000_000 if name.endswith("Bytes") else 1000
        pairs += [Name(template % name), chance.randint(1, greatest)]
    store.send("MSET", *pairs)
    store.sadd(ACTIVE("s3", "buckets", str(slot)), bucket)


async def list_time(store: Store, buckets: list[str], start: int, end: int) -> float:
    """Milliseconds from the question to the bytes of the answer."""
    reader, asked = UsageReader(store, S3, precision=15), TimeRange(start, end)
    began = time.perf_counter()
    usages = await reader.read(Level.BUCKETS, buckets, asked)
    body = answer(Listing(Level.BUCKETS, tuple(buckets), asked), usages, S3)
    took = (time.perf_counter() - began) * 1e3
    assert all(usage.counts["PutObject"] for usage in usages), body[:300]
    return took


async def kilobytes_of(store: Store, bucket: str) -> float:
    """Memory of all keys of the bucket."""
    keys: list[str] = [
        *(ROLLED_SLOTS("s3", "buckets", bucket), ROLLED_DAYS("s3", "buckets", bucket)),
        *(METER_STATE("s3", "buckets", bucket, state) for state in S3.states),
    ]
    cursor = "0"
    while True:
        cursor, found = await store.send("SCAN", cursor, "MATCH", f"s3:buckets:*:{bucket}:*", "COUNT", 1000)
        keys += found
        if cursor == "0":
            break
    sizes = await asyncio.gather(*(store.send("MEMORY", "USAGE", key, "SAMPLES", 0) for key in set(keys)))
    return sum(size or 0 for size in sizes) / 1e3


if __name__ == "__main__":
    main()
