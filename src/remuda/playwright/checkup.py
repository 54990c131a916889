"""Whether a browser server really serves: the first steps of a client, down to the browser and back.

A server that accepts connections proves nothing about its browser, which may hang. A new context is the one
thing that every engine must ask its browser for; it goes away with the connection.
"""

import asyncio
import base64
import os
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import msgspec

from remuda.base.errors import DriverTimeout, DriverUnavailable

_TEXT = 0x81
_CLOSE = 0x88
_MASKED = 0x80
# A mask protects proxies in between, of which there are none here: zeros leave the text as it is.
_NO_MASK = bytes(4)


async def check_up(endpoint: str, *, timeout: float) -> None:
    """Returns if the browser behind this WebSocket URL answers; DriverUnavailable if it does not."""
    try:
        async with asyncio.timeout(timeout), _connection(endpoint) as connection:
            browser = await connection.greet()
            await connection.call(browser, "newContext", {})
    except TimeoutError:
        raise DriverTimeout(f"The browser has not answered for {timeout:g} s") from None
    except (OSError, EOFError, ValueError, msgspec.DecodeError) as error:
        raise DriverUnavailable(f"The browser server does not answer: {error}") from error


@asynccontextmanager
async def _connection(endpoint: str) -> AsyncIterator["_Connection"]:
    parts = urlsplit(endpoint)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        await _shake_hands(reader, writer, host=parts.netloc, path=parts.path)
        yield _Connection(reader, writer)
        writer.write(bytes((_CLOSE, _MASKED)) + _NO_MASK)
    finally:
        writer.close()


async def _shake_hands(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, host: str, path: str
) -> None:
    key = base64.b64encode(os.urandom(16)).decode()
    writer.write(
        f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode()
    )
    status, *_ = (await reader.readuntil(b"\r\n\r\n")).decode(errors="replace").split("\r\n")
    if not status.startswith("HTTP/1.1 101 "):
        raise DriverUnavailable(f"The browser server says {status}")


class _Connection:
    """Playwright's protocol, as far as it is needed here."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._last_id = 0
        self._browser = ""

    async def greet(self) -> str:
        """The name by which the browser is addressed."""
        await self.call("", "initialize", {"sdkLanguage": "javascript"})
        return self._browser

    async def call(self, target: str, method: str, params: dict[str, Any]) -> None:
        """Has something done, and waits until it is."""
        self._last_id += 1
        request = {"id": self._last_id, "guid": target, "method": method, "params": params}
        self._send(msgspec.json.encode({**request, "metadata": {"wallTime": 0}}))
        while (message := await self._receive()).get("id") != self._last_id:
            if message.get("method") == "__create__" and message["params"]["type"] == "Browser":
                self._browser = message["params"]["guid"]
        if "error" in message:
            raise DriverUnavailable(f"The browser refuses {method}: {message['error']}")

    def _send(self, text: bytes) -> None:
        assert len(text) < 1 << 16
        self._writer.write(struct.pack("!BBH", _TEXT, _MASKED | 126, len(text)) + _NO_MASK + text)

    async def _receive(self) -> dict[str, Any]:
        """The next message: the server sends each in one frame, and nothing else that matters."""
        while True:
            kind, length = await self._reader.readexactly(2)
            if length == 126:
                (length,) = struct.unpack("!H", await self._reader.readexactly(2))
            elif length == 127:
                (length,) = struct.unpack("!Q", await self._reader.readexactly(8))
            payload = await self._reader.readexactly(length)
            if kind == _CLOSE:
                raise EOFError("it hangs up")
            if kind == _TEXT:
                message: dict[str, Any] = msgspec.json.decode(payload)
                return message
