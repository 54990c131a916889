"""Packs the files of a finished job as WACZ 1.1.1, which replay tools open as one file."""

import hashlib
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

_PIECE = 1 << 20
_PAGES_HEAD = b'{"format": "json-pages-1.0", "id": "pages", "title": "All Pages"}\n'


def write_wacz(
    target: Path, *, warcs: Sequence[Path], index: Path, pages: Path, title: str, created: str, main_url: str
) -> None:
    """Writes the package. `pages` has a line of JSON for each page. Blocks."""
    resources: list[dict[str, object]] = []
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:

        def add(path: str, *sources: Path | bytes) -> str:
            digest, length = hashlib.sha256(), 0
            with archive.open(path, "w", force_zip64=True) as member:
                for source in sources:
                    for piece in _pieces(source):
                        member.write(piece)
                        digest.update(piece)
                        length += len(piece)
            name, hashed = path.rpartition("/")[2], f"sha256:{digest.hexdigest()}"
            resources.append({"name": name, "path": path, "hash": hashed, "bytes": length})
            return hashed

        for warc in warcs:
            add(f"archive/{warc.name}", warc)
        # Stored, not packed as cdx.gz: replay looks for lines in it by bisection.
        add("indexes/index.cdx", index)
        add("pages/pages.jsonl", _PAGES_HEAD, pages)
        package = {
            "profile": "data-package",
            "wacz_version": "1.1.1",
            "software": "Remuda",
            "title": title,
            "created": created,
            "mainPageURL": main_url,
            "resources": list(resources),
        }
        hashed = add("datapackage.json", msgspec.json.encode(package))
        add("datapackage-digest.json", msgspec.json.encode({"path": "datapackage.json", "hash": hashed}))


def _pieces(source: Path | bytes) -> Iterator[bytes]:
    if isinstance(source, bytes):
        yield source
        return
    with source.open("rb") as file:
        while piece := file.read(_PIECE):
            yield piece
