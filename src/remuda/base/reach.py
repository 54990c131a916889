"""Files that a process still needs after it has given up root, and can no longer reach by their names: the
installation, Redis and the artifacts may lie in root's own home."""

import errno
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from remuda.base.directories import entered
from remuda.base.errors import DriverUnavailable


def is_open_to_all(path: Path) -> bool:
    """Whether every user of the machine can reach and read this, and run it if its owner can."""
    try:
        mode = path.stat().st_mode
        above = {*path.absolute().parents, *path.resolve().parents}
        needed = 0o005 if mode & stat.S_IXUSR else 0o004
        return mode & needed == needed and all(parent.stat().st_mode & 0o001 for parent in above)
    except OSError:
        return False


def use_open_temporary_directory() -> None:
    """Has this process keep temporary files where every user may make some: in /tmp, if TMPDIR is only
    root's."""
    place = Path(tempfile.gettempdir())
    # Sticky: nobody may replace there what others have made.
    needed = stat.S_IWOTH | stat.S_ISVTX
    if not (is_open_to_all(place) and place.stat().st_mode & needed == needed):
        tempfile.tempdir = "/tmp"


def hold_directory(directory: Path) -> Path:
    """A path that leads to the directory as long as this process lives, whatever lies above it."""
    return Path(f"/proc/self/fd/{os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)}")


def hold_modules() -> None:
    """Has Python find modules that are imported later, wherever they are."""
    held = {
        place: str(hold_directory(Path(place)))
        for place in sys.path
        if Path(place).is_dir() and not is_open_to_all(Path(place))
    }
    sys.path[:] = [held.get(place, place) for place in sys.path]
    for module in list(sys.modules.values()):
        places = getattr(module, "__path__", None)
        if isinstance(places, list):
            places[:] = [_by_held_root(place, held) for place in places]
    sys.path_importer_cache.clear()
    sys.dont_write_bytecode = True


def _by_held_root(place: str, held: Mapping[str, str]) -> str:
    roots = [root for root in held if place.startswith(root + os.sep)]
    root = max(roots, key=len, default="")
    return held[root] + place[len(root) :] if root else place


def open_path(program: Path) -> Path:
    """The path by which all can run the program, if any: perhaps only a link to it is closed to them."""
    return program if is_open_to_all(program) else program.resolve()


def make_reachable(program: Path, directory: Path) -> Path:
    """The program, or directory of programs, where all can run it: itself, or a copy in the directory."""
    program = open_path(program)
    if is_open_to_all(program):
        return program
    copy = directory / program.name
    # Under another name first: half a copy, on a full disk, must not be taken for a whole one.
    unfinished = directory / f"{program.name}.part"
    try:
        directory.mkdir(exist_ok=True)
        with entered(directory) as descriptor:
            if os.fstat(descriptor).st_uid != os.geteuid():
                raise PermissionError(errno.EPERM, "It belongs to another user")
            os.fchmod(descriptor, 0o755)
        if copy.exists():
            return copy
        try:
            if program.is_dir():
                shutil.copytree(program, unfinished, copy_function=_link)
                for place in (unfinished, *(path for path in unfinished.rglob("*") if path.is_dir())):
                    place.chmod(0o755)
            else:
                _link(str(program), str(unfinished))
            unfinished.rename(copy)
        except OSError:
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.unlink(missing_ok=True)
            raise
    except OSError as error:
        # Of a directory, each file that failed is told, with the reason last.
        reason = error.args[0][0][-1] if isinstance(error, shutil.Error) else error.strerror
        raise DriverUnavailable(f"{program} cannot be copied to {directory}: {reason}") from error
    return copy


def _link(source: str, target: str) -> None:
    """A second name for a file, which costs nothing; a copy where that is on another disk, or not for all."""
    if Path(source).stat().st_mode & 0o004:
        try:
            os.link(source, target)
            return
        except OSError:
            pass
    shutil.copy2(source, target)
    path = Path(target)
    path.chmod(path.stat().st_mode | 0o555)
