"""Draining: what is new is refused, what is under way is waited for."""

import asyncio

import pytest

from remuda.base.errors import Draining
from remuda.grid.manager import Drain


async def test_nothing_under_way_is_finished_at_once() -> None:
    drain = Drain()

    drain.begin()

    assert await drain.finished(0.01)


async def test_new_work_is_refused_once_the_drain_has_begun() -> None:
    drain = Drain()

    drain.begin()

    with pytest.raises(Draining), drain.work():
        pytest.fail("work was let in")
    assert drain.under_way == 0


async def test_the_drain_is_finished_when_the_last_work_is_done() -> None:
    drain = Drain()
    with drain.work():
        with drain.work():
            drain.begin()
            finished = asyncio.create_task(drain.finished(10))
            await asyncio.sleep(0)
        assert drain.under_way == 1
        await asyncio.sleep(0)
        assert not finished.done()

    assert await finished


async def test_a_drain_that_takes_too_long_says_so() -> None:
    drain = Drain()

    with drain.work():
        drain.begin()
        assert not await drain.finished(0.01)


async def test_work_that_fails_is_no_longer_under_way() -> None:
    drain = Drain()

    with pytest.raises(ZeroDivisionError), drain.work():
        _ = 1 / 0

    assert drain.under_way == 0
    assert await drain.finished(0.01)


async def test_work_goes_on_until_the_drain_begins() -> None:
    drain = Drain()
    for _ in range(3):
        with drain.work():
            assert drain.under_way == 1

    assert not drain.is_begun
