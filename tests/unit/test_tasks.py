"""Work in the background: it has an owner, and outlives an absence of Redis."""

import asyncio
import gc
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from remuda.base.errors import Broken, StoreUnavailable
from remuda.fleet import tasks as tasks_module
from remuda.fleet.tasks import Tasks, repeat, retry_until_redis_returns, run_until
from waiting import eventually


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks_module, "RETRY_AFTER", 0.001)


async def test_a_task_runs_to_its_end_though_only_its_owner_knows_it() -> None:
    tasks, done = Tasks(), asyncio.Event()

    async def work() -> None:
        await asyncio.get_running_loop().create_future()

    async def end() -> None:
        await asyncio.sleep(0)
        gc.collect()
        done.set()

    tasks.spawn(work(), name="waits for what nothing else knows")
    tasks.spawn(end(), name="ends")

    # Not less: late in a run of all tests there is much garbage to look at.
    async with asyncio.timeout(60):
        await done.wait()
    assert [task.get_name() for task in asyncio.all_tasks()].count("waits for what nothing else knows") == 1
    tasks.cancel()


async def test_a_task_that_fails_does_not_end_the_others() -> None:
    tasks = Tasks()
    done = asyncio.Event()

    async def fail() -> None:
        raise ZeroDivisionError

    async def work() -> None:
        await asyncio.wait([failing])
        done.set()

    failing = tasks.spawn(fail(), name="fail")
    tasks.spawn(work(), name="work")
    await tasks.finish()

    assert done.is_set()
    assert isinstance(failing.exception(), ZeroDivisionError)


async def test_the_end_is_awaited_also_of_what_is_started_meanwhile() -> None:
    tasks, done = Tasks(), []

    async def first() -> None:
        await asyncio.sleep(0)
        tasks.spawn(second(), name="second")
        done.append(1)

    async def second() -> None:
        await asyncio.sleep(0)
        done.append(2)

    tasks.spawn(first(), name="first")
    await tasks.finish()

    assert done == [1, 2]


async def test_the_end_is_not_awaited_for_longer_than_allowed() -> None:
    tasks = Tasks()
    task = tasks.spawn(asyncio.Event().wait(), name="for ever")

    await tasks.finish(0.01)

    assert not task.done()
    tasks.cancel()
    await tasks.finish()
    assert task.cancelled()


class Flaky:
    """A step that fails so many times."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = list(errors)
        self.calls = 0

    def fail(self, error: Exception) -> None:
        self._errors.append(error)

    async def __call__(self) -> str:
        self.calls += 1
        if self._errors:
            raise self._errors.pop(0)
        return "done"


async def test_a_step_is_retried_until_redis_is_there_and_complains_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    step = Flaky(StoreUnavailable("gone"), StoreUnavailable("still gone"))

    assert await retry_until_redis_returns(step, failure="not written", session="s") == "done"

    assert step.calls == 3
    (record,) = caplog.records
    assert (record.levelname, record.getMessage()) == ("WARNING", "not written")
    assert vars(record)["remuda_fields"] == {"session": "s", "reason": "gone"}


async def test_a_step_that_fails_for_another_reason_is_not_retried() -> None:
    step = Flaky(Broken("a bug"))

    with pytest.raises(Broken):
        await retry_until_redis_returns(step, failure="not written")

    assert step.calls == 1


async def repeated(step: Flaky, *, times: int, every: float = 0.0, **options: Any) -> None:
    """The step, repeated so many times."""
    repeating = asyncio.create_task(repeat(step, every=every, failure="step failed", **options))
    await eventually(lambda: repeating.done() or step.calls >= times)
    if repeating.done():
        await repeating
    repeating.cancel()


async def test_a_step_is_repeated_through_whatever_redis_does(caplog: pytest.LogCaptureFixture) -> None:
    gone, broken = StoreUnavailable("gone"), Broken("a stranger wrote nonsense")

    await repeated(Flaky(gone, gone, broken, gone), times=8, storage="barn")

    told = [(record.levelname, vars(record)["remuda_fields"]) for record in caplog.records]
    assert told == [
        ("WARNING", {"storage": "barn", "reason": "gone"}),
        ("ERROR", {"storage": "barn", "reason": "a stranger wrote nonsense"}),
        ("WARNING", {"storage": "barn", "reason": "gone"}),
    ]


async def test_an_outage_is_told_again_once_the_step_has_succeeded(caplog: pytest.LogCaptureFixture) -> None:
    step = Flaky(StoreUnavailable("gone"))
    repeating = asyncio.create_task(repeat(step, every=0.0, failure="step failed"))
    await eventually(lambda: step.calls > 2)
    step.fail(StoreUnavailable("gone"))
    await eventually(lambda: len(caplog.records) == 2)

    repeating.cancel()


async def test_a_step_survives_only_the_exceptions_of_others_that_are_named() -> None:
    await repeated(Flaky(OSError("no room")), times=3, survives=(OSError,))

    with pytest.raises(ZeroDivisionError):
        await repeated(Flaky(ZeroDivisionError()), times=3, survives=(OSError,))


async def test_a_step_that_fails_is_retried_sooner_than_it_is_repeated() -> None:
    await repeated(Flaky(StoreUnavailable("gone")), times=2, every=3600.0)


async def test_a_step_comes_at_its_times_however_long_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    times = iter([0.0, 0.1, 10.0, 10.9, 20.0, 25.0])

    async def sleep(seconds: float) -> None:
        pauses.append(round(seconds, 3))
        if len(pauses) == 3:
            raise asyncio.CancelledError

    monkeypatch.setattr(tasks_module, "clock", SimpleNamespace(monotonic=lambda: next(times)))
    monkeypatch.setattr(tasks_module, "asyncio", SimpleNamespace(sleep=sleep))

    with pytest.raises(asyncio.CancelledError):
        await repeat(Flaky(), every=1.0, failure="step failed")

    # Quick, slow, and so slow that the next one is due already.
    assert pauses == [0.9, 0.5, 0.5]


async def test_work_that_is_done_before_it_is_stopped_gives_its_result() -> None:
    async def work() -> str:
        return "done"

    assert await run_until(asyncio.Event().wait(), work(), name="work") == "done"


async def test_work_is_cancelled_and_awaited_when_it_is_stopped() -> None:
    stop, steps = asyncio.Event(), []

    async def work() -> str:
        stop.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            steps.append("cleaned up")
        return "done"

    assert await run_until(stop.wait(), work(), name="work") is None

    assert steps == ["cleaned up"]


async def test_work_that_fails_says_so() -> None:
    async def work() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await run_until(asyncio.Event().wait(), work(), name="work")


@pytest.mark.parametrize("work", [partial(repeat, every=0), retry_until_redis_returns])
async def test_what_is_cancelled_while_its_step_fails_ends_all_the_same(work: Callable[..., Any]) -> None:
    failing, other = asyncio.Future[None](), asyncio.Future[None]()

    async def step() -> None:
        await asyncio.gather(failing, other)

    task = asyncio.create_task(work(step, failure="step failed"))
    await asyncio.sleep(0)

    failing.set_exception(StoreUnavailable())
    task.cancel()

    done, _ = await asyncio.wait([task], timeout=60)
    assert task in done
    assert task.cancelled()
