"""Files that a session's browser has downloaded, in the shapes of Selenium Grid 4.

A name is only ever looked for in the directory's own listing, so no name leads out of it. All of this blocks:
call it in a thread.
"""

import base64
import io
import os
import stat
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from remuda.base.directories import entered
from remuda.base.errors import InvalidArgument, Lost, Refused
from remuda.grid.wire import read_json

MAX_ZIPPED = 256 << 20
"""Bytes of a file that goes out as base64 in JSON, which needs three times as much memory."""
# Chromium's and Firefox's names for what is still coming.
_PARTIAL = (".crdownload", ".part")


class FileMissing(Lost):
    """There is no such file."""

    # As Selenium Grid answers, whose clients look for it.
    status = 500


class FileTooLarge(Refused):
    """The file is too large for this way."""

    status = 413
    webdriver = "unknown error"


class Downloads:
    """The directory that a session's browser downloads into."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def listing(self) -> dict[str, Any]:
        """All files that are complete, the newest first."""
        with entered(self.directory) as directory:
            files = [_describe(name, found) for name, found in _find(directory).items()]
        files.sort(key=lambda file: (-file["lastModifiedTime"], file["name"]))
        return {"names": [file["name"] for file in files], "files": files}

    def zipped(self, body: bytes) -> dict[str, Any]:
        """The file that a request names, as base64 of a zip."""
        request = read_json(body)
        name = request.get("name") if isinstance(request, dict) else None
        if not isinstance(name, str):
            raise InvalidArgument("The request has no 'name' of a downloaded file")
        file, size = self.open(name)
        with file:
            if size > MAX_ZIPPED:
                raise FileTooLarge(
                    f"{name!r} has {size} bytes; above {MAX_ZIPPED} bytes use GET .../se/files/<name>"
                )
            described = _describe(name, os.fstat(file.fileno()))
            packed = io.BytesIO()
            with (
                zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive,
                archive.open(name, "w") as target,
            ):
                while piece := file.read(1 << 20):
                    target.write(piece)
        contents = base64.b64encode(packed.getbuffer()).decode()
        return {"filename": name, "contents": contents, "file": described}

    def open(self, name: str) -> tuple[BinaryIO, int]:
        """The file and its size; FileMissing when there is none of this name."""
        with entered(self.directory) as directory:
            if name not in _find(directory):
                raise FileMissing(f"There is no downloaded file {name[:255]!r}")
            try:
                # Between the look and the opening it may have become a link.
                file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
            except OSError as error:
                raise FileMissing(f"{name!r} cannot be read: {error.strerror}") from error
            return os.fdopen(file, "rb"), os.fstat(file).st_size

    def delete(self) -> None:
        """Removes what is complete; what still comes in is not disturbed."""
        with entered(self.directory) as directory:
            for name in _find(directory):
                _remove(name, directory)

    def delete_one(self, name: str) -> None:
        """Removes a file; FileMissing when there is none of this name."""
        with entered(self.directory) as directory:
            if name not in _find(directory):
                raise FileMissing(f"There is no downloaded file {name[:255]!r}")
            _remove(name, directory)


def _find(directory: int) -> dict[str, os.stat_result]:
    found = {}
    with os.scandir(directory) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):  # A partial download is renamed when it is complete.
                found[entry.name] = entry.stat(follow_symlinks=False)
    return {
        name: status
        for name, status in found.items()
        if stat.S_ISREG(status.st_mode) and _is_complete(name, found)
    }


def _remove(name: str, directory: int) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory)


def _is_complete(name: str, others: dict[str, os.stat_result]) -> bool:
    # Chromium begins with a hidden name; Firefox keeps the final name free with an empty file.
    return not name.startswith(".") and not name.endswith(_PARTIAL) and f"{name}.part" not in others


def _describe(name: str, found: os.stat_result) -> dict[str, Any]:
    return {
        "name": name,
        "size": found.st_size,
        "creationTime": found.st_ctime_ns // 1_000_000,
        "lastModifiedTime": found.st_mtime_ns // 1_000_000,
    }
