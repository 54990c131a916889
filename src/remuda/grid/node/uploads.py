"""Files that a client sends to its browser's machine, as Selenium does: one in a zip, in base64, in JSON.

Nothing in the archive is believed: not its names, not its sizes. All of this blocks: call it in a thread.
"""

import base64
import os
import re
import stat
import unicodedata
import zipfile
import zlib
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, BinaryIO

from remuda.base.directories import entered
from remuda.base.errors import InvalidArgument
from remuda.grid.node.archives import BROKEN_ARCHIVE, open_archive
from remuda.grid.wire import read_json

MAX_BODY = 64 << 20
ROOM = 256 << 20
"""Bytes that all files of a session may take together."""
MAX_NAME = 255
_PIECE = 1 << 20
_ENCRYPTED = 0x1
_has_space = re.compile(r"\s").search


class Uploads:
    """A session's uploaded files, each in a directory of its own, so that equal names do not meet."""

    def __init__(self, directory: Path, *, room: int = ROOM) -> None:
        self._directory = directory
        self._room = room
        self._count = 0

    def take(self, body: bytes) -> Path:
        """Keeps the file of a request; its path. InvalidArgument says what is wrong with it."""
        with _archive(body) as archive:
            entry = _only_entry(archive)
            name = safe_name(entry.filename)
            self._count += 1
            own = str(self._count)
            self._directory.mkdir(exist_ok=True)
            with entered(self._directory) as above:
                os.mkdir(own, dir_fd=above)
                with entered(own, within=above) as place:
                    self._unpack(archive, entry, name, place)
        return self._directory / own / name

    def _unpack(self, archive: zipfile.ZipFile, entry: zipfile.ZipInfo, name: str, place: int) -> None:
        opener = partial(os.open, mode=0o666, dir_fd=place)
        try:
            with archive.open(entry) as source, open(name, "xb", opener=opener) as target:
                self._room -= _copy(source, target, room=self._room)
        except (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError) as error:
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=place)
            raise InvalidArgument(f"{name!r} cannot be unpacked: {error}") from error
        except InvalidArgument:
            os.unlink(name, dir_fd=place)
            raise


def _archive(body: bytes) -> zipfile.ZipFile:
    request = read_json(body)
    text = request.get("file") if isinstance(request, dict) else None
    if not isinstance(text, str):
        raise InvalidArgument("The request has no 'file', the base64 text of a zip with one file")
    try:
        # Clients break the lines of their base64, each as it likes. Most do not, and a copy may be large.
        data = base64.b64decode("".join(text.split()) if _has_space(text) else text, validate=True)
        return open_archive(data)
    except BROKEN_ARCHIVE as error:  # ValueError is what base64 raises, too.
        raise InvalidArgument(f"'file' is not the base64 text of a zip: {error}") from error


def _only_entry(archive: zipfile.ZipFile) -> zipfile.ZipInfo:
    entries = archive.infolist()
    if len(entries) != 1:
        raise InvalidArgument(f"The zip must hold one file, not {len(entries)}")
    (entry,) = entries
    mode = stat.S_IFMT(entry.external_attr >> 16)
    if entry.is_dir() or mode not in (0, stat.S_IFREG):
        raise InvalidArgument("The zip must hold a plain file, not a directory, link or device")
    if entry.flag_bits & _ENCRYPTED:
        raise InvalidArgument("The zip is encrypted; send it without a password")
    return entry


def safe_name(name: str) -> str:
    """The file's own name, without whatever leads elsewhere; InvalidArgument when none is left."""
    own = name.replace("\\", "/").rpartition("/")[2]
    # Not str.isprintable: that takes the narrow spaces in a Mac's names of screenshots for unprintable.
    is_clean = not any(unicodedata.category(letter) in ("Cc", "Cs") for letter in own)
    if own in ("", ".", "..") or not is_clean or len(own.encode()) > MAX_NAME:
        raise InvalidArgument(f"{name[:MAX_NAME]!r} is not a valid file name")
    return own


def _copy(source: IO[bytes], target: BinaryIO, *, room: int) -> int:
    """How many bytes were copied. Counted as they come: the archive's own word may be a lie."""
    copied = 0
    while piece := source.read(_PIECE):
        copied += len(piece)
        if copied > room:
            raise InvalidArgument(f"The file is too large: this session has {room} bytes left for uploads")
        target.write(piece)
    return copied
