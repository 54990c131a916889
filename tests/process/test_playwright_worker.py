"""The worker as a process with real browsers: what it writes to Redis, and what its end leaves there.

Clients connect straight to the worker's endpoint, so that nothing but the worker is under test.
"""

import asyncio
import re
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest

from configs import make_config
from herds import DEADLINE, REMUDA
from originals import OriginalProxy
from processes import are_gone, listeners_of
from remuda.base import clock
from remuda.cli.rooms import ROOMS
from remuda.fleet.role import running_roles
from remuda.fleet.room import Surroundings, role_kinds
from remuda.keyspace import playwright as keys
from remuda.ops.gc import Gc
from remuda.store import Store
from remuda.store.census import take_census
from remuda.store.url import parse_url
from servers import Server
from waiting import eventually
from workers import (
    PAGE,
    RunningWorker,
    browser_process,
    driver_process,
    entries,
    finishes,
    has_beaten_since,
    is_draining,
    is_forgotten,
    only_entry,
    processes_of,
    running_worker,
    stock_client,
)


@pytest.mark.parametrize("browser", ["chromium", "firefox"])
async def test_a_worker_is_registered_as_documented_serves_stock_clients_and_lets_them_finish(
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
        (role,) = await running_roles(store)
        assert role["address"] == endpoint.netloc
        async with stock_client(entry["wsEndpoint"], browser) as (_, page):
            assert await page.title() == "Pasture"
            assert await take_census(store) == []

            process.process.send_signal(signal.SIGTERM)
            await eventually(lambda: is_draining(store))

            # Redis counts nobody, but the sockets tell. Beats go on meanwhile.
            await eventually(lambda: has_beaten_since(store, entry))
            await page.goto(PAGE)
            assert await page.title() == "Pasture"
            assert not process.has_ended

        await finishes(process, store)


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
    commands: list[list[str]] = []
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(DEADLINE)
        connection.connect(str(server.socket))
        connection.sendall(f"AUTH {parse_url(server.url).password}\r\nMONITOR\r\n".encode())
        with connection.makefile(encoding="utf-8", errors="replace") as lines:
            # A line is `+<time> [<database> <client>] "<word>" "<word>" ...`.
            for line in lines:
                commands.append(re.findall(r'"((?:[^"\\]|\\.)*)"', line.partition("] ")[2]))
                if commands[-1] == ["GET", until]:
                    break
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
        # The worker itself, which asks for the herd's secret: its driver would tell its path to anybody.
        assert {each.laddr.ip for each in listeners_of(driver_process(worker.directory))} == {"127.0.0.1"}


def listens_at(worker: RunningWorker, port: int | None) -> str:
    """The address at which the worker, or its driver, listens on this port."""
    driver = driver_process(worker.directory)
    of_both = [*listeners_of(psutil.Process(worker.process.pid)), *listeners_of(driver)]
    (listener,) = [each for each in of_both if each.laddr.port == port]
    return str(listener.laddr.ip)


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
        gc = role_kinds(ROOMS)["gc"].make(Surroundings(store, make_config(), ROOMS))
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
