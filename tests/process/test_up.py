"""`remuda up` as an operator meets it: what it prints, how it ends, and what it survives."""

import asyncio
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from selenium import webdriver

from herds import DEADLINE, REMUDA, Herd, new_herd, running_herd
from remuda.base.errors import StoreUnavailable
from remuda.keyspace import grid
from remuda.store import Store
from waiting import eventually

pytestmark = pytest.mark.xdist_group("up")

PAGE = "data:text/html,<title>Pasture</title>"


@pytest.fixture(scope="module")
def herd() -> Iterator[Herd]:
    """A herd for all tests that leave it as good as they found it."""
    with new_herd("--slots", "1") as herd:
        yield herd


@pytest.fixture
def own_herd() -> Iterator[Herd]:
    """A herd of the test's own, which it may end."""
    with new_herd("--slots", "1") as herd:
        yield herd


def open_session(herd: Herd) -> webdriver.Remote:
    driver = webdriver.Remote(herd.url, options=webdriver.ChromeOptions())
    driver.get(PAGE)
    return driver


def remuda(*args: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*REMUDA, *args],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


def test_it_says_what_it_starts_then_its_url_then_ready(own_herd: Herd) -> None:
    assert [line.split("  ")[0] for line in own_herd.lines] == [
        "protection",
        "redis",
        "manager + orchestrator + api + gc + storage",
        "gateway",
        "url",
        "ready",
    ]
    assert own_herd.lines[-1] == "ready"
    assert own_herd.url.startswith("http://127.0.0.1:")
    assert own_herd.log() == ""


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_it_stops_on_a_signal_with_sessions_open_and_leaves_nothing(
    own_herd: Herd, signum: signal.Signals
) -> None:
    open_session(own_herd)

    own_herd.process.send_signal(signum)

    assert own_herd.process.wait(DEADLINE) == 0
    assert own_herd.processes() == []


def test_a_second_signal_ends_it_at_once(own_herd: Herd) -> None:
    # A process that does not answer would keep the first signal waiting for ever.
    own_herd.process_of("gateway").suspend()
    control = own_herd.process_of("orchestrator")
    own_herd.process.send_signal(signal.SIGINT)
    control.wait(DEADLINE)

    own_herd.process.send_signal(signal.SIGINT)

    own_herd.process.wait(DEADLINE)
    assert own_herd.processes() == []


def test_nothing_survives_when_it_is_killed(own_herd: Herd) -> None:
    open_session(own_herd)

    own_herd.process.kill()

    own_herd.wait_until_gone()


async def test_a_restart_finds_its_state_again(short_path: Path) -> None:
    with running_herd(short_path / "data", "--slots", "1") as first:
        driver = await asyncio.to_thread(open_session, first)
        first.process.kill()
        await asyncio.to_thread(first.wait_until_gone)

    with running_herd(short_path / "data", "--slots", "1") as second:
        async with Store(second.redis_url) as store:
            assert await store.sismember(grid.SESSIONS_TERMINATED(), driver.session_id or "")
            assert await store.scard(grid.ORCHESTRATORS()) == 1
            assert await store.scard(grid.SESSIONS_ACTIVE()) == 0
        (await asyncio.to_thread(open_session, second)).quit()


def test_a_killed_gateway_comes_back_and_the_session_goes_on(herd: Herd) -> None:
    driver = open_session(herd)
    gateway = herd.process_of("gateway")

    gateway.kill()
    gateway.wait(DEADLINE)

    # The port stays open meanwhile: the request waits for the new gateway instead of being refused.
    assert herd.request("GET", f"/session/{driver.session_id}/title")[1] == {"value": "Pasture"}
    driver.quit()


async def test_sessions_survive_a_killed_orchestrator(herd: Herd) -> None:
    driver = await asyncio.to_thread(open_session, herd)
    control = herd.process_of("orchestrator")

    control.kill()

    assert await asyncio.to_thread(lambda: driver.title) == "Pasture"
    await asyncio.to_thread(driver.quit)
    # The front door waits for the new manager instead of refusing.
    (await asyncio.to_thread(open_session, herd)).quit()


