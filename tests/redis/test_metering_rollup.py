"""What is rolled up, packed and dropped changes no answer, whatever the order in which things happen."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import servers
from golden_usage import GOLDEN, STORY, load_keyspace, plain, read_keyspace
from remuda.base import clock
from remuda.base.errors import Unavailable
from remuda.fleet.services import OBJECTS, STORAGE
from remuda.keyspace.metering import (
    ADOPTED,
    CLOSED,
    LATE_RESOURCES,
    METER_STATE,
    METER_USAGE,
    RESOURCES,
    ROLLED_DAYS,
    ROLLED_SLOTS,
    UNPACKED,
)
from remuda.metering import pack
from remuda.metering.forget import Forgetting
from remuda.metering.model import DAY_MS, Counting, Level, Services, find_change, slot_of
from remuda.metering.push import Metering, PushRules
from remuda.metering.reconcile import Reconciler
from remuda.metering.rollup import Rollup, as_bytes
from remuda.metering.s3 import S3
from remuda.metering.usage import TimeRange, Usage, UsageReader
from remuda.store import Store
from remuda.store.census import take_census

SLOT_MS = 900_000
FIRST = (clock.now_ms() - 20 * DAY_MS) // DAY_MS * DAY_MS
"""The first midnight of the histories: long ago, so that the tests choose what is over."""
SERVICES = Services([S3])
BUCKET = {"bucket": "b", "accountId": "a"}


def put(size: int, old: int | None = None) -> tuple[str, dict[str, Any]]:
    return "putObject", {**BUCKET, "newByteLength": size, "oldByteLength": old}


class PlainUsage:
    """What a meter should say: a list of all events, added up on demand."""

    def __init__(self) -> None:
        self.events: list[tuple[int, dict[str, int], dict[str, int]]] = []

    def add(self, action: str, params: dict[str, Any], timestamp: int) -> None:
        change = find_change(S3, action, params, Counting())
        self.events.append((slot_of(timestamp, 15), dict(change.counts), dict(change.moves)))

    def read(self, asked: TimeRange) -> Usage:
        counts: dict[str, int] = dict.fromkeys(S3.counted, 0)
        at: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        for slot, added, moved in self.events:
            if asked.start <= slot <= asked.end:
                for name, by in added.items():
                    counts[name] += by
            for state, by in moved.items():
                at[state][0] += by if slot <= asked.start else 0
                at[state][1] += by if slot <= asked.end else 0
        states = {state: (max(0, at[state][0]), max(0, at[state][1])) for state in (STORAGE, OBJECTS)}
        return Usage("b", counts, states)


MOMENTS = st.integers(0, 5 * 96 - 1)
EVENTS = st.tuples(
    MOMENTS,
    st.one_of(
        st.builds(put, st.integers(0, 5000)),
        st.builds(put, st.integers(0, 5000), st.integers(0, 3000)),
        st.just(("getObject", {**BUCKET, "newByteLength": 77})),
        st.just(("headBucket", BUCKET)),
        st.just(("deleteObject", {**BUCKET, "byteLength": 500, "numberOfObjects": 1})),
    ),
)
# A number of days is a roll-up of all that is over then.
STEPS = st.lists(st.one_of(EVENTS, st.integers(1, 8)), max_size=40)
RANGES = st.lists(st.tuples(MOMENTS, st.integers(1, 200)), min_size=1, max_size=6)


# An event that is more than a day older than the first.
@example(steps=[(97, put(1)), (0, put(1))], ranges=[(0, 1)], bursts=False)
@settings(max_examples=60, deadline=None)
@given(steps=STEPS, ranges=RANGES, bursts=st.booleans())
def test_every_answer_is_that_of_a_plain_list_of_events(
    embedded_url: str, steps: list[Any], ranges: list[tuple[int, int]], bursts: bool
) -> None:
    async def history() -> None:
        async with Store(embedded_url) as store:
            metering, rollup = Metering(store), Rollup(store, SERVICES)
            plain, reader = PlainUsage(), UsageReader(store, S3, precision=15)
            pending: list[asyncio.Future[bool]] = []
            for step in steps:
                if isinstance(step, int):
                    await asyncio.gather(*pending)
                    pending.clear()
                    await rollup.run_once(FIRST + step * DAY_MS)
                    continue
                place, (action, params) = step
                timestamp = FIRST + place * SLOT_MS + 5
                plain.add(action, params, timestamp)
                pending.append(asyncio.ensure_future(metering.push(action, params, timestamp=timestamp)))
                if not bursts:
                    await pending[-1]
            await asyncio.gather(*pending)
            for first, length in ranges:
                asked = TimeRange(FIRST + first * SLOT_MS, FIRST + (first + length) * SLOT_MS - 1)
                assert await reader.read(Level.BUCKETS, ["b"], asked) == [plain.read(asked)]

    servers.empty(embedded_url)
    asyncio.run(history())


@settings(max_examples=40, deadline=None)
@given(
    events=st.lists(st.tuples(st.integers(-40, 14), EVENTS.map(lambda event: event[1])), max_size=25),
    bursts=st.booleans(),
)
def test_answers_about_the_present_are_exact_though_clocks_differ(
    embedded_url: str, events: list[tuple[int, tuple[str, dict[str, Any]]]], bursts: bool
) -> None:
    async def history() -> None:
        async with Store(embedded_url) as store:
            metering, plain = Metering(store), PlainUsage()
            now = clock.now_ms()
            pushes = []
            for minutes, (action, params) in events:
                timestamp = now + minutes * 60_000
                plain.add(action, params, timestamp)
                pushes.append(asyncio.ensure_future(metering.push(action, params, timestamp=timestamp)))
                if not bursts:
                    await pushes[-1]
            await asyncio.gather(*pushes)
            reader, last = UsageReader(store, S3, precision=15), slot_of(now, 15)
            for first in range(last - 3 * SLOT_MS, last + 2 * SLOT_MS, SLOT_MS):
                asked = TimeRange(first, last + SLOT_MS - 1)
                assert await reader.read(Level.BUCKETS, ["b"], asked) == [plain.read(asked)]
            assert await Reconciler(store, SERVICES, precision=15).find_drift() == []

    servers.empty(embedded_url)
    asyncio.run(history())


async def test_golden_listings_are_the_same_before_and_after_roll_up(store: Store) -> None:
    metering, rollup = Metering(store), Rollup(store, SERVICES)
    for step in STORY["steps"]:
        await metering.push(step["action"], step["params"], timestamp=step["now"])

    for days in (None, 0, 1, 5):
        if days is not None:
            await rollup.run_once(STORY["steps"][-1]["now"] + days * DAY_MS + SLOT_MS)
        await check_golden_listings(store)


async def test_what_utapi_wrote_is_read_and_adopted(store: Store) -> None:
    await load_keyspace(store, STORY["keyspace"])

    await check_golden_listings(store)
    await Rollup(store, SERVICES).run_once()
    await check_golden_listings(store)

    assert await store.zrange(RESOURCES("s3", "buckets")) == ["foo-bucket"]
    assert await store.zcard(METER_STATE("s3", "buckets", "foo-bucket", STORAGE)) == 1
    assert await store.ttl_ms(METER_USAGE("s3", "buckets", "1483251300000", "foo-bucket", "PutObject")) > 0


async def test_what_only_utapi_writes_is_read_also_after_its_keys_were_looked_for(store: Store) -> None:
    await Rollup(store, SERVICES).run_once()
    await load_keyspace(store, STORY["keyspace"])

    await check_golden_listings(store)


async def test_many_unknown_resources_are_read_once_it_is_known_what_utapi_counted(store: Store) -> None:
    reader, names = UsageReader(store, S3, precision=15), [f"made-up-{number}" for number in range(30)]
    now = clock.now_ms()
    asked = TimeRange(slot_of(now, 15) - 100 * DAY_MS, now)

    with pytest.raises(Unavailable, match="many unknown buckets"):
        await reader.read(Level.BUCKETS, names, asked)
    assert len(await reader.read(Level.BUCKETS, names[:1], asked)) == 1
    await Rollup(store, SERVICES).run_once()
    assert len(await reader.read(Level.BUCKETS, names, asked)) == 30


async def test_a_long_list_is_read_by_and_by_and_each_name_of_it_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await Rollup(store, SERVICES).run_once()
    reader, names = UsageReader(store, S3, precision=15), [f"bucket-{number}" for number in range(60)]
    now = clock.now_ms()
    asked = TimeRange(slot_of(now, 15), now)
    read, asked_for, at_a_time = reader._read, 0, [0]

    async def watched(level: Level, resources: Sequence[str], asked: TimeRange) -> list[Usage]:
        nonlocal asked_for
        asked_for += len(resources)
        at_a_time.append(at_a_time[-1] + 1)
        try:
            return await read(level, resources, asked)
        finally:
            at_a_time.append(at_a_time[-1] - 1)

    monkeypatch.setattr(reader, "_read", watched)
    lists = await asyncio.gather(*(reader.read(Level.BUCKETS, names * 2, asked) for _ in range(5)))

    assert all([usage.resource for usage in usages] == names * 2 for usages in lists)
    assert asked_for == 5 * len(names)
    assert max(at_a_time) == 2


async def test_of_years_only_what_was_used_is_read(store: Store) -> None:
    metering, plain, reader = Metering(store), PlainUsage(), UsageReader(store, S3, precision=15)
    for place in (0, 97, 96 * 5):
        plain.add(*put(place + 1), FIRST + place * SLOT_MS)
        await metering.push(*put(place + 1), timestamp=FIRST + place * SLOT_MS)
    await Rollup(store, SERVICES).run_once()

    for years in (1, 3, 30):
        asked = TimeRange(FIRST - years * 365 * DAY_MS, FIRST + 4 * DAY_MS - 1)
        assert await reader.read(Level.BUCKETS, ["b"], asked) == [plain.read(asked)]


async def check_golden_listings(store: Store) -> None:
    reader = UsageReader(store, S3, precision=15)
    for recorded in GOLDEN["listMetrics"]:
        answer = recorded["response"]
        (usage,) = await reader.read(
            Level(recorded["level"]), [recorded["resource"]], TimeRange(*answer["timeRange"])
        )
        operations = {name.removeprefix("s3:"): count for name, count in answer["operations"].items()}
        bytes_moved = {name: answer[name] for name in S3.measures}
        assert usage.counts == {**operations, **bytes_moved}
        assert {state: list(pair) for state, pair in usage.states.items()} == {
            state: answer[state] for state in S3.states
        }


async def test_single_keys_expire_only_once_they_are_rolled_up(store: Store) -> None:
    metering, rollup = Metering(store), Rollup(store, SERVICES, keep_keys=100)
    key = METER_USAGE("s3", "buckets", str(FIRST), "b", "PutObject")
    await metering.push(*put(10), timestamp=FIRST)

    assert await store.ttl_ms(key) == -1
    await rollup.run_once(FIRST + SLOT_MS)  # Within the grace.
    assert await store.ttl_ms(key) == -1
    await rollup.run_once(FIRST + 2 * SLOT_MS)
    assert 0 < await store.ttl_ms(key) <= 100_000


async def test_an_event_of_a_closed_time_slot_is_kept_apart_until_it_is_rolled_up(store: Store) -> None:
    metering, rollup = Metering(store), Rollup(store, SERVICES)
    await metering.push(*put(10), timestamp=FIRST)
    await rollup.run_once(FIRST + 5 * DAY_MS)

    await metering.push(*put(5), timestamp=FIRST)

    assert sorted(await store.smembers(LATE_RESOURCES())) == [
        "s3:accounts:a",
        "s3:buckets:b",
        "s3:service:s3",
    ]
    await rollup.run_once(FIRST + 5 * DAY_MS)
    assert await store.smembers(LATE_RESOURCES()) == []
    (usage,) = await UsageReader(store, S3, precision=15).read(
        Level.BUCKETS, ["b"], TimeRange(FIRST, FIRST + DAY_MS - 1)
    )
    assert (usage.counts["PutObject"], usage.states[STORAGE]) == (2, (15, 15))


async def test_what_comes_late_leaves_the_keyspace_that_utapi_leaves(store: Store) -> None:
    metering, rollup = Metering(store), Rollup(store, SERVICES)
    await rollup.run_once()

    for step in STORY["steps"]:
        await metering.push(step["action"], step["params"], timestamp=step["now"])
        # What is rolled up meanwhile makes no difference.
        await rollup.run_once()

    assert await read_keyspace(store) == plain(STORY["keyspace"])


async def test_what_comes_late_in_the_opposite_order_leaves_the_same(store: Store) -> None:
    metering = Metering(store)
    await Rollup(store, SERVICES).run_once()

    for step in reversed(STORY["steps"]):
        await metering.push(step["action"], step["params"], timestamp=step["now"])

    assert await read_keyspace(store) == plain(STORY["keyspace"])


async def test_the_single_key_of_a_closed_time_slot_has_what_was_rolled_up_too(store: Store) -> None:
    metering, rollup = Metering(store), Rollup(store, SERVICES)
    key = METER_USAGE("s3", "buckets", str(FIRST), "b", "PutObject")
    await metering.push(*put(1), timestamp=FIRST)
    await rollup.close_slots(FIRST + DAY_MS)
    await store.delete(key)  # As if it had expired.

    await metering.push(*put(1), timestamp=FIRST)

    assert await store.get(key) == "2"
    assert 0 < await store.send("TTL", key) <= 86400


async def test_a_packed_day_gets_no_single_key_that_would_miss_a_part(store: Store) -> None:
    metering, rollup = Metering(store), Rollup(store, SERVICES)
    await metering.push(*put(1), timestamp=FIRST)
    await rollup.run_once(FIRST + 5 * DAY_MS)
    keys = [METER_USAGE("s3", "buckets", str(FIRST), "b", name) for name in ("PutObject", "HeadBucket")]
    await store.delete(keys[0])

    await metering.push(*put(1), timestamp=FIRST)
    await metering.push("headBucket", BUCKET, timestamp=FIRST)

    assert [await store.get(key) for key in keys] == [None, "1"]


async def test_a_day_of_which_all_came_late_is_packed_some_days_later(store: Store) -> None:
    metering, rollup = Metering(store), Rollup(store, SERVICES)
    await rollup.run_once(FIRST + 5 * DAY_MS)
    await metering.push(*put(1), timestamp=FIRST)
    await metering.push("headBucket", {"bucket": "other"}, timestamp=FIRST + 8 * DAY_MS)

    await rollup.run_once(FIRST + 5 * DAY_MS)
    assert await store.zcard(UNPACKED()) == 3
    await rollup.run_once(FIRST + 8 * DAY_MS)

    assert await store.zcard(UNPACKED()) == 0
    day = await store.send("HGET", ROLLED_SLOTS("s3", "buckets", "b"), str(FIRST // DAY_MS))
    assert pack.is_packed(as_bytes(day))


@pytest.mark.parametrize("now", [FIRST + DAY_MS + 2 * SLOT_MS, FIRST + 5 * DAY_MS], ids=["open", "packed"])
async def test_what_comes_late_beside_utapi_counts_once(store: Store, now: int) -> None:
    metering, rollup = Metering(store), Rollup(store, SERVICES, with_utapi=True)
    await metering.push(*put(10), timestamp=FIRST)
    await rollup.run_once(now)
    await metering.push(*put(5), timestamp=FIRST)
    await metering.push(*put(7), timestamp=FIRST + DAY_MS)

    for _ in range(2):
        await rollup.run_once(now)
        (usage,) = await UsageReader(store, S3, precision=15).read(
            Level.BUCKETS, ["b"], TimeRange(FIRST, FIRST + 2 * DAY_MS - 1)
        )
        assert (usage.counts["PutObject"], usage.states[STORAGE]) == (3, (15, 22))


async def test_a_time_slot_that_is_rolled_up_and_not_closed_yet_counts_once(store: Store) -> None:
    metering, rollup = Metering(store), Rollup(store, SERVICES)
    for place in (0, 1):
        await metering.push(*put(10), timestamp=FIRST + place * SLOT_MS)
    await rollup.run_once(FIRST + SLOT_MS + 61_000)

    await rollup._roll_slot("s3", "buckets", FIRST + SLOT_MS)

    assert await store.get(CLOSED()) == str(FIRST + SLOT_MS)
    for days in (1, 3):
        (usage,) = await UsageReader(store, S3, precision=15).read(
            Level.BUCKETS, ["b"], TimeRange(FIRST, FIRST + days * DAY_MS - 1)
        )
        assert (usage.counts["PutObject"], usage.states[OBJECTS]) == (2, (1, 2))


class Killed(BaseException):
    """Stands for the death of the process."""


async def test_a_death_between_any_two_steps_of_a_roll_up_changes_no_answer(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    metering, plain, reader = Metering(store), PlainUsage(), UsageReader(store, S3, precision=15)

    async def push(place: int) -> None:
        timestamp = FIRST + place * SLOT_MS
        plain.add(*put(place + 1), timestamp)
        await metering.push(*put(place + 1), timestamp=timestamp)

    async def die_after(steps: int) -> bool:
        """Rolls up, but for what comes after so many commands; whether there was any."""
        left, run, send = steps, Store.run, Store.send

        def count(call: Any) -> Any:
            def counted(*args: Any, **options: Any) -> Any:
                nonlocal left
                left -= 1
                if left < 0:
                    raise Killed
                return call(*args, **options)

            return counted

        with monkeypatch.context() as patch:
            patch.setattr(Store, "run", count(run))
            patch.setattr(Store, "send", count(send))
            try:
                await Rollup(store, SERVICES).run_once(FIRST + 3 * DAY_MS)
            except Killed:
                return True
        return False

    await store.set(ADOPTED(), clock.rfc3339())
    for place in (0, 3, 97):
        await push(place)
    steps = 0
    while await die_after(steps):
        steps += 1 + steps // 5
        if steps % 3 == 0:
            await push(steps % 100)  # It comes late, if the roll-up has come that far.
        asked = TimeRange(FIRST + SLOT_MS, FIRST + DAY_MS + 9 * SLOT_MS - 1)
        assert await reader.read(Level.BUCKETS, ["b"], asked) == [plain.read(asked)]

    assert steps > 20


async def test_a_slot_is_not_closed_while_a_resource_is_active_in_it(store: Store) -> None:
    metering = Metering(store)
    await metering.push(*put(10), timestamp=FIRST)
    closed = await store.get(CLOSED())
    rollup = Rollup(store, SERVICES)

    async def keep_pushing() -> int:
        for count in range(200):
            await metering.push(*put(1), timestamp=FIRST + count % 4 * SLOT_MS)
        return 200

    pushed, _ = await asyncio.gather(keep_pushing(), rollup.run_once(FIRST + DAY_MS))

    await rollup.run_once(FIRST + DAY_MS)
    assert closed is not None
    assert int(await store.get(CLOSED()) or 0) > int(closed)
    (usage,) = await UsageReader(store, S3, precision=15).read(
        Level.BUCKETS, ["b"], TimeRange(FIRST, FIRST + DAY_MS - 1)
    )
    assert usage.counts["PutObject"] == pushed + 1
    assert usage.states[OBJECTS][1] == pushed + 1


async def test_a_finer_precision_is_kept_and_a_change_of_it_loses_nothing(store: Store) -> None:
    fine = Metering(store, rules=PushRules(precision=1))
    for minute in range(60):
        await fine.push("headBucket", BUCKET, timestamp=FIRST + minute * 60_000)
    await Rollup(store, SERVICES, precision=1).run_once(FIRST + 3_700_000)
    reader = UsageReader(store, S3, precision=1)

    async def count(first: int, last: int) -> int:
        asked = TimeRange(FIRST + first * 60_000, FIRST + last * 60_000 - 1)
        (usage,) = await reader.read(Level.BUCKETS, ["b"], asked)
        return usage.counts["HeadBucket"]

    assert [await count(0, 1), await count(7, 9), await count(0, 60)] == [1, 2, 60]
    await Metering(store).push("headBucket", BUCKET, timestamp=FIRST + 3_600_000)
    await Rollup(store, SERVICES).run_once(FIRST + 5 * DAY_MS)
    assert [await count(0, 1), await count(7, 9), await count(0, 61)] == [1, 2, 61]


async def test_every_key_is_as_declared(store: Store) -> None:
    metering = Metering(store, rules=PushRules(forgets_deleted=True))
    params = {**put(10)[1], "userId": "u", "location": "here", "keys": ["k"]}
    for timestamp in (FIRST, FIRST + 3 * DAY_MS, clock.now_ms() + 600_000):
        await metering.push("putObject", params, timestamp=timestamp)
    await Rollup(store, SERVICES).run_once(FIRST + 4 * DAY_MS)
    await metering.push("putObject", params, timestamp=FIRST)
    await metering.push("deleteBucket", {"bucket": "gone"}, timestamp=FIRST)

    assert await take_census(store) == []


async def test_old_days_are_dropped_per_level_and_empty_resources_are_forgotten(store: Store) -> None:
    metering = Metering(store)
    await metering.push("headBucket", BUCKET, timestamp=FIRST)
    rollup = Rollup(store, SERVICES, keep_days={Level.BUCKETS: 10, Level.ACCOUNTS: 30})
    await rollup.run_once(FIRST + 5 * DAY_MS)

    await rollup.drop_old(FIRST + 9 * DAY_MS)
    assert await store.send("HLEN", ROLLED_DAYS("s3", "buckets", "b")) == 1
    await rollup.drop_old(FIRST + 11 * DAY_MS)

    assert await store.exists(ROLLED_DAYS("s3", "buckets", "b"), ROLLED_SLOTS("s3", "buckets", "b")) == 0
    assert await store.zrange(RESOURCES("s3", "buckets")) == []
    assert await store.send("HLEN", ROLLED_DAYS("s3", "accounts", "a")) == 1


async def test_what_is_pushed_later_than_it_is_kept_for_stays_until_its_day_is_packed(store: Store) -> None:
    metering = Metering(store)
    rollup = Rollup(store, SERVICES, keep_days={Level.BUCKETS: 2})
    await rollup.run_once(FIRST + 5 * DAY_MS)
    await metering.push("headBucket", BUCKET, timestamp=FIRST)
    await rollup.run_once(FIRST + 5 * DAY_MS)

    await rollup.drop_old(FIRST + 5 * DAY_MS)
    assert await store.send("HLEN", ROLLED_DAYS("s3", "buckets", "b")) == 1
    await rollup.run_once(FIRST + 8 * DAY_MS)
    await rollup.drop_old(FIRST + 8 * DAY_MS)

    assert await store.exists(ROLLED_DAYS("s3", "buckets", "b"), ROLLED_SLOTS("s3", "buckets", "b")) == 0


async def test_a_first_event_of_long_ago_costs_no_look_at_every_time_slot_since(store: Store) -> None:
    await Metering(store).push("headBucket", BUCKET, timestamp=10**12)

    assert int(await store.get(CLOSED()) or 0) > clock.now_ms() - 32 * DAY_MS


async def test_a_deleted_bucket_is_forgotten_unless_it_is_used_again(store: Store) -> None:
    metering = Metering(store, rules=PushRules(forgets_deleted=True))
    forgetting = Forgetting(store, SERVICES, after=100, precision=15, keep_keys=86400)
    just_now = clock.now_ms() - 3_600_000
    for bucket in ("gone", "kept"):
        await metering.push("putObject", {**put(10)[1], "bucket": bucket}, timestamp=just_now)
        await metering.push("deleteBucket", {"bucket": bucket, "accountId": "a"}, timestamp=just_now)
    now = clock.now()
    await Rollup(store, SERVICES).run_once(int((now + 1800) * 1000))
    await store.send("ZADD", RESOURCES("s3", "buckets"), int((now + 1800) * 1000), "kept")

    assert not await forgetting.run_once(now + 50)
    assert await forgetting.run_once(now + 200) == {"forgotten": 1, "used_again": 1}

    left = [key for key in await store.send("KEYS", "*") if "gone" in key]
    assert left == []
    assert await store.zrange(RESOURCES("s3", "buckets")) == ["kept"]
    assert await store.send("HKEYS", "remuda:metering:owners:s3:buckets") == ["kept"]


@pytest.mark.parametrize("resources", [1, 40])
async def test_days_are_packed_when_they_are_over(store: Store, resources: int) -> None:
    metering, rollup = Metering(store), Rollup(store, SERVICES)
    for number in range(resources):
        await metering.push("headBucket", {"bucket": f"b{number}"}, timestamp=FIRST)

    await rollup.run_once(FIRST + 2 * DAY_MS - 1)
    assert await store.zcard(UNPACKED()) == resources + 1
    await rollup.run_once(FIRST + 3 * DAY_MS)
    assert await store.zcard(UNPACKED()) == 0
