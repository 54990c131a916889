"""A herd whose disks are full says so, and is well again once there is room."""

import ctypes
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from herds import DEADLINE, Herd, running_herd

SIZE = 64 << 20
FLOOR = 20
_MNT_DETACH = 2
_libc = ctypes.CDLL(None, use_errno=True)
WANTED = '{"capabilities": {"alwaysMatch": {"browserName": "chrome"}}}'


@contextmanager
def disk() -> Iterator[Path]:
    """A small disk of its own; only root may make one."""
    # Not pytest's directory: a socket's path has to be short.
    with tempfile.TemporaryDirectory(prefix="disk-") as directory:
        place = directory.encode()
        if _libc.mount(b"none", place, b"tmpfs", 0, f"size={SIZE}".encode()):
            pytest.skip(f"no disk can be mounted here: {os.strerror(ctypes.get_errno())}")
        try:
            yield Path(directory)
        finally:
            _libc.umount2(place, _MNT_DETACH)


@contextmanager
def filled(place: Path, *, free: int) -> Iterator[None]:
    """Leaves no more than so many bytes free."""
    filler = place / "filler"
    try:
        with filler.open("wb") as file:
            room = os.statvfs(place)
            wanted = room.f_bavail * room.f_frsize - free
            try:
                os.posix_fallocate(file.fileno(), 0, max(1, wanted))
            except OSError:  # Somebody else was faster.
                assert free == 0
        yield
    finally:
        filler.unlink()


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


@pytest.mark.parametrize("which", ["temporary", "data"])
def test_a_machine_without_room_takes_no_sessions(disks: tuple[Herd, Path, Path], which: str) -> None:
    herd, temporary, data = disks
    place = temporary if which == "temporary" else data
    eventually(lambda: health(herd)[0] == 200)

    with filled(place, free=(FLOOR - 5) * 1_000_000):
        eventually(lambda: health(herd)[0] == 503)
        _, words, grid = health(herd)
        refused, answer, _ = herd.request("POST", "/session", WANTED)

    lack = f"no room on the disk: {place}"
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
