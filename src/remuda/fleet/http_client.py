"""Requests of our own, and the beginning of WebSockets of our own: to processes of the herd, to drivers and
browsers, and to servers elsewhere.

Each has a connection of its own, which is closed when the caller is cancelled: the other side then knows that
the answer is not wanted any more. Whatever fails is an UpstreamUnavailable that says what, or Overloaded if
the reason is on this side.
"""

import asyncio
import base64
import hashlib
import secrets
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple

from remuda.base.certificate import why_tls_failed
from remuda.base.descriptors import own_lack
from remuda.base.errors import UpstreamLost, UpstreamUnavailable, UpstreamUntrusted
from remuda.base.filters import connect_to_child
from remuda.fleet.relay.address import Address
from remuda.fleet.relay.body import MalformedBody, body_of, unchunk
from remuda.fleet.relay.errors import WEBSOCKET_VERSION, MalformedResponse
from remuda.fleet.relay.head import CHUNKED, END, MAX_HEAD, UNTIL_CLOSE, Fields, Response, read_response

MAX_ANSWER = 64 << 20
_PIECE = 256 << 10
# RFC 6455 1.3.
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class HttpAnswer(NamedTuple):
    """What came back: the status, and the body without its framing."""

    status: int
    body: bytes


async def ask(
    address: Address,
    method: str,
    target: str,
    body: bytes = b"",
    *,
    timeout: float | None,
    credential: bytes = b"",
    headers: Mapping[str, str] | None = None,
    to_child: bool = False,
    tls: ssl.SSLContext | None = None,
    max_answer: int = MAX_ANSWER,
) -> HttpAnswer:
    """The answer to one request. Without a `timeout` the caller has a deadline of its own.

    `credential` is the header line that guarded processes ask for. A request `to_child` reaches a port that
    this process has closed to others (`base/filters.py`): a driver answers only its node's.
    """
    lines = {"Host": str(address), "Content-Length": str(len(body)), "Connection": "close", **(headers or {})}
    async with _exchange(address, timeout=timeout, to_child=to_child, tls=tls) as (reader, writer):
        writer.write(_head(method, target, lines, credential) + body)
        _, response = await _read_head(reader)
        while response.status < 200:  # RFC 9110 15.2: any number of interim answers may come first.
            _, response = await _read_head(reader)
        length = 0 if method == "HEAD" else response.length
        return HttpAnswer(response.status, await _read_body(reader, length, max_answer))


async def dial_websocket(
    address: Address,
    target: str,
    *,
    timeout: float | None,
    credential: bytes = b"",
    headers: Mapping[str, str] | None = None,
    to_child: bool = False,
    tls: ssl.SSLContext | None = None,
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection on which frames come and go from now on; it agrees on no extension."""
    key = base64.b64encode(secrets.token_bytes(16))
    lines = {
        "Host": str(address),
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": WEBSOCKET_VERSION,
        "Sec-WebSocket-Key": key.decode(),
        **(headers or {}),
    }
    exchange = _exchange(address, timeout=timeout, to_child=to_child, tls=tls, keep=True)
    async with exchange as (reader, writer):
        writer.write(_head("GET", target, lines, credential))
        head, response = await _read_head(reader)
        if response.status != 101:
            said = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")[2]
            raise UpstreamUnavailable(f"{address} answered {said[:100]}, not 101, to a WebSocket.")
        fields = Fields(head[head.index(b"\r\n") :], length=0, error=MalformedResponse)
        # RFC 6455 4.1: the last steps before the connection is established.
        if fields.find(b"sec-websocket-accept") != accept_key(key):
            raise MalformedResponse("a wrong Sec-WebSocket-Accept")
        if fields.find(b"sec-websocket-extensions") or fields.find(b"sec-websocket-protocol"):
            raise MalformedResponse("a WebSocket with extensions that were not asked for")
        return reader, writer


def accept_key(key: bytes) -> bytes:
    """The Sec-WebSocket-Accept that proves that a Sec-WebSocket-Key was read (RFC 6455 4.2.2)."""
    return base64.b64encode(hashlib.sha1(key + _GUID, usedforsecurity=False).digest())


@asynccontextmanager
async def _exchange(
    address: Address, *, timeout: float | None, to_child: bool, tls: ssl.SSLContext | None, keep: bool = False
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection, which is closed at the end; with `keep`, only if the end is an error. Foreign errors
    become ours."""
    is_connected = False
    try:
        async with asyncio.timeout(timeout):
            if to_child:
                connection = await connect_to_child(address.host, address.port)
                reader, writer = await asyncio.open_connection(sock=connection, limit=MAX_HEAD)
            else:
                reader, writer = await asyncio.open_connection(
                    address.host, address.port, limit=MAX_HEAD, ssl=tls
                )
            is_connected = True
            try:
                yield reader, writer
            except BaseException:
                keep = False
                raise
            finally:
                if not keep:
                    writer.close()
    except (OSError, UnicodeError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        lack = own_lack(error) if isinstance(error, OSError) else None
        if lack is not None:
            raise lack from error
        reason = str(error) or type(error).__name__
        if isinstance(error, ssl.SSLError):
            reason = why_tls_failed(error)
        if isinstance(error, TimeoutError):
            reason = "too late" if timeout is None else f"nothing within {timeout:g} s"
        if isinstance(error, asyncio.IncompleteReadError):
            reason = "it closed the connection before its answer was complete"
        kind = UpstreamLost if is_connected else UpstreamUnavailable
        if isinstance(error, ssl.SSLCertVerificationError):
            kind = UpstreamUntrusted
        raise kind(f"{address} does not answer: {reason}.") from error
    except (MalformedResponse, MalformedBody) as error:
        raise UpstreamUnavailable(f"{address} did not answer in HTTP/1.1: {error}.") from error


def _head(method: str, target: str, lines: Mapping[str, str], credential: bytes) -> bytes:
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"{method} {target} HTTP/1.1\r\n{head}".encode("latin-1") + credential + b"\r\n"


async def _read_head(reader: asyncio.StreamReader) -> tuple[bytes, Response]:
    head = await reader.readuntil(END)
    return head, read_response(head)


async def _read_body(reader: asyncio.StreamReader, length: int, max_size: int) -> bytes:
    if length == UNTIL_CLOSE:  # Nothing could tell an answer that is whole from one that was cut off.
        raise MalformedResponse("its answer has no length")
    body, content = body_of(length), bytearray()
    while not body.done:
        if max(length, len(content)) > max_size:
            raise MalformedResponse(f"its answer has more than {max_size} bytes")
        piece = await reader.read(_PIECE)
        if not piece:
            raise asyncio.IncompleteReadError(bytes(content[-100:]), None if length < 0 else length)
        content += body.feed(piece)[0]
    return unchunk(content) if length == CHUNKED else bytes(content)
