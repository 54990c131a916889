"""The store's one connection: shared by all, gathering what one tick sends, subscribing as it goes."""

import asyncio
import gc
import logging

import pytest

from proxies import Proxy, listening
from remuda.base.errors import StoreUnavailable
from remuda.keyspace.fleet import BELL, LEASE, ROLE
from remuda.store import Store, Subscription
from remuda.store.url import parse_url
from servers import Server
from waiting import eventually

STRING = LEASE("test")
BELL_A, BELL_B = BELL("a"), BELL("b")


async def clients(store: Store, name: str) -> list[str]:
    """The ids of the connections with this name."""
    lines = (await store.send("CLIENT", "LIST")).splitlines()
    entries = [dict(pair.split("=", 1) for pair in line.split()) for line in lines]
    return [entry["id"] for entry in entries if entry["name"] == name]


async def cut(store: Store, name: str) -> None:
    """Kills the connections with this name, as a fail-over or a firewall would."""
    for client in await clients(store, name):
        await store.send("CLIENT", "KILL", "ID", client)


async def test_what_one_tick_sends_leaves_in_one_write(redis_url: str) -> None:
    proxy = Proxy(redis_url)
    async with listening(proxy.talk) as url, Store(url) as store:
        await store.send("PING")
        proxy.received.clear()

        replies = [store.incr(STRING) for _ in range(500)]
        for reply in replies:
            await reply

        assert len(proxy.received) == 1
        assert proxy.received[0].count(b"INCRBY") == 500


async def test_tasks_of_one_tick_share_a_write(redis_url: str) -> None:
    proxy = Proxy(redis_url)
    async with listening(proxy.talk) as url, Store(url) as store:
        await store.send("PING")
        proxy.received.clear()

        await asyncio.gather(*(store.hgetall(ROLE(f"r{number}")) for number in range(100)))

        assert len(proxy.received) == 1


async def test_replies_come_back_to_those_who_asked(any_store: Store) -> None:
    async def ask(number: int) -> tuple[int, str]:
        return number, await any_store.send("ECHO", number)

    answers = await asyncio.gather(*(ask(number) for number in range(2000)))

    assert all(answer == str(number) for number, answer in answers)


async def test_a_caller_that_gave_up_does_not_shift_the_replies_of_others(store: Store) -> None:
    given_up = asyncio.ensure_future(store.send("ECHO", "first"))
    second = store.send("ECHO", "second")
    given_up.cancel()

    assert await second == "second"


async def test_a_thousand_waiters_need_one_connection(store: Store, redis_url: str) -> None:
    async with Store(redis_url, name="waiters") as waiting:

        async def wait(number: int) -> list[str]:
            with waiting.subscribe(BELL(f"topic{number}")) as rings:
                await waiting.get(STRING)
                return await rings.wait(30)

        waiters = [asyncio.create_task(wait(number)) for number in range(1000)]
        await eventually(lambda: _subscribed(store, 1000))

        assert len(await clients(store, "waiters")) == 1
        for number in range(1000):
            await store.publish(BELL(f"topic{number}"), f"for {number}")
        assert await asyncio.gather(*waiters) == [[f"for {number}"] for number in range(1000)]


async def _subscribed(store: Store, count: int) -> bool:
    return len(await store.send("PUBSUB", "CHANNELS", "*")) == count


# Channels


async def test_a_subscription_is_in_force_before_later_commands(any_store: Store) -> None:
    for _ in range(100):
        with any_store.subscribe(BELL_A) as rings:
            assert await any_store.publish(BELL_A, "now") == 1
            assert await rings.wait(5) == ["now"]
        assert await any_store.publish(BELL_A, "too late") == 0


async def test_everyone_who_listens_hears(any_store: Store) -> None:
    listen = any_store.subscribe
    with listen(BELL_A) as first, listen(BELL_A) as second, listen(BELL_B) as other:
        await any_store.publish(BELL_A, "x")

        assert await first.wait(5) == ["x"]
        assert await second.wait(5) == ["x"]
        assert await other.wait(0) == []


async def test_who_stops_listening_leaves_the_channel_to_the_others(store: Store) -> None:
    with store.subscribe(BELL_A) as stays:
        with store.subscribe(BELL_A):
            pass
        await store.publish(BELL_A, "x")

        assert await stays.wait(5) == ["x"]
    assert await store.send("PUBSUB", "CHANNELS", "*") == []


async def test_messages_gather_until_somebody_waits(store: Store) -> None:
    with store.subscribe(BELL_A) as rings:
        for number in range(Subscription.KEEP + 5):
            await store.publish(BELL_A, number)

        heard = await rings.wait(5)

        # The oldest are dropped: whoever is that late has to look at the state anyway.
        assert heard == [str(number) for number in range(5, Subscription.KEEP + 5)]
        assert await rings.wait(0) == []


async def test_a_wait_that_hears_nothing_ends_empty_handed(store: Store) -> None:
    with store.subscribe(BELL_A) as rings:
        assert await rings.wait(0.01) == []


async def test_pushes_between_replies_confuse_neither(any_store: Store, any_url: str) -> None:
    async with Store(any_url) as other:
        with any_store.subscribe(BELL_A) as rings:
            await any_store.send("PING")
            ringing = [other.publish(BELL_A, number) for number in range(500)]
            echoes = [any_store.send("ECHO", number) for number in range(500)]

            assert [await echo for echo in echoes] == [str(number) for number in range(500)]
            assert [await each for each in ringing] == [1] * 500
            heard: list[str] = []
            while len(heard) < 500:
                heard += await rings.wait(5)
            assert heard == [str(number) for number in range(500)]


