"""A response as it was read: its head and its body, to the byte, and what they mean. No network."""

import hashlib
import re
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO

from remuda.archive.crawler.decoding import decode_content

IN_MEMORY = 1 << 20
"""Bytes of a body that are kept in memory; longer ones go to a file."""
MAX_PARSED = 16 << 20
"""Bytes of a document that are looked at for links."""
_PIECE = 1 << 20
_STATUS = re.compile(rb"HTTP/(\d)\.(\d)[ \t]+(\d{3})(?!\d)")
_PARSED = re.compile(r"html|xml|css|text/plain", re.I)


class FetchFailed(Exception):
    """A URL could not be fetched; the text says why, as it is logged."""

    def __init__(self, reason: str, *, is_final: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_final = is_final
        """Trying again would not help."""


class FetchedBody:
    """The bytes after a head as they came, in memory or in a file, with their digests."""

    def __init__(self, head: bytes, spool: Path) -> None:
        self._spool = spool
        self._parts: list[bytes] = []
        self._file: IO[bytes] | None = None
        self.size = 0
        self._block = hashlib.sha1(head, usedforsecurity=False)
        self._payload = hashlib.sha1(usedforsecurity=False)

    def add(self, data: bytes) -> None:
        self._block.update(data)
        self._payload.update(data)
        self.size += len(data)
        if self._file is not None:
            self._file.write(data)
            return
        self._parts.append(data)
        if self.size > IN_MEMORY:
            self._file = tempfile.TemporaryFile(dir=self._spool, buffering=_PIECE)  # noqa: SIM115
            self._file.writelines(self._parts)
            self._parts = []

    @property
    def block_digest(self) -> bytes:
        return self._block.digest()

    @property
    def payload_digest(self) -> bytes:
        return self._payload.digest()

    @property
    def is_in_memory(self) -> bool:
        return self._file is None

    def pieces(self) -> Iterator[bytes]:
        """All of it, in pieces. Blocks if it is in a file."""
        if self._file is None:
            yield from self._parts
            return
        self._file.seek(0)
        while piece := self._file.read(_PIECE):
            yield piece

    def whole(self) -> bytes:
        """All of it, if it is in memory."""
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class FetchedResponse:
    """One response: its head as sent, what the head says, and its body."""

    def __init__(self, head: bytes, spool: Path) -> None:
        self.head = head
        found = _STATUS.match(head)
        if found is None:
            raise FetchFailed("The server did not answer with HTTP")
        self.is_http_1_1 = (found[1], found[2]) >= (b"1", b"1")
        self.status = int(found[3])
        self.fields: dict[str, str] = {}
        """Names in lower case. Of several fields of one name the first; see `all_of`."""
        self._more: list[tuple[str, str]] = []
        for line in head.decode("latin-1").split("\n")[1:]:
            name, colon, value = line.partition(":")
            if not colon or line[0] in " \t":
                continue
            name, value = name.rstrip(" \t").lower(), value.strip(" \t\r")
            if self.fields.setdefault(name, value) is not value:
                self._more.append((name, value))
        self.body = FetchedBody(head, spool)
        self._payload: list[bytes] = []
        self._payload_size = 0
        self.is_chunked = "chunked" in self.fields.get("transfer-encoding", "").lower()
        self.is_malformed = False
        """Whether its chunks break RFC 9112 7.1. What came is kept all the same."""
        self._is_parsed = _PARSED.search(self.fields.get("content-type", "html")) is not None
        self.truncated = ""
        """Why the body is incomplete, in the words of WARC-Truncated."""

    def all_of(self, name: str) -> list[str]:
        """The values of all fields of this name."""
        first = self.fields.get(name)
        return [] if first is None else [first, *(value for key, value in self._more if key == name)]

    @property
    def length(self) -> int | None:
        """The length of the body by its head; None if it ends with the connection, or is chunked."""
        if self.status in (204, 304):
            return 0
        if self.is_chunked:
            return None
        lengths = {value.strip() for each in self.all_of("content-length") for value in each.split(",")}
        if len(lengths) != 1:
            return None
        text = lengths.pop()
        return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None

    @property
    def keeps_alive(self) -> bool:
        options = self.fields.get("connection", "").lower()
        return "keep-alive" in options or (self.is_http_1_1 and "close" not in options)

    def keep_payload(self, data: bytes) -> None:
        """Keeps the next part of a chunked body without its chunks, while it is short enough to parse."""
        if self._is_parsed and self._payload_size <= MAX_PARSED:
            self._payload_size += len(data)
            self._payload.append(data)

    def read_payload(self) -> bytes:
        """The body without its chunks, up to MAX_PARSED. May read a file."""
        if self.is_chunked:
            return b"".join(self._payload)[:MAX_PARSED]
        if self.body.is_in_memory:
            return self.body.whole()
        return b"".join(islice(self.body.pieces(), MAX_PARSED // _PIECE))

    @property
    def codings(self) -> str:
        """Those of the payload, in the order in which they were applied."""
        # Transfer codings come last: `chunked`, which is undone already, and seldom `gzip`.
        return ",".join([*self.all_of("content-encoding"), *self.all_of("transfer-encoding")])

    def read_document(self, *, limit: int) -> bytes:
        """The body without its codings, up to `limit`. May read a file."""
        return decode_content(self.read_payload(), self.codings, limit=limit)
