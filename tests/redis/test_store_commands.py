"""The store's commands, transactions and scripts, with the embedded server and with Debian's."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from remuda.base.errors import Broken, InvalidArgument, StoreUnavailable
from remuda.keyspace.fleet import BELL, LEASE, ROLE, ROLES
from remuda.keyspace.grid import ORCHESTRATOR_BACKLOG, ORCHESTRATOR_PENDING, ORCHESTRATORS, SESSION_LOG
from remuda.store import Store, load_script
from remuda.store.commands import stream_entries
from remuda.store.wire import CommandRefused
from servers import Server, server

STRING, OTHER = LEASE("test"), LEASE("other")
HASH = ROLE("test")
LIST, TARGET = ORCHESTRATOR_BACKLOG("test"), ORCHESTRATOR_PENDING("test")
SET = ORCHESTRATORS()
ZSET = ROLES()
STREAM = SESSION_LOG("6f9619ff-8b86-d011-b42d-00cf4fc964ff")

COUNT = """\
-- Counts with a name that nobody else uses.
-- KEYS[1] remuda:lease:{resource}
-- ARGV[1] by
-- returns the new count
return redis.call('INCRBY', KEYS[1], ARGV[1])
"""


# What each command answers


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


# Errors


async def test_a_wrong_command_is_a_bug_of_ours(any_store: Store) -> None:
    with pytest.raises(CommandRefused, match="unknown command"):
        await any_store.send("NONSENSE")
    assert issubclass(CommandRefused, Broken)


async def test_a_wrong_type_is_refused_and_harms_nobody_else(any_store: Store) -> None:
    await any_store.set(STRING, "x")

    wrong, right = any_store.send("LPUSH", STRING, "y"), any_store.get(STRING)

    with pytest.raises(CommandRefused, match="WRONGTYPE"):
        await wrong
    assert await right == "x"


async def test_a_full_redis_is_unavailable_not_broken(server: Server) -> None:
    async with Store(server.url) as store:
        await store.send("CONFIG", "SET", "maxmemory", "1")

        with pytest.raises(StoreUnavailable, match="OOM"):
            await store.set(STRING, "x")
        with pytest.raises(StoreUnavailable, match="OOM"):
            async with store.transaction() as transaction:
                transaction.set(STRING, "x")

        await store.send("CONFIG", "SET", "maxmemory", "0")
        assert await store.set(STRING, "x") == "OK"


@pytest.mark.parametrize("engine", ["embedded", "debian"])
async def test_a_replica_that_takes_no_writes_is_unavailable(engine: str) -> None:
    with server(engine=engine) as replica:
        async with Store(replica.url) as store:
            await store.send("REPLICAOF", "127.0.0.1", "1")

            with pytest.raises(StoreUnavailable):
                await store.set(STRING, "x")
            with pytest.raises(StoreUnavailable):
                async with store.transaction() as transaction:
                    transaction.set(STRING, "x")


async def test_a_redis_that_runs_a_long_script_is_unavailable(server: Server) -> None:
    async with Store(server.url) as store, Store(server.url) as other:
        await store.send("CONFIG", "SET", "busy-reply-threshold", "1")
        endless = store.send("EVAL", "while true do end", 0)

        async def refused() -> bool:
            try:
                await other.get(STRING)
            except StoreUnavailable as error:
                return "BUSY" in error.message
            return False

        try:
            async with asyncio.timeout(5):
                while not await refused():
                    pass
        finally:
            await other.send("SCRIPT", "KILL")
        with pytest.raises(CommandRefused):
            await endless


async def test_busy_names_are_no_busy_server(store: Store) -> None:
    await store.xadd(STREAM, {"code": "A"}, about=10)
    await store.send("XGROUP", "CREATE", STREAM, "readers", "0")

    with pytest.raises(CommandRefused, match="BUSYGROUP"):
        await store.send("XGROUP", "CREATE", STREAM, "readers", "0")


# Transactions


async def test_the_replies_of_a_transaction_are_there_after_its_block(any_store: Store) -> None:
    async with any_store.transaction() as transaction:
        length = transaction.rpush(LIST, "a", "b")
        items = transaction.lrange(LIST)

    assert await length == 2
    assert await items == ["a", "b"]


async def test_an_empty_transaction_does_nothing(store: Store) -> None:
    async with store.transaction():
        pass


async def test_a_block_that_fails_sends_nothing(store: Store) -> None:
    with suppress(ZeroDivisionError):
        async with store.transaction() as transaction:
            transaction.set(STRING, "x")
            _ = 1 / 0

    assert await store.get(STRING) is None


async def test_nobody_ever_sees_half_a_transaction(any_store: Store, any_url: str) -> None:
    async def transfer(store: Store, rounds: int) -> None:
        for _ in range(rounds):
            async with store.transaction() as transaction:
                transaction.incr(STRING)
                transaction.incr(OTHER, -1)

    async def watch(store: Store, writers: asyncio.Task[object]) -> int:
        looks = 0
        while not writers.done():
            first, second = await store.send("MGET", STRING, OTHER)
            assert int(first or 0) + int(second or 0) == 0
            looks += 1
        return looks

    async with Store(any_url) as other:
        # Two connections, and several tasks on each: neither may get between the others' commands.
        writers = asyncio.gather(*(transfer(each, 100) for each in (any_store, other) for _ in range(5)))
        writing = asyncio.ensure_future(writers)
        looks = await asyncio.gather(watch(any_store, writing), watch(other, writing))  # type: ignore[arg-type]
        await writing

    assert min(looks) > 0
    assert await any_store.get(STRING) == "1000"


async def test_a_command_that_redis_refuses_to_queue_discards_the_whole_transaction(any_store: Store) -> None:
    async def spoil() -> None:
        async with any_store.transaction() as transaction:
            transaction.set(STRING, "x")
            transaction.send("NONSENSE")

    with pytest.raises(CommandRefused, match="unknown command"):
        await spoil()
    assert await any_store.get(STRING) is None


async def test_a_transaction_may_depend_on_a_key_that_is_there(any_store: Store) -> None:
    await any_store.set(OTHER, "here")

    async with any_store.transaction_provided(OTHER) as transaction:
        length = transaction.rpush(LIST, "a", b"\x00\xff", 3)
        value = transaction.get(STRING)
        items = transaction.lrange(LIST, 0, 0)

    assert transaction.is_done
    assert (await length, await value, await items) == (3, None, ["a"])


async def test_a_transaction_whose_key_is_gone_does_nothing(any_store: Store) -> None:
    async with any_store.transaction_provided(OTHER) as transaction:
        length = transaction.rpush(LIST, "a")

    assert not transaction.is_done
    assert await length is None
    assert await any_store.send("DBSIZE") == 0


async def test_a_transaction_that_depends_on_a_key_heeds_the_prefix(any_url: str, any_store: Store) -> None:
    async with Store(any_url, prefix="herd:") as store:
        await store.set(OTHER, "here")
        async with store.transaction_provided(OTHER) as transaction:
            transaction.set(STRING, "x")

        assert await store.get(STRING) == "x"
    assert await any_store.get(STRING) is None


async def test_a_refusal_does_not_colour_the_next_transaction(store: Store) -> None:
    with pytest.raises(CommandRefused):
        async with store.transaction() as transaction:
            transaction.send("NONSENSE")

    with pytest.raises(CommandRefused, match="wrong number of arguments"):
        async with store.transaction() as transaction:
            transaction.send("GET")


async def test_a_command_that_fails_inside_a_transaction_surfaces(any_store: Store) -> None:
    await any_store.set(STRING, "x")

    with pytest.raises(CommandRefused, match="WRONGTYPE"):
        async with any_store.transaction() as transaction:
            transaction.send("LPUSH", STRING, "y")


async def test_a_transaction_may_ring_a_bell_that_its_own_connection_hears(any_store: Store) -> None:
    with any_store.subscribe(BELL("test")) as rings:
        for number in range(20):
            async with any_store.transaction() as transaction:
                before = transaction.incr(STRING)
                heard = transaction.publish(BELL("test"), number)
                after = transaction.incr(STRING)

            assert (await before, await heard, await after) == (2 * number + 1, 1, 2 * number + 2)
            assert await rings.wait(5) == [str(number)]


async def test_a_script_may_ring_a_bell_that_its_own_connection_hears(any_store: Store) -> None:
    ring = "redis.call('PUBLISH', KEYS[1], 'x') return {1, 2}"
    with any_store.subscribe(BELL("test")) as rings:
        for _ in range(20):
            assert await any_store.send("EVAL", ring, 1, BELL("test")) == [1, 2]
            assert await rings.wait(5) == ["x"]


# The prefix


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


async def test_the_prefix_stands_before_the_keys_of_scripts(
    redis_url: str, store: Store, tmp_path: Path
) -> None:
    (tmp_path / "count.lua").write_text(COUNT)
    script = load_script(str(tmp_path / "count.py"), "count.lua", keys=[LEASE], args=["by"])

    async with Store(redis_url, prefix="fleet-b:") as prefixed:
        await prefixed.run(script, keys=[STRING], args=[2])

    assert await store.send("KEYS", "*") == [f"fleet-b:{STRING}"]


async def test_values_get_no_prefix(redis_url: str, store: Store) -> None:
    async with Store(redis_url, prefix="fleet-b:") as prefixed:
        await prefixed.hset(HASH, {"name": "gateway"})

        assert await prefixed.hgetall(HASH) == {"name": "gateway"}


# Scripts


async def test_a_script_is_run_before_and_after_redis_knows_it(any_store: Store, tmp_path: Path) -> None:
    (tmp_path / "count.lua").write_text(COUNT)
    script = load_script(str(tmp_path / "count.py"), "count.lua", keys=[LEASE], args=["by"])

    await any_store.send("SCRIPT", "FLUSH")
    assert await any_store.run(script, keys=[STRING], args=[1]) == 1
    assert await any_store.send("SCRIPT", "EXISTS", script.sha) == [1]
    assert await any_store.run(script, keys=[STRING], args=[1]) == 2
    await any_store.send("SCRIPT", "FLUSH")
    assert await any_store.run(script, keys=[STRING], args=[1]) == 3


async def test_a_script_that_fails_is_named(store: Store, tmp_path: Path) -> None:
    (tmp_path / "count.lua").write_text(COUNT)
    script = load_script(str(tmp_path / "count.py"), "count.lua", keys=[LEASE], args=["by"])

    await store.send("SCRIPT", "FLUSH")
    for _ in ("by its source", "by its digest"):
        with pytest.raises(CommandRefused, match=r"^count\.lua: .*not an integer"):
            await store.run(script, keys=[STRING], args=["many"])


async def test_a_script_is_not_called_with_other_keys_than_its_header_says(
    store: Store, tmp_path: Path
) -> None:
    (tmp_path / "count.lua").write_text(COUNT)
    script = load_script(str(tmp_path / "count.py"), "count.lua", keys=[LEASE], args=["by"])

    with pytest.raises(Broken, match="takes 1 keys, got 2"):
        await store.run(script, keys=[STRING, OTHER], args=[1])
    assert await store.get(STRING) is None


@pytest.mark.parametrize("bad", ["", "a b", "a\n", "../x", "a*", "a{b}", "ä", "x" * 201])
def test_nothing_unchecked_becomes_part_of_a_key(bad: str) -> None:
    with pytest.raises(InvalidArgument):
        LEASE(bad)
