"""Artifacts in a local directory. No other file of the room touches them, so this is the seam for another
backend: what it offers (find, list, open, remove, measure) is what an object store offers too.

Every step down goes through `O_NOFOLLOW`, relative to the directory above it: whatever a symlink says, also
one that is swapped in at the last moment, nothing outside the directory can be reached.

The account of an owner is in a hidden file of its own beside the owner's directory. It must be known for as
long as there are artifacts, which is longer than Redis keeps a session, and longer than any index lives. It
is not in the owner's directory, because that belongs to the user of the owner's browser, who may be hostile.
It is not in the index either: that is rebuilt from what lies here, so it could only be a second copy.

A file in the directory holds the storage's id. So the id stays the same wherever the directory is mounted,
and every process that writes artifacts there, a node or the storage itself, finds or makes the same one.
"""

import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Self

from remuda.base import clock
from remuda.base.directories import remove_tree
from remuda.base.errors import InvalidArgument, Lost, Misconfigured
from remuda.base.ids import is_uuid, new_id
from remuda.storage.model import Artifact, ArtifactPath, Fill, Owner, StorageId, is_name

ID_FILE = ".remuda-storage"

_DOWN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Not blocking: to open a named pipe would wait for its writer.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# Errors of a path that does not exist. Any other error, such as too many open files, says nothing about that.
_NOWHERE = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EACCES, errno.ENXIO}
_ACCOUNT = ".account-"
"""Before the name of an owner: the file that holds its account."""
_LONGEST_ACCOUNT = 200
_LEAVING = ".leaving-"
"""Before the name of an owner that is being removed: hidden at once, and found again after a crash."""


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

    def open(self, path: ArtifactPath) -> OpenFile:
        """The artifact, open for reading; Lost when there is no such file."""
        with _lost(no_artifact(path)), self._descend(path.owner) as above:
            descriptor = os.open(path.name, _READ, dir_fd=above)
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            raise Lost(no_artifact(path))
        return OpenFile(FileIO(descriptor), status.st_size, status.st_mtime_ns, status.st_ino)

    def find(self, path: ArtifactPath) -> Artifact | None:
        """The artifact as it is now, not yet read by anybody; None when there is no such file."""
        try:
            with _lost(""), self._descend(path.owner) as above:
                status = os.stat(path.name, dir_fd=above, follow_symlinks=False)
        except Lost:
            return None
        return _artifact(path, status)

    def list_owner(self, owner: Owner) -> list[Artifact]:
        """An owner's artifacts in the order of their names; Lost when it has no directory here."""
        with _lost(no_artifacts(owner)), self._descend(owner) as above, os.scandir(above) as entries:
            found = [_stat_entry(owner, entry) for entry in entries]
        return sorted(filter(None, found), key=lambda artifact: artifact.path)

    def owners(self) -> list[Owner]:
        """Every owner, of whatever kind, that has a directory here."""
        found = []
        with os.scandir(self.path) as entries:
            for entry in entries:
                with suppress(InvalidArgument):
                    if entry.is_dir(follow_symlinks=False):
                        found.append(Owner.parse(entry.name))
        return found

    def path_of(self, owner: Owner) -> Path:
        """Where an owner's artifacts are, or would be."""
        return self.path / str(owner)

    def remove_owner(self, owner: Owner) -> None:
        """Removes all that an owner has here. Seen from outside it goes at once, or not at all."""
        leaving = self.path / f"{_LEAVING}{owner}"
        with suppress(OSError):
            remove_tree(leaving)
        with suppress(FileNotFoundError):
            self.path_of(owner).rename(leaving)
        if leaving.is_symlink():
            leaving.unlink()
        elif leaving.exists():
            remove_tree(leaving)
        # Last: what is still there keeps its account.
        self._account_file(owner).unlink(missing_ok=True)

    def remove_if_empty(self, owner: Owner, *, older_than: float) -> None:
        """Removes the directory of an owner that has written nothing since then."""
        path = self.path_of(owner)
        with suppress(OSError):
            if path.lstat().st_mtime < older_than:
                path.rmdir()
                self._account_file(owner).unlink(missing_ok=True)

    def finish_removals(self) -> None:
        """Removes what an earlier life had begun to remove."""
        for leaving in self.path.glob(f"{_LEAVING}*"):
            with suppress(OSError):
                remove_tree(leaving)

    # Whose it is

    def note_account(self, owner: Owner, account: str) -> None:
        """Writes down which account an owner belongs to."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self._account_file(owner), flags, 0o640)
        try:
            # So short that it is written as a whole; after a crash before that, it is empty.
            os.write(descriptor, account.encode())
        finally:
            os.close(descriptor)

    def account_of(self, owner: Owner) -> str | None:
        """The account that an owner belongs to; None when it was not written down."""
        try:
            descriptor = os.open(self._account_file(owner), _READ)
        except FileNotFoundError:
            return None
        try:
            return os.read(descriptor, _LONGEST_ACCOUNT).decode() or None
        finally:
            os.close(descriptor)

    def remove_stray_accounts(self) -> None:
        """Removes what is written down of owners that have no directory here any more."""
        for file in self.path.glob(f"{_ACCOUNT}*"):
            # An owner's directory is made before its account is written down.
            if not (self.path / file.name.removeprefix(_ACCOUNT)).exists():
                file.unlink(missing_ok=True)

    def _account_file(self, owner: Owner) -> Path:
        return self.path / f"{_ACCOUNT}{owner}"

    def measure(self, used: int) -> Fill:
        """How full the directory's disk is, beside the artifacts that use so much."""
        disk = shutil.disk_usage(self.path)
        return Fill(used, disk.total, disk.free)

    @contextmanager
    def _descend(self, owner: Owner) -> Iterator[int]:
        descriptor = os.open(self.path_of(owner), _DOWN)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


