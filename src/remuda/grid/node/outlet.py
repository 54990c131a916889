"""Where downloaded files flow out, however large: a port for the node's own relay, which forwards with
back-pressure what it could only answer whole.

Anybody on this machine can connect there, so a path begins with a secret that only the node knows.
"""

import asyncio
import hmac
import os
import secrets
from http import HTTPStatus
from typing import BinaryIO
from urllib.parse import quote, unquote

from remuda.base.log import get_logger
from remuda.fleet.relay import Address, Forward, MalformedRequest
from remuda.fleet.relay.head import Fields
from remuda.grid.node.downloads import Downloads, FileMissing
from remuda.storage.ranges import Outcome, Version, decide

log = get_logger(__name__)

HEAD_TIMEOUT = 10.0
_PIECE = 256 << 10
_CONDITIONS = ("range", "if-range", "if-none-match", "if-modified-since")
_NOT_FOUND = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Outlet:
    """Serves one session's downloads, raw."""

    def __init__(self, downloads: Downloads) -> None:
        self._downloads = downloads
        self._secret = secrets.token_urlsafe()
        self._server: asyncio.Server | None = None

    async def way_to(self, name: str) -> Forward:
        """Where the relay finds the file; FileMissing when there is none."""
        file, _ = await asyncio.to_thread(self._downloads.open, name)
        file.close()
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        address = Address("127.0.0.1", self._server.sockets[0].getsockname()[1])
        return Forward(address, f"/{self._secret}/{quote(name, safe='')}", host=str(address))

    def close(self) -> None:
        """Takes no more requests."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(HEAD_TIMEOUT):
                head = await reader.readuntil(b"\r\n\r\n")
            await self._answer(head, writer)
            await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            log.debug("download broken off", reason=str(error))
        finally:
            writer.close()

    async def _answer(self, head: bytes, writer: asyncio.StreamWriter) -> None:
        _, _, target = head.partition(b"\r\n")[0].decode("latin-1").partition("/")
        secret, _, name = target.partition(" ")[0].partition("/")
        if not hmac.compare_digest(secret.encode(), self._secret.encode()):
            writer.write(_NOT_FOUND)
            return
        try:
            file, size = await asyncio.to_thread(self._downloads.open, unquote(name))
        except FileMissing:
            writer.write(_NOT_FOUND)
            return
        with file:
            found = os.fstat(file.fileno())
            version = Version(f'"{found.st_mtime_ns:x}-{size:x}"', found.st_mtime, size)
            outcome = decide("GET", _conditions(head), version)
            writer.write(_head(outcome, version))
            file.seek(outcome.span.start)
            await _pour(file, writer, size=outcome.span.size)


def _conditions(head: bytes) -> dict[str, str]:
    """What the client wants of the file, and when. The node's relay has validated these lines."""
    fields = Fields(head[head.index(b"\r\n") :], length=0, error=MalformedRequest)
    return {name: value for name in _CONDITIONS if (value := fields.get(name)) is not None}


def _head(outcome: Outcome, version: Version) -> bytes:
    status, span = outcome
    lines = [
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
        "Content-Type: application/octet-stream",
        f"Content-Length: {span.size}",
        "Accept-Ranges: bytes",
        f"ETag: {version.etag}",
        f"Last-Modified: {version.last_modified}",
        # Whatever a site had the browser download must not run as a page of the herd's.
        "Content-Disposition: attachment",
        "X-Content-Type-Options: nosniff",
        "Cache-Control: no-cache",
        "Connection: close",
    ]
    if status == 206:
        lines.append(f"Content-Range: bytes {span.start}-{span.stop - 1}/{version.size}")
    elif status == 416:
        lines.append(f"Content-Range: bytes */{version.size}")
    return "\r\n".join((*lines, "", "")).encode("ascii")


async def _pour(file: BinaryIO, writer: asyncio.StreamWriter, *, size: int) -> None:
    # No more than was announced, should the file grow meanwhile. Should it shrink, the connection ends early,
    # which the relay notices and the client too.
    while size > 0 and (piece := await asyncio.to_thread(file.read, min(size, _PIECE))):
        size -= len(piece)
        writer.write(piece)
        await writer.drain()
