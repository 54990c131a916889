"""Events are counted as Utapi counts them, once, at every level, whatever their order."""

import asyncio
from typing import Any

import pytest

from golden_usage import GOLDEN, SCENARIOS, STORY, load_keyspace, plain, points, read_keyspace
from remuda.base.errors import StoreUnavailable
from remuda.keyspace.key import ChannelName
from remuda.keyspace.metering import METER_EVENT, METERING_METRICS, OWNERS, RESOURCES
from remuda.metering.model import Counting, Level, Services
from remuda.metering.push import Metering, PushRules
from remuda.metering.s3 import S3
from remuda.store import Store

BUCKET = "foo-bucket"
SEED = {
    f"s3:buckets:{BUCKET}:numberOfObjects": [["5:seed", "1483250400000"]],
    f"s3:buckets:{BUCKET}:numberOfObjects:counter": "5",
    f"s3:buckets:{BUCKET}:storageUtilized": [["5000:seed", "1483250400000"]],
    f"s3:buckets:{BUCKET}:storageUtilized:counter": "5000",
}
SLOT = 1483251300000
PUT = {"bucket": BUCKET, "accountId": "foo-account", "newByteLength": 1024, "oldByteLength": None}
SUPPORTED = [each for each in GOLDEN["everyAction"] if each["action"] != "unsupportedMetric"]
NOT_PUBLISHED = {"getBucketObjectLock"}
"""A read, which Utapi publishes by mistake."""


def right(recorded: dict[str, Any]) -> dict[str, Any]:
    """What Utapi wrote, without the `NaN` that it writes for delete markers."""
    kept = plain(recorded)
    return {
        key: [point for point in value if point[0] != "NaN"] if isinstance(value, list) else value
        for key, value in kept.items()
    }


@pytest.mark.parametrize("recorded", SUPPORTED, ids=lambda each: each["action"])
async def test_every_action_writes_and_publishes_what_utapi_does(store: Store, recorded: Any) -> None:
    await load_keyspace(store, SEED)
    metering = Metering(store, rules=PushRules(counting=Counting(levels=frozenset({Level.BUCKETS}))))
    published = [each[2] for each in recorded["commands"] if each[0] == "publish"]

    with store.subscribe(METER_EVENT("s3", BUCKET)) as heard:
        await metering.push(recorded["action"], recorded["params"], timestamp=SLOT + 5000)
        messages = await heard.wait(0 if recorded["action"] in NOT_PUBLISHED or not published else 5)

    assert await read_keyspace(store) == right(recorded["bucketKeyspace"])
    assert messages == ([] if recorded["action"] in NOT_PUBLISHED else published)


async def test_a_story_leaves_the_keyspace_that_utapi_leaves(store: Store) -> None:
    metering = Metering(store)

    for step in STORY["steps"]:
        await metering.push(step["action"], step["params"], timestamp=step["now"])

    assert await read_keyspace(store) == plain(STORY["keyspace"])


async def test_a_story_in_the_opposite_order_leaves_the_same(store: Store) -> None:
    metering = Metering(store)

    for step in reversed(STORY["steps"]):
        await metering.push(step["action"], step["params"], timestamp=step["now"])

    assert await read_keyspace(store) == plain(STORY["keyspace"])


SAME = [
    "putDeleteMarkerObject without byteLength, empty slot",
    "putDeleteMarkerObject byteLength null, empty slot",
    "putDeleteMarkerObject byteLength 258 same slot",
    'bucket name containing "counter"',
    "no level at all: only service is counted",
]


@pytest.mark.parametrize("name", SAME)
async def test_edge_cases_are_counted_as_utapi_does(store: Store, name: str) -> None:
    metering = Metering(store)

    for step in SCENARIOS[name]["steps"]:
        await metering.push(step["action"], step["params"], timestamp=step["now"])

    assert await read_keyspace(store) == right(SCENARIOS[name]["keyspace"])


@pytest.mark.parametrize(
    ("name", "counting"),
    [
        ("metrics: [buckets]", Counting(levels=frozenset({Level.BUCKETS}))),
        ("disableOperationCounters", Counting(operations=frozenset())),
        (
            "enabledOperationCounters [PUTOBJECT] (case-insensitive)",
            Counting(operations=frozenset({"putobject"})),
        ),
    ],
)
async def test_switched_off_counters_are_not_written(store: Store, name: str, counting: Counting) -> None:
    metering = Metering(store, rules=PushRules(counting=counting))

    for step in SCENARIOS[name]["steps"]:
        await metering.push(step["action"], step["params"], timestamp=step["now"])

    assert await read_keyspace(store) == plain(SCENARIOS[name]["keyspace"])


async def test_a_negative_counter_keeps_its_sign_in_the_state(store: Store) -> None:
    metering = Metering(store)
    deleted = {"bucket": BUCKET, "byteLength": 1024, "numberOfObjects": 1}

    await metering.push("deleteObject", deleted, timestamp=SLOT)

    keys = await read_keyspace(store)
    assert keys[f"s3:buckets:{BUCKET}:storageUtilized:counter"] == "-1024"
    assert keys[f"s3:buckets:{BUCKET}:storageUtilized"] == [("-1024", SLOT)]


async def test_an_overwrite_of_an_object_that_was_never_counted_records_the_counter(store: Store) -> None:
    metering = Metering(store)

    await metering.push("putObject", {**PUT, "oldByteLength": 512}, timestamp=SLOT)

    assert (await read_keyspace(store))[f"s3:buckets:{BUCKET}:numberOfObjects"] == [("0", SLOT)]


