"""Playwright's workers inside `remuda up`: when they start, how they are replaced, and that none is left."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from playwright.async_api import Browser, Playwright, async_playwright

from browser_directories import directories_in
from herds import DEADLINE, Herd, new_herd, running_herd
from lending import Lender
from processes import command_of
from remuda.base.errors import RemudaError, Unavailable
from remuda.base.ids import new_id
from remuda.fleet.line import Lines
from remuda.store import Store
from waiting import eventually
from workers import (
    browser_process,
    driver_process,
    entries,
    is_forgotten,
    only_entry,
    processes_of,
)

# In one process, so that several tests can use the same herd.
pytestmark = pytest.mark.xdist_group("up playwright")


@contextmanager
def eager_herd() -> Iterator[Herd]:
    """A herd whose Chromium worker starts without being asked."""
    with new_herd("--slots", "1", "--eager", "chromium", environ={"HEARTBEAT_INTERVAL": "1"}) as herd:
        yield herd


@pytest.fixture(scope="module")
def lasting_herds() -> Iterator[Lender[tuple[Herd, ExitStack]]]:
    """Lends a herd to those who have it replace its worker."""

    def start() -> tuple[Herd, ExitStack]:
        with ExitStack() as stack:
            return stack.enter_context(eager_herd()), stack.pop_all()
        raise AssertionError

    lender = Lender(start, is_usable=lambda lent: is_usable(lent[0]), end=lambda lent: lent[1].close())
    yield lender
    lender.end()


def is_usable(herd: Herd) -> bool:
    """Whether it is ready, and its one worker is there."""

    async def look() -> None:
        async with Store(herd.redis_url) as store:
            await registered(store)

    with suppress(RemudaError, AssertionError):
        herd.wait_until_ready()
        asyncio.run(look())
        return len(workers_of(herd)) == 1
    return False


@pytest.fixture
def lasting_herd(lasting_herds: Lender[tuple[Herd, ExitStack]]) -> Herd:
    """A herd that has a worker again at the end of a test."""
    return lasting_herds.lend()[0]


@pytest.fixture
def herd() -> Iterator[Herd]:
    """A herd of the test's own, which it may end."""
    with eager_herd() as herd:
        yield herd


@pytest.fixture
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    """The Redis of the herd that the test has."""
    name = "herd" if "herd" in request.fixturenames else "lasting_herd"
    herd: Herd = request.getfixturevalue(name)
    async with Store(herd.redis_url) as store:
        yield store


async def registered(store: Store, count: int = 1) -> list[str]:
    """The keys of the workers, once there are so many."""

    async def look() -> list[str]:
        keys = list(await entries(store))
        return keys if len(keys) == count else []

    return await eventually(look, DEADLINE)


def workers_of(herd: Herd) -> list[psutil.Process]:
    return [each for each in herd.processes() if "worker" in command_of(each)]


def directories_of(herd: Herd) -> list[Path]:
    """Where the files of its workers' browsers are."""
    here = Path(tempfile.gettempdir())
    return [directory for worker in workers_of(herd) for directory in directories_in(here, worker.pid)]


def directory_of(herd: Herd) -> Path:
    """Where the files of the one worker's browser are."""
    (directory,) = directories_of(herd)
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


async def test_one_more_worker_starts_when_clients_wait_and_leaves_when_it_is_idle(
    short_path: Path,
) -> None:
    environ = {"MAX_CONCURRENT_SESSIONS": "1", "REMUDA_PLAYWRIGHT_SPARE_IDLE": "1"}
    with running_herd(short_path / "data", "--max-workers", "2", environ=environ) as herd:
        endpoint = herd.url.replace("http", "ws")
        async with Store(herd.redis_url) as store, async_playwright() as playwright:
            first = await playwright.chromium.connect(endpoint)
            (basic,) = await registered(store)

            second = await playwright.chromium.connect(endpoint)

            assert len(await entries(store)) == 2
            logged = herd.log()
            await first.close()
            await second.close()
            assert await registered(store, 1) == [basic]
            await eventually(lambda: len(workers_of(herd)) == 1, DEADLINE)
            assert herd.log() == logged