async def test_a_killed_redis_comes_back_with_its_data(herd: Herd) -> None:
    driver = await asyncio.to_thread(open_session, herd)

    herd.redis.kill()

    async def is_known() -> bool:
        try:
            async with Store(herd.redis_url) as store:
                return bool(await store.sismember(grid.SESSIONS_ACTIVE(), driver.session_id or ""))
        except StoreUnavailable:
            return False

    await eventually(is_known, deadline=DEADLINE)
    assert await asyncio.to_thread(lambda: driver.title) == "Pasture"
    await asyncio.to_thread(driver.quit)


def test_a_port_in_use_is_one_clear_line(short_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        result = remuda("up", "--port", str(port), "--data", str(short_path))

    assert result.returncode == 1
    assert result.stderr == f"remuda: Cannot listen on 127.0.0.1:{port}: Address already in use\n"


def test_an_unusable_data_directory_is_one_clear_line(short_path: Path) -> None:
    (short_path / "file").touch()

    result = remuda("up", "--port", "0", "--data", str(short_path / "file"))

    assert result.returncode == 1
    assert result.stderr.count("\n") == 1
    assert f"remuda: The data directory {short_path / 'file'} cannot be used" in result.stderr


def test_two_herds_cannot_share_a_data_directory(herd: Herd) -> None:
    result = remuda("up", "--port", "0", "--data", str(herd.data))

    assert result.returncode == 1
    assert result.stderr == f"remuda: Another herd (pid {herd.process.pid}) uses {herd.data} already\n"


def test_a_redis_that_is_down_is_one_clear_line(short_path: Path) -> None:
    result = remuda("up", "--port", "0", "--data", str(short_path), "--redis", "redis://:hush@127.0.0.1:1")

    assert result.returncode == 1
    assert "Redis at redis://***@127.0.0.1:1 cannot be used" in result.stderr
    assert "hush" not in result.stdout + result.stderr
    assert "Traceback" not in result.stderr


def test_a_missing_browser_is_one_clear_line(short_path: Path) -> None:
    options = ("chromium", "headless_shell", "firefox", "webkit")
    nowhere = {f"REMUDA_{option.upper()}": str(short_path / "none") for option in options}

    result = remuda("up", "--port", "0", "--data", str(short_path / "data"), **nowhere)

    assert result.returncode == 1
    assert result.stderr.count("\n") == 1
    assert "There is no browser to run" in result.stderr
    assert "remuda doctor" in result.stderr


def test_it_does_not_listen_beyond_loopback_by_accident(short_path: Path) -> None:
    result = remuda("up", "--host", "0.0.0.0", "--port", "0", "--data", str(short_path))

    assert result.returncode == 1
    assert "--insecure" in result.stderr


def test_a_bad_option_is_one_clear_line(short_path: Path) -> None:
    result = remuda("up", "--data", str(short_path), REMUDA_PORT="many")

    assert result.returncode == 1
    assert result.stderr.startswith("remuda: REMUDA_PORT is 'many'")


def test_it_uses_the_redis_it_is_given(short_path: Path, redis_url: str) -> None:
    with running_herd(short_path / "data", "--redis", redis_url) as herd:
        assert not (short_path / "data" / "redis").exists()
        assert herd.request("GET", "/readyz")[0] == 200


async def test_zombies_do_not_pile_up(herd: Herd) -> None:
    driver = await asyncio.to_thread(open_session, herd)

    await asyncio.to_thread(driver.quit)

    await eventually(lambda: _zombies_below(herd.process.pid) == [])


def _zombies_below(pid: int) -> list[int]:
    found = []
    for process in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if process.status() == psutil.STATUS_ZOMBIE:
                found.append(process.pid)
    return found
