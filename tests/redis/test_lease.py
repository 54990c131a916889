"""The lease: never two owners at once, taken over after its end, and lost loudly."""

import asyncio

import pytest

from remuda.base.errors import LeaseLost
from remuda.base.ids import new_id
from remuda.fleet.liveness import Lease
from remuda.keyspace.fleet import LEASE
from remuda.keyspace.grid import SESSION_SLOT
from remuda.store import Store
from remuda.store.census import take_census
from servers import PATIENCE, Server
from waiting import eventually

KEY = LEASE("gc")


def lease_of(store: Store, owner: str, ttl: int = 15) -> Lease:
    return Lease(store, KEY, owner=owner, ttl=ttl)


async def test_only_one_of_many_gets_it(any_store: Store, any_url: str) -> None:
    async with Store(any_url) as other:
        for round_ in range(20):
            leases = [lease_of((any_store, other)[n % 2], f"owner{n}") for n in range(20)]

            taken = await asyncio.gather(*(lease.acquire() for lease in leases))

            assert taken.count(True) == 1, round_
            assert await leases[taken.index(True)].release()


async def test_two_owners_never_work_at_the_same_time(store: Store, redis_url: str) -> None:
    working = 0
    turns: set[str] = set()

    async def compete(store: Store, owner: str) -> None:
        nonlocal working
        while owner not in turns:
            try:
                async with lease_of(store, owner).held():
                    working += 1
                    assert working == 1
                    await store.get(KEY)
                    turns.add(owner)
                    working -= 1
            except LeaseLost:
                await asyncio.sleep(0)

    async with Store(redis_url) as other, asyncio.timeout(20):
        await asyncio.gather(*(compete((store, other)[n % 2], f"owner{n}") for n in range(10)))

    assert await store.get(KEY) is None


async def test_any_declared_key_can_be_leased(store: Store) -> None:
    key = SESSION_SLOT(new_id())
    assert await Lease(store, key, owner="first").acquire()

    assert not await Lease(store, key, owner="second").acquire()

    assert await store.get(key) == "first"
    assert await lease_of(store, "second").acquire()


async def test_the_owner_prolongs_what_it_holds(any_store: Store) -> None:
    lease = lease_of(any_store, "me")
    await lease.acquire()
    await any_store.expire(KEY, 3)

    assert await lease.acquire()

    assert await any_store.ttl_ms(KEY) > 10_000
    assert await take_census(any_store) == []


async def test_another_takes_over_when_it_has_run_out(any_store: Store) -> None:
    await lease_of(any_store, "dead").acquire()
    assert not await lease_of(any_store, "heir").acquire()
    await any_store.send("PEXPIRE", KEY, 20)

    assert await eventually(lambda: lease_of(any_store, "heir").acquire())

    assert await any_store.get(KEY) == "heir"


async def test_who_does_not_hold_it_cannot_give_it_back(any_store: Store) -> None:
    await lease_of(any_store, "owner").acquire()

    assert not await lease_of(any_store, "other").release()

    assert await any_store.get(KEY) == "owner"


async def test_a_block_holds_it_and_gives_it_back(any_store: Store) -> None:
    async with lease_of(any_store, "me").held():
        assert await any_store.get(KEY) == "me"

    assert await any_store.get(KEY) is None


async def test_a_block_that_fails_gives_it_back(store: Store) -> None:
    async def fail() -> None:
        async with lease_of(store, "me").held():
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert await store.get(KEY) is None


async def test_a_block_is_not_entered_while_another_holds_it(store: Store) -> None:
    await lease_of(store, "other").acquire()

    with pytest.raises(LeaseLost, match="held by another owner"):
        async with lease_of(store, "me").held():
            pytest.fail("two owners")
    assert await store.get(KEY) == "other"


async def test_a_block_may_take_longer_than_the_lease(store: Store) -> None:
    async with lease_of(store, "me", ttl=3).held():
        began = asyncio.get_running_loop().time()
        await eventually(lambda: asyncio.get_running_loop().time() > began + 3.5)

        assert not await lease_of(store, "other").acquire()


async def test_a_block_whose_lease_is_stolen_is_cancelled(store: Store) -> None:
    async def work() -> None:
        async with lease_of(store, "me", ttl=1).held():
            await store.set(KEY, "thief", ex=60)
            await asyncio.Event().wait()

    async with asyncio.timeout(5):
        with pytest.raises(LeaseLost, match="was lost"):
            await work()

    assert await store.get(KEY) == "thief"
    current = asyncio.current_task()
    assert current is not None
    assert current.cancelling() == 0


async def test_a_block_that_runs_out_of_its_own_time_has_not_lost_the_lease(store: Store) -> None:
    async def work() -> None:
        async with lease_of(store, "me").held():
            raise TimeoutError

    with pytest.raises(TimeoutError):
        await work()
    assert await store.get(KEY) is None


async def test_cancelling_a_block_is_no_loss_and_gives_the_lease_back(store: Store) -> None:
    task = await holding(store)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert await store.get(KEY) is None


async def holding(store: Store) -> "asyncio.Task[None]":
    """Somebody who holds the lease for ever."""
    entered = asyncio.Event()

    async def work() -> None:
        async with lease_of(store, "me").held():
            entered.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await entered.wait()
    return task


async def test_while_redis_is_away_the_block_ends_before_the_lease_does(server: Server) -> None:
    now = asyncio.get_running_loop().time
    async with Store(server.url, timeout=30) as store:
        began = 0.0

        async def work() -> None:
            nonlocal began
            began = now()
            async with lease_of(store, "me", ttl=2).held():
                server.pause()
                await asyncio.Event().wait()

        working = asyncio.create_task(work())
        await eventually(lambda: began and now() > began + 2.2)
        # Another may hold it from now on, as soon as Redis answers anybody.
        was_cancelled = working.cancelling()
        server.resume()

        with pytest.raises(LeaseLost):
            await working
        assert was_cancelled


async def test_cancelling_a_block_while_redis_is_away_stays_a_cancellation(server: Server) -> None:
    async with Store(server.url, timeout=PATIENCE) as store:
        task = await holding(store)
        server.kill()
        await eventually(lambda: not store.is_connected)
        task.cancel()

        with pytest.raises(asyncio.CancelledError):
            await task


async def test_an_error_of_the_block_is_not_hidden_by_a_redis_that_is_away(server: Server) -> None:
    async with Store(server.url, timeout=PATIENCE) as store:

        async def work() -> None:
            async with lease_of(store, "me").held():
                server.kill()
                await eventually(lambda: not store.is_connected)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await work()
