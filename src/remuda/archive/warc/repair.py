"""Finds where the last whole record of a damaged WARC file ends. Needed only after a power cut."""

import zlib
from pathlib import Path

_PIECE = 1 << 20


def whole_size(path: Path) -> int:
    """The size of the file up to its last whole record. Blocks."""
    return _whole_zstd(path) if path.suffix == ".zst" else _whole_gzip(path)


def _whole_gzip(path: Path) -> int:
    whole = 0
    with path.open("rb") as file:
        data = file.read(_PIECE)
        position = 0
        """Where `data` begins in the file."""
        decoder = zlib.decompressobj(31)
        while data:
            try:
                decoder.decompress(data)
            except zlib.error:
                return whole
            position += len(data) - len(decoder.unused_data)
            if decoder.eof:
                whole = position
                data = decoder.unused_data
                decoder = zlib.decompressobj(31)
            else:
                data = b""
            data = data or file.read(_PIECE)
    return whole


def _whole_zstd(path: Path) -> int:
    import zstandard

    whole = 0
    with path.open("rb") as file:
        data = file.read(_PIECE)
        position = 0
        decoder = zstandard.ZstdDecompressor().decompressobj()
        while data:
            try:
                decoder.decompress(data)
            except zstandard.ZstdError:
                return whole
            position += len(data) - len(decoder.unused_data)
            if decoder.eof:
                whole = position
                data = decoder.unused_data
                decoder = zstandard.ZstdDecompressor().decompressobj()
            else:
                data = b""
            data = data or file.read(_PIECE)
    return whole
