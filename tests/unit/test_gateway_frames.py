"""Frames of a WebSocket, read one by one."""

import asyncio

import pytest

from remuda.gateway.frames import (
    NOT_TEXT,
    NOT_UTF8,
    PROTOCOL_ERROR,
    TOO_BIG,
    BadFrame,
    Opcode,
    close_frame,
    read_message,
    server_frame,
    unmask,
)

MASK = b"\x01\x02\x03\x04"
LIMIT = 100_000


def client_frame(first: int, payload: bytes = b"", *, length: bytes | None = None) -> bytes:
    size = len(payload)
    if length is None:
        longer = b"\xfe" + size.to_bytes(2, "big") if size < 1 << 16 else b"\xff" + size.to_bytes(8, "big")
        length = bytes([0x80 | size]) if size < 126 else longer
    return bytes([first]) + length + MASK + unmask(payload, MASK)


async def take_any(_size: int) -> None:
    """There is room for everything."""


async def read(data: bytes, pings: list[bytes] | None = None) -> tuple[Opcode, bytes]:
    async def note(payload: bytes) -> None:
        if pings is not None:
            pings.append(payload)

    reader = asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    return await read_message(reader, max_size=LIMIT, take_room=take_any, on_ping=note)


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65535, 65536, LIMIT])
async def test_a_message_of_any_length_is_read(size: int) -> None:
    assert await read(client_frame(0x81, b"x" * size)) == (Opcode.TEXT, b"x" * size)


async def test_a_message_in_pieces_is_put_together() -> None:
    pieces = client_frame(0x01, b"a") + client_frame(0x00, b"b") + client_frame(0x80, b"c")

    assert await read(pieces) == (Opcode.TEXT, b"abc")


async def test_pings_are_told_before_and_within_a_message() -> None:
    pieces = client_frame(0x01, b"a") + client_frame(0x89, b"within") + client_frame(0x80, b"c")
    pings: list[bytes] = []

    assert await read(client_frame(0x89, b"before") + pieces, pings) == (Opcode.TEXT, b"ac")
    assert pings == [b"before", b"within"]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\x81\x01a", PROTOCOL_ERROR),
        (client_frame(0xC1, b"a"), PROTOCOL_ERROR),
        (client_frame(0x83, b"a"), PROTOCOL_ERROR),
        (client_frame(0x80, b"a"), PROTOCOL_ERROR),
        (client_frame(0x01, b"a") + client_frame(0x81, b"b"), PROTOCOL_ERROR),
        (client_frame(0x09, b"a"), PROTOCOL_ERROR),
        (client_frame(0x89, b"a" * 126), PROTOCOL_ERROR),
        (client_frame(0x81, length=b"\xff" + (1 << 40).to_bytes(8, "big")), TOO_BIG),
        (client_frame(0x01, b"a" * LIMIT) + client_frame(0x80, b"b"), TOO_BIG),
    ],
)
async def test_what_is_no_frame_closes_the_websocket(data: bytes, code: int) -> None:
    with pytest.raises(BadFrame) as caught:
        await read(data)

    assert caught.value.code == code


@pytest.mark.parametrize("code", [0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65535])
async def test_a_close_code_that_no_endpoint_may_send_is_a_protocol_error(code: int) -> None:
    with pytest.raises(BadFrame) as caught:
        await read(client_frame(0x88, code.to_bytes(2, "big") + b"why"))

    assert caught.value.code == PROTOCOL_ERROR


@pytest.mark.parametrize(("payload", "code"), [(b"\x03", PROTOCOL_ERROR), (b"\x03\xe8\xff", NOT_UTF8)])
async def test_a_malformed_close_frame_is_an_error(payload: bytes, code: int) -> None:
    with pytest.raises(BadFrame) as caught:
        await read(client_frame(0x88, payload))

    assert caught.value.code == code


@pytest.mark.parametrize("code", [1000, 1001, 1003, 1007, 1014, 3000, 4999])
async def test_a_close_frame_is_read(code: int) -> None:
    payload = code.to_bytes(2, "big") + b"why"

    assert await read(client_frame(0x88, payload)) == (Opcode.CLOSE, payload)
    assert await read(client_frame(0x88)) == (Opcode.CLOSE, b"")


async def test_a_client_that_leaves_within_a_frame_is_noticed() -> None:
    with pytest.raises(asyncio.IncompleteReadError):
        await read(client_frame(0x81, b"abc")[:-1])


@pytest.mark.parametrize("size", [0, 125, 126, 65535, 65536])
def test_a_servers_frame_tells_its_length(size: int) -> None:
    frame = server_frame(Opcode.TEXT, b"x" * size)

    assert frame[0] == 0x81
    assert len(frame) - size == (2 if size < 126 else 4 if size < 1 << 16 else 10)


def test_a_close_frame_has_a_code_and_at_most_125_bytes() -> None:
    frame = close_frame(NOT_TEXT, "x" * 500)

    assert frame[:4] == b"\x88\x7d" + NOT_TEXT.to_bytes(2, "big")
    assert len(frame) == 127
