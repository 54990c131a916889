"""What Redis refuses or cannot do: our bug, or its bad day, and harm to nobody else."""

import asyncio

import pytest

from remuda.base.errors import Broken, StoreUnavailable
from remuda.keyspace.fleet import LEASE
from remuda.keyspace.grid import SESSION_LOG
from remuda.store import Store
from remuda.store.store import FIRST_RETRY
from remuda.store.wire import CommandRefused
from servers import PATIENCE, Server, server

STRING = LEASE("test")
STREAM = SESSION_LOG("6f9619ff-8b86-d011-b42d-00cf4fc964ff")


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
        async with Store(replica.url, timeout=PATIENCE) as store:
            await store.send("REPLICAOF", "127.0.0.1", "1")

            with pytest.raises(StoreUnavailable):
                await store.set(STRING, "x")
            with pytest.raises(StoreUnavailable):
                async with store.transaction() as transaction:
                    transaction.set(STRING, "x")

            # It looks for the master meanwhile, but does not flood the replica with connections.
            assert store.connection_number < 4 * PATIENCE / FIRST_RETRY


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
