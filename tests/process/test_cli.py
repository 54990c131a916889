"""The commands that only look, and roles that run one by one."""

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from herds import DEADLINE, REMUDA, running_herd
from remuda import __version__
from remuda.fleet.role import running_roles
from remuda.store import Store
from waiting import eventually


def remuda(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*REMUDA, *args],
        env={**os.environ, "COLUMNS": "160"},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


@contextmanager
def running_role(*roles: str, data: Path, redis: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [*REMUDA, "run", *roles, "--redis", redis, "--data", str(data), "--port", "0"],
        stdin=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE) == 0


def test_the_version_is_told() -> None:
    assert remuda("--version").stdout == f"remuda {__version__}\n"


def test_keys_shows_every_room_or_just_what_is_asked_for() -> None:
    everything = remuda("keys").stdout
    assert "session:{session}:status" in everything
    assert "worker:{browser}:{worker}" in everything

    assert "worker" not in remuda("keys", "session:{session}:status").stdout
    assert "session:" not in remuda("keys", "--room", "archive").stdout


def test_doctor_finds_what_a_herd_needs() -> None:
    result = remuda("doctor", "--port", "0")

    assert result.returncode == 0, result.stdout
    for word in ("python", "browser", "driver", "redis", "port", "data"):
        assert word in result.stdout


def test_doctor_fails_when_a_herd_could_not_run() -> None:
    result = remuda("doctor", "--port", "0", "--redis", "redis://127.0.0.1:1")

    assert result.returncode == 1
    assert "127.0.0.1:1" in result.stdout


def test_status_shows_a_running_herd() -> None:
    with (
        tempfile.TemporaryDirectory(prefix="herd-") as directory,
        running_herd(Path(directory) / "data") as herd,
    ):
        result = remuda("status", "--url", herd.url)
        by_port = remuda("status", "--port", herd.url.rpartition(":")[2])

    assert result.returncode == 0, result.stderr
    assert by_port.returncode == 0, by_port.stderr
    assert "slots in use" in result.stdout
    for role in ("gateway", "manager", "orchestrator", "api"):
        assert role in result.stdout


def test_sessions_are_shown_and_killed() -> None:
    with (
        tempfile.TemporaryDirectory(prefix="herd-") as directory,
        running_herd(Path(directory) / "data") as herd,
    ):
        capabilities = {"capabilities": {"alwaysMatch": {"se:name": "pay by card"}}}
        status, created, _ = herd.request("POST", "/session", json.dumps(capabilities))
        assert status == 200
        session = created["value"]["sessionId"]

        shown = remuda("sessions", "--url", herd.url)
        killed = remuda("sessions", "kill", session, "--url", herd.url)
        again = remuda("sessions", "kill", session, "--url", herd.url)
        nobody = remuda("sessions", "kill", "nobody", "--url", herd.url)

    assert session in shown.stdout
    assert "pay by card" in shown.stdout
    assert killed.stdout == f"{session} ended\n"
    assert again.stdout == f"{session} had ended before\n"
    assert (nobody.returncode, nobody.stderr) == (1, "remuda: There is no session 'nobody'.\n")


def test_the_only_orchestrator_is_taken_out_of_service_and_put_back() -> None:
    with (
        tempfile.TemporaryDirectory(prefix="herd-") as directory,
        running_herd(Path(directory) / "data") as herd,
    ):
        name = (Path(directory) / "data" / "orchestrator-id").read_text()

        drained = remuda("drain", "--wait", "--url", herd.url)
        shown = remuda("status", "--url", herd.url)
        status, refused, _ = herd.request("POST", "/session", '{"capabilities": {}}')
        resumed = remuda("drain", name, "--undo", "--url", herd.url)
        served, _, _ = herd.request("POST", "/session", '{"capabilities": {}}')
        nobody = remuda("drain", "nobody", "--url", herd.url)

    assert drained.stdout == f"{name} drains, 0 sessions\n{name} has no session any more\n"
    assert "1 of 1 orchestrators draining" in shown.stdout
    assert (status, refused["value"]["error"]) == (500, "session not created")
    assert "no orchestrator is in service" in refused["value"]["message"]
    assert resumed.stdout == f"{name} is in service, 0 sessions\n"
    assert served == 200
    assert (nobody.returncode, nobody.stderr) == (1, "remuda: There is no orchestrator 'nobody'.\n")


def test_what_cannot_be_done_with_sessions_is_said() -> None:
    result = remuda("sessions", "feed")

    assert result.returncode == 1
    assert result.stderr == "remuda: it is `remuda sessions` or `remuda sessions kill ID...`\n"


def test_status_of_no_herd_is_one_clear_line() -> None:
    result = remuda("status", "--url", "http://127.0.0.1:1")

    assert result.returncode == 1
    assert result.stderr.startswith("remuda: No herd answers at http://127.0.0.1:1")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (("run", "cowboy"), "remuda: There is no role 'cowboy'; there are gateway, "),
        (("run", "manager"), "remuda: A role needs to know its Redis: --redis URL or REMUDA_REDIS"),
        (("run", "manager", "--redis", "ftp://x"), "remuda: 'ftp://x' is no Redis URL"),
    ],
)
def test_a_role_that_cannot_run_says_why(args: tuple[str, ...], line: str) -> None:
    result = remuda(*args)

    assert result.returncode == 1
    assert result.stderr.startswith(line)
    assert result.stderr.count("\n") == 1


async def test_roles_run_one_by_one_and_leave_no_trace(redis_url: str, store: Store, tmp_path: Path) -> None:
    async def names() -> set[str]:
        return {role["name"] for role in await running_roles(store)}

    async def all_run() -> bool:
        return await names() == {"gateway", "manager", "api"}

    with (
        running_role("gateway", data=tmp_path, redis=redis_url),
        running_role("manager", "api", data=tmp_path, redis=redis_url),
    ):
        await eventually(all_run, deadline=DEADLINE)

    assert await names() == set()
