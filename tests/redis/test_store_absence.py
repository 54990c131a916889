"""A Redis that is away, stuck or slow: commands wait, then fail in time, and nothing hangs."""

import asyncio
import gc

import pytest

from proxies import listening
from remuda.base.errors import StoreUnavailable
from remuda.keyspace.fleet import BELL, LEASE
from remuda.store import Store
from remuda.store import store as store_module
from servers import PATIENCE, Server
from servers import server as own_server
from waiting import eventually

STRING = LEASE("test")


async def test_a_command_called_while_redis_is_away_is_done_when_it_returns(server: Server) -> None:
    async with Store(server.url) as store:
        server.kill()
        await eventually(lambda: not store.is_connected)

        written, read = store.set(STRING, "x"), store.get(STRING)
        server.start()
        async with store.transaction() as transaction:
            counted = transaction.exists(STRING)

        assert await written == "OK"
        assert await read == "x"
        assert await counted == 1


async def test_a_command_fails_when_redis_does_not_return_in_time(server: Server) -> None:
    async with Store(server.url, timeout=0.3) as store:
        server.kill()
        await eventually(lambda: not store.is_connected)
        started = asyncio.get_running_loop().time()

        with pytest.raises(StoreUnavailable, match="does not answer") as caught:
            await store.get(STRING)

        assert 0.25 < asyncio.get_running_loop().time() - started < 3
        assert str(server.socket) in caught.value.message


async def test_who_is_in_haste_waits_for_no_redis_that_is_away(server: Server) -> None:
    async with Store(server.url, timeout=60) as store, asyncio.timeout(10):
        server.kill()
        await eventually(lambda: not store.is_connected)
        early = asyncio.ensure_future(store.get(STRING))

        store.hasten()

        for command in (early, store.get(STRING)):
            with pytest.raises(StoreUnavailable):
                await command
        server.start()
        await eventually(lambda: store.is_connected)
        assert await store.set(STRING, "x") == "OK"


async def test_commands_under_way_fail_at_once_when_the_connection_breaks(server: Server) -> None:
    async with Store(server.url, timeout=60) as store:
        server.pause()
        under_way = [store.incr(STRING) for _ in range(10)]
        await asyncio.sleep(0)
        server.kill()

        async with asyncio.timeout(5):
            results = await asyncio.gather(*under_way, return_exceptions=True)

        assert all(isinstance(result, StoreUnavailable) for result in results)
        assert "may or may not have been executed" in str(results[0])


async def test_reads_under_way_are_asked_again_when_the_connection_breaks(server: Server) -> None:
    async with Store(server.url, timeout=60) as store:
        server.pause()
        reads = [store.get(STRING) for _ in range(10)]
        write = store.incr(STRING)
        await asyncio.sleep(0)
        server.kill()
        with pytest.raises(StoreUnavailable, match="may or may not"):
            await write

        server.start()

        assert await asyncio.gather(*reads) == [None] * 10


async def test_reads_under_way_wait_no_longer_than_others(server: Server) -> None:
    async with Store(server.url, timeout=PATIENCE) as store:
        server.pause()
        read = store.get(STRING)
        await asyncio.sleep(0)
        server.kill()

        async with asyncio.timeout(5 * PATIENCE):
            with pytest.raises(StoreUnavailable):
                await read


async def test_reads_under_way_fail_at_once_for_a_process_that_leaves(server: Server) -> None:
    async with Store(server.url, timeout=60) as store:
        server.pause()
        read = store.get(STRING)
        await asyncio.sleep(0)
        store.hasten()
        server.kill()

        async with asyncio.timeout(5):
            with pytest.raises(StoreUnavailable):
                await read


async def test_a_read_that_redis_hangs_up_on_is_sent_twice_at_most() -> None:
    heard: list[bytes] = []

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(b"%0\r\n+PONG\r\n")
        heard.append(await reader.read(1000))
        writer.close()

    async with listening(hang_up) as url, Store(url, timeout=60) as store:
        async with asyncio.timeout(10):
            with pytest.raises(StoreUnavailable, match="may or may not"):
                await store.get(STRING)

    assert sum(b"GET" in each for each in heard) == 2


async def test_a_stuck_redis_is_noticed(server: Server) -> None:
    async with Store(server.url, timeout=1.0) as store:
        server.pause()
        try:
            async with asyncio.timeout(10):
                with pytest.raises(StoreUnavailable):
                    await store.get(STRING)
            await eventually(lambda: not store.is_connected)
        finally:
            server.resume()

        assert await eventually(lambda: store.is_connected)
        assert await store.set(STRING, "x") == "OK"


