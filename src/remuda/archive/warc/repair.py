"""Finds where the last whole record of a damaged WARC file ends. Needed only after a power cut.

A record may hold any number of zeros: what comes out of a decoder is bounded, piece by piece.
"""

import zlib
from pathlib import Path

_PIECE = 1 << 20
_ZSTD_PIECE = 1 << 10
"""Bytes. Four of them may stand for a block of 128 KB (RFC 8878 3.1.1.2), and the decoder has no limit."""


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
        has_more = False
        while data or has_more:
            try:
                has_more = len(decoder.decompress(data, _PIECE)) == _PIECE
            except zlib.error:
                return whole
            rest = decoder.unused_data if decoder.eof else decoder.unconsumed_tail
            position += len(data) - len(rest)
            data = rest
            if decoder.eof:
                whole = position
                decoder = zlib.decompressobj(31)
                has_more = False
            if not data and not has_more:
                data = file.read(_PIECE)
    return whole


def _whole_zstd(path: Path) -> int:
    import zstandard

    whole = 0
    with path.open("rb", buffering=_PIECE) as file:
        data = file.read(_ZSTD_PIECE)
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
            data = data or file.read(_ZSTD_PIECE)
    return whole
