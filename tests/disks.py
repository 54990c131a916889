"""Small disks of a test's own, to be filled."""

import ctypes
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

# Where Remuda is installed for root only, Playwright's driver is copied there: 130 MB.
SIZE = 300 << 20
FLOOR = 20
"""Megabytes that a herd on such a disk needs: for `min_free_megabytes`."""
_MNT_DETACH = 2
_libc = ctypes.CDLL(None, use_errno=True)


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
