"""What cannot be counted when it happens is counted later, once, in its own time slot."""

import asyncio
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

import servers
from golden_usage import SCENARIOS, read_keyspace
from remuda.base import clock
from remuda.base.errors import StoreUnavailable
from remuda.keyspace.metering import METERING_METRICS, POISON, REPLAY, REPLAY_LOCK
from remuda.metering import replay as replaying
from remuda.metering.forget import Forgetting
from remuda.metering.model import Level, Services, slot_of
from remuda.metering.push import Event, Metering, Pushed, PushRules
from remuda.metering.replay import Replay
from remuda.metering.role import MeteringRole
from remuda.metering.rollup import Rollup
from remuda.metering.s3 import S3
from remuda.metering.series import SeriesReader, SeriesSteps
from remuda.metering.spool import Spool, segments
from remuda.store import Store
from waiting import eventually

SLOT = 1483251300000
PUT = {"bucket": "b", "newByteLength": 1024, "oldByteLength": None}
COUNT = f"s3:buckets:{SLOT}:b:PutObject"


SECONDS_AWAY = 60 * int(os.environ.get("SOAK_ROUNDS", "0"))
"""For which Redis is away at least: SOAK_ROUNDS=1 makes that a minute, each time."""


def role_on(store: Store, directory: Path, **options: Any) -> MeteringRole:
    rules = PushRules(precision=options.pop("precision", 15))
    services = Services([S3])
    return MeteringRole(
        store,
        Replay(store, Metering(store, rules=rules), directory),
        Rollup(store, services, precision=rules.precision),
        Forgetting(store, services, after=0, precision=rules.precision, keep_keys=86400),
        replay_every=300,
        **options,
    )


async def fill(store: Store, directory: Path, events: int) -> None:
    """Has a process without Redis push events."""
    spool = Spool(directory)
    metering = Metering(store, spool=spool)
    for number in range(events):
        assert await metering.push("putObject", PUT, event_id=f"e{number}", timestamp=SLOT + number)
    await spool.close()


async def test_events_wait_on_disk_while_redis_is_away_and_keep_their_time_slot(
    server: servers.Server, tmp_path: Path
) -> None:
    async with Store(server.url, timeout=servers.PATIENCE) as store:
        server.kill()
        await eventually(lambda: not store.is_connected)
        await fill(store, tmp_path, 5)
        (segment,) = segments(tmp_path)
        line = json.loads(segment.read_text().splitlines()[0])

        server.start()
        await eventually(lambda: store.is_connected)
        done = await Replay(store, Metering(store), tmp_path).replay_spool()

        assert {name: line[name] for name in ("action", "reqUid", "params", "timestamp")} == {
            "action": "putObject",
            "reqUid": "e0",
            "params": PUT,
            "timestamp": SLOT,
        }
        assert done["replayed"] == 5
        assert await store.send("GET", COUNT) == "5"
        assert segments(tmp_path) == []
        assert not await Metering(store).push("putObject", PUT, event_id="e3", timestamp=SLOT)


