"""Who a storage is: a file in its directory holds its id. So it stays the same wherever it is mounted, and
whoever comes to write artifacts there, a node or the storage itself, finds or makes the same id."""

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from remuda.base.errors import Misconfigured
from remuda.base.ids import is_uuid, new_id
from remuda.storage.model import StorageId

FILE = ".remuda-storage"


def keep_storage_id(directory: Path) -> StorageId:
    """The id of the storage in this directory, made up the first time, also when two come first at once."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        file = directory / FILE
        if not file.exists():
            _create(file)
        return _read(file)
    except OSError as error:
        raise Misconfigured(f"The storage directory {directory} cannot be used: {error.strerror}") from error


def _create(file: Path) -> None:
    """Writes a fresh id, unless somebody else is first."""
    draft = file.with_name(f"{FILE}.{new_id()}")
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


def _read(file: Path) -> StorageId:
    text = file.read_text(errors="replace").strip()
    if not is_uuid(text):
        raise Misconfigured(f"{file} should hold a storage's id, but holds {text[:40]!r}")
    return StorageId(text)


class Ownership:
    """The right of one process to index and evict in a directory.

    A lock of the kernel's, not a lease in Redis: it ends with its holder, so that one that is restarted after
    a crash need not wait, and the directory's index bears only one writer even if Redis is emptied.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._descriptor: int | None = None

    def __enter__(self) -> Self:
        descriptor = os.open(self._directory / FILE, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise Misconfigured(f"Another storage serves {self._directory} already") from None
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
            there = (self._directory / FILE).stat()
        except FileNotFoundError:
            return False
        return os.path.samestat(there, os.fstat(self._descriptor))
