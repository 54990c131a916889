"""Zip archives of clients, opened so that a small one cannot take much memory or time.

What an entry holds is the reader's to limit. All of this blocks: call it in a thread.
"""

import io
import zipfile
import zlib

MAX_ENTRIES = 20_000

# What zipfile raises when an archive is damaged, encrypted or compressed in an unknown way.
BROKEN_ARCHIVE = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    OSError,
)

# What each entry of the directory begins with.
_ENTRY = b"PK\x01\x02"
# What browsers read. zipfile also knows bzip2 and LZMA, but unpacks those without a limit: 800 bytes can make
# gigabytes.
_COMPRESSIONS = frozenset((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))


def open_archive(data: bytes) -> zipfile.ZipFile:
    """The archive; one of BROKEN_ARCHIVE if it is none, or one that no client needs to send."""
    # Counted in the bytes: zipfile makes an object of each entry before it tells how many there are, and how
    # many there are said to be is not checked. Entries of archives within this one may count too.
    if data.count(_ENTRY) > MAX_ENTRIES:
        raise zipfile.BadZipFile(f"it has more than {MAX_ENTRIES} files")
    archive = zipfile.ZipFile(io.BytesIO(data))
    for entry in archive.infolist():
        if entry.compress_type not in _COMPRESSIONS:
            raise zipfile.BadZipFile(f"{entry.filename[:100]!r} is not compressed by deflate")
    return archive
