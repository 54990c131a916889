"""What the doctor says about a machine, against made-up programs, directories and limits."""

import asyncio
import errno
import fcntl
import os
import resource
import socket
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from configs import make_config
from remuda.base.config import Config
from remuda.base.confinement import Protection
from remuda.base.errors import Misconfigured, StoreUnavailable
from remuda.cli.rooms import ROOMS
from remuda.fleet.room import Check, CheckState, Question, Room, Topic
from remuda.grid import doctor as grid_doctor
from remuda.grid.browsers import Browser, Finding, Program, Survey, survey_browsers
from remuda.ops import doctor
from remuda.ops.doctor import examine
from remuda.playwright import doctor as playwright_doctor
from remuda.playwright.browsers import Launch
from remuda.playwright.driver import BROWSERS_PATH

GIB = 1 << 30
CHROME = Browser(
    name="chrome",
    version="156.0.8078.73",
    binary=Path("/usr/bin/chromium"),
    driver=Path("/usr/bin/chromedriver"),
    driver_version="156.0.8078.70",
    names=("chrome", "chromium"),
)
STRANGER = Finding(
    "/opt/chrome", "version 140.0.1.2 needs a ChromeDriver 140", "apt-get install chromium-driver"
)


@pytest.fixture
def busy_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


async def answer(_url: str) -> str:
    return "7.2.4"


def program(path: Path, script: str) -> Path:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


async def test_an_examination_covers_the_whole_machine(tmp_path: Path) -> None:
    chromium = program(tmp_path / "chromium", "echo Chromium 156.0.8078.73")
    chromedriver = program(tmp_path / "chromedriver", "echo ChromeDriver 156.0.8078.70")
    config = make_config(port=0, data=tmp_path, chromium=str(chromium), chromedriver=str(chromedriver))

    checks = await examine(config, ROOMS)

    names = dict.fromkeys(check.name for check in checks)
    assert list(names) == [
        *("python", "browser", "driver", "playwright", "playwright video", "ffmpeg", "redis", "port", "data"),
        *("disk", "shared memory", "open files", "archive", "usage spool", "usage set aside"),
        *("protection", "driver ports"),
    ]
    assert all(check.state is not CheckState.FAIL for check in checks)


async def test_an_examination_leaves_nothing_behind(tmp_path: Path) -> None:
    await examine(make_config(port=0, data=tmp_path / "data"), ROOMS)

    assert list(tmp_path.iterdir()) == []


async def test_whatever_is_not_fine_comes_with_advice(
    tmp_path: Path, busy_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grid_doctor, "survey_browsers", lambda _: survey_browsers(places=[str(tmp_path)]))

    config = make_config(port=busy_port, data=Path("/proc/remuda"), redis="unix:///no/such/socket")
    checks = await examine(config, ROOMS)

    assert [check for check in checks if check.state is not CheckState.OK and not check.advice] == []
    failed = {check.name for check in checks if check.state is CheckState.FAIL}
    assert failed == {"browser", "redis", "port", "data"}


async def test_an_option_that_is_wrong_for_a_room_is_a_failure_among_the_other_checks(tmp_path: Path) -> None:
    def complain(_config: Config) -> list[Check]:
        raise Misconfigured("browser_uids is '0-10'")

    stable = Room(name="stable", questions=lambda: [Question(Topic.BROWSERS, complain)])

    checks = await examine(make_config(port=0, data=tmp_path), [stable])

    assert checks[1] == Check("stable", CheckState.FAIL, "browser_uids is '0-10'")
    assert "redis" in {check.name for check in checks}


def test_an_old_python_is_a_failure() -> None:
    assert doctor.judge_python((3, 10, 12)).state is CheckState.FAIL
    assert doctor.judge_python((3, 11, 0)) == Check("python", CheckState.OK, "3.11.0")


def test_a_browser_is_shown_with_its_driver() -> None:
    assert grid_doctor.judge_browsers(Survey((CHROME,), ())) == [
        Check("browser", CheckState.OK, "chrome 156.0.8078.73 (/usr/bin/chromium)"),
        Check("driver", CheckState.OK, "chrome 156.0.8078.70 (/usr/bin/chromedriver)"),
    ]


def test_an_obstacle_beside_a_working_browser_is_a_warning() -> None:
    *_, obstacle = grid_doctor.judge_browsers(Survey((CHROME,), (STRANGER,)))

    assert obstacle.state is CheckState.WARN
    assert obstacle.advice == STRANGER.advice


def test_an_obstacle_without_a_working_browser_is_a_failure() -> None:
    (obstacle,) = grid_doctor.judge_browsers(Survey((), (STRANGER,)))

    assert obstacle.state is CheckState.FAIL


def test_playwright_is_shown_with_the_browsers_it_can_serve() -> None:
    chromium = Launch("chromium", {}, Path("/usr/bin/chromium"))

    assert playwright_doctor.judge_playwright("1.64.1", [chromium, Launch("webkit", {})]) == Check(
        "playwright", CheckState.OK, "1.64.1, serves chromium (/usr/bin/chromium), webkit (own build)"
    )


