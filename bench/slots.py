"""What looking after slots costs Redis: `python -m bench.slots`.

With ten thousand active sessions and a thousand slots of one orchestrator, no command may hold Redis up
for more than 5 ms, since everybody else waits meanwhile. Redis measures that itself, in its slow log.
"""

import argparse
import asyncio
import tempfile
from collections.abc import Awaitable
from pathlib import Path

import uvloop

from bench.report import Samples, Target, report
from remuda.base.ids import OrchestratorId, SessionId, new_id
from remuda.fleet.origin import UNKNOWN
from remuda.grid.model import State
from remuda.grid.omission import encode_request
from remuda.grid.sessions import Sessions, node_beat
from remuda.grid.slots import OwnSlots, Slots
from remuda.store import Store
from remuda.store.embedded import embedded_redis

ORCHESTRATOR = OrchestratorId("bench")
BATCH = 500
NOTED_US = 100
IN_REDIS = "ms in Redis"


def main() -> None:
    """Measure, print and keep."""
    options = parse()
    samples = uvloop.run(measure(options.sessions, options.slots, options.rounds))
    slowest = max(max(of[IN_REDIS]) for of in samples.values())
    report("slots", samples, [Target("slowest command", slowest, 5.0, "ms", is_ceiling=True)])


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--slots", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=20)
    return parser.parse_args()


async def measure(sessions: int, slots: int, rounds: int) -> Samples:
    """Milliseconds of the slowest command in each round, by what was done."""
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        async with embedded_redis(Path(directory)) as url, Store(url) as store:
            own = OwnSlots(store, ORCHESTRATOR, count=slots)
            await own.adjust()
            await own.recycle()
            holders = await populate(store, sessions, slots)
            await watch_commands(store)
            reclaims = [await slowest(store, own.reclaim()) for _ in range(rounds)]
            turns = [await slowest(store, give_and_take(store, own, holders[turn])) for turn in range(rounds)]
            return {
                "a reclaim that finds nothing": {IN_REDIS: reclaims},
                "a slot given back and taken again": {IN_REDIS: turns},
            }


async def populate(store: Store, sessions: int, slots: int) -> list[SessionId]:
    """So many sessions, of which as many as there are slots hold one and are alive; those that do."""
    everybody = [SessionId(new_id()) for _ in range(sessions)]
    for start in range(0, sessions, BATCH):
        batch = everybody[start : start + BATCH]
        await asyncio.gather(
            *(Sessions(store).create(each, requested=encode_request([{}]), origin=UNKNOWN) for each in batch)
        )
    holders = everybody[:slots]
    for start in range(0, slots, BATCH):
        await asyncio.gather(*(come_alive(store, each) for each in holders[start : start + BATCH]))
    return holders


async def come_alive(store: Store, session: SessionId) -> None:
    await Slots(store).claim(session, [ORCHESTRATOR])
    node_beat(session).write(store)
    await Sessions(store).move(session, State.PENDING, code="SCHED", orchestrator=ORCHESTRATOR)
    await Sessions(store).move(session, State.ALIVE, code="NALIVE")


async def give_and_take(store: Store, own: OwnSlots, holder: SessionId) -> None:
    """The end of one session, and the beginning of another."""
    await Sessions(store).move(holder, State.TERMINATED, code="CLOSED")
    await Slots(store).release(holder)
    await own.recycle()
    successor = SessionId(new_id())
    await Sessions(store).create(successor, requested=encode_request([{}]), origin=UNKNOWN)
    await come_alive(store, successor)


async def watch_commands(store: Store) -> None:
    """Has Redis note every command that takes long enough to matter.

    Not every command: to forget ten thousands of notes takes 30 ms, for which the next one would be blamed.
    """
    await store.send("CONFIG", "SET", "slowlog-log-slower-than", NOTED_US, "slowlog-max-len", 10_000)


async def slowest(store: Store, work: Awaitable[object]) -> float:
    """Milliseconds of the slowest command that the work makes Redis do, or what is noted at least."""
    await store.send("SLOWLOG", "RESET")
    await work
    entries = await store.send("SLOWLOG", "GET", -1)
    noted = [us for _, _, us, command, *_ in entries if command[0] != "SLOWLOG"]
    return max(noted, default=NOTED_US) / 1000


if __name__ == "__main__":
    main()
