"""Whether a machine's disks have room for another session."""

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

LEAST_INODES = 1000
"""Files that a file system must still be able to hold: a browser's profile has some hundred."""
_MEGABYTE = 1_000_000


def places_of(data: Path) -> list[Path]:
    """Where sessions of this machine need room."""
    return [Path(tempfile.gettempdir()), data.absolute()]


def find_lack(places: Iterable[Path], *, megabytes: int) -> str | None:
    """Which of these directories has too little room, in words; None when all have enough. Blocks."""
    for place in places:
        try:
            found = os.statvfs(place)
        except OSError as error:
            return f"{place} cannot be used: {error.strerror}"
        free = found.f_bavail * found.f_frsize // _MEGABYTE
        if free < megabytes:
            return f"low disk space: {place} has {free} MB free, less than min_free_megabytes ({megabytes})"
        # Some file systems, such as btrfs, have no fixed number of them and say 0.
        if found.f_files and found.f_favail < LEAST_INODES:
            return f"low disk space: {place} can hold only {found.f_favail} more files"
    return None
