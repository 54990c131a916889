"""The worker as a process with real browsers: what it writes to Redis, and what its end leaves there.

Clients connect straight to the worker's endpoint, so that nothing but the worker is under test.
"""

import asyncio
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest

from herds import DEADLINE, REMUDA
from originals import OriginalProxy
from processes import are_gone
from remuda.base import clock
from remuda.base.config import Config
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
    has_beaten_since,
    is_forgotten,
    only_entry,
    processes_of,
    running_worker,
    stock_client,
)


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
        async with stock_client(entry["wsEndpoint"], browser) as (_, page):
            assert await page.title() == "Pasture"
        assert await take_census(store) == []


async def test_a_beat_refreshes_the_key_and_looks_for_a_command(server: Server, tmp_path: Path) -> None:
    async with Store(server.url) as store, running_worker(store, tmp_path):
        ((key, entry),) = (await entries(store)).items()

        seen = await asyncio.to_thread(_monitor, server, until=f"worker:cmd:{key.removeprefix('worker:')}")

        written = [line for line in seen if key in line]
        assert [line[0] for line in written if line[0] in ("HSET", "EXPIRE")] == ["HSET", "EXPIRE"]
        assert ["EXPIRE", key, "60"] in seen
        await eventually(lambda: has_beaten_since(store, entry))


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


async def test_a_worker_takes_off_what_a_foreign_proxy_counted_for_nothing(
    store: Store, tmp_path: Path
) -> None:
    # Patient for one second instead of twenty. Connected before it is counted, and as long as it is: a busy
    # machine may take longer for either.
    async with (
        running_worker(store, tmp_path, REMUDA_PLAYWRIGHT_LEASE="1"),
        stock_client((await only_entry(store))["wsEndpoint"]) as (_, page),
    ):
        proxy = OriginalProxy(store)
        served, gone = await proxy.select("chromium"), await proxy.select("chromium")
        assert served is not None
        assert gone is not None

        await eventually(lambda: counts(store, served.field, "1"), DEADLINE)
        assert await page.title() == "Pasture"
        await proxy.disconnected(served)
        assert await counts(store, served.field, "0")


async def counts(store: Store, field: str, connections: str) -> bool:
    return await store.hget(keys.ACTIVE_CONNECTIONS(), field) == connections


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
