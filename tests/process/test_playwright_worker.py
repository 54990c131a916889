"""The worker as a process with real browsers: what it writes to Redis, whom it waits for, what it survives.

Clients connect straight to the worker's endpoint, so that nothing but the worker is under test.
"""

import asyncio
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest
from playwright.async_api import Browser, Page, async_playwright

from herds import DEADLINE, REMUDA
from processes import are_gone
from remuda.base import clock
from remuda.base.config import Config
from remuda.base.errors import StoreUnavailable
from remuda.cli.run import ROLES
from remuda.keyspace import playwright as keys
from remuda.ops.gc import Gc
from remuda.store import Store
from remuda.store.census import take_census
from servers import Server
from waiting import eventually
from workers import (
    RunningWorker,
    browser_process,
    driver_process,
    entries,
    is_forgotten,
    only_entry,
    processes_of,
    running_worker,
)

PAGE = "data:text/html,<title>Pasture</title>"


@asynccontextmanager
async def client(endpoint: str, browser: str = "chromium") -> AsyncIterator[tuple[Browser, Page]]:
    """A stock client with a page open."""
    async with async_playwright() as playwright:
        connection = await getattr(playwright, browser).connect(endpoint)
        page = await connection.new_page()
        await page.goto(PAGE)
        yield connection, page


async def status_of(store: Store) -> str:
    return (await only_entry(store))["status"]


async def is_draining(store: Store) -> bool:
    return await status_of(store) == "draining"


async def tell_to_shut_down(store: Store, key: str) -> str:
    """Does what a proxy does; the command's key."""
    command = key.replace("worker:", "worker:cmd:", 1)
    await store.send("SET", command, "shutdown", "EX", 60)
    return command


# Registration and beats


@pytest.mark.parametrize("browser", ["chromium", "firefox"])
async def test_a_worker_is_registered_as_documented_and_serves_stock_clients(
    store: Store, tmp_path: Path, browser: str
) -> None:
    async with running_worker(store, tmp_path, "--browser", browser) as process:
        ((key, entry),) = (await entries(store)).items()
        worker = key.removeprefix(f"worker:{browser}:")

        assert entry["browserType"] == browser
        assert entry["status"] == "available"
        assert abs(int(entry["lastHeartbeat"]) - clock.now()) < DEADLINE
        assert entry["wsEndpoint"] == entry["endpoint"]
        endpoint = urlsplit(entry["wsEndpoint"])
        assert endpoint.hostname == listens_at(process, endpoint.port) == "127.0.0.1"
        assert await store.hgetall(keys.ACTIVE_CONNECTIONS()) == {f"{browser}:{worker}": "0"}
        assert await store.hgetall(keys.LIFETIME_CONNECTIONS()) == {f"{browser}:{worker}": "0"}
        assert 0 < await store.ttl_ms(keys.WORKER(browser, worker)) <= 60_000
        async with client(entry["wsEndpoint"], browser) as (_, page):
            assert await page.title() == "Pasture"
        assert await take_census(store) == []


async def test_a_beat_refreshes_the_key_and_looks_for_a_command(server: Server, tmp_path: Path) -> None:
    async with Store(server.url) as store, running_worker(store, tmp_path):
        ((key, entry),) = (await entries(store)).items()

        seen = await asyncio.to_thread(_monitor, server, until=f"worker:cmd:{key.removeprefix('worker:')}")

        written = [line for line in seen if key in line]
        assert [line[0] for line in written if line[0] in ("HSET", "EXPIRE")] == ["HSET", "EXPIRE"]
        assert ["EXPIRE", key, "60"] in seen
        await eventually(lambda: _beat_after(store, entry))


def _monitor(server: Server, *, until: str) -> list[list[str]]:
    """The commands that Redis does, those inside scripts too, up to the first that asks for this key."""
    import redis

    commands: list[list[str]] = []
    with redis.Redis(unix_socket_path=str(server.socket)).monitor() as monitor:  # type: ignore[no-untyped-call]
        for each in monitor.listen():
            command: Any = each["command"]
            commands.append(command.split(" "))
            if command == f"GET {until}":
                return commands
    return commands


async def _beat_after(store: Store, entry: dict[str, str]) -> bool:
    return int((await only_entry(store))["lastHeartbeat"]) > int(entry["lastHeartbeat"])


async def test_gateways_reach_a_worker_under_its_private_name(store: Store, tmp_path: Path) -> None:
    async with running_worker(store, tmp_path, PRIVATE_HOSTNAME="worker-1.example") as worker:
        endpoint = urlsplit((await only_entry(store))["wsEndpoint"])

        assert endpoint.hostname == "worker-1.example"
        assert listens_at(worker, endpoint.port) == "0.0.0.0"


def listens_at(worker: RunningWorker, port: int | None) -> str:
    """The address at which the worker's server listens on this port."""
    sockets = driver_process(worker.directory).net_connections("tcp")
    (listener,) = [each for each in sockets if each.status == psutil.CONN_LISTEN and each.laddr.port == port]
    return str(listener.laddr.ip)


