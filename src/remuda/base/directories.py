"""Directories that others can write to: that of a browser, whose client is hostile, and those for all users
of the machine, such as /tmp.

Others can replace what is in there by a link to what only this process may read or write. So what is done in
there goes by descriptors, and follows no link.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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


def read_log(path: Path) -> str:
    """The end of what the processes of a browser have written to this file; empty if that cannot be read."""
    try:
        # A pipe in its place would have nothing to say for ever.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _MOST_OF_LOG))
            return file.read(_MOST_OF_LOG).decode(errors="replace")
    except OSError:
        return ""
