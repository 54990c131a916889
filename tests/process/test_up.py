"""`remuda up` as an operator meets it: what it prints, how it ends, and what it survives."""

import asyncio
import math
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
from selenium.common.exceptions import WebDriverException
from urllib3.exceptions import HTTPError

from clients import options_for
from configs import make_config
from herds import DEADLINE, REMUDA, Herd, new_herd, running_herd
from remuda.base import clock
from remuda.base.errors import StoreUnavailable
from remuda.base.ids import SessionId
from remuda.cli.up import warn_of_open_door
from remuda.keyspace import grid
from remuda.keyspace.metering import TIMERS
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
    driver = webdriver.Remote(herd.url, options=options_for())
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


def test_it_says_what_it_starts_and_stops_on_sigterm_with_sessions_open(own_herd: Herd) -> None:
    words = [line.split()[0] for line in own_herd.lines]
    assert words == ["protection", "redis", "process", "process", "url", "ready"]
    assert own_herd.lines[2].endswith(": manager + orchestrator + api + gc + storage + foreman + metering")
    assert own_herd.lines[3].endswith(": gateway")
    assert own_herd.lines[-1] == "ready"
    assert own_herd.url.startswith("http://127.0.0.1:")
    assert own_herd.log() == ""

    assert_stops_with_a_session_open(own_herd, signal.SIGTERM)


def test_it_stops_on_ctrl_c_with_sessions_open(own_herd: Herd) -> None:
    assert_stops_with_a_session_open(own_herd, signal.SIGINT)


def assert_stops_with_a_session_open(herd: Herd, signum: signal.Signals) -> None:
    open_session(herd)

    herd.process.send_signal(signum)

    assert herd.process.wait(DEADLINE) == 0
    assert herd.processes() == []


def test_a_second_signal_ends_it_at_once(own_herd: Herd) -> None:
    # A process that does not answer would keep the first signal waiting for ever.
    own_herd.process_of("gateway").suspend()
    control = own_herd.process_of("orchestrator")
    own_herd.process.send_signal(signal.SIGINT)
    control.wait(DEADLINE)

    own_herd.process.send_signal(signal.SIGINT)

    own_herd.process.wait(DEADLINE)
    assert own_herd.processes() == []


async def test_nothing_survives_when_it_is_killed_and_a_restart_finds_its_state_again(
    short_path: Path,
) -> None:
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


def test_a_hang_up_without_a_terminal_ends_nothing(herd: Herd) -> None:
    before = {each.pid for each in herd.processes()}

    herd.process.send_signal(signal.SIGHUP)

    # As many as it takes for the signal to have reached all processes.
    assert [herd.request("GET", "/healthz")[0] for _ in range(50)] == [200] * 50
    assert herd.process.poll() is None
    assert {herd.process.pid, herd.process_of("gateway").pid, herd.process_of("manager").pid} <= before


def test_a_killed_gateway_comes_back_and_the_session_goes_on(herd: Herd) -> None:
    driver = open_session(herd)
    gateway = herd.process_of("gateway")

    gateway.kill()
    gateway.wait(DEADLINE)

    # The port stays open meanwhile: the request waits for the new gateway instead of being refused.
    assert herd.request("GET", f"/session/{driver.session_id}/title")[1] == {"value": "Pasture"}
    driver.quit()


async def test_the_meter_loses_no_session_second_and_little_else_to_kills(herd: Herd) -> None:
    """The gateway is killed under load, and so is the process that counts."""

    def used() -> dict[str, int]:
        _, report, _ = herd.request("GET", "/api/usage?service=grid&resource=default&since=2h&step=total")
        totals: dict[str, int] = report["usage"][0]["totals"]
        return totals

    async with Store(herd.redis_url) as store:
        await eventually(lambda: has_no_timers(store), deadline=DEADLINE)
        before = await asyncio.to_thread(used)
        driver = await asyncio.to_thread(open_session, herd)
        answered, is_over = 0, False

        def load() -> None:
            nonlocal answered
            with suppress(WebDriverException, HTTPError, OSError):  # One may be cut off by the kill.
                while not is_over:
                    assert driver.title == "Pasture"
                    answered += 1

        loading = asyncio.create_task(asyncio.to_thread(load))
        flushes, known = [(0, 0)], before.get("commands", 0)
        # What was answered before the first flush that is seen is in the third at the latest: that has begun
        # after the second had ended.
        while len(flushes) < 4:
            answered_before = answered
            metered = (await asyncio.to_thread(used)).get("commands", 0) - known
            if metered > flushes[-1][1]:
                flushes.append((answered_before, metered))
        herd.process_of("gateway").kill()
        herd.process_of("metering").kill()
        is_over = True
        await loading
        await asyncio.to_thread(herd.wait_until_ready)
        session = driver.session_id or ""
        await asyncio.to_thread(driver.quit)
        await eventually(lambda: has_no_timers(store), deadline=DEADLINE)
        stamps = await store.hgetall(grid.SESSION_STATUS(SessionId(session)))

    after = await asyncio.to_thread(used)
    lasted = clock.parse_rfc3339(stamps["terminatedAt"]) - clock.parse_rfc3339(stamps["aliveAt"])
    assert after["browserSeconds"] - before.get("browserSeconds", 0) == math.ceil(round(lasted, 3))
    assert after["CreateSession"] - before.get("CreateSession", 0) == 1
    assert flushes[1][0] <= after["commands"] - known <= answered + 10


