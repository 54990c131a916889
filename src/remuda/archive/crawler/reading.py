"""What a document leads to. A crawl reads short documents itself; this is also the helper process that reads
long ones, see `reader.py`.
"""

from collections.abc import Collection
from typing import Self

import msgspec

from remuda.archive.crawler.decoding import unpack
from remuda.archive.crawler.duplicates import fingerprint
from remuda.archive.crawler.links import Links, extract
from remuda.archive.crawler.response import MAX_PARSED
from remuda.archive.urls import MAX_REFERENCE, path_of
from remuda.base.helping import answer_requests, limit_processor

MOST_MEMORY = 512 << 20
"""Bytes of addresses; a fifth of that is the interpreter."""
MOST_FOUND = 32 << 20
"""Bytes of the references of a document, each with some for itself. Most documents have as much only once."""
_ITSELF = 50


class LongDocument(msgspec.Struct):
    """A document as it came, with its content codings."""

    url: str
    content_type: str
    codings: str
    payload: bytes
    seconds: float
    """Of the processor, to read it."""


class DocumentLinks(msgspec.Struct):
    """What a document leads to. Of the references, as many as have room, each list in order: the same site is
    crawled in the same order."""

    requisites: list[str]
    links: list[str]
    sitemaps: list[str]
    base: str
    encoding: str
    title: str
    is_html: bool
    fingerprint: int | None = None
    """Of a page that can be compared with others."""

    @classmethod
    def of(cls, found: Links) -> Self:
        room = MOST_FOUND

        def fitting(references: Collection[str]) -> list[str]:
            nonlocal room
            taken = []
            for reference in sorted(references):
                if len(reference) <= MAX_REFERENCE:
                    room -= len(reference.encode()) + _ITSELF
                    if room < 0:
                        break
                    taken.append(reference)
            return taken

        return cls(
            *(fitting(found.requisites), fitting(found.links), fitting(found.sitemaps)),
            found.base if len(found.base) <= MAX_REFERENCE else "",
            *(found.encoding, found.title, found.is_html),
        )


def links_in(document: bytes, url: str, content_type: str) -> DocumentLinks:
    """The links of an unpacked document. One that could not be unpacked is empty, and no page."""
    if not document:
        return DocumentLinks.of(Links())
    found = DocumentLinks.of(extract(document, content_type, path=path_of(url)))
    if found.is_html:
        found.fingerprint = fingerprint(document, url)
    return found


def _read(request: bytes) -> bytes:
    asked = msgspec.msgpack.decode(request, type=LongDocument)
    limit_processor(asked.seconds)
    document, _ = unpack(asked.payload, asked.codings, limit=MAX_PARSED)
    return msgspec.msgpack.encode(links_in(document, asked.url, asked.content_type))


if __name__ == "__main__":
    answer_requests(_read, memory=MOST_MEMORY)