@pytest.mark.timeout(120 + 3 * SECONDS_AWAY)
async def test_redis_away_under_load_loses_nothing_and_every_time_slot_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped first, so that connections stay and nothing is answered, and then killed. Nobody learns what
    became of the events that are under way in that moment."""
    moment = clock.now_ms() - 7_200_000
    monkeypatch.setattr(clock, "now_ms", lambda: moment)
    first_slot = slot_of(moment, 1)
    pushed: Counter[int] = Counter()

    async def load(seconds: float = 0.0) -> None:
        """Goes on while the clock shows three more minutes, and for so long."""
        nonlocal moment
        for _ in range(3):
            moment += 60_000
            wanted, began = pushed.total() + 50, time.monotonic()

            def is_enough(wanted: int = wanted, began: float = began) -> bool:
                return pushed.total() >= wanted and time.monotonic() - began >= seconds / 3

            await eventually(is_enough, deadline=60 + seconds)

    with servers.server("--appendonly", "yes", "--appendfsync", "always") as server:
        async with Store(server.url, timeout=servers.PATIENCE) as store:
            serving = asyncio.create_task(role_on(store, tmp_path, precision=1).serve())
            metering = Metering(store, rules=PushRules(precision=1), spool=Spool(tmp_path))
            is_over = False

            async def caller() -> None:
                while not is_over:
                    event = metering.check("putObject", PUT)
                    await metering.push_list([event])
                    pushed[slot_of(event.timestamp, 1)] += 1
                    await asyncio.sleep(0.005)

            callers = [asyncio.create_task(caller()) for _ in range(16)]
            await load()
            server.pause()
            await load(SECONDS_AWAY)
            server.resume()
            await load()
            server.kill()
            await load(SECONDS_AWAY)
            server.start()
            await load()
            is_over = True
            await asyncio.gather(*callers)

            steps = SeriesSteps.over(first_slot, moment + 1, "slot", 1)
            counts = [pushed[slot] for slot in steps.times]

            async def is_complete() -> bool:
                try:
                    (found,) = await SeriesReader(store, S3, precision=1).read(Level.BUCKETS, ["b"], steps)
                except StoreUnavailable:  # The machine is busy, and this store has little patience.
                    return False
                return (found.counts.get("PutObject"), found.states["numberOfObjects"]) == (
                    counts,
                    list(accumulate(counts)),
                )

            await eventually(lambda: not segments(tmp_path), deadline=60 + SECONDS_AWAY)
            await eventually(is_complete, deadline=60)
            assert all(counts[1:])
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)


async def test_a_day_that_cannot_be_read_does_not_end_the_role(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    day = clock.now_ms() // 86_400_000 - 10
    await store.send("HSET", "remuda:metering:slots:s3:buckets:b", day, "no day")
    await store.send("ZADD", "remuda:metering:unpacked", day, f"{day}:s3:buckets:b")
    await store.send("SET", "remuda:metering:closed", clock.now_ms() // 900_000 * 900_000)
    await store.send("SET", "remuda:metering:adopted", "yes")
    serving = asyncio.create_task(role_on(store, tmp_path, roll_every=0.01).serve())

    (tmp_path / "a.jsonl").write_text(
        json.dumps({"action": "putObject", "reqUid": "r", "params": PUT, "timestamp": SLOT}) + "\n"
    )

    await eventually(lambda: not segments(tmp_path), deadline=30)
    with caplog.at_level("ERROR"):
        await eventually(lambda: "metering step failed" in caplog.text, deadline=30)
    assert not serving.done()
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


class Killed(BaseException):
    """Stands for the death of the process."""


@pytest.mark.parametrize("step", range(12))
async def test_a_death_between_any_two_steps_of_a_replay_changes_nothing(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    async with Store(store.url.text, timeout=servers.PATIENCE) as absent:
        absent._wire = None  # As if Redis were away.
        await fill(absent, tmp_path, 3)
        absent.hasten()
    steps = 0

    def count_or_die(call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **options: Any) -> Any:
            nonlocal steps
            steps += 1
            if steps == step + 1:
                raise Killed
            return call(*args, **options)

        return counted

    with monkeypatch.context() as patch:
        for owner, name in (
            (Path, "rename"),
            (Path, "unlink"),
            (os, "utime"),
            (replaying, "sync_directory"),
            (Store, "send"),
            (Store, "send_together"),
        ):
            patch.setattr(owner, name, count_or_die(getattr(owner, name)))
        died = False
        try:
            await Replay(store, Metering(store), tmp_path).replay_spool()
        except (Killed, StoreUnavailable):
            died = True

    await Replay(store, Metering(store), tmp_path).replay_spool()
    assert died == (steps == step + 1)
    assert await store.send("GET", COUNT) == "3"
    assert segments(tmp_path) == []


async def test_a_torn_line_is_skipped_and_a_wrong_one_is_set_aside(store: Store, tmp_path: Path) -> None:
    good = {"action": "putObject", "reqUid": "r", "params": PUT, "timestamp": SLOT}
    lines = [
        json.dumps(good),
        "nonsense",
        json.dumps({**good, "action": "unsupportedMetric"}),
        json.dumps({**good, "params": {"bucket": "b"}}),
        json.dumps({**good, "timestamp": None}),
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n" + json.dumps(good)[:20])

    done = await Replay(store, Metering(store), tmp_path).replay_spool()

    assert (done["replayed"], done["poison"]) == (1, 4)
    reasons = [json.loads(each)["reason"].partition(": JSON")[0] for each in await store.lrange(POISON())]
    assert sorted(reasons) == [
        "action is 'unsupportedMetric', which s3 does not have",
        "it is not JSON",
        "params.newByteLength is missing",
        "timestamp is missing or wrong",
    ]
    assert await store.hget(METERING_METRICS(), "poison") == "4"


async def test_what_may_have_been_counted_too_long_ago_is_set_aside(store: Store, tmp_path: Path) -> None:
    metering = Metering(store, rules=PushRules(remember=60))
    line = {"action": "putObject", "reqUid": "r", "params": PUT, "timestamp": SLOT}
    path = tmp_path / "a.jsonl"
    sent = json.dumps({**line, "sent": True}, separators=(",", ":"))
    path.write_text(sent + "\n" + json.dumps({**line, "reqUid": "other", "sent": False}) + "\n")
    os.utime(path, (0, 0))

    done = await Replay(store, metering, tmp_path).replay_spool()

    assert (done["replayed"], done["poison"]) == (1, 1)


async def test_a_segment_that_is_still_written_is_left_alone(store: Store, tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    await spool.append([b"{}"])

    assert not await Replay(store, Metering(store), tmp_path).replay_spool()
    assert len(segments(tmp_path)) == 1
    await spool.close()


async def test_a_full_disk_is_told_to_the_caller(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool(tmp_path)

    def fail(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", fail)
        with pytest.raises(StoreUnavailable, match="No space left"):
            await spool.append([b"{}"])
    await spool.append([b"{}"])
    await spool.close()


async def test_what_utapi_cached_is_replayed_into_its_own_time_slot(store: Store) -> None:
    cached = SCENARIOS["datastore down: local cache"]["keyspace"]["s3:utapireplay"]["value"]
    await store.rpush(REPLAY("s3"), *cached, "poison")
    replay = Replay(store, Metering(store), Path("/nonexistent"))

    done = await replay.replay_lists()
    await store.rpush(REPLAY("s3"), *cached)
    again = await replay.replay_lists()

    assert (done["replayed"], done["poison"]) == (2, 1)
    assert (again["replayed"], again["duplicates"]) == (0, 2)
    keys = await read_keyspace(store)
    assert keys[f"s3:buckets:{SLOT}:foo-bucket:PutObject"] == "1"
    assert keys[f"s3:buckets:{SLOT}:foo-bucket:ListBucketMultipartUploads"] == "1"
    assert await store.exists(REPLAY("s3"), REPLAY_LOCK("s3")) == 0


async def test_what_came_while_another_process_took_the_same_events_stays_in_the_list(store: Store) -> None:
    old, new = [
        json.dumps({"action": "putObject", "reqUid": uid, "timestamp": SLOT, "params": PUT}) for uid in "ab"
    ]
    await store.rpush(REPLAY("s3"), old)

    class Stopped(Metering):
        """Has its process stopped until its lock has ended and others have done its work."""

        async def push_all(self, events: Sequence[Event]) -> Pushed:
            pushed = await super().push_all(events)
            if events[0].id == "a":
                await store.delete(REPLAY("s3"))
                await store.rpush(REPLAY("s3"), new)
            return pushed

    done = await Replay(store, Stopped(store), Path("/nonexistent")).replay_lists()

    assert done["replayed"] == 2
    assert await store.send("GET", COUNT) == "2"


async def test_utapis_own_replay_is_not_disturbed(store: Store) -> None:
    await store.rpush(REPLAY("s3"), "{}")
    await store.set(REPLAY_LOCK("s3"), "true", ex=900)

    assert not await Replay(store, Metering(store), Path("/nonexistent")).replay_lists()
    assert await store.llen(REPLAY("s3")) == 1
