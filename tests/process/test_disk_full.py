"""A herd whose disks are full says so, and is well again once there is room."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from disks import FLOOR, disk, filled
from herds import DEADLINE, Herd, running_herd

pytestmark = pytest.mark.xdist_group("disk full")

WANTED = '{"capabilities": {"alwaysMatch": {"browserName": "chrome"}}}'


@pytest.fixture(scope="module")
def disks() -> Iterator[tuple[Herd, Path, Path]]:
    """A herd on two small disks: that of its temporary files, and that of its data."""
    with ExitStack() as stack:
        temporary, data = stack.enter_context(disk()), stack.enter_context(disk())
        environ = {"TMPDIR": str(temporary), "REMUDA_MIN_FREE_MEGABYTES": str(FLOOR)}
        herd = stack.enter_context(running_herd(data / "data", "--slots", "1", environ=environ))
        yield herd, temporary, data


def eventually(look: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not look():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def health(herd: Herd) -> tuple[int, str, dict[str, Any]]:
    """Status and words of `/readyz`, and what `/status` says."""
    status, answer, _ = herd.request("GET", "/readyz")
    _, grid, _ = herd.request("GET", "/status")
    return status, answer["error"]["message"] if status != 200 else answer["message"], grid.get("value", {})


def test_a_herd_is_not_ready_before_there_is_room() -> None:
    with disk() as place, ExitStack() as full:
        full.enter_context(filled(place, free=(FLOOR - 5) * 1_000_000))
        environ = {"TMPDIR": str(place), "REMUDA_MIN_FREE_MEGABYTES": str(FLOOR)}
        herd = Herd(place / "data", "--slots", "1", environ=environ)
        try:
            herd.wait_for_line("not ready")
            assert f"low disk space: {place}" in herd.lines[-1]
            assert "ready" not in herd.lines

            full.close()

            herd.wait_for_line("ready")
            assert health(herd)[0] == 200
            assert herd.stop() == 0
        finally:
            herd.kill_everything()


@pytest.mark.parametrize("which", ["temporary", "data"])
def test_a_machine_without_room_takes_no_sessions(disks: tuple[Herd, Path, Path], which: str) -> None:
    herd, temporary, data = disks
    place = temporary if which == "temporary" else data
    eventually(lambda: health(herd)[0] == 200)

    with filled(place, free=(FLOOR - 5) * 1_000_000):
        eventually(lambda: health(herd)[0] == 503)
        _, words, grid = health(herd)
        refused, answer, _ = herd.request("POST", "/session", WANTED)

    lack = f"low disk space: {place}"
    assert lack in words
    assert grid["ready"] is False
    assert lack in grid["message"]
    assert grid["nodes"][0]["availability"] == "DRAINING"
    assert (refused, answer["value"]["error"]) == (500, "session not created")
    assert lack in answer["value"]["message"]
    eventually(lambda: health(herd)[0] == 200 and health(herd)[2]["ready"])


def test_a_redis_that_cannot_write_is_told_of(disks: tuple[Herd, Path, Path]) -> None:
    herd, _, data = disks
    eventually(lambda: health(herd)[0] == 200)

    with filled(data, free=0):
        eventually(lambda: "it cannot write to its disk" in health(herd)[1])
        status, _, grid = health(herd)
        refused, answer, _ = herd.request("POST", "/session", WANTED)

    assert status == 503
    assert grid["ready"] is False
    assert "it cannot write to its disk" in grid["message"]
    assert refused in (500, 503)
    assert "it cannot write to its disk" in answer["value"]["message"]
    eventually(lambda: health(herd)[0] == 200 and health(herd)[2]["ready"])