def test_a_playwright_without_a_browser_is_only_a_warning() -> None:
    check = playwright_doctor.judge_playwright("1.64.1", [])

    assert check.state is CheckState.WARN
    assert "apt-get install chromium" in check.advice


def test_a_missing_ffmpeg_is_only_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    assert grid_doctor.look_at_ffmpeg(make_config()) == [
        Check("ffmpeg", CheckState.WARN, "not found", "needed for recording: apt-get install ffmpeg")
    ]


def test_ffmpeg_is_asked_in_its_own_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ffmpeg = program(tmp_path / "ffmpeg", '[ "$1" = -version ] && echo "ffmpeg version 5.1.6-0+deb12u1"')
    monkeypatch.setenv("PATH", str(tmp_path))

    assert grid_doctor.look_at_ffmpeg(make_config()) == [Check("ffmpeg", CheckState.OK, f"5.1.6 ({ffmpeg})")]


def test_playwrights_videos_need_an_ffmpeg_with_webm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv(BROWSERS_PATH, str(tmp_path))
    assert playwright_doctor.look_at_playwright_video().found == "no ffmpeg"

    program(tmp_path / "ffmpeg", 'echo " V....D libvpx libvpx VP8 (codec vp8)"')
    assert playwright_doctor.look_at_playwright_video().found == f"{tmp_path}/ffmpeg lacks libvpx-vp9"

    program(tmp_path / "ffmpeg", 'echo " V....D libvpx VP8"; echo " V....D libvpx-vp9 VP9"')
    assert playwright_doctor.look_at_playwright_video() == Check(
        "playwright video", CheckState.OK, f"recorded with {tmp_path}/ffmpeg"
    )


async def test_the_server_that_comes_with_the_installation_is_found() -> None:
    (check,) = await doctor.look_at_redis("", answer)

    assert check.state is CheckState.OK
    assert "embedded" in check.found


@pytest.mark.parametrize(
    ("version", "state"), [("6.2.14", CheckState.FAIL), ("7.0.15", CheckState.OK), ("9.1.2", CheckState.OK)]
)
def test_redis_must_be_new_enough(version: str, state: CheckState) -> None:
    assert doctor.judge_embedded_redis(Program(Path("/usr/bin/redis-server"), version)).state is state


def test_a_server_that_cannot_run_is_a_failure() -> None:
    broken = Program(Path("/x/valkey-server"), problem="cannot be run: Exec format error")

    assert doctor.judge_embedded_redis(broken).state is CheckState.FAIL
    assert doctor.judge_embedded_redis(None).state is CheckState.FAIL


async def test_a_given_redis_is_asked_and_its_password_not_shown() -> None:
    (check,) = await doctor.look_at_redis("redis://:hunter2@db.example:6379", answer)

    assert check.state is CheckState.OK
    assert "db.example" in check.found
    assert "hunter2" not in check.found


async def test_a_given_redis_that_is_down_is_a_failure() -> None:
    async def refuse(url: str) -> str:
        raise StoreUnavailable("Connection refused")

    (check,) = await doctor.look_at_redis("redis://db.example", refuse)

    assert (check.state, check.found) == (CheckState.FAIL, "Connection refused")


async def test_a_given_redis_that_is_silent_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(url: str) -> str:
        await asyncio.Event().wait()
        return url

    monkeypatch.setattr(doctor, "PING_TIMEOUT", 0.01)
    (check,) = await doctor.look_at_redis("redis://:hunter2@db.example", hang)

    assert check.state is CheckState.FAIL
    assert "hunter2" not in check.found


async def test_a_url_that_is_none_is_a_failure_that_says_so() -> None:
    (check,) = await doctor.look_at_redis("http://db.example", doctor.ask_redis)

    assert check.state is CheckState.FAIL
    assert "is not a valid Redis URL" in check.found


async def test_a_port_in_use_is_a_failure(busy_port: int, tmp_path: Path) -> None:
    (check,) = await doctor.look_at_port("127.0.0.1", busy_port, tmp_path)

    assert (check.state, check.found) == (CheckState.FAIL, f"127.0.0.1:{busy_port} is in use")


