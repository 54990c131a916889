"""Directories that others can write to: that of a browser, whose client is hostile, and those for all users
of the machine, such as /tmp.

Others can replace what is in there by a link to what only this process may read or write. So what is done in
there goes by descriptors, and follows no link.
"""

import errno
import os
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from remuda.base.ids import new_id

_MOST_OF_LOG = 1 << 20


# A browser cannot replace its directory itself: behind Landlock it may not write above it.
@contextmanager
def entered(directory: Path | str, *, within: int | None = None) -> Iterator[int]:
    """A descriptor of a directory that others can write to, for `dir_fd`; NotADirectoryError if there is a
    link in its place. `within` is that of the directory above it."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=within)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def make_closed(directory: Path, names: Iterable[str]) -> None:
    """Has the directory contain these directories, and nobody have the right to write to them."""
    with entered(directory) as above:
        for name in names:
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=above)
            with entered(name, within=above) as descriptor:
                os.fchmod(descriptor, 0o500)


def open_plain(path: str, flags: int) -> int:
    """An opener for `open` that follows no link, and waits for nothing: a pipe would have nothing to say for
    ever."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)


def open_log(path: Path) -> BinaryIO:
    """A file, empty by now, for what the processes of a browser say."""
    return open(path, "wb", opener=open_plain)


def read_log(path: Path) -> str:
    """The end of what the processes of a browser have written to this file; empty if that cannot be read."""
    try:
        with open(path, "rb", opener=open_plain) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _MOST_OF_LOG))
            return file.read(_MOST_OF_LOG).decode(errors="replace")
    except OSError:
        return ""


def remove_tree(directory: Path, *, owners: Container[int] | None = None) -> None:
    """Removes a directory with all that is in it. OSError if something is left, or if it belongs to none of
    the `owners`.

    `shutil.rmtree` has a call and a descriptor for each level, and fails below some hundred. Clients, add-ons
    and local users can make more. Here each directory comes up to the first level before it is looked into.
    """
    with entered(directory) as top:
        if owners is not None and os.fstat(top).st_uid not in owners:
            raise PermissionError(errno.EPERM, "It belongs to another user", str(directory))
        _allow_changes(top)
        waiting = _unlink_files(top)
        while waiting:
            waiting += _clear(waiting.pop(), top)
    directory.rmdir()


def _clear(name: str, top: int) -> Iterator[str]:
    """Removes a directory from `top`; the names that the directories in it have there now."""
    with suppress(OSError):
        with entered(name, within=top) as directory:
            _allow_changes(directory)
            for inner in _unlink_files(directory):
                # It cannot be moved by who may not write to it.
                with suppress(OSError), entered(inner, within=directory) as descriptor:
                    _allow_changes(descriptor)
                    moved = new_id()
                    os.rename(inner, moved, src_dir_fd=directory, dst_dir_fd=top)
                    yield moved
        os.rmdir(name, dir_fd=top)


def _unlink_files(directory: int) -> list[str]:
    """Removes all but directories; the names of what is left."""
    left = []
    for name in os.listdir(directory):
        try:
            os.unlink(name, dir_fd=directory)
        except OSError:
            left.append(name)
    return left


def _allow_changes(directory: int) -> None:
    # Root needs no right for that.
    if os.geteuid() != 0:
        os.fchmod(directory, 0o700)
