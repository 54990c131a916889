"""Where the files of browsers are that tests have started, and what hostile ones may put there."""

import os
from pathlib import Path

from remuda.base.confinement import home_of


def directories_in(place: Path, pid: int | None = None) -> list[Path]:
    """The directories of the browsers of this process, or of all. A home counts only if it is left over."""
    found = list(place.glob(f"remuda-{'*' if pid is None else pid}-*"))
    homes = [home_of(directory) for directory in found]
    return [directory for directory in found if directory not in homes]


def nest(directory: Path, *, levels: int = 2000) -> None:
    """Makes a directory with others in it, one in the other: more than Python's stack has room for."""
    directory.mkdir()
    here = os.open(directory, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