async def test_a_worker_that_is_told_to_leave_is_replaced_without_alarm(
    lasting_herd: Herd, store: Store
) -> None:
    (first,) = await registered(store)
    logged = lasting_herd.log()

    await tell_to_leave(store, first)

    async def is_replaced() -> bool:
        return [key for key in await entries(store) if key != first] != []

    await eventually(is_replaced, DEADLINE)
    assert lasting_herd.log() == logged


async def connected(playwright: Playwright, store: Store, key: str) -> Browser:
    """A client of this worker."""
    return await playwright.chromium.connect((await entries(store))[key]["wsEndpoint"])


async def test_a_worker_that_waits_for_its_clients_is_replaced_meanwhile_and_ends_with_the_herd(
    herd: Herd, store: Store
) -> None:
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

        # The end of the herd does not wait for those that leave, nor for clients.
        directories = directories_of(herd)
        assert len(directories) == 2
        assert await asyncio.to_thread(herd.stop) == 0
        await eventually(lambda: not other.is_connected())
    assert herd.processes() == []
    assert not any(directory.exists() for directory in directories)


async def tell_to_leave(store: Store, worker: str) -> None:
    await store.send("SET", worker.replace("worker:", "worker:cmd:", 1), "shutdown", "EX", 60)


async def has_status(store: Store, worker: str, status: str) -> bool:
    return (await entries(store))[worker]["status"] == status


async def has_left(store: Store, worker: str) -> list[str]:
    """The two workers that are there instead, once they are."""
    others = [key for key in await entries(store) if key != worker]
    return others if len(others) == 2 else []


@pytest.mark.parametrize("victim", [browser_process, driver_process])
async def test_a_worker_comes_back_when_its_browser_dies(
    lasting_herd: Herd, store: Store, victim: object
) -> None:
    (first,) = await registered(store)
    directory = directory_of(lasting_herd)

    victim(directory).kill()  # type: ignore[operator]

    async def is_replaced() -> bool:
        keys = list(await entries(store))
        return len(keys) == 1 and keys != [first]

    await eventually(is_replaced, DEADLINE)
    assert processes_of(directory) == []
    assert not directory.exists()


@pytest.mark.parametrize("takes_redis_along", [False, True])
async def test_a_killed_worker_comes_back_and_clears_up(
    lasting_herd: Herd, store: Store, takes_redis_along: bool
) -> None:
    (first,) = await registered(store)
    directory = directory_of(lasting_herd)
    (worker,) = workers_of(lasting_herd)

    if takes_redis_along:
        lasting_herd.redis.kill()
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


async def test_nothing_of_a_worker_survives_when_the_herd_is_killed(herd: Herd, store: Store) -> None:
    await registered(store)
    directory = directory_of(herd)
    async with client(store):
        herd.process.kill()

        await asyncio.to_thread(herd.wait_until_gone)
    assert processes_of(directory) == []
    assert not directory.exists()


async def test_a_herd_uses_the_redis_it_is_given_and_takes_its_workers_out_when_it_stops(
    short_path: Path, redis_url: str
) -> None:
    async with Store(redis_url) as store:
        await store.send("FLUSHALL")
        with running_herd(short_path / "data", "--redis", redis_url, "--eager", "chromium") as herd:
            await registered(store)
            assert not (short_path / "data" / "redis").exists()
            assert herd.request("GET", "/readyz")[0] == 200

            assert herd.stop() == 0

        assert await is_forgotten(store)


def test_an_eager_browser_that_is_not_here_is_one_clear_line(short_path: Path) -> None:
    herd = Herd(short_path / "data", "--eager", "webkit")

    assert herd.process.wait(DEADLINE) == 1
    assert herd.log() == "remuda: Playwright found no webkit here: see `remuda doctor`\n"
