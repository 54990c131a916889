"""The census: a live key that is undeclared, of the wrong type or with the wrong lifetime is a stranger."""

import pytest

from remuda.base import clock
from remuda.keyspace.fleet import LEASE, ROLE, ROLES
from remuda.keyspace.grid import ORCHESTRATOR_BACKLOG, SESSION_LOG, TIMEOUTS
from remuda.store import Store
from remuda.store.census import BATCH, Stranger, take_census


async def test_an_empty_redis_holds_no_strangers(any_store: Store) -> None:
    assert await take_census(any_store) == []


async def test_declared_keys_are_no_strangers(any_store: Store) -> None:
    await any_store.set(LEASE("gc"), "me", ex=15)
    await any_store.hset(TIMEOUTS(), {"queue": 600})
    await any_store.zadd(ROLES(), {"r1": clock.now()})
    await any_store.rpush(ORCHESTRATOR_BACKLOG("o1"), "s1")
    await any_store.xadd(SESSION_LOG("6f9619ff-8b86-d011-b42d-00cf4fc964ff"), {"code": "A"}, about=10)

    assert await take_census(any_store) == []


async def test_a_key_that_nobody_declared_is_a_stranger(any_store: Store) -> None:
    await any_store.send("SET", "who:am:i", "x")

    assert await take_census(any_store) == [Stranger("who:am:i", "no declaration matches it")]


async def test_a_key_of_the_wrong_type_is_a_stranger(any_store: Store) -> None:
    await any_store.send("SET", TIMEOUTS(), "x")

    assert await take_census(any_store) == [Stranger("timeouts", "it is a string, declared as hash")]


async def test_a_key_that_should_expire_and_does_not_is_a_stranger(store: Store) -> None:
    await store.hset(ROLE("r1"), {"name": "gateway"})

    (stranger,) = await take_census(store)

    assert stranger == Stranger("remuda:role:r1", "it never expires, declared to within 15 s")


async def test_a_key_that_expires_too_late_is_a_stranger(store: Store) -> None:
    await store.set(LEASE("gc"), "me", ex=61)

    (stranger,) = await take_census(store)

    assert stranger.problem.endswith("declared to within 60 s")


async def test_a_key_that_expires_and_should_not_is_a_stranger(store: Store) -> None:
    await store.hset(TIMEOUTS(), {"queue": 600})
    await store.expire(TIMEOUTS(), 100)

    (stranger,) = await take_census(store)

    assert "declared to stay until an operator deletes it" in stranger.problem


async def test_one_stranger_among_many_is_found(store: Store) -> None:
    for number in range(BATCH * 3):
        store.set(LEASE(f"r{number}"), "me", ex=60)
    await store.send("SET", "who:am:i", "x")

    assert [stranger.name for stranger in await take_census(store)] == ["who:am:i"]


async def test_a_name_that_is_no_text_is_a_stranger_like_any_other(store: Store) -> None:
    await store.send("SET", b"\xff\xfe", "x")

    (stranger,) = await take_census(store)

    assert stranger.problem == "no declaration matches it"


@pytest.mark.parametrize("prefix", ["b:", "b*:", "[b]?:", "b^\\:"])
async def test_a_census_counts_only_its_own_fleet(store: Store, redis_url: str, prefix: str) -> None:
    await store.send("SET", "who:am:i", "x")
    await store.send("SET", "bb:who:am:i", "x")
    async with Store(redis_url, prefix=prefix) as fleet:
        await fleet.set(LEASE("gc"), "me", ex=15)
        assert await take_census(fleet) == []
        await fleet.hset(ROLE("r1"), {"name": "gateway"})

        assert [stranger.name for stranger in await take_census(fleet)] == ["remuda:role:r1"]