async def test_a_location_has_counters_of_its_own(store: Store) -> None:
    metering = Metering(store)

    await metering.push("putObject", {**PUT, "location": "us-east-1"}, timestamp=SLOT)

    keys = await read_keyspace(store)
    assert keys[f"s3:location:{SLOT}:us-east-1:PutObject"] == "1"
    assert keys[f"s3:location:{SLOT}:us-east-1:incomingBytes"] == "1024"
    assert keys["s3:location:us-east-1:storageUtilized:counter"] == "1024"
    assert keys["s3:location:us-east-1:locationStorage"] == "1024"


async def test_an_event_is_counted_once(store: Store) -> None:
    metering = Metering(store)

    first = await metering.push("putObject", PUT, event_id="e1", timestamp=SLOT)
    kept = await read_keyspace(store, own=True)
    again = await metering.push("putObject", PUT, event_id="e1", timestamp=SLOT)
    elsewhere = await Metering(store).push("putObject", PUT, event_id="e1", timestamp=SLOT + 900_000)

    assert (first, again, elsewhere) == (True, False, False)
    assert await read_keyspace(store, own=True) == kept
    assert await store.hget(METERING_METRICS(), "duplicates") == "2"


async def test_of_many_concurrent_copies_one_is_counted_and_its_neighbours_are_too(store: Store) -> None:
    gatherings = [Metering(store) for _ in range(4)]

    counted = await asyncio.gather(
        *(
            metering.push(
                "putObject", {**PUT, "bucket": f"b{index % 5}"}, event_id=f"e{index}", timestamp=SLOT
            )
            for index in range(300)
            for metering in gatherings
        )
    )

    assert sum(counted) == 300
    assert await store.send("GET", f"s3:buckets:{SLOT}:b3:PutObject") == "60"
    assert await store.send("GET", "s3:service:s3:storageUtilized:counter") == str(300 * 1024)
    series = points(await store.send("ZRANGE", "s3:service:s3:storageUtilized", 0, -1, "WITHSCORES"))
    assert series == [(str(300 * 1024), SLOT)]


async def test_ids_are_forgotten_when_their_time_is_over(store: Store) -> None:
    metering = Metering(store, rules=PushRules(remember=1))

    await metering.push("headBucket", {"bucket": BUCKET}, event_id="e1", timestamp=SLOT)

    for key in await store.send("KEYS", "remuda:metering:seen:*"):
        assert 0 < await store.send("TTL", key) <= 2


async def count_scripts(store: Store) -> int:
    stats = str(await store.send("INFO", "commandstats"))
    return int(stats.partition("cmdstat_evalsha:calls=")[2].partition(",")[0])


async def test_callers_of_one_tick_share_a_round_trip(store: Store) -> None:
    metering = Metering(store)
    await metering.push("headBucket", {"bucket": BUCKET})
    before = await count_scripts(store)

    await asyncio.gather(*(metering.push("headBucket", {"bucket": BUCKET}) for _ in range(64)))

    assert await count_scripts(store) - before == 1


async def test_what_was_pushed_is_finished_at_the_end(store: Store) -> None:
    metering = Metering(store)
    pushes = [
        asyncio.ensure_future(metering.push("headBucket", {"bucket": BUCKET}, event_id=f"{number % 250}"))
        for number in range(300)
    ]
    await asyncio.sleep(0)

    await metering.finish()

    await asyncio.sleep(0)
    assert sum(push.result() for push in pushes) == 250


async def test_a_key_that_holds_something_else_does_not_undo_the_rest(store: Store) -> None:
    metering = Metering(store)
    await store.send("HSET", f"s3:buckets:{SLOT}:{BUCKET}:PutObject", "a", "b")
    await store.send("SET", "s3:accounts:foo-account:storageUtilized", "x")

    await metering.push("putObject", PUT, timestamp=SLOT)

    keys = await read_keyspace(store)
    assert keys[f"s3:buckets:{BUCKET}:storageUtilized"] == [("1024", SLOT)]
    assert keys[f"s3:service:{SLOT}:s3:PutObject"] == "1"
    assert await store.hget(METERING_METRICS(), "failed") == "2"


async def test_resources_and_their_owners_are_known(store: Store) -> None:
    metering = Metering(store)

    await metering.push("putObject", {**PUT, "userId": "u"}, timestamp=SLOT)
    await metering.push("putObject", {**PUT, "accountId": "other"}, timestamp=SLOT + 900_000)

    assert await store.hgetall(OWNERS("s3", "buckets")) == {BUCKET: "foo-account"}
    assert await store.hgetall(OWNERS("s3", "users")) == {"u": "foo-account"}
    assert await store.zrange(RESOURCES("s3", "accounts")) == ["foo-account", "other"]


async def test_a_prefix_applies_to_every_key(redis_url: str) -> None:
    async with Store(redis_url, prefix="herd-2:") as store:
        metering = Metering(store, services=Services([S3]))
        with store.subscribe(ChannelName(f"s3:event:{BUCKET}")) as heard:
            await metering.push("putObject", {**PUT, "keys": ["a"]}, event_id="e", timestamp=SLOT)
            assert await heard.wait(5) == ["putObject:a"]

        keys = await store.send("KEYS", "*")

    assert keys
    assert all(key.startswith("herd-2:") for key in keys)


async def test_without_a_spool_an_event_that_redis_cannot_take_is_refused(redis_url: str) -> None:
    async with Store(redis_url) as store:
        metering = Metering(store)
        store.hasten()
    with pytest.raises(StoreUnavailable):
        await metering.push("putObject", PUT)