def no_artifact(path: ArtifactPath) -> str:
    """What is said of an artifact that is not there."""
    return f"There is no artifact {path}"


def no_artifacts(owner: Owner) -> str:
    """What is said of an owner that has nothing here."""
    return f"There are no artifacts of {owner.kind} {owner.id}"


@contextmanager
def _lost(message: str) -> Iterator[None]:
    """Lost with this message for a path that leads nowhere."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NOWHERE:
            raise
        raise Lost(message) from error


def _stat_entry(owner: Owner, entry: os.DirEntry[str]) -> Artifact | None:
    if not is_name(entry.name):
        return None
    try:
        return _artifact(ArtifactPath(owner, entry.name), entry.stat(follow_symlinks=False))
    except FileNotFoundError:  # Gone since the directory was read.
        return None


def _artifact(path: ArtifactPath, status: os.stat_result) -> Artifact | None:
    if not stat.S_ISREG(status.st_mode):
        return None
    # A file from the future would never be quiet, so never leave.
    modified = min(status.st_mtime, clock.now())
    # The disk's own access time would tell when a backup ran; only serving counts as use.
    return Artifact(path, status.st_size, modified, accessed=modified)


# The directory's id and its lock


def keep_storage_id(directory: Path) -> StorageId:
    """The id of the storage in this directory, made up the first time, also when two come first at once."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        file = directory / ID_FILE
        if not file.exists():
            _create_id(file)
        text = file.read_text(errors="replace").strip()
    except OSError as error:
        raise Misconfigured(f"The storage directory {directory} cannot be used: {error.strerror}") from error
    if not is_uuid(text):
        raise Misconfigured(f"{file} should hold a storage's id, but holds {text[:40]!r}")
    return StorageId(text)


def _create_id(file: Path) -> None:
    """Writes a fresh id, unless another process is first."""
    draft = file.with_name(f"{ID_FILE}.{new_id()}")
    try:
        with draft.open("x") as stream:
            stream.write(new_id())
            stream.flush()
            os.fsync(stream.fileno())
        # A link appears with its whole content or not at all, and never replaces another: a reader can
        # neither meet an empty file, as after O_EXCL, nor an id that changes, as after a rename.
        file.hardlink_to(draft)
    except FileExistsError:
        return
    finally:
        draft.unlink(missing_ok=True)


class DirectoryLock:
    """The right of one process to index and evict in a directory.

    A lock of the kernel's, not a lease in Redis: it ends with its holder, so that one that is restarted after
    a crash need not wait, and the directory's index bears only one writer even if Redis is emptied.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._descriptor: int | None = None

    def __enter__(self) -> Self:
        descriptor = os.open(self._directory / ID_FILE, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise Misconfigured(f"Another storage already serves {self._directory}") from None
        self._descriptor = descriptor
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def is_valid(self) -> bool:
        """Whether the directory is still the one that was locked: neither removed nor replaced.

        Raises OSError when the disk does not say so, which need not be the end of it.
        """
        if self._descriptor is None:
            return False
        try:
            there = (self._directory / ID_FILE).stat()
        except FileNotFoundError:
            return False
        return os.path.samestat(there, os.fstat(self._descriptor))