async def test_the_port_of_a_herd_that_runs_is_fine(busy_port: int, tmp_path: Path) -> None:
    with (tmp_path / doctor.LOCK).open("w+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        print(1234, end="", file=lock, flush=True)
        (check,) = await doctor.look_at_port("127.0.0.1", busy_port, tmp_path)
    (stopped,) = await doctor.look_at_port("127.0.0.1", busy_port, tmp_path)

    assert check.state is CheckState.OK
    assert "pid 1234" in check.found
    assert stopped.state is CheckState.FAIL


async def test_a_free_port_is_fine(tmp_path: Path) -> None:
    (check,) = await doctor.look_at_port("127.0.0.1", 0, tmp_path)

    assert check == Check("port", CheckState.OK, "127.0.0.1, any free port")


async def test_an_address_of_another_machine_is_a_failure(tmp_path: Path) -> None:
    (check,) = await doctor.look_at_port("192.0.2.1", 4444, tmp_path)

    assert check.state is CheckState.FAIL
    assert "--host" in check.advice


def test_a_privileged_port_is_explained() -> None:
    check = doctor.judge_bind_error("127.0.0.1:80", PermissionError(errno.EACCES, "Permission denied"))

    assert check.advice == "choose a --port above 1023"


def test_a_data_directory_may_still_have_to_be_made(tmp_path: Path) -> None:
    check, disk = doctor.look_at_data(tmp_path / "a/b")

    assert (check.state, check.found) == (CheckState.OK, f"{tmp_path}/a/b (to be made)")
    assert disk.name == "disk"


def test_a_file_is_no_data_directory(tmp_path: Path) -> None:
    (tmp_path / "data").touch()

    (check,) = doctor.look_at_data(tmp_path / "data")

    assert check.state is CheckState.FAIL


def test_a_disk_without_room_for_a_session_is_a_failure(tmp_path: Path) -> None:
    _, disk = doctor.look_at_data(tmp_path, megabytes=10**9)

    assert (disk.name, disk.state) == ("disk", CheckState.FAIL)
    assert "less than min_free_megabytes" in disk.found


def test_little_disk_and_little_shared_memory_are_warnings() -> None:
    assert doctor.judge_disk(GIB // 2).state is CheckState.WARN
    assert doctor.judge_disk(2 * GIB) == Check("disk", CheckState.OK, "2.0 GiB free")
    assert doctor.judge_shm(64 << 20).state is CheckState.WARN
    assert doctor.judge_shm(None).state is CheckState.WARN
    assert doctor.judge_shm(GIB) == Check("shared memory", CheckState.OK, "1.0 GiB in /dev/shm")


def test_few_open_files_are_a_warning() -> None:
    assert doctor.judge_open_files(1024).state is CheckState.WARN
    assert doctor.judge_open_files(65536) == Check("open files", CheckState.OK, "65536 per process")
    assert doctor.judge_open_files(resource.RLIM_INFINITY).state is CheckState.OK


_protection = partial(Protection, has_seccomp=True)


@pytest.mark.parametrize(
    ("protection", "state", "word"),
    [
        (
            _protection(is_root=True, uids=range(58000, 59000), landlock=7, has_namespaces=True),
            CheckState.OK,
            "",
        ),
        (_protection(is_root=False, uids=range(0), landlock=7, has_namespaces=True), CheckState.OK, ""),
        (
            _protection(is_root=True, uids=range(0), landlock=7, has_namespaces=True),
            CheckState.WARN,
            "browser_uids",
        ),
        (
            _protection(is_root=True, uids=range(5, 9), landlock=7, has_namespaces=False),
            CheckState.WARN,
            "seccomp",
        ),
        (
            _protection(is_root=True, uids=range(5, 9), landlock=0, has_namespaces=True),
            CheckState.WARN,
            "5.13",
        ),
        (_protection(is_root=False, uids=range(0), landlock=0, has_namespaces=True), CheckState.WARN, "list"),
        (
            _protection(is_root=False, uids=range(0), landlock=7, has_namespaces=False),
            CheckState.WARN,
            "namespaces",
        ),
        (
            _protection(is_root=False, uids=range(0), landlock=7, has_namespaces=True, shares_display=True),
            CheckState.WARN,
            "share_display",
        ),
        (
            Protection(is_root=False, uids=range(0), landlock=7, has_namespaces=True, has_seccomp=False),
            CheckState.WARN,
            "Docker's socket",
        ),
    ],
)
def test_what_protects_the_machine_from_its_browsers_is_said(
    protection: Protection, state: CheckState, word: str
) -> None:
    check = grid_doctor.judge_protection(protection)

    assert check.state is state
    assert word in check.advice


def test_drivers_that_pages_reach_are_a_warning() -> None:
    assert grid_doctor.judge_reach(can_close=True).state is CheckState.OK
    check = grid_doctor.judge_reach(can_close=False)
    assert check.state is CheckState.WARN
    assert "SYS_PTRACE" in check.advice


def test_users_that_cannot_be_used_are_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)

    (check,) = grid_doctor.look_at_protection(make_config(browser_uids="0-10"))

    assert check.state is CheckState.FAIL
    assert "0-10" in check.found


def test_a_temporary_directory_too_long_for_chromium_is_an_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", f"/tmp/{'x' * 60}")

    (check,) = doctor.look_at_data(tmp_path)

    assert (check.name, check.state) == ("temporary directory", CheckState.FAIL)
    assert "TMPDIR" in check.advice
