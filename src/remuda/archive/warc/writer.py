"""Appends records to WARC files: each compressed by itself, each whole or not at all.

A record that cannot be written, for instance because the disk is full, is cut off again; what was written
before it stays. The writer keeps no buffer: what `append` has returned from survives a kill of the process.
"""

import errno
import os
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from remuda.archive.warc.records import Compression

SUFFIX = {Compression.GZIP: ".warc.gz", Compression.ZSTD: ".warc.zst"}
# Level 1 of isal takes a tenth of the CPU of zlib's 6 for files that are a third larger: bench/archive_warc.
_GZIP_LEVEL = 1
_ZSTD_LEVEL = 3
_GZIP_WINDOW = 31
"""A window of 2**15 bytes, with the head and trailer of gzip."""


class DiskFull(Exception):
    """The disk is full."""


class _Compressor(Protocol):
    def compress(self, data: bytes, /) -> bytes: ...

    def flush(self) -> bytes: ...


def _gzip() -> tuple[Callable[[bytes], bytes], Callable[[], _Compressor]]:
    from isal import isal_zlib

    def compress(data: bytes) -> bytes:
        return isal_zlib.compress(data, _GZIP_LEVEL, _GZIP_WINDOW)

    return compress, lambda: isal_zlib.compressobj(_GZIP_LEVEL, isal_zlib.DEFLATED, _GZIP_WINDOW)


def _zstd() -> tuple[Callable[[bytes], bytes], Callable[[], _Compressor]]:
    import zstandard

    compressor = zstandard.ZstdCompressor(level=_ZSTD_LEVEL, write_checksum=True)
    return compressor.compress, compressor.compressobj


class WarcWriter:
    """The WARC files of one job: `NAME-00000.warc.gz` and so on."""

    def __init__(
        self,
        directory: Path,
        name: str,
        *,
        compression: Compression,
        split_size: int,
        describe: Callable[[str], bytes],
        number: int = 0,
    ) -> None:
        """Goes on with the file of this number, or begins it. `describe` makes a file's warcinfo record."""
        self._directory = directory
        self._name = name
        self._suffix = SUFFIX[compression]
        self._split_size = split_size
        self._describe = describe
        self._compress, self._compressor = _gzip() if compression is Compression.GZIP else _zstd()
        self.number = number
        self.size = 0
        """Bytes of the current file."""
        self.total = 0
        """Bytes of all of its files."""
        self._open()

    @property
    def path(self) -> Path:
        """The file that is written to."""
        return self.path_of(self.number)

    def path_of(self, number: int) -> Path:
        return self._directory / f"{self._name}-{number:05d}{self._suffix}"

    def _open(self) -> None:
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
        self.size = os.fstat(self._file).st_size
        if self.size == 0:
            try:
                self.append(self._describe(self.path.name))
            except DiskFull:
                self.close()
                self.path.unlink()
                raise

    def begin(self) -> None:
        """To be called before the records of an exchange: begins the next file if this one is long enough."""
        if self.size < self._split_size:
            return
        self.sync()
        self.close()
        self.number += 1
        try:
            self._open()
        except DiskFull:
            self.number -= 1
            self._open()
            raise

    def append(self, record: bytes) -> tuple[int, int]:
        """Writes a record; its place: offset and length."""
        return self._append(self._compress(record))

    def append_all(self, records: Iterable[bytes]) -> list[tuple[int, int]]:
        """Writes records that belong together, all or none; their places."""
        packed = [self._compress(record) for record in records]
        offset, _ = self._append(b"".join(packed))
        places = []
        for each in packed:
            places.append((offset, len(each)))
            offset += len(each)
        return places

    def append_steps(self, parts: Iterable[bytes]) -> Generator[None, None, tuple[int, int]]:
        """Writes one record that is too long for memory, part by part, and returns its place. A generator
        that is closed before its end takes the record back."""
        compressor = self._compressor()
        with self._rolled_back_on_error():
            end = self.size
            for part in parts:
                end += self._write(compressor.compress(part))
                yield
            end += self._write(compressor.flush())
        return self._extend(end)

    def take_back(self, size: int) -> None:
        """Cuts this file back to this size: what belongs to a record that could not be written goes, too."""
        self.total -= self.size - size
        self.size = size
        os.ftruncate(self._file, size)

    def _append(self, data: bytes) -> tuple[int, int]:
        with self._rolled_back_on_error():
            end = self.size + self._write(data)
        return self._extend(end)

    def _extend(self, end: int) -> tuple[int, int]:
        start, self.size = self.size, end
        self.total += end - start
        return start, end - start

    def _write(self, data: bytes) -> int:
        left = memoryview(data)
        while left:
            left = left[os.write(self._file, left) :]
        return len(data)

    @contextmanager
    def _rolled_back_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            os.ftruncate(self._file, self.size)
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise DiskFull from error
            raise

    def sync(self) -> None:
        """What was written survives a power cut from now on. Blocks."""
        os.fdatasync(self._file)

    def close(self) -> None:
        os.close(self._file)
