"""Whether the disks have room for a session."""

import os
from collections import namedtuple
from pathlib import Path

import pytest

from remuda.base.disk import LEAST_INODES, find_lack

Found = namedtuple("Found", "f_bavail f_frsize f_files f_favail")
PLENTY = 10**9


@pytest.mark.parametrize(
    ("found", "lack"),
    [
        (Found(50_000, 4096, PLENTY, PLENTY), None),
        (Found(10_000, 4096, PLENTY, PLENTY), "has 40 MB free, less than min_free_megabytes (100)"),
        (Found(PLENTY, 4096, PLENTY, LEAST_INODES - 1), "can hold only 999 more files"),
        (Found(PLENTY, 4096, 0, 0), None),
    ],
)
def test_a_disk_needs_bytes_and_files(
    found: Found, lack: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: found)

    told = find_lack([tmp_path], megabytes=100)

    assert told == (lack and f"low disk space: {tmp_path} {lack}")


def test_a_directory_that_is_gone_is_told_of(tmp_path: Path) -> None:
    assert find_lack([tmp_path, tmp_path / "none"], megabytes=0) == (
        f"{tmp_path}/none cannot be used: No such file or directory"
    )
