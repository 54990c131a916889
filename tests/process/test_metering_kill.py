"""A process that meters is killed while Redis is away: what it was told to be safe is counted, once."""

import signal
import subprocess
import sys
from pathlib import Path

import servers
from remuda.metering.push import Metering
from remuda.metering.replay import Replay
from remuda.store import Store

SLOT = 1483251300000
WRITER = """
import asyncio, sys
from pathlib import Path
from remuda.metering.push import Metering
from remuda.metering.spool import Spool
from remuda.store import Store

async def main(url, directory, slot):
    async with Store(url, timeout=0.2) as store:
        metering = Metering(store, spool=Spool(Path(directory)))
        async def caller(name):
            for number in range(100_000):
                event = f"{name}/{number}"
                await metering.push("headBucket", {"bucket": "b"}, event_id=event, timestamp=int(slot))
                print(event, flush=True)
        await asyncio.gather(*map(caller, range(8)))

asyncio.run(main(*sys.argv[1:]))
"""


async def test_what_was_acknowledged_survives_the_death_of_process_and_redis(
    server: servers.Server, tmp_path: Path
) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, server.url, str(tmp_path), str(SLOT)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert writer.stdout is not None
    acknowledged = [writer.stdout.readline().strip() for _ in range(200)]

    server.pause()  # Some events are under way: nobody learns whether they were counted.
    acknowledged += [writer.stdout.readline().strip() for _ in range(300)]
    writer.send_signal(signal.SIGKILL)
    acknowledged += writer.stdout.read().split()
    writer.wait()
    server.resume()

    async with Store(server.url) as store:
        replay = Replay(store, Metering(store), tmp_path)
        await replay.replay_spool()
        counted = int(await store.send("GET", f"s3:buckets:{SLOT}:b:HeadBucket"))
        # Each id is known by now: those that were acknowledged, and at most what was under way.
        again = Metering(store)
        new = [
            await again.push("headBucket", {"bucket": "b"}, event_id=event, timestamp=SLOT)
            for event in acknowledged
        ]
        assert not any(new)
        assert len(acknowledged) <= counted <= len(acknowledged) + 8
        assert int(await store.send("GET", f"s3:buckets:{SLOT}:b:HeadBucket")) == counted
