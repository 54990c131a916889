"""Who is cancelled in the moment in which Redis goes away is cancelled, and does not wait for Redis."""

import asyncio
from typing import Any

import pytest

from remuda.base.errors import StoreUnavailable
from remuda.store.wire import settle


async def test_a_cancellation_is_not_lost_if_a_reply_fails_in_the_same_moment() -> None:
    replies = [asyncio.Future[Any](), asyncio.Future[Any]()]
    task = asyncio.create_task(settle(replies))
    await asyncio.sleep(0)

    replies[0].set_exception(StoreUnavailable())
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_all_replies_are_here_when_they_are_settled() -> None:
    good, bad = asyncio.Future[Any](), asyncio.Future[Any]()
    task = asyncio.create_task(settle([bad, good]))
    await asyncio.sleep(0)
    bad.set_exception(StoreUnavailable())
    await asyncio.sleep(0)

    assert not task.done()
    good.set_result(1)
    await task
    assert good.result() == 1
