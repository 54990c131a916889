"""Work in the background: tasks that have an owner, and steps that outlive an absence of Redis."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, NoReturn, TypeVar

from remuda.base import clock
from remuda.base.errors import RemudaError, Unavailable
from remuda.base.log import get_logger
from remuda.store import Subscription

log = get_logger(__name__)

T = TypeVar("T")

RETRY_AFTER = 1.0


class Tasks:
    """The tasks of one owner that come and go. Unlike those of an `asyncio.TaskGroup`, one that fails does
    not end the others. The event loop alone would not keep them: it only holds weak references."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        """Starts the work and owns it until it is done."""
        task = asyncio.create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    def cancel(self) -> None:
        """Cancels all of them, without waiting for their end."""
        for task in list(self._running):
            task.cancel()

    async def finish(self, timeout: float | None = None) -> None:
        """Waits until all are done, also those that are started meanwhile, or until the time is up."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while self._running:
                    await asyncio.wait(self._running)


async def run_until(
    stop: Coroutine[Any, Any, object], work: Coroutine[Any, Any, T], *, name: str
) -> T | None:
    """What the work gives; None if it was cancelled because `stop` was done first."""
    working = asyncio.create_task(work, name=name)
    stopping = asyncio.create_task(stop, name=f"stop: {name}")
    try:
        await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        for task in (working, stopping):
            task.cancel()
        await asyncio.gather(working, stopping, return_exceptions=True)


def heed_cancellation() -> None:
    """CancelledError if this task was cancelled while what it awaited failed. `asyncio.gather` reports only
    the failure then, and who tries again after a failure would do so for ever."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


async def retry_until_redis_returns(step: Callable[[], Awaitable[T]], *, failure: str, **known: Any) -> T:
    """What the step gives, once Redis is there for it. The step may be done twice: Redis can go away between
    doing it and saying so.

    The first attempt that fails is logged as `failure`, with what is `known`.
    """
    has_failed = False
    while True:
        try:
            return await step()
        except Unavailable as error:
            heed_cancellation()
            if not has_failed:
                log.warning(failure, **known, reason=error.message)
            has_failed = True
            await asyncio.sleep(RETRY_AFTER)


async def repeat(
    step: Callable[[], Awaitable[object]],
    *,
    every: float,
    failure: str,
    rings: Subscription | None = None,
    survives: tuple[type[Exception], ...] = (),
    **known: Any,
) -> NoReturn:
    """Does the step every so many seconds, for ever, and whenever one of the `rings` is heard, also when
    Redis comes back. Outlives any absence of Redis.

    A step that fails is logged as `failure`, with what is `known`, but not again for the same reason until it
    has succeeded. It is retried after a second, or sooner if it is done more often. `survives` names the
    exceptions that it may fail with beside Remuda's own.
    """
    survived: tuple[type[Exception], ...] = (RemudaError, *survives)
    logged = ""
    while True:
        began = clock.monotonic()
        try:
            await step()
        except survived as error:
            heed_cancellation()
            if str(error) != logged:
                logged = str(error)
                write = log.warning if isinstance(error, Unavailable) else log.error
                write(failure, **known, reason=logged)
            pause = min(every, RETRY_AFTER) or RETRY_AFTER
        else:
            logged = ""
            # From start to start, so that what must be renewed is renewed in time. But a step that takes long
            # does so because Redis is busy, and is not to be done without a pause.
            pause = max(every - (clock.monotonic() - began), every / 2)
        await (asyncio.sleep(pause) if rings is None else rings.wait(pause))
