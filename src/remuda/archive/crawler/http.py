"""HTTP/1.1 as a crawler needs it: the exact bytes of a response, whatever the server makes of the standard.

The parser is written here, not httptools: that hands out parsed pieces, and a WARC wants the bytes before
parsing; and it refuses what browsers read, such as bare line feeds. It is lenient in reading heads, strict in
where a body ends, and bounded in everything.
"""

import asyncio
import re
from pathlib import Path
from typing import Protocol

from remuda.archive.crawler.response import FetchedResponse, FetchFailed
from remuda.base.clock import monotonic

MAX_HEAD = 256 << 10
MAX_INTERIM = 20
"""Answers with 1xx before the real one."""
_END_OF_HEAD = re.compile(rb"\r?\n\r?\n")
# Possessive: of a line of blanks, none is tried twice.
_CHUNK_SIZE = re.compile(rb"[ \t]*+([0-9a-fA-F]{1,16}+)[ \t]*+(?:;[^\r\n]*+)?\r?\n")
_CHUNK_SIZE_BEGUN = re.compile(rb"[ \t]*+[0-9a-fA-F]{0,16}+[ \t]*+(?:;[^\r\n]*+)?\r?")
_MAX_CHUNK_LINE = 4096
MAX_CHUNK_LINES = 200_000
"""Lines between the chunks of a body. One with more of them must have so many bytes for each: a server that
sends single bytes as chunks would keep a core busy."""
_BYTES_PER_LINE = 16
_STREAM = re.compile(rb"\n(?:icy-|ice-|x-audiocast-)", re.I)


class Deadlines(Protocol):
    """How long a server may take."""

    @property
    def head_timeout(self) -> float: ...
    @property
    def idle_timeout(self) -> float: ...
    @property
    def total_timeout(self) -> float: ...
    @property
    def min_rate(self) -> int: ...


