"""A client's browser extensions: what runs inside the browser may come, what calls programs may not.

An extension that may use native messaging can start any program for which there is a manifest, even one
that the client has had downloaded. All of this blocks: call it in a thread.
"""

import base64
import re
import zipfile

from remuda.base.errors import InvalidArgument
from remuda.fleet.permits import Allowance
from remuda.fleet.permits.rules import unlisted
from remuda.grid.node.archives import BROKEN_ARCHIVE, open_archive

PERMISSION = "nativeMessaging"
MAX_MANIFEST = 1 << 20
# They may all be one and the same part of the archive, so each costs its sender nothing.
MAX_MANIFESTS = 4
# Chromium takes \x6e, too, which JSON does not have.
_ESCAPE = re.compile(rb"\\(?:u00|x)([0-9A-Fa-f]{2})")


def check_extension(content: str | bytes, allowed: Allowance, *, where: str) -> None:
    """InvalidArgument if an extension, as bytes or in base64, may call programs of this machine."""
    if allowed.covers(PERMISSION):
        return
    try:
        raw = content if isinstance(content, bytes) else base64.b64decode(content)
        archive = open_archive(raw)
        # All of that name: which of two a browser takes is its own business.
        entries = [entry for entry in archive.infolist() if entry.filename.lower() == "manifest.json"]
        if len(entries) > MAX_MANIFESTS:
            raise zipfile.BadZipFile(f"it has {len(entries)} manifests")
        manifests = []
        for entry in entries:
            with archive.open(entry) as file:
                manifests.append(file.read(MAX_MANIFEST + 1))
    except BROKEN_ARCHIVE as error:
        raise InvalidArgument(f"An extension in {where} is not an archive in base64: {error}") from error
    for manifest in manifests:
        # Looked for as a word: browsers read JSON with comments, each in its own way.
        plain = _ESCAPE.sub(lambda found: bytes([int(found[1], 16)]), manifest).replace(b"\x00", b"")
        if len(manifest) > MAX_MANIFEST or PERMISSION.encode() in plain:
            raise unlisted(f"The permission {PERMISSION!r} of an extension in {where}", PERMISSION)