async def test_the_role_tells_where_it_listens(store: Store, tmp_path: Path) -> None:
    async with running_worker(store, tmp_path):
        endpoint = (await only_entry(store))["wsEndpoint"]

        (role,) = await eventually(lambda: store.send("KEYS", "remuda:role:*"))
        assert (await store.send("HGETALL", role))["address"] == urlsplit(endpoint).netloc


def run_worker(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*REMUDA, "run", *args], capture_output=True, text=True, timeout=DEADLINE, check=False
    )


def test_a_browser_that_is_not_here_is_one_clear_line(redis_url: str) -> None:
    result = run_worker("worker", "--browser", "webkit", "--redis", redis_url)

    assert result.returncode == 1
    assert result.stderr.count("\n") == 1
    assert "playwright install --with-deps webkit" in result.stderr


def test_a_worker_shares_its_process_with_nobody(redis_url: str) -> None:
    result = run_worker("worker", "gateway", "--redis", redis_url)

    assert result.returncode == 1
    assert result.stderr.startswith("remuda: A worker needs a process of its own")


# Deaths


@pytest.mark.parametrize("browser", ["chromium", "firefox"])
@pytest.mark.parametrize("victim", [browser_process, driver_process])
async def test_a_dead_browser_is_not_advertised(
    store: Store, tmp_path: Path, browser: str, victim: Any
) -> None:
    async with running_worker(store, tmp_path, "--browser", browser) as worker:
        directory = worker.directory

        victim(directory).kill()

        await eventually(lambda: is_forgotten(store))
        assert await worker.ends() == 1
    assert worker.log.read_text().startswith("remuda: The browser has ended by itself: ")
    assert "ws://" not in worker.log.read_text()
    assert processes_of(directory) == []
    assert not directory.exists()


async def test_a_hanging_browser_is_not_advertised_and_replaced(store: Store, tmp_path: Path) -> None:
    async with running_worker(store, tmp_path) as worker:
        directory = worker.directory

        browser_process(directory).suspend()

        assert await worker.ends() == 0
    assert await is_forgotten(store)
    assert "browser does not answer" in worker.log.read_text()
    assert processes_of(directory) == []
    assert not directory.exists()


async def test_what_a_killed_worker_leaves_is_cleared_away_by_the_gc(store: Store, tmp_path: Path) -> None:
    async with running_worker(store, tmp_path) as worker:
        directory = worker.directory
        worker.process.kill()
        await worker.ends()
        gc = ROLES["gc"](store, Config())
        assert isinstance(gc, Gc)

        await gc.run_once()

        assert not directory.exists()


async def test_a_killed_worker_takes_its_browser_along_and_the_next_clears_up(
    store: Store, tmp_path: Path
) -> None:
    async with running_worker(store, tmp_path) as worker:
        directory = worker.directory
        descendants = psutil.Process(worker.process.pid).children(recursive=True)

        worker.process.kill()
        await worker.ends()

        await eventually(lambda: are_gone(descendants))
    await store.send("FLUSHALL")
    async with running_worker(store, tmp_path):
        assert not directory.exists()


# Draining


async def finishes(worker: RunningWorker, store: Store) -> None:
    """The worker ends in good order, and nothing is left of it."""
    directory = worker.directory
    assert await worker.ends() == 0, worker.log.read_text()
    assert await is_forgotten(store)
    assert not directory.exists()


async def test_a_shutdown_command_is_obeyed_at_the_next_beat(store: Store, tmp_path: Path) -> None:
    async with running_worker(store, tmp_path) as worker:
        (key,) = await entries(store)

        await tell_to_shut_down(store, key)

        await finishes(worker, store)


async def test_a_call_over_the_channel_makes_it_faster(store: Store, tmp_path: Path) -> None:
    beats = {"HEARTBEAT_INTERVAL": "1000", "REDIS_KEY_TTL": "3000"}
    async with running_worker(store, tmp_path, **beats) as worker:
        (key,) = await entries(store)
        command = await tell_to_shut_down(store, key)

        await store.send("PUBLISH", command, "shutdown")

        await finishes(worker, store)


async def test_a_call_without_a_command_means_nothing(store: Store, tmp_path: Path) -> None:
    async with running_worker(store, tmp_path) as worker:
        ((key, entry),) = (await entries(store)).items()

        await store.send("PUBLISH", key.replace("worker:", "worker:cmd:", 1), "shutdown")

        await eventually(lambda: _beat_after(store, entry))
        assert await status_of(store) == "available"
        assert not worker.has_ended