async def has_no_timers(store: Store) -> bool:
    return not await store.exists(TIMERS())


async def test_sessions_survive_a_killed_orchestrator(herd: Herd) -> None:
    driver = await asyncio.to_thread(open_session, herd)
    control = herd.process_of("orchestrator")

    control.kill()
    # On a busy machine it takes a while to die, and would take the next request along.
    await asyncio.to_thread(control.wait, DEADLINE)

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
    assert result.stderr == (
        f"remuda: Cannot listen on 127.0.0.1:{port}: Address already in use; "
        "stop what listens there, or choose another port\n"
    )


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


@pytest.mark.parametrize(
    ("url", "line"),
    [
        ("redis://:hush@127.0.0.1:1", "Redis at redis://***@127.0.0.1:1 cannot be used: Connection refused"),
        ("ftp://:hush@x", "'ftp://***@x' is not a valid Redis URL: it must start with one of redis://"),
        (
            "rediss://:hush@127.0.0.1:1?ca=/none",
            "'rediss://***@127.0.0.1:1?ca=/none' is not a valid Redis URL: its ca, /none, cannot be used",
        ),
    ],
)
def test_a_redis_that_cannot_be_used_is_one_clear_line(url: str, line: str, short_path: Path) -> None:
    result = remuda("up", "--port", "0", "--data", str(short_path), "--redis", url)

    assert result.returncode == 1
    assert result.stderr.startswith(f"remuda: {line}")
    assert result.stderr.count("\n") == 1
    assert "hush" not in result.stdout + result.stderr


def test_a_temporary_directory_too_long_for_sockets_is_one_clear_line(short_path: Path) -> None:
    long = short_path / ("x" * 100)
    long.mkdir()

    result = remuda("up", "--port", "0", "--data", str(short_path / "data"), TMPDIR=str(long))

    assert result.returncode == 1
    assert result.stderr.startswith(f"remuda: The temporary directory {long} is longer than")
    assert result.stderr.count("\n") == 1


def test_a_missing_browser_is_one_clear_line(short_path: Path) -> None:
    options = ("chromium", "headless_shell", "firefox", "webkit")
    nowhere = {f"REMUDA_{option.upper()}": str(short_path / "none") for option in options}

    result = remuda("up", "--port", "0", "--data", str(short_path / "data"), **nowhere)

    assert result.returncode == 1
    assert result.stderr.count("\n") == 1
    assert "There is no browser to run" in result.stderr
    assert "remuda doctor" in result.stderr


@pytest.mark.parametrize(
    ("options", "warns"),
    [
        ({"host": "0.0.0.0", "insecure": True}, True),
        ({"host": "0.0.0.0", "auth": "off"}, True),
        ({"host": "0.0.0.0"}, False),
        ({"auth": "off"}, False),
        ({}, False),
    ],
)
def test_it_warns_if_others_reach_it_and_need_no_token(options: dict[str, object], warns: bool) -> None:
    # Nothing is started: a test does not listen where others reach it.
    warning = warn_of_open_door(make_config(**options))

    assert ("every client that reaches 0.0.0.0 can use this herd" in warning) is warns


@pytest.mark.parametrize(
    ("command", "is_refused"),
    [
        (["up", "--auth", "on", "--data", "/dev/null"], True),
        (["run", "worker", "--host", "0.0.0.0", "--redis", "unix:///nowhere"], True),
        (["up", "--data", "/dev/null"], False),
    ],
)
def test_the_operators_display_is_not_shared_with_clients_that_need_a_token(
    command: list[str], is_refused: bool
) -> None:
    environ = {**os.environ, "DISPLAY": ":7", "REMUDA_SHARE_DISPLAY": "true"}

    run = subprocess.run([*REMUDA, *command], env=environ, capture_output=True, text=True, timeout=DEADLINE)

    assert run.returncode != 0
    assert ("share_display (REMUDA_SHARE_DISPLAY) is on" in run.stderr) is is_refused


def test_with_auth_on_the_first_start_prints_the_admin_token_and_keeps_it(short_path: Path) -> None:
    data = short_path / "data"
    with running_herd(data, "--auth", "on") as herd:
        printed = [line for line in herd.lines if line.startswith("rmd_")]
    with running_herd(data, "--auth", "on") as again:
        printed_again = [line for line in again.lines if line.startswith("rmd_")]

    file = data / "admin.token"
    assert printed == [file.read_text().strip()]
    assert printed_again == []
    assert file.stat().st_mode & 0o777 == 0o600
    assert printed[0] not in herd.log()


def test_a_bad_option_is_one_clear_line(short_path: Path) -> None:
    result = remuda("up", "--data", str(short_path), REMUDA_PORT="many")

    assert result.returncode == 1
    assert result.stderr.startswith("remuda: REMUDA_PORT is 'many'")


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
