"""What accounts use: limits that hold under any crowd, and counts that are right whoever dies."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from remuda.base.errors import AccountLimitReached
from remuda.fleet.uses import RENEW_BATCH, AccountUsage, Uses, return_use, usage_of
from remuda.keyspace.accounts import ACCOUNT, METRICS_ACCESS
from remuda.keyspace.fleet import HELD, STARTS, USES
from remuda.store import Store
from remuda.store.census import take_census
from servers import Server
from waiting import eventually

QA = "qa"
NOTHING = AccountUsage(0, 0)


@asynccontextmanager
async def keeping(uses: Uses) -> AsyncIterator[None]:
    task = asyncio.create_task(uses.run(), name="keep uses")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def usage(store: Store, account: str = QA) -> AccountUsage:
    return (await usage_of(store, [account]))[account]


async def usage_is(store: Store, expected: AccountUsage) -> bool:
    return await usage(store) == expected


async def now_ms(store: Store) -> int:
    seconds, microseconds = await store.send("TIME")
    return int(seconds) * 1000 + int(microseconds) // 1000


async def test_an_account_that_nobody_has_limited_may_use_any_number(any_store: Store) -> None:
    uses = Uses(any_store)

    for number in range(50):
        await uses.take(QA, str(number))

    assert await usage(any_store) == AccountUsage(50, 0)
    assert not await any_store.exists(STARTS(QA))
    assert await take_census(any_store) == []


async def test_an_account_has_at_most_its_number_at_a_time(any_store: Store) -> None:
    await any_store.hset(ACCOUNT(QA), {"sessions": 2})
    uses = Uses(any_store)
    await uses.take(QA, "a")
    await uses.take(QA, "b")

    with pytest.raises(AccountLimitReached) as refused:
        await uses.take(QA, "c")

    assert refused.value.message == "Account qa has 2 sessions and connections, which is its limit"
    assert refused.value.headers()["Retry-After"] == "1"
    assert await any_store.hgetall(METRICS_ACCESS()) == {"sessions_limit": "1"}
    await uses.take("other", "d")
    await uses.give_back(QA, "a")
    await uses.take(QA, "c")
    assert await usage(any_store) == AccountUsage(2, 0)


async def test_an_account_that_may_use_nothing_is_refused(store: Store) -> None:
    await store.hset(ACCOUNT(QA), {"sessions": 0})
    await store.hset(ACCOUNT("slow"), {"rate": 0})

    for account in (QA, "slow"):
        with pytest.raises(AccountLimitReached):
            await Uses(store).take(account, "a")


async def test_a_limit_holds_however_many_ask_at_once(store: Store, redis_url: str) -> None:
    await store.hset(ACCOUNT(QA), {"sessions": 10, "rate": 60})
    async with Store(redis_url) as other:
        processes = [Uses(store), Uses(other)]
        takes = [processes[number % 2].take(QA, f"use-{number}") for number in range(60)]

        answers = await asyncio.gather(*takes, return_exceptions=True)

    assert sum(answer is None for answer in answers) == 10
    assert sum(isinstance(answer, AccountLimitReached) for answer in answers) == 50


async def test_an_account_starts_at_most_so_many_in_any_minute(store: Store) -> None:
    await store.hset(ACCOUNT(QA), {"rate": 3})
    uses = Uses(store)
    # Started so long ago that it has just left the window, and two that are still in it.
    now = await now_ms(store)
    await store.zadd(STARTS(QA), {"old": now - 60_000, "a": now - 50_000, "b": now - 20_000})
    await uses.take(QA, "c")
    await uses.give_back(QA, "c")  # Started is started.

    with pytest.raises(AccountLimitReached) as refused:
        await uses.take(QA, "d")

    assert 8 < refused.value.retry_after <= 10
    assert "Account qa has started 3 sessions and connections within a minute" in refused.value.message
    assert await store.zrange(STARTS(QA)) == ["a", "b", "c"]
    assert await store.hgetall(METRICS_ACCESS()) == {"rate_limit": "1"}


async def test_after_the_time_it_was_told_an_account_may_start_again(store: Store) -> None:
    await store.hset(ACCOUNT(QA), {"rate": 1})
    await store.zadd(STARTS(QA), {"a": await now_ms(store) - 59_700})

    with pytest.raises(AccountLimitReached) as refused:
        await Uses(store).take(QA, "b")
    told_at = asyncio.get_running_loop().time()
    assert refused.value.retry_after <= 0.3
    await eventually(lambda: asyncio.get_running_loop().time() > told_at + refused.value.retry_after)

    await Uses(store).take(QA, "b")


async def test_a_rate_that_was_lowered_waits_for_as_many_as_are_too_many(store: Store) -> None:
    now = await now_ms(store)
    await store.zadd(STARTS(QA), {"a": now - 50_000, "b": now - 30_000, "c": now - 10_000})
    await store.hset(ACCOUNT(QA), {"rate": 2})

    with pytest.raises(AccountLimitReached) as refused:
        await Uses(store).take(QA, "d")

    assert 28 < refused.value.retry_after <= 30


async def test_what_is_taken_twice_counts_once(store: Store) -> None:
    await store.hset(ACCOUNT(QA), {"sessions": 1, "rate": 1})
    uses = Uses(store)

    await uses.take(QA, "a")
    await uses.take(QA, "a")

    assert await usage(store) == AccountUsage(1, 0)


async def test_what_has_a_browser_is_told_from_what_waits(store: Store) -> None:
    uses = Uses(store)
    await uses.take(QA, "a")
    await uses.take(QA, "b")

    await uses.hold(QA, "a")

    found = await usage(store)
    assert (found.uses, found.held, found.waiting) == (2, 1, 1)
    await uses.give_back(QA, "a")
    await uses.give_back(QA, "b")
    assert not await store.exists(USES(QA), HELD(QA))


async def test_the_uses_of_a_killed_process_end_with_their_lease(store: Store, redis_url: str) -> None:
    await store.hset(ACCOUNT(QA), {"sessions": 1})
    async with Store(redis_url) as dying:
        killed = Uses(dying, lease=0.5)
        await killed.take(QA, "a")
        await killed.hold(QA, "a")

    async def is_taken() -> bool:
        try:
            await Uses(store).take(QA, "b")
        except AccountLimitReached:
            return False
        return True

    await eventually(is_taken)
    assert await store.zrange(USES(QA)) == ["b"]
    assert not await store.exists(HELD(QA))


async def test_the_uses_of_a_living_process_outlast_their_lease(store: Store) -> None:
    uses = Uses(store, lease=3)
    async with keeping(uses):
        await uses.take(QA, "a")
        await uses.hold(QA, "a")
        began = asyncio.get_running_loop().time()
        await eventually(lambda: asyncio.get_running_loop().time() > began + 3.5)

        assert await usage(store) == AccountUsage(1, 1)


async def test_another_process_goes_on_with_what_one_has_taken(store: Store, redis_url: str) -> None:
    async with Store(redis_url) as other:
        manager, node = Uses(store, lease=3), Uses(other, lease=3)
        await manager.take(QA, "a")
        await manager.hold(QA, "a")
        async with keeping(node):
            await node.adopt(QA, "a")
            manager.forget(QA, "a")
            began = asyncio.get_running_loop().time()
            await eventually(lambda: asyncio.get_running_loop().time() > began + 3.5)
            assert await usage(store) == AccountUsage(1, 1)

            await node.give_back(QA, "a")
            await manager.renew()

            assert await usage(store) == NOTHING


async def test_any_process_can_end_what_a_dead_one_has_left(store: Store) -> None:
    await Uses(store).take(QA, "a")

    await return_use(store, QA, "a")
    await return_use(store, QA, "a")

    assert await usage(store) == NOTHING


async def test_renewing_a_crowd_is_few_commands(store: Store) -> None:
    uses = Uses(store)
    count = 2 * RENEW_BATCH + 1
    await asyncio.gather(*(uses.take(QA, str(number)) for number in range(count)))
    await store.send("CONFIG", "RESETSTAT")

    await uses.renew()

    stats = await store.send("INFO", "commandstats")
    (line,) = [line for line in stats.splitlines() if line.startswith("cmdstat_evalsha:")]
    assert "calls=3," in line


async def test_what_is_given_back_during_a_renewal_is_not_counted_again(store: Store) -> None:
    uses = Uses(store)
    for number in range(20):
        await uses.take(QA, str(number))

    renewing = asyncio.create_task(uses.renew())
    await asyncio.sleep(0)
    await asyncio.gather(*(uses.give_back(QA, str(number)) for number in range(20)))
    await renewing
    await uses.finish()

    assert await usage(store) == NOTHING


async def test_a_client_that_leaves_while_its_use_is_taken_uses_nothing(store: Store) -> None:
    uses = Uses(store)
    taking = asyncio.create_task(uses.take(QA, "a"))
    await asyncio.sleep(0)

    taking.cancel()
    await asyncio.gather(taking, return_exceptions=True)
    await uses.finish()
    await uses.renew()

    assert await usage(store) == NOTHING


async def test_what_redis_has_lost_is_counted_again_when_it_is_back(server: Server) -> None:
    async with Store(server.url) as store, Store(server.url) as other:
        uses = Uses(store)
        async with keeping(uses):
            await uses.take(QA, "a")
            await uses.take(QA, "b")
            await uses.hold(QA, "b")

            server.kill()
            await eventually(lambda: not (store.is_connected or other.is_connected))
            server.start()

            await eventually(lambda: usage_is(other, AccountUsage(2, 1)))


async def test_an_absence_of_redis_ends_no_use_and_keeps_none(server: Server) -> None:
    async with Store(server.url, timeout=0.3) as store, Store(server.url) as other:
        uses = Uses(store, lease=0.6)
        async with keeping(uses):
            await uses.take(QA, "stays")
            await uses.take(QA, "gets a browser")
            await uses.take(QA, "ends")
            server.pause()

            await uses.hold(QA, "gets a browser")
            await uses.give_back(QA, "ends")
            server.resume()

            await eventually(lambda: usage_is(other, AccountUsage(2, 1)))
            assert set(await other.zrange(USES(QA))) == {"stays", "gets a browser"}


async def test_those_that_have_expired_are_not_shown(store: Store) -> None:
    now = await now_ms(store)
    await store.zadd(USES(QA), {"dead": now - 1, "alive": now + 60_000})
    await store.zadd(HELD(QA), {"dead": now - 1})

    assert await usage_of(store, [QA, "other"]) == {QA: AccountUsage(1, 0), "other": NOTHING}
