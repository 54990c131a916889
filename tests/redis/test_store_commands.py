"""The store's commands, with the embedded server and with Debian's: typed answers, checked names."""

import pytest

from remuda.base.errors import InvalidArgument
from remuda.keyspace.fleet import BELL, LEASE, ROLE, ROLES
from remuda.keyspace.grid import ORCHESTRATOR_BACKLOG, ORCHESTRATOR_PENDING, ORCHESTRATORS, SESSION_LOG
from remuda.store import Store
from remuda.store.commands import stream_entries

STRING, OTHER = LEASE("test"), LEASE("other")
HASH = ROLE("test")
LIST, TARGET = ORCHESTRATOR_BACKLOG("test"), ORCHESTRATOR_PENDING("test")
SET = ORCHESTRATORS()
ZSET = ROLES()
STREAM = SESSION_LOG("6f9619ff-8b86-d011-b42d-00cf4fc964ff")


async def test_strings_answer_as_typed(any_store: Store) -> None:
    assert await any_store.get(STRING) is None
    assert await any_store.set(STRING, "ä", ex=60) == "OK"
    assert await any_store.get(STRING) == "ä"
    assert 0 < await any_store.ttl_ms(STRING) <= 60_000
    assert await any_store.set(STRING, 5) == "OK"
    assert await any_store.ttl_ms(STRING) == -1
    assert await any_store.incr(STRING, 3) == 8
    assert await any_store.expire(STRING, 9) == 1
    assert await any_store.type_of(STRING) == "string"
    assert await any_store.exists(STRING, OTHER) == 1
    assert await any_store.delete(STRING, OTHER) == 1
    assert await any_store.ttl_ms(STRING) == -2


async def test_hashes_answer_as_typed(any_store: Store) -> None:
    assert await any_store.hgetall(HASH) == {}
    assert await any_store.hset(HASH, {"a": 1, "b": "x"}) == 2
    assert await any_store.hget(HASH, "a") == "1"
    assert await any_store.hmget(HASH, "b", "z") == ["x", None]
    assert await any_store.hgetall(HASH) == {"a": "1", "b": "x"}
    assert await any_store.hsetnx(HASH, "a", 9) == 0
    assert await any_store.hincrby(HASH, "a", 2) == 3
    assert await any_store.hdel(HASH, "a", "z") == 1


async def test_lists_answer_as_typed(any_store: Store) -> None:
    assert await any_store.rpush(LIST, "b", "c") == 2
    assert await any_store.lpush(LIST, "a") == 3
    assert await any_store.lrange(LIST) == ["a", "b", "c"]
    assert await any_store.rpoplpush(LIST, TARGET) == "c"
    assert await any_store.lrem(LIST, "a") == 1
    assert await any_store.llen(LIST) == 1
    assert await any_store.rpoplpush(LIST, TARGET) == "b"
    assert await any_store.rpoplpush(LIST, TARGET) is None
    assert await any_store.lrange(TARGET) == ["b", "c"]


async def test_sets_answer_as_typed(any_store: Store) -> None:
    assert await any_store.sadd(SET, "a", "b") == 2
    members = await any_store.smembers(SET)
    assert isinstance(members, list)
    assert sorted(members) == ["a", "b"]
    assert await any_store.sismember(SET, "a") == 1
    assert await any_store.srem(SET, "a") == 1
    assert await any_store.scard(SET) == 1


async def test_sorted_sets_answer_as_typed(any_store: Store) -> None:
    assert await any_store.zadd(ZSET, {"b": 2.5, "a": 1, "now": 1767323045.678912}) == 3
    assert await any_store.zrange(ZSET) == ["a", "b", "now"]
    assert await any_store.zrange_by_score(ZSET, "-inf", 2.5) == ["a", "b"]
    assert await any_store.zrange_by_score(ZSET, 1767323045.678912, "+inf") == ["now"]
    assert await any_store.zremrange_by_score(ZSET, 0, 1) == 1
    assert await any_store.zrem(ZSET, "b") == 1
    assert await any_store.zcard(ZSET) == 1


async def test_streams_answer_as_typed(any_store: Store) -> None:
    first = await any_store.xadd(STREAM, {"code": "A"}, about=10)
    second = await any_store.xadd(STREAM, {"code": "B", "meta": "1"}, about=10)

    assert stream_entries(await any_store.xrange(STREAM)) == [
        (first, {"code": "A"}),
        (second, {"code": "B", "meta": "1"}),
    ]
    assert stream_entries(await any_store.xrange(STREAM, after=first)) == [
        (second, {"code": "B", "meta": "1"})
    ]
    assert len(await any_store.xrange(STREAM, limit=1)) == 1


async def test_bytes_that_are_no_text_survive_the_way_there_and_back(store: Store) -> None:
    await store.set(STRING, b"\xff\x00\xfe")

    read = await store.get(STRING)
    assert read is not None
    await store.set(OTHER, read)

    assert await store.get(OTHER) == read
    assert await store.send("STRLEN", OTHER) == 3


# Names


async def test_the_prefix_stands_before_every_key_and_channel(redis_url: str, store: Store) -> None:
    async with Store(redis_url, prefix="fleet-b:") as prefixed:
        await prefixed.set(STRING, "x")
        async with prefixed.transaction() as transaction:
            transaction.rpush(LIST, "a")
            transaction.rpoplpush(LIST, TARGET)
        with prefixed.subscribe(BELL("test")) as rings:
            await store.publish(BELL("test"), "other fleet")
            await prefixed.publish(BELL("test"), STRING)
            heard = await rings.wait(5)

        assert await prefixed.get(STRING) == "x"

    assert sorted(await store.send("KEYS", "*")) == [f"fleet-b:{TARGET}", f"fleet-b:{STRING}"]
    assert heard == [f"fleet-b:{STRING}"]


async def test_values_get_no_prefix(redis_url: str, store: Store) -> None:
    async with Store(redis_url, prefix="fleet-b:") as prefixed:
        await prefixed.hset(HASH, {"name": "gateway"})

        assert await prefixed.hgetall(HASH) == {"name": "gateway"}


@pytest.mark.parametrize("bad", ["", "a b", "a\n", "../x", "a*", "a{b}", "ä", "x" * 201])
def test_nothing_unchecked_becomes_part_of_a_key(bad: str) -> None:
    with pytest.raises(InvalidArgument):
        LEASE(bad)
