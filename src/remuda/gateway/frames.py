"""WebSocket frames (RFC 6455 5), read one by one, so that frames which need not be understood pass unchanged.

wsproto would give messages without their bytes: each would have to be put together, and cut up again.
"""

import asyncio
import struct
from collections.abc import Awaitable, Callable
from enum import IntEnum
from typing import NamedTuple

from remuda.base.errors import Refused

NORMAL, GOING_AWAY, PROTOCOL_ERROR, NOT_TEXT = 1000, 1001, 1002, 1003
NOT_UTF8, POLICY, TOO_BIG, TRY_LATER = 1007, 1008, 1009, 1013
# RFC 6455 7.4 and IANA's registry: 1004 to 1006 and 1015 are never sent, all others are not defined.
CLOSE_CODES = frozenset((*range(1000, 1004), *range(1007, 1015), *range(3000, 5000)))
CHUNK = 64 << 10


class Opcode(IntEnum):
    """What a frame is for."""

    MORE = 0
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10


class BadFrame(Refused):
    """These bytes are not a WebSocket's; `code` closes it."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class FrameHead(NamedTuple):
    """What comes before a frame's payload, and the bytes that said so."""

    opcode: Opcode
    is_last: bool
    mask: bytes
    length: int
    raw: bytes


async def read_frame_head(reader: asyncio.StreamReader, *, is_masked: bool) -> FrameHead:
    """The next frame's head; raises BadFrame, or IncompleteReadError when there is none."""
    raw = await reader.readexactly(2)
    first, second = raw
    try:
        opcode = Opcode(first & 0x0F)
    except ValueError:
        raise BadFrame(PROTOCOL_ERROR, f"There is no frame with the opcode {first & 0x0F}.") from None
    is_last, length = bool(first & 0x80), second & 0x7F
    # Without an extension, the reserved bits are 0. A client masks, and a server does not.
    if first & 0x70 or bool(second & 0x80) != is_masked:
        raise BadFrame(PROTOCOL_ERROR, "A frame has reserved bits set, or the wrong mask.")
    if opcode >= Opcode.CLOSE and (length > 125 or not is_last):
        raise BadFrame(PROTOCOL_ERROR, "A control frame is too long or fragmented.")
    if length >= 126:
        more = await reader.readexactly(2 if length == 126 else 8)
        raw, length = raw + more, int.from_bytes(more, "big")
    mask = await reader.readexactly(4) if is_masked else b""
    return FrameHead(opcode, is_last, mask, length, raw + mask)


async def read_message(
    reader: asyncio.StreamReader,
    *,
    max_size: int,
    take_room: Callable[[int], Awaitable[None]],
    on_ping: Callable[[bytes], Awaitable[None]],
) -> tuple[Opcode, bytes]:
    """The next whole message of a client, or its close frame; raises as `read_frame_head` does. Bytes of a
    payload are read once there is room for them. `on_ping` gets the payload of each ping, which may also come
    between the frames of a message (RFC 6455 5.4)."""
    kind: Opcode | None = None
    parts = bytearray()
    while True:
        head = await read_frame_head(reader, is_masked=True)
        if head.opcode >= Opcode.CLOSE:
            payload = unmask(await reader.readexactly(head.length), head.mask)
            if head.opcode is Opcode.CLOSE:
                _check_close(payload)
                return head.opcode, payload
            if head.opcode is Opcode.PING:
                await on_ping(payload)
            continue
        if len(parts) + head.length > max_size:
            raise BadFrame(TOO_BIG, f"A message is larger than {max_size} bytes.")
        await take_room(head.length)
        if (head.opcode is Opcode.MORE) == (kind is None):
            raise BadFrame(
                PROTOCOL_ERROR,
                "A message starts before the last one has ended, or continues without a start.",
            )
        kind = kind or head.opcode
        for start in range(0, head.length, CHUNK):  # As it comes: 16 MB at once would hold the event loop up.
            parts += unmask(await reader.readexactly(min(CHUNK, head.length - start)), head.mask)
        if head.is_last:
            return kind, bytes(parts)


def _check_close(payload: bytes) -> None:
    """Raises BadFrame for what a close frame may not say (RFC 6455 5.5.1)."""
    if payload and int.from_bytes(payload[:2], "big") not in CLOSE_CODES:
        raise BadFrame(PROTOCOL_ERROR, "A close frame has a code that may not be sent.")
    try:
        payload[2:].decode()
    except UnicodeDecodeError:
        raise BadFrame(NOT_UTF8, "The reason in a close frame is not UTF-8.") from None


async def pass_payload(head: FrameHead, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Passes a frame on whose head was read."""
    writer.write(head.raw)
    left = head.length
    while left:
        data = await reader.read(min(left, CHUNK))
        if not data:
            raise asyncio.IncompleteReadError(b"", left)
        left -= len(data)
        writer.write(data)
        await writer.drain()


def unmask(payload: bytes, mask: bytes) -> bytes:
    """The payload as it was before its client masked it."""
    length = len(payload)
    # As one number: a loop over bytes would hold the event loop up for seconds with a profile of some MB.
    repeated = (mask * (length // 4 + 1))[:length]
    return (int.from_bytes(payload, "big") ^ int.from_bytes(repeated, "big")).to_bytes(length, "big")


def server_frame(opcode: Opcode, payload: bytes) -> bytes:
    """A whole message from the server's side."""
    length = len(payload)
    if length < 126:
        head = struct.pack("!BB", 0x80 | opcode, length)
    elif length < 1 << 16:
        head = struct.pack("!BBH", 0x80 | opcode, 126, length)
    else:
        head = struct.pack("!BBQ", 0x80 | opcode, 127, length)
    return head + payload


def close_frame(code: int, reason: str = "") -> bytes:
    """The end of the conversation from the server's side."""
    return server_frame(Opcode.CLOSE, code.to_bytes(2, "big") + reason.encode()[:123])
