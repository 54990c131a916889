"""Artifacts in a local directory. No other file of the room touches them, so this is the seam for another
backend: what it offers (find, list, open, remove, measure) is what an object store offers too.

Every step down goes through `O_NOFOLLOW`, relative to the directory above it: whatever a symlink says, and
whoever swaps one in at the last moment, nothing outside the directory can be reached.
"""

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from remuda.base import clock
from remuda.base.errors import Lost
from remuda.base.ids import SessionId, is_uuid
from remuda.storage.model import Artifact, Fill, Place, is_name

_DOWN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Not blocking: to open a named pipe would wait for its writer.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# What the system says of a path that leads nowhere. Anything else, such as too many open files, is no answer.
_NOWHERE = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EACCES, errno.ENXIO}
_LEAVING = ".leaving-"
"""Before the name of a session that is being removed: hidden at once, and found again after a crash."""


@dataclass(frozen=True)
class OpenFile:
    """An artifact that can be read, as it was when it was opened."""

    raw: FileIO
    """Closes itself when it is forgotten: a client may leave at any moment, also while it is being opened."""
    size: int
    modified_ns: int
    serial: int

    @property
    def etag(self) -> str:
        return f'"{self.serial:x}-{self.modified_ns:x}-{self.size:x}"'

    @property
    def modified(self) -> float:
        return self.modified_ns / 1e9

    def read(self, at: int, count: int) -> bytes:
        """At most `count` bytes from there on; none at the end of the file."""
        return os.pread(self.raw.fileno(), count, at)

    def close(self) -> None:
        self.raw.close()


class LocalDirectory:
    """The files of one storage. Its calls block: they belong in a thread."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self, place: Place) -> OpenFile:
        """The artifact, open for reading; Lost when there is no such file."""
        with _lost(f"There is no artifact {place}"), self._session(place.session) as above:
            descriptor = os.open(place.name, _READ, dir_fd=above)
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            raise Lost(f"There is no artifact {place}")
        return OpenFile(FileIO(descriptor), status.st_size, status.st_mtime_ns, status.st_ino)

    def find(self, place: Place) -> Artifact | None:
        """The artifact as it is now, not yet read by anybody; None when there is no such file."""
        try:
            with _lost(""), self._session(place.session) as above:
                status = os.stat(place.name, dir_fd=above, follow_symlinks=False)
        except Lost:
            return None
        return _artifact(place, status)

    def list_session(self, session: SessionId) -> list[Artifact]:
        """A session's artifacts in the order of their names; Lost when it has no directory here."""
        missing = f"There are no artifacts of session {session}"
        with _lost(missing), self._session(session) as above, os.scandir(above) as entries:
            found = [_stat_entry(session, entry) for entry in entries]
        return sorted(filter(None, found), key=lambda artifact: artifact.place)

    def sessions(self) -> list[SessionId]:
        """Every session that has a directory here."""
        with os.scandir(self.path) as entries:
            return [
                SessionId(entry.name)
                for entry in entries
                if is_uuid(entry.name) and entry.is_dir(follow_symlinks=False)
            ]

    def remove_session(self, session: SessionId) -> None:
        """Removes all that a session has here. Seen from outside it goes at once, or not at all."""
        leaving = self.path / f"{_LEAVING}{session}"
        shutil.rmtree(leaving, ignore_errors=True)
        with suppress(FileNotFoundError):
            (self.path / session).rename(leaving)
        if leaving.is_symlink():
            leaving.unlink()
        elif leaving.exists():
            shutil.rmtree(leaving)

    def remove_if_empty(self, session: SessionId, *, older_than: float) -> None:
        """Removes the directory of a session that has written nothing since then."""
        path = self.path / session
        with suppress(OSError):
            if path.lstat().st_mtime < older_than:
                path.rmdir()

    def finish_removals(self) -> None:
        """Removes what an earlier life had begun to remove."""
        for leaving in self.path.glob(f"{_LEAVING}*"):
            shutil.rmtree(leaving, ignore_errors=True)

    def measure(self, used: int) -> Fill:
        """How full the directory's disk is, beside the artifacts that use so much."""
        disk = shutil.disk_usage(self.path)
        return Fill(used, disk.total, disk.free)

    @contextmanager
    def _session(self, session: SessionId) -> Iterator[int]:
        descriptor = os.open(self.path / session, _DOWN)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


@contextmanager
def _lost(message: str) -> Iterator[None]:
    """Lost with this message for a path that leads nowhere."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NOWHERE:
            raise
        raise Lost(message) from error


def _stat_entry(session: SessionId, entry: os.DirEntry[str]) -> Artifact | None:
    if not is_name(entry.name):
        return None
    try:
        return _artifact(Place(session, entry.name), entry.stat(follow_symlinks=False))
    except FileNotFoundError:  # Gone since the directory was read.
        return None


def _artifact(place: Place, status: os.stat_result) -> Artifact | None:
    if not stat.S_ISREG(status.st_mode):
        return None
    # A file from the future would never be quiet, so never leave.
    modified = min(status.st_mtime, clock.now())
    # The disk's own access time would tell when a backup ran; only serving counts as use.
    return Artifact(place, status.st_size, modified, accessed=modified)
