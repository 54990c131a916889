"""A Redis that changes hands: what one server refuses because it is not the master, the master does."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import pytest

from remuda.base.errors import StoreUnavailable
from remuda.fleet.liveness import Lease
from remuda.keyspace.fleet import BELL, LEASE
from remuda.store import Store
from remuda.store import sentinel as sentinel_module
from remuda.store import store as store_module
from remuda.store.sentinel import is_about
from servers import DEBIAN, Server, free_port, server
from waiting import eventually

STRING = LEASE("test")


async def write_plainly(store: Store) -> None:
    assert await store.set(STRING, "x") == "OK"


async def write_together(store: Store) -> None:
    async with store.transaction() as transaction:
        read, written = transaction.get(STRING), transaction.set(STRING, "x")
        transaction.publish(BELL("test"), "done")
    assert await read is None
    assert await written == "OK"


async def write_by_script(store: Store) -> None:
    assert await Lease(store, STRING, owner="x").acquire()


WRITES = [write_plainly, write_together, write_by_script]
Write = Callable[[Store], Awaitable[None]]


@pytest.mark.parametrize("write", WRITES)
async def test_what_a_replica_refuses_is_done_once_it_is_the_master(any_url: str, write: Write) -> None:
    async with Store(any_url) as operator, Store(any_url) as store:
        await operator.send("REPLICAOF", "127.0.0.1", "1")
        try:
            writing = asyncio.ensure_future(write(store))
            await eventually(lambda: store.connection_number > 1)
        finally:
            await operator.send("REPLICAOF", "NO", "ONE")

        await writing
        assert await operator.get(STRING) == "x"


@pytest.mark.parametrize("write", WRITES)
async def test_what_a_master_refuses_for_want_of_replicas_is_done_when_it_has_them(
    any_url: str, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "ASK_AGAIN", 0.01)
    async with Store(any_url) as operator, Store(any_url) as store:
        await operator.send("CONFIG", "SET", "min-replicas-to-write", "1")
        try:
            writing = asyncio.ensure_future(write(store))
            await eventually(lambda: bool(store._waiting))
            assert await store.get(STRING) is None  # Reading goes on, by the same connection.
        finally:
            await operator.send("CONFIG", "SET", "min-replicas-to-write", "0")

        await writing
        assert await operator.get(STRING) == "x"
        assert store.connection_number == 1


async def test_a_refusal_that_lasts_is_told_in_the_words_of_redis(any_url: str) -> None:
    async with Store(any_url) as operator, Store(any_url, timeout=0.5) as store:
        await operator.send("CONFIG", "SET", "min-replicas-to-write", "1")
        try:
            with pytest.raises(StoreUnavailable, match="NOREPLICAS"):
                await store.set(STRING, "x")
        finally:
            await operator.send("CONFIG", "SET", "min-replicas-to-write", "0")


def test_news_of_other_masters_are_none() -> None:
    assert is_about("main", "main 10.0.0.1 6379 10.0.0.2 6379")
    assert is_about("main", "slave 10.0.0.2:6379 10.0.0.2 6379 @ main 10.0.0.1 6379")
    assert not is_about("main", "mainly 10.0.0.1 6379 10.0.0.2 6379")
    assert not is_about("main", "slave 10.0.0.2:6379 10.0.0.2 6379 @ mainly 10.0.0.1 6379")


@contextmanager
def watched_pair() -> Iterator[tuple[Server, Server, str]]:
    """A master, its replica, and the URL by which a Sentinel tells of them."""
    ports = free_port(), free_port()
    sentinel_port = free_port()
    safe = ("--repl-diskless-sync-delay", "0", "--min-replicas-to-write", "1", "--min-replicas-max-lag", "10")
    watch = f"sentinel monitor main 127.0.0.1 {ports[0]} 1\nsentinel failover-timeout main 6000\n"
    follow = ("--replicaof", "127.0.0.1", str(ports[0]))
    with (
        server("--port", str(ports[0]), *safe, engine=DEBIAN) as master,
        server("--port", str(ports[1]), *follow, *safe, engine=DEBIAN) as replica,
        server("--port", str(sentinel_port), engine=DEBIAN, sentinel_config=watch),
    ):
        yield master, replica, f"redis+sentinel://127.0.0.1:{sentinel_port}/main"


async def test_a_fail_over_is_followed_at_once_and_fails_no_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sentinel_module, "SENTINEL_TIMEOUT", 10.0)
    with watched_pair() as (_, replica, url):
        async with Store(f"unix://{replica.socket}") as second, Store(url, timeout=30) as store:
            await eventually(lambda: store.incr(STRING), 30)
            sentinel = Store(url.replace("+sentinel", "").removesuffix("/main"))
            async with sentinel:
                await eventually(lambda: _knows_replica(sentinel), 30)
                count = Count()
                counting = asyncio.create_task(count.up(store))
                await sentinel.send("SENTINEL", "FAILOVER", "main")
                await eventually(lambda: store.connection_number > 1, 30)
                # The old master takes no write any more: what comes now, comes from the new one.
                await eventually(lambda: _is_master(second), 30)
                before = int(await second.get(STRING) or 0)
                await eventually(lambda: _is_above(second, before), 30)
                # Its answer may still be on its way. The last one may be the old master's, which takes writes
                # until it notices that its replica has left: Redis loses those.
                answers = count.answers
                await eventually(lambda: count.answers > answers, 30)
                counting.cancel()
                counted = await asyncio.gather(counting, return_exceptions=True)

            assert isinstance(counted[0], asyncio.CancelledError)
            assert int(await second.get(STRING) or 0) >= count.acknowledged


class Count:
    """Counts without a pause; a refusal that reaches it ends it."""

    acknowledged = 0
    answers = 0

    async def up(self, store: Store) -> None:
        while True:
            self.acknowledged = await store.incr(STRING)
            self.answers += 1


async def _knows_replica(sentinel: Store) -> bool:
    replicas = await sentinel.send("SENTINEL", "REPLICAS", "main")
    return any(each.get("master-link-status") == "ok" for each in replicas)


async def _is_master(store: Store) -> bool:
    return bool((await store.send("ROLE"))[0] == "master")


async def _is_above(store: Store, value: int) -> bool:
    return int(await store.get(STRING) or 0) > value


async def test_a_redis_that_is_away_is_logged_once(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    async with Store(server.url, timeout=0.2) as store:
        server.kill()
        for _ in range(3):
            with pytest.raises(StoreUnavailable):
                await store.get(STRING)
        server.start()
        await eventually(lambda: store.is_connected)

    assert [each.getMessage() for each in caplog.records].count("redis away") == 1
