"""Liveness: a beat keeps its key alive, ends by expiring, never by deletion, and outlives Redis' absence."""

import asyncio
import itertools
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from remuda.base import clock
from remuda.fleet import tasks
from remuda.fleet.liveness import Beat, FieldBeat, Heart, unix_seconds
from remuda.keyspace.fleet import LEASE, ROLE
from remuda.keyspace.key import ChannelName, Name
from remuda.store import Store
from servers import PATIENCE, Server
from waiting import eventually

KEY, OTHER = LEASE("beat"), LEASE("other")
HASH = ROLE("beating")

BEATING = """
import asyncio, sys
from remuda.fleet.liveness import Beat, Heart
from remuda.keyspace.fleet import LEASE
from remuda.store import Store

async def main():
    async with Store(sys.argv[1]) as store:
        heart = Heart(store)
        await heart.start(Beat(LEASE("beat"), 1))
        print("beating", flush=True)
        await heart.run()

asyncio.run(main())
"""


@asynccontextmanager
async def running(store: Store) -> AsyncIterator[Heart]:
    """A heart that beats during the block."""
    heart = Heart(store)
    task = asyncio.create_task(heart.run())
    yield heart
    assert not task.done()
    task.cancel()


class PassedTime:
    """A condition: so much time has gone by since it was made."""

    def __init__(self, seconds: float) -> None:
        self._ends_at = clock.monotonic() + seconds

    def __call__(self) -> bool:
        return clock.monotonic() > self._ends_at


async def test_a_beat_keeps_its_key_alive_beyond_its_ttl(any_store: Store) -> None:
    async with running(any_store) as heart:
        # Long enough for a machine that is busy with other tests: a process may wait for a second.
        await heart.start(Beat(KEY, 3))
        over = PassedTime(3.5)
        while not over():
            assert await any_store.exists(KEY)
            await asyncio.sleep(0.02)


async def test_a_beat_says_when(store: Store) -> None:
    async with running(store) as heart:
        await heart.start(Beat(KEY, 60), Beat(OTHER, 30, unix_seconds))

    assert abs(clock.parse_rfc3339(await store.get(KEY) or "") - clock.now()) < 5
    assert abs(int(await store.get(OTHER) or 0) - clock.now()) < 5
    assert 50_000 < await store.ttl_ms(KEY) <= 60_000
    assert 20_000 < await store.ttl_ms(OTHER) <= 30_000


async def test_a_beat_that_was_written_with_its_state_is_kept_going(store: Store) -> None:
    beat = Beat(KEY, 1)
    async with running(store) as heart:
        async with store.transaction() as transaction:
            beat.write(transaction)
        heart.keep(beat)

        first = await store.get(KEY)
        await eventually(lambda: _differs(store, first))


async def _differs(store: Store, value: str | None) -> bool:
    return await store.get(KEY) not in (value, None)


async def test_a_stopped_beat_expires_within_a_second_and_is_never_deleted(any_store: Store) -> None:
    beat = Beat(KEY, 60)
    async with running(any_store) as heart:
        await heart.start(beat)

        await heart.stop(beat)

        assert 0 < await any_store.ttl_ms(KEY) <= 1000
        await eventually(lambda: _is_gone(any_store), 5)


async def _is_gone(store: Store, key: Name = KEY) -> bool:
    return not await store.exists(key)


async def test_a_watcher_sees_the_end_as_an_expiry(store: Store, redis_url: str) -> None:
    await store.send("CONFIG", "SET", "notify-keyspace-events", "Exg")
    beat = Beat(KEY, 60)
    try:
        async with running(store) as heart, Store(redis_url) as watcher:
            with (
                watcher.subscribe(ChannelName("__keyevent@0__:expired")) as expired,
                watcher.subscribe(ChannelName("__keyevent@0__:del")) as deleted,
            ):
                await watcher.send("PING")
                await heart.start(beat)
                await heart.stop(beat)

                assert await expired.wait(5) == [KEY]
                assert await deleted.wait(0) == []
    finally:
        await store.send("CONFIG", "SET", "notify-keyspace-events", "")


async def test_stopping_what_does_not_beat_brings_nothing_to_life(store: Store) -> None:
    async with running(store) as heart:
        await heart.stop(Beat(KEY, 60))

    assert not await store.exists(KEY)


async def test_a_forgotten_beat_runs_out_by_itself(store: Store) -> None:
    beat = Beat(KEY, 1)
    async with running(store) as heart:
        await heart.start(beat)

        heart.forget(beat)

        assert await store.exists(KEY)
        await eventually(lambda: _is_gone(store), 5)


async def test_a_beat_that_is_stopped_while_it_is_under_way_does_not_come_back(server: Server) -> None:
    beat = Beat(KEY, 1)
    async with Store(server.url) as store, running(store) as heart:
        await heart.start(beat)
        server.pause()
        await eventually(PassedTime(0.5))  # By now the heart has sent its next beat and waits for the answer.
        stopping = asyncio.create_task(heart.stop(beat))
        await asyncio.sleep(0)
        server.resume()
        await stopping

        await eventually(lambda: _is_gone(store), 5)
        still_gone = PassedTime(0.7)
        while not still_gone():
            assert await _is_gone(store)
            await asyncio.sleep(0.02)


async def test_it_beats_again_after_redis_was_away(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "RETRY_AFTER", 0.05)
    async with Store(server.url, timeout=PATIENCE) as store, running(store) as heart:
        await heart.start(Beat(KEY, 1))
        server.kill()
        await eventually(lambda: not store.is_connected)
        await eventually(PassedTime(0.7))  # Long enough for a beat to have failed.
        server.start()

        async with Store(server.url) as watcher:
            assert await eventually(lambda: watcher.exists(KEY))


async def test_beats_of_different_lengths_do_not_wait_for_each_other(store: Store) -> None:
    async with running(store) as heart:
        await heart.start(Beat(OTHER, 60))
        await asyncio.sleep(0)
        await heart.start(Beat(KEY, 1))
        first = await store.get(KEY)

        await eventually(lambda: _differs(store, first))


async def test_the_key_of_a_killed_process_runs_out(store: Store, redis_url: str) -> None:
    with subprocess.Popen([sys.executable, "-c", BEATING, redis_url], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        await asyncio.to_thread(process.stdout.readline)
        first = await store.get(KEY)
        await eventually(lambda: _differs(store, first))

        process.kill()

    await eventually(lambda: _is_gone(store), 5)


async def test_a_beat_in_a_hash_leaves_its_other_fields_alone_and_keeps_it_alive(any_store: Store) -> None:
    counter = itertools.count()
    beat = FieldBeat(HASH, lambda: {"beatAt": next(counter)}, every=0.02, ttl=1)
    async with running(any_store) as heart:
        await any_store.hset(HASH, {"name": "gateway", "beatAt": "never"})
        await heart.start(beat)

        await eventually(lambda: _has_beaten(any_store, 50), 10)

        assert await any_store.hget(HASH, "name") == "gateway"
        heart.forget(beat)
        await eventually(lambda: _is_gone(any_store, HASH), 5)


async def test_a_beat_in_a_hash_that_stays_gives_it_no_end(store: Store) -> None:
    counter = itertools.count()
    beat = FieldBeat(HASH, lambda: {"beatAt": next(counter)}, every=0.02)
    async with running(store) as heart:
        await heart.start(beat)

        await eventually(lambda: _has_beaten(store, 3))

        assert await store.ttl_ms(HASH) == -1


async def _has_beaten(store: Store, times: int) -> bool:
    return int(await store.hget(HASH, "beatAt") or 0) >= times
