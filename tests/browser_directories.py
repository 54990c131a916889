"""Where the files of browsers are that tests have started."""

from pathlib import Path

from remuda.base.confinement import home_of


def directories_in(place: Path, pid: int | None = None) -> list[Path]:
    """The directories of the browsers of this process, or of all. A home counts only if it is left over."""
    found = list(place.glob(f"remuda-{'*' if pid is None else pid}-*"))
    homes = [home_of(directory) for directory in found]
    return [directory for directory in found if directory not in homes]
