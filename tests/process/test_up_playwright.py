"""Playwright's workers inside `remuda up`: when they start, how they are replaced, and that none is left."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import psutil
import pytest
from playwright.async_api import Browser, Playwright, async_playwright

from herds import DEADLINE, Herd, new_herd, running_herd
from remuda.base.errors import Unavailable
from remuda.base.ids import new_id
from remuda.fleet.line import Lines
from remuda.store import Store
from waiting import eventually
from workers import browser_process, driver_process, entries, is_forgotten, only_entry, processes_of


@pytest.fixture
def herd() -> Iterator[Herd]:
    """A herd whose Chromium worker starts without being asked."""
    with new_herd("--slots", "1", "--eager", "chromium", environ={"HEARTBEAT_INTERVAL": "1"}) as herd:
        yield herd


@pytest.fixture
async def store(herd: Herd) -> AsyncIterator[Store]:
    """The herd's Redis."""
    async with Store(herd.redis_url) as store:
        yield store


async def registered(store: Store, count: int = 1) -> list[str]:
    """The keys of the workers, once there are so many."""

    async def look() -> list[str]:
        keys = list(await entries(store))
        return keys if len(keys) == count else []

    return await eventually(look, DEADLINE)


def workers_of(herd: Herd) -> list[psutil.Process]:
    return [each for each in herd.processes() if "worker" in each.cmdline()]


def directory_of(herd: Herd) -> Path:
    """Where the files of the one worker's browser are."""
    (worker,) = workers_of(herd)
    (directory,) = Path(tempfile.gettempdir()).glob(f"remuda-{worker.pid}-*")
    return directory


@asynccontextmanager
async def client(store: Store) -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        yield await playwright.chromium.connect((await only_entry(store))["wsEndpoint"])


async def test_a_browsers_workers_start_when_its_first_client_waits(short_path: Path) -> None:
    with running_herd(short_path / "data", "--workers", "2") as herd:
        async with Store(herd.redis_url) as store:
            assert workers_of(herd) == []

            async with Lines(store).wait("playwright:chromium:1.64", new_id()):
                keys = await registered(store, 2)

            assert [key.rpartition(":")[0] for key in keys] == ["worker:chromium"] * 2


async def test_a_worker_that_is_told_to_leave_is_replaced_without_alarm(herd: Herd, store: Store) -> None:
    (first,) = await registered(store)

    await tell_to_leave(store, first)

    async def is_replaced() -> bool:
        return [key for key in await entries(store) if key != first] != []

    await eventually(is_replaced, DEADLINE)
    assert herd.log() == ""


async def connected(playwright: Playwright, store: Store, key: str) -> Browser:
    """A client of this worker."""
    return await playwright.chromium.connect((await entries(store))[key]["wsEndpoint"])


async def test_a_worker_that_waits_for_its_clients_is_replaced_meanwhile(herd: Herd, store: Store) -> None:
    (first,) = await registered(store)
    async with async_playwright() as playwright:
        connection = await connected(playwright, store, first)

        await tell_to_leave(store, first)

        (second,) = set(await registered(store, 2)) - {first}
        assert (await entries(store))[first]["status"] == "draining"
        # Nor is there a third as long as the first one stays: each takes the memory of a browser.
        other = await connected(playwright, store, second)
        await tell_to_leave(store, second)
        await eventually(lambda: has_status(store, second, "draining"), DEADLINE)
        assert len(workers_of(herd)) == 2
        await (await connection.new_page()).goto("data:text/html,still served")
        await connection.close()
        (third,) = set(await eventually(lambda: has_left(store, first), DEADLINE)) - {second}
        assert (await entries(store))[third]["status"] == "available"

        # The end of the herd does not wait for those that leave.
        assert await asyncio.to_thread(herd.stop) == 0
        await eventually(lambda: not other.is_connected())
    assert herd.processes() == []


async def tell_to_leave(store: Store, worker: str) -> None:
    await store.send("SET", worker.replace("worker:", "worker:cmd:", 1), "shutdown", "EX", 60)


async def has_status(store: Store, worker: str, status: str) -> bool:
    return (await entries(store))[worker]["status"] == status


async def has_left(store: Store, worker: str) -> list[str]:
    """The two workers that are there instead, once they are."""
    others = [key for key in await entries(store) if key != worker]
    return others if len(others) == 2 else []


@pytest.mark.parametrize("victim", [browser_process, driver_process])
async def test_a_worker_comes_back_when_its_browser_dies(herd: Herd, store: Store, victim: object) -> None:
    (first,) = await registered(store)
    directory = directory_of(herd)

    victim(directory).kill()  # type: ignore[operator]

    async def is_replaced() -> bool:
        keys = list(await entries(store))
        return len(keys) == 1 and keys != [first]

    await eventually(is_replaced, DEADLINE)
    assert processes_of(directory) == []
    assert not directory.exists()


@pytest.mark.parametrize("takes_redis_along", [False, True])
async def test_a_killed_worker_comes_back_and_clears_up(
    herd: Herd, store: Store, takes_redis_along: bool
) -> None:
    (first,) = await registered(store)
    directory = directory_of(herd)
    (worker,) = workers_of(herd)

    if takes_redis_along:
        herd.redis.kill()
    worker.kill()

    # What it has left in Redis goes with it, and another one is there instead.
    (second,) = await eventually(lambda: others(store, first), DEADLINE)
    assert list(await store.send("HGETALL", "cluster:active_connections")) == [second.removeprefix("worker:")]
    assert list(await store.send("HGETALL", "cluster:lifetime_connections")) == [
        second.removeprefix("worker:")
    ]
    assert processes_of(directory) == []
    assert not directory.exists()


async def others(store: Store, worker: str) -> list[str]:
    """The workers that are there instead of this one, once there are any."""
    with suppress(Unavailable):
        keys = list(await entries(store))
        return [] if worker in keys else keys
    return []


async def test_the_end_of_the_herd_does_not_wait_for_clients(herd: Herd, store: Store) -> None:
    await registered(store)
    directory = directory_of(herd)
    async with client(store) as connection:
        assert await asyncio.to_thread(herd.stop) == 0

        await eventually(lambda: not connection.is_connected())
    assert herd.processes() == []
    assert not directory.exists()


async def test_nothing_of_a_worker_survives_when_the_herd_is_killed(herd: Herd, store: Store) -> None:
    await registered(store)
    directory = directory_of(herd)
    async with client(store):
        herd.process.kill()

        await asyncio.to_thread(herd.wait_until_gone)
    assert processes_of(directory) == []
    assert not directory.exists()


async def test_a_herd_that_stops_takes_its_workers_out_of_a_redis_that_stays(
    short_path: Path, redis_url: str
) -> None:
    async with Store(redis_url) as store:
        await store.send("FLUSHALL")
        with running_herd(short_path / "data", "--redis", redis_url, "--eager", "chromium") as herd:
            await registered(store)

            assert herd.stop() == 0

        assert await is_forgotten(store)


def test_an_eager_browser_that_is_not_here_is_one_clear_line(short_path: Path) -> None:
    herd = Herd(short_path / "data", "--eager", "webkit")

    assert herd.process.wait(DEADLINE) == 1
    assert herd.log() == "remuda: Playwright finds no webkit here: see `remuda doctor`\n"