@pytest.mark.parametrize("browser", ["chromium", "firefox"])
async def test_a_signal_lets_a_client_finish(store: Store, tmp_path: Path, browser: str) -> None:
    async with running_worker(store, tmp_path, "--browser", browser) as worker:
        entry = await only_entry(store)
        async with client(entry["wsEndpoint"], browser) as (_, page):
            worker.process.send_signal(signal.SIGTERM)
            await eventually(lambda: is_draining(store))

            # Redis counts nobody, but the sockets tell. Beats go on meanwhile.
            await eventually(lambda: _beat_after(store, entry))
            await page.goto(PAGE)
            assert await page.title() == "Pasture"
            assert not worker.has_ended

        await finishes(worker, store)


async def test_a_second_signal_ends_a_drain_at_once(store: Store, tmp_path: Path) -> None:
    async with (
        running_worker(store, tmp_path) as worker,
        client((await only_entry(store))["wsEndpoint"]) as (connection, _),
    ):
        worker.process.send_signal(signal.SIGTERM)
        await eventually(lambda: is_draining(store))

        worker.process.send_signal(signal.SIGTERM)

        await finishes(worker, store)
        await eventually(lambda: not connection.is_connected())


async def test_a_drain_has_a_limit(store: Store, tmp_path: Path) -> None:
    async with (
        running_worker(store, tmp_path, REMUDA_PLAYWRIGHT_DRAIN="1") as worker,
        client((await only_entry(store))["wsEndpoint"]),
    ):
        worker.process.send_signal(signal.SIGTERM)

        await finishes(worker, store)


async def test_a_drain_waits_for_whom_the_fleet_has_just_sent(store: Store, tmp_path: Path) -> None:
    async with running_worker(store, tmp_path) as worker:
        ((key, entry),) = (await entries(store)).items()
        field = key.removeprefix("worker:")
        await store.hincrby(keys.ACTIVE_CONNECTIONS(), field, 1)

        worker.process.send_signal(signal.SIGTERM)
        await eventually(lambda: is_draining(store))
        await eventually(lambda: _beat_after(store, entry))
        assert not worker.has_ended
        await store.hincrby(keys.ACTIVE_CONNECTIONS(), field, -1)

        await finishes(worker, store)


async def test_a_count_below_zero_ends_nobodys_session(store: Store, tmp_path: Path) -> None:
    async with running_worker(store, tmp_path) as worker:
        ((key, entry),) = (await entries(store)).items()
        async with client(entry["wsEndpoint"]) as (_, page):
            await store.hset(keys.ACTIVE_CONNECTIONS(), {key.removeprefix("worker:"): -2})

            worker.process.send_signal(signal.SIGTERM)
            await eventually(lambda: is_draining(store))
            told = await only_entry(store)
            await eventually(lambda: _beat_after(store, told))

            assert await page.title() == "Pasture"
            assert not worker.has_ended


# Redis away


async def entries_if_there(store: Store) -> dict[str, dict[str, str]]:
    """The registry; empty while Redis is away."""
    try:
        return await entries(store)
    except StoreUnavailable:
        return {}


async def test_a_session_goes_on_while_redis_is_away(server: Server, tmp_path: Path) -> None:
    async with Store(server.url) as store, running_worker(store, tmp_path, REDIS_KEY_TTL="3") as worker:
        # A machine that is very busy may let a key run out that short-lived.
        before = await eventually(lambda: entries(store), DEADLINE)
        (entry,) = before.values()
        await goes_on_without(
            server, entry["wsEndpoint"], for_seconds=6
        )  # Twice the time for which Redis believes it alive.

        after = await eventually(lambda: entries_if_there(store), DEADLINE)
        assert after.keys() == before.keys()
        assert [entry["status"] for entry in after.values()] == ["available"]
        assert not worker.has_ended


async def goes_on_without(server: Server, endpoint: str, *, for_seconds: float) -> None:
    """A session lives through an absence of Redis and its return."""
    async with client(endpoint) as (_, page):
        server.kill()
        away_until = clock.monotonic() + for_seconds
        while clock.monotonic() < away_until:
            await page.goto(PAGE)
            assert await page.title() == "Pasture"
        server.start()
        await page.goto(PAGE)
        assert await page.title() == "Pasture"


async def test_a_drain_survives_the_loss_of_all_data(server: Server, tmp_path: Path) -> None:
    async with Store(server.url) as store, running_worker(store, tmp_path) as worker:
        async with client((await only_entry(store))["wsEndpoint"]) as (_, page):
            worker.process.send_signal(signal.SIGTERM)
            await eventually(lambda: is_draining(store))

            server.kill()
            server.start()

            # Registered again, and not as available, not even for a moment: this is the first that is seen.
            (entry,) = (await eventually(lambda: entries_if_there(store), DEADLINE)).values()
            assert entry["status"] == "draining"
            await page.goto(PAGE)
            assert await page.title() == "Pasture"
            assert not worker.has_ended
        await finishes(worker, store)


async def test_a_drain_ends_also_without_redis(server: Server, tmp_path: Path) -> None:
    async with Store(server.url) as store, running_worker(store, tmp_path) as worker:
        directory = worker.directory

        server.kill()
        worker.process.send_signal(signal.SIGTERM)

        assert await worker.ends() == 0
        assert not directory.exists()