class HttpConnection(asyncio.Protocol):
    """A connection to a server: one exchange at a time, any number one after the other."""

    def __init__(self, spool: Path) -> None:
        self._spool = spool
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        self._response: FetchedResponse | None = None
        self._done: asyncio.Future[FetchedResponse] | None = None
        self._left = 0
        """Bytes of the body, or of the chunk, that are still to come; -1 for until the connection ends."""
        self._chunk_state = self._chunk_lines = 0
        self._interim = 0
        self._max_body = 0
        self._timer: asyncio.TimerHandle | None = None
        self._network: Deadlines | None = None
        self._was_late = False
        self._started = self._last = 0.0
        self.is_open = False
        self.address = ""
        self.tunnel: object = None
        """What keeps the connection through a proxy open."""
        self.received = 0
        """Bytes of the current exchange."""

    # From asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        if self._done is None or self._done.done():
            self.close()  # Bytes without a request make the next answer ambiguous.
            return
        self._last = monotonic()
        self.received += len(data)
        try:
            if self._response is None:
                self._read_head(data)
            else:
                self._read_body(data)
        except (FetchFailed, OSError) as error:
            self._fail(error)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        if self._done is None or self._done.done():
            return
        response = self._response
        if response is None:
            self._fail(FetchFailed("The server closed the connection without an answer"))
        elif self._left == -1 and exc is None:
            self._finish()
        else:
            # RFC 9112 8: an incomplete message. It is kept: it may be all that there is to get.
            response.truncated = "disconnect"
            self._finish()

    # From the crawl

    def close(self) -> None:
        if self._transport is not None and self.is_open:
            self.is_open = False
            self._transport.abort()

    async def exchange(self, request: bytes, *, max_body: int, network: Deadlines) -> FetchedResponse:
        """Sends a request and reads the response to its end. FetchFailed if there is none; a response that
        was cut off says so in `truncated`."""
        assert self._transport is not None
        self._done = self._loop.create_future()
        self._response, self._buffer, self._max_body = None, b"", max_body
        self._interim = self.received = 0
        self._network = network
        self._was_late = False
        self._started = self._last = monotonic()
        self._transport.write(request)
        self._timer = self._loop.call_later(min(network.head_timeout, network.idle_timeout), self._watch)
        try:
            return await self._done
        except BaseException:
            self.close()
            raise
        finally:
            self._timer.cancel()
            self._done = None

    def _watch(self) -> None:
        """Checks the deadlines of the exchange, and comes back before the next one."""
        network, moment = self._network, monotonic()
        assert network is not None
        age = moment - self._started
        if self._response is None:
            wait = network.head_timeout - age
            is_late = wait <= 0
        else:
            idle = network.idle_timeout
            wait = min(self._last + idle - moment, network.total_timeout - age)
            is_late = wait <= 0 or (age > 2 * idle and self.received < network.min_rate * age)
        # A second look decides: what came while the loop was busy with a long page is read before that.
        if is_late and self._was_late:
            if self._response is None:
                self._fail(FetchFailed("The server did not answer in time"))
            else:
                self._cut("time")
            return
        self._was_late = is_late
        wait = 0 if is_late else wait
        self._timer = self._loop.call_later(max(wait, 0.05), self._watch)

    # Reading

    def _read_head(self, data: bytes) -> None:
        # The end may begin in what came before; looking through all of it again would let a server that
        # sends single bytes burn the CPU.
        looked_at = max(0, len(self._buffer) - 3)
        self._buffer = data = self._buffer + data if self._buffer else data
        end = _END_OF_HEAD.search(data, looked_at)
        if end is None:
            if len(data) > MAX_HEAD:
                raise FetchFailed("The head of the response is too long", is_final=True)
            return
        self._buffer = b""
        response = FetchedResponse(data[: end.end()], self._spool)
        if 100 <= response.status < 200:
            self._interim += 1
            if self._interim > MAX_INTERIM or response.status == 101:
                raise FetchFailed("The server does not come to an answer", is_final=True)
            if rest := data[end.end() :]:
                self._read_head(rest)
            return
        self._response = response
        if _STREAM.search(response.head):
            self._cut("unspecified")  # Radio: it has no end.
            return
        length = response.length
        if response.is_chunked:
            self._left, self._chunk_state, self._chunk_lines = 0, _SIZE, 0
        else:
            self._left = -1 if length is None else length
        if self._left == 0 and not response.is_chunked:
            if len(data) > end.end():
                self.close()
            self._finish()
        elif rest := data[end.end() :]:
            self._read_body(rest)

    def _read_body(self, data: bytes) -> None:
        response = self._response
        assert response is not None
        body = response.body
        if body.size + len(data) > self._max_body:
            data = data[: self._max_body - body.size]
            self._take(data)
            if self._done is not None and not self._done.done():
                self._cut("length")
            return
        self._take(data)

    def _take(self, data: bytes) -> None:
        response = self._response
        assert response is not None
        if self._left == -1:
            response.body.add(data)
            return
        if response.is_chunked:
            self._read_chunks(response, data)
            return
        if len(data) > self._left:
            data = data[: self._left]
            self.close()
        response.body.add(data)
        self._left -= len(data)
        if self._left == 0:
            self._finish()

    def _read_chunks(self, response: FetchedResponse, data: bytes) -> None:
        """RFC 9112 7.1. The bytes are kept as they are; what they carry is the payload."""
        body, buffer = response.body, self._buffer + data
        position, end = 0, len(buffer)
        while position < end:
            if self._chunk_state == _DATA:
                piece = buffer[position : position + self._left]
                response.keep_payload(piece)
                self._left -= len(piece)
                position += len(piece)
                if self._left == 0:
                    self._chunk_state = _AFTER
                continue
            line = buffer.find(b"\n", position) + 1
            if line == 0:
                may_be_size = self._chunk_state != _SIZE or _CHUNK_SIZE_BEGUN.fullmatch(buffer, position)
                if not may_be_size or end - position > _MAX_CHUNK_LINE:
                    self._read_on_without_chunks(response, data)
                    return
                break
            if self._chunk_state == _SIZE:
                found = _CHUNK_SIZE.match(buffer, position, line)
                if found is None:
                    self._read_on_without_chunks(response, data)
                    return
                self._left = int(found[1], 16)
                self._chunk_state = _DATA if self._left else _TRAILER
            elif buffer[position:line].strip():
                if self._chunk_state == _AFTER:
                    self._read_on_without_chunks(response, data)
                    return
            elif self._chunk_state == _AFTER:
                self._chunk_state = _SIZE
            else:
                body.add(data[: len(data) - (end - line)])
                if line < end:
                    self.close()
                self._finish()
                return
            position = line
            self._chunk_lines += 1
        self._buffer = buffer[position:]
        body.add(data)
        if self._chunk_lines > max(MAX_CHUNK_LINES, body.size // _BYTES_PER_LINE):
            self._cut("unspecified")

    def _read_on_without_chunks(self, response: FetchedResponse, data: bytes) -> None:
        """The chunks are malformed: from here to the end of the connection, bytes are kept as they come."""
        response.is_malformed, response.truncated = True, "unspecified"
        if not self._chunk_lines:
            # Some servers promise chunks and send none: then all of it is the payload.
            response.is_chunked = False
        response.body.add(data)
        self._left, self._buffer = -1, b""

    def _cut(self, reason: str) -> None:
        response = self._response
        assert response is not None
        response.truncated = reason
        self.close()
        self._finish()

    def _finish(self) -> None:
        response, self._response = self._response, None
        if self._done is not None and not self._done.done() and response is not None:
            if self._left == -1 or not response.keeps_alive:
                self.close()
            self._done.set_result(response)

    def _fail(self, error: Exception) -> None:
        if self._response is not None:
            self._response.body.close()
            self._response = None
        if self._done is not None and not self._done.done():
            self._done.set_exception(error)
        self.close()


# What the next bytes of a chunked body are.
_SIZE, _DATA, _AFTER, _TRAILER = range(4)
