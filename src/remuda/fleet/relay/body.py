"""Where a message's body ends. Pure: bytes go in, and the ones that may go on come out.

What is not validated yet is held back: half a chunk-size line never reaches the other side.
"""

import re
from typing import Protocol

from remuda.fleet.relay.head import CHUNKED, UNTIL_CLOSE

MAX_LINE = 4 * 1024
MAX_TRAILERS = 16 * 1024
# What the lines between the chunks of a request may take, and that part of its content beside: each costs
# microseconds and, where a body is put together, memory. With a byte in each, 17 MB took 17 s and 850 MB on a
# busy machine.
FREE_LINES = 256 * 1024
LINES_PART = 64

_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
# RFC 9112 7.1.1, without the white space and escapes that it allows but clients do not send: what two servers
# read differently in an extension is how they come to see two different chunks.
_EXTENSION = rb";%b(?:=(?:%b|\"[\t !#-\[\]-~]*\"))?" % (_TOKEN, _TOKEN)
# RFC 9112 7.1. 15 digits cannot overflow anybody's 64 bits.
_size_line = re.compile(rb"([0-9a-fA-F]{1,15})(?:%b)*\r\n" % _EXTENSION).fullmatch
_trailer_line = re.compile(rb"(%b):[\t\x20-\x7e\x80-\xff]*\r\n" % _TOKEN).fullmatch
_framing = {b"content-length", b"transfer-encoding", b"host", b"connection", b"trailer"}


class MalformedBody(Exception):
    """The chunks are not what RFC 9112 7.1 says."""


class Body(Protocol):
    """A body on its way."""

    done: bool

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """What of `data` may go on, and what comes after the end of the message."""


class Counted:
    """A body of a known length."""

    __slots__ = ("done", "left")

    def __init__(self, length: int) -> None:
        self.left = length
        self.done = length == 0

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        if len(data) < self.left:
            self.left -= len(data)
            return data, b""
        end, self.left, self.done = self.left, 0, True
        return data[:end], data[end:]


class UntilClose:
    """A response that ends when its connection does."""

    __slots__ = ("done",)

    def __init__(self) -> None:
        self.done = False

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        return data, b""


class Chunked:
    """Chunks and trailers, passed on as they are. Those of a request may not be too small: an answer may be a
    stream that never ends, but no client sends one."""

    __slots__ = ("_expect", "_held", "_left", "_lines_left", "_trailers", "done")

    def __init__(self, *, is_request: bool = False) -> None:
        self.done = False
        self._lines_left = FREE_LINES * LINES_PART if is_request else float("inf")
        self._held = b""
        self._left = 0
        self._trailers = 0
        self._expect = self._size

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        data = self._held + data
        at = 0
        while not self.done:
            if self._left:
                step = min(self._left, len(data) - at)
                self._left -= step
                at += step
            end = data.find(b"\n", at) + 1
            if self._left or not end:
                break
            self._expect(data[at:end])
            at = end
        self._held = b"" if self.done else data[at:]
        if len(self._held) > MAX_LINE:
            raise MalformedBody("A line between two chunks is too long.")
        return data[:at], data[at:] if self.done else b""

    def _size(self, line: bytes) -> None:
        match = _size_line(line)
        if match is None:
            raise MalformedBody("A chunk does not start with its size in hexadecimal.")
        self._left = int(match[1], 16)
        self._lines_left += self._left - (len(line) + len(b"\r\n")) * LINES_PART
        if self._lines_left < 0:
            raise MalformedBody("The chunks are too small for a body of this size.")
        self._expect = self._gap if self._left else self._trailer

    def _gap(self, line: bytes) -> None:
        if line != b"\r\n":
            raise MalformedBody("A chunk is longer than its size.")
        self._expect = self._size

    def _trailer(self, line: bytes) -> None:
        if line == b"\r\n":
            self.done = True
            return
        match = _trailer_line(line)
        self._trailers += len(line)
        # A length among the trailers would speak about a message that is already over.
        if match is None or match[1].lower() in _framing or self._trailers > MAX_TRAILERS:
            raise MalformedBody("A trailer is malformed, forbidden or too long.")


def body_of(length: int, *, is_request: bool = False) -> Body:
    """The body of a message whose head announced `length`."""
    if length == CHUNKED:
        return Chunked(is_request=is_request)
    return UntilClose() if length == UNTIL_CLOSE else Counted(length)


def unchunk(raw: bytes | bytearray) -> bytes:
    """The content of a whole chunked body that `Chunked` has let through."""
    parts: list[memoryview] = []
    view = memoryview(raw)
    at = 0
    while True:
        end = raw.index(b"\r\n", at)
        size = int(raw[at:end].partition(b";")[0], 16)
        if not size:
            return b"".join(parts)
        parts.append(view[end + 2 : end + 2 + size])
        at = end + 2 + size + 2