async def test_an_attempt_to_reconnect_that_hangs_makes_nobody_wait_longer() -> None:
    now = asyncio.get_running_loop().time
    attempts: list[float] = []

    async def greet_only_the_first(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        attempts.append(now())
        await reader.read(1000)
        if len(attempts) == 1:
            writer.write(b"%0\r\n+PONG\r\n")
            await reader.read(1000)
            writer.close()
        while await reader.read(1000):
            pass

    async with listening(greet_only_the_first) as url, Store(url, timeout=1.0) as store:
        with pytest.raises(StoreUnavailable):
            await store.send("PING")
        # From the middle of one attempt, the end of the time lies in the middle of the next.
        await eventually(lambda: len(attempts) == 2 and now() > attempts[1] + 0.5)
        started = now()
        with pytest.raises(StoreUnavailable, match="does not answer"):
            await store.send("PING")

        assert now() - started < 1.4


async def test_a_redis_that_never_answers_the_first_greeting_is_unavailable() -> None:
    async def stay_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1000):
            pass

    async with listening(stay_silent) as url:
        with pytest.raises(StoreUnavailable, match="does not answer"):
            await Store(url, timeout=0.2).__aenter__()


async def test_who_waits_for_a_bell_learns_that_redis_came_back(server: Server) -> None:
    async with Store(server.url) as store:
        with store.subscribe(BELL("test")) as rings:
            await store.send("PING")
            server.kill()
            await eventually(lambda: not store.is_connected)
            server.start()

            assert await rings.wait(10) == []
            await store.publish(BELL("test"), "x")
            assert await rings.wait(10) == ["x"]


async def test_a_caller_that_gives_up_while_redis_is_away_has_nothing_done(server: Server) -> None:
    async with Store(server.url) as store:
        server.kill()
        await eventually(lambda: not store.is_connected)
        given_up = asyncio.ensure_future(store.incr(STRING))
        given_up.cancel()
        server.start()

        assert await store.get(STRING) is None


async def test_too_many_commands_for_a_redis_that_is_away_fail_at_once(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "MAX_WAITING", 3)
    async with Store(server.url, timeout=60) as store:
        server.kill()
        await eventually(lambda: not store.is_connected)
        waiting = [asyncio.ensure_future(store.incr(STRING)) for _ in range(3)]

        async with asyncio.timeout(10):
            with pytest.raises(StoreUnavailable, match="3 commands wait"):
                await store.incr(STRING)

        server.start()
        assert await asyncio.gather(*waiting) == [1, 2, 3]


async def test_a_redis_that_reads_slower_than_we_write_slows_us_down_and_loses_nothing(
    server: Server,
) -> None:
    async with Store(server.url, timeout=30) as store:
        server.pause()
        payload = "x" * 100_000
        # More than the socket takes.
        large = [asyncio.ensure_future(store.send("APPEND", STRING, payload)) for _ in range(100)]
        await asyncio.sleep(0.01)
        held_back = [asyncio.ensure_future(store.send("APPEND", STRING, "y")) for _ in range(100)]
        await asyncio.sleep(0)
        server.resume()

        assert await asyncio.gather(*large) == [100_000 * count for count in range(1, 101)]
        assert await asyncio.gather(*held_back) == [10_000_000 + count for count in range(1, 101)]


async def test_commands_wait_for_a_redis_that_still_loads_its_data() -> None:
    # So slow, and so eager to answer meanwhile, that loading takes about half a second.
    slowly = ("--key-load-delay", "20000", "--loading-process-events-interval-bytes", "1024")
    with own_server(*slowly) as server:
        async with Store(server.url) as store:
            await store.send("CONFIG", "SET", "rdbcompression", "no")
            for number in range(25):
                await store.set(LEASE(f"r{number}"), "x" * 3000)
            await store.send("SAVE")
        server.kill()
        server.start()

        async with Store(server.url) as store:
            assert await store.get(LEASE("r24")) is not None

            server.kill()
            await eventually(lambda: not store.is_connected)
            server.start()
            assert await store.get(LEASE("r24")) is not None


async def test_nobody_complains_of_commands_that_failed_with_the_first(server: Server) -> None:
    complaints: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))

    async with Store(server.url, timeout=0.2) as store:
        server.pause()
        lost = [store.get(STRING) for _ in range(3)]
        server.kill()
        for first in (lost.pop(0), store.get(STRING)):
            with pytest.raises(StoreUnavailable):
                await first
        late = [store.get(STRING) for _ in range(3)]
        with pytest.raises(StoreUnavailable):
            await late.pop()
        del lost, late, first
        gc.collect()

    assert complaints == []