async def test_a_subscription_that_redis_refuses_shifts_no_replies(any_store: Store, any_url: str) -> None:
    await any_store.send("ACL", "SETUSER", "mute", "on", ">pw", "~*", "+@all", "resetchannels")
    url = f"unix://mute:pw@{parse_url(any_url).path}"

    async with Store(url) as store:
        with store.subscribe(BELL_A):
            echoes = [store.send("ECHO", number) for number in range(3)]
            assert [await echo for echo in echoes] == ["0", "1", "2"]
        assert await store.send("ECHO", "after") == "after"

    await any_store.send("ACL", "DELUSER", "mute")


# Reconnecting


async def test_after_a_cut_commands_work_again(any_store: Store, any_url: str) -> None:
    async with Store(any_url, name="cut") as store:
        await cut(any_store, "cut")

        await eventually(lambda: not store.is_connected)
        assert await store.send("ECHO", "again") == "again"


async def test_after_a_cut_listeners_are_woken_and_subscribed_again(any_store: Store, any_url: str) -> None:
    async with Store(any_url, name="cut") as store:
        with store.subscribe(BELL_A) as rings, store.subscribe(BELL_B) as others:
            await store.send("PING")
            await cut(any_store, "cut")

            # Woken without a message: one may have been missed, so whoever waits looks for itself.
            assert await rings.wait(10) == []
            assert await others.wait(10) == []
            assert await store.send("PING") == "PONG"
            assert await any_store.publish(BELL_A, "x") == 1
            assert await rings.wait(5) == ["x"]


async def test_a_channel_left_while_redis_was_away_stays_left(store: Store, redis_url: str) -> None:
    async with Store(redis_url, name="cut") as cutoff:
        with cutoff.subscribe(BELL_A):
            await cutoff.send("PING")
            await cut(store, "cut")
            await eventually(lambda: not cutoff.is_connected)
        await cutoff.send("PING")

        assert await store.publish(BELL_A, "x") == 0


async def test_a_database_and_a_name_are_chosen_again_after_a_cut(store: Store, redis_url: str) -> None:
    async with Store(f"{redis_url}&db=3", name="cut") as third:
        await third.set(STRING, "in 3")
        await cut(store, "cut")
        await eventually(lambda: not third.is_connected)

        assert await third.get(STRING) == "in 3"
        assert len(await clients(store, "cut")) == 1
    assert await store.get(STRING) is None


async def test_a_redis_that_hangs_up_after_its_greeting_is_unavailable() -> None:
    async def greet_and_leave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(b"%0\r\n+PONG\r\n")
        writer.close()

    async with listening(greet_and_leave) as url:
        for _ in range(20):
            try:
                async with Store(url, timeout=0.5) as store:
                    await store.send("PING")
            except StoreUnavailable:
                continue
            pytest.fail("a server that is gone was taken for one that is there")


async def test_a_redis_that_talks_nonsense_is_unavailable() -> None:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with listening(babble) as url:
        with pytest.raises(StoreUnavailable):
            await Store(url, timeout=5).__aenter__()


async def test_answers_that_nobody_asked_for_end_the_connection(redis_url: str) -> None:
    connections = 0

    async def interrupt(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        if connections > 1:
            await Proxy(redis_url).talk(reader, writer)
            return
        await reader.read(1000)
        writer.write(b"%0\r\n+PONG\r\n")
        await reader.read(1000)
        writer.write(b"+asked\r\n+unasked\r\n")

    async with listening(interrupt) as url, Store(url) as store:
        assert await store.send("PING") == "asked"
        await eventually(lambda: connections == 2)
        assert await store.send("ECHO", "mine") == "mine"


async def test_a_redis_without_room_for_another_connection_is_unavailable(server: Server) -> None:
    async with Store(server.url) as store:
        await store.send("CONFIG", "SET", "maxclients", "1")

        with pytest.raises(StoreUnavailable, match=f"Redis at .*{server.socket}"):
            await Store(server.url).__aenter__()


async def test_a_closed_store_fails_at_once(redis_url: str) -> None:
    async with Store(redis_url) as store:
        under_way = store.send("BLPOP", STRING, 0)
        await asyncio.sleep(0)

    with pytest.raises(StoreUnavailable):
        await under_way
    async with asyncio.timeout(10):
        with pytest.raises(StoreUnavailable, match="has been closed"):
            await store.send("PING")


async def test_closing_sends_what_was_called_before(store: Store, redis_url: str) -> None:
    async with Store(redis_url) as leaving:
        last = asyncio.ensure_future(leaving.set(STRING, "last words"))

    await asyncio.wait([last])  # Answered or not: nobody waited for it inside the block.
    assert await eventually(lambda: store.get(STRING)) == "last words"


@pytest.mark.parametrize(
    "url",
    ["unix:///nowhere/redis.sock", "redis://127.0.0.1:1", "redis://nowhere.invalid", f"redis://{'a' * 70}"],
)
async def test_a_redis_that_is_not_there_is_unavailable_and_named(url: str) -> None:
    with pytest.raises(StoreUnavailable) as caught:
        await Store(url, timeout=5).__aenter__()

    assert url in caught.value.message


async def test_a_refused_greeting_leaves_no_unread_error_behind(
    redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    gc.collect()  # What other tests have left behind.
    caplog.clear()
    with caplog.at_level(logging.ERROR), pytest.raises(StoreUnavailable, match="WRONGPASS"):
        await Store(f"unix://bob:pw@{parse_url(redis_url).path}?db=1").__aenter__()

    gc.collect()
    await asyncio.sleep(0)
    assert caplog.records == []
