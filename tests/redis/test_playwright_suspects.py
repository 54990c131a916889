"""Workers that did not answer: suspected, for longer each time, until they have served again."""

from dataclasses import replace
from typing import Any

import pytest

from registered_workers import CHROMIUM, LIMITS, give_back, pick, placed, register, scores, worker
from remuda.base import clock
from remuda.keyspace import playwright
from remuda.playwright.leases import Leases
from remuda.playwright.model import Outcome
from remuda.playwright.registry import Registry
from remuda.store import Store

SUSPECTS = playwright.PLAYWRIGHT_SUSPECTS(CHROMIUM)
FAILURES = playwright.PLAYWRIGHT_FAILURES(CHROMIUM)


async def test_a_suspect_that_beats_without_telling_us_is_looked_at_again(store: Store) -> None:
    await register(store, "w1")
    await fail(store)
    await store.zadd(SUSPECTS, {"w1": 1})

    await Leases(store, LIMITS).sweep(CHROMIUM)

    await placed(store)


async def fail(store: Store) -> float:
    """Has the only worker fail once more; for how many seconds it is suspected."""
    await give_back(store, await placed(store), Outcome.FAILED)
    return (await scores(store, SUSPECTS))["w1"] - clock.now()


async def look_again(store: Store) -> None:
    """The time of the suspicion is over."""
    await store.zadd(SUSPECTS, {"w1": 1})
    await Leases(store, LIMITS).sweep(CHROMIUM)


async def test_who_lives_but_never_answers_is_suspected_for_longer_and_longer(store: Store) -> None:
    await register(store, "w1")

    seconds = []
    for _ in range(7):
        seconds.append(await fail(store))
        await look_again(store)

    assert seconds == pytest.approx([15, 30, 60, 120, 240, 240, 240], abs=7)


async def test_a_beat_clears_the_first_suspicion_only(store: Store) -> None:
    (beating,) = await register(store, "w1")
    await fail(store)
    await beating.beat()
    await fail(store)

    await beating.beat()

    assert "w1" in await scores(store, SUSPECTS)
    await store.zadd(SUSPECTS, {"w1": 1})
    await beating.beat()
    assert await scores(store, SUSPECTS) == {}
    await placed(store)


@pytest.mark.parametrize(("outcome", "failures"), [(Outcome.SERVED, {}), (Outcome.UNKNOWN, {"w1": "1"})])
async def test_only_who_has_served_begins_anew(
    store: Store, outcome: Outcome, failures: dict[str, str]
) -> None:
    await register(store, "w1")
    await fail(store)
    await look_again(store)

    await give_back(store, await placed(store), outcome)

    assert await store.hgetall(FAILURES) == failures


async def test_a_connection_from_before_the_failure_proves_nothing(store: Store) -> None:
    await register(store, "w1")
    old = await placed(store)
    await fail(store)

    await give_back(store, old, Outcome.SERVED)

    assert await store.hgetall(FAILURES) == {"w1": "1"}


async def test_clients_that_fail_together_tell_of_one_failure(store: Store) -> None:
    await register(store, "w1")

    for place in [await placed(store) for _ in range(4)]:
        await give_back(store, place, Outcome.FAILED)

    assert await store.hgetall(FAILURES) == {"w1": "1"}


async def wait_since_failure(store: Store, seconds: float) -> None:
    """As if the only worker had failed so many seconds ago."""
    (until,) = (await scores(store, SUSPECTS)).values()
    await store.zadd(SUSPECTS, {"w1": until - seconds})


@pytest.mark.parametrize(("failures", "pause"), [(1, 1), (2, 2), (3, 4), (4, 8), (9, 8)])
async def test_with_nobody_else_a_suspect_is_soon_tried_again(
    store: Store, failures: int, pause: int
) -> None:
    await register(store, "w1")
    await store.hset(FAILURES, {"w1": failures - 1})
    await fail(store)

    await wait_since_failure(store, pause)

    await fail(store)
    assert await store.hgetall(FAILURES) == {"w1": str(failures + 1)}, "it failed anew"


async def test_a_suspect_is_not_tried_again_at_once(store: Store) -> None:
    await register(store, "w1")
    await store.hset(FAILURES, {"w1": 3})
    await fail(store)

    # Its pause is 8 s.
    assert await pick(store) is None
    assert "w1" in await scores(store, SUSPECTS)


async def test_a_suspect_is_not_tried_while_there_is_another(store: Store) -> None:
    await register(store, "w1")
    await fail(store)
    await wait_since_failure(store, 10)
    await register(store, "w2")

    places = [await placed(store) for _ in range(6)]

    assert [place.worker for place in places] == ["w2"] * 5 + ["w1"]


@pytest.mark.parametrize(
    ("wish", "is_served"),
    [({"version": "1.62"}, True), ({"version": "1.61"}, False), ({"excluded": ["w1"]}, False)],
)
async def test_only_a_suspect_that_will_do_is_tried_again(
    store: Store, wish: dict[str, Any], is_served: bool
) -> None:
    await register(store, "w1")
    await fail(store)
    await wait_since_failure(store, 10)
    await register(store, "w2", version="1.61")
    for _ in range(5):
        await placed(store, version="1.61")

    assert (await pick(store, **wish) is not None) is is_served


async def test_a_suspect_without_a_free_place_stays_suspected(store: Store) -> None:
    await register(store, "w1")
    for _ in range(4):
        await placed(store)
    await fail(store)
    await wait_since_failure(store, 10)

    assert await pick(store, limits=replace(LIMITS, concurrent=4)) is None

    assert "w1" in await scores(store, SUSPECTS)


async def test_a_worker_at_another_address_is_not_suspected(store: Store) -> None:
    await register(store, "w1")
    await fail(store)
    await look_again(store)
    await fail(store)

    moved = replace(worker("w1"), endpoint="ws://host:2/w1")
    await Registry(store, moved, key_ttl=60, lease=60).register()

    assert await scores(store, SUSPECTS) == {}
    await placed(store)
