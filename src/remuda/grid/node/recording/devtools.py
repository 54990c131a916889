"""A connection to a Chromium's DevTools: commands go out, whatever the browser says comes in."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from msgspec import Struct
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, CloseConnection, Ping, RejectConnection, Request, TextMessage
from wsproto.utilities import ProtocolError

from remuda.base.errors import Unavailable
from remuda.fleet.relay import Address

CHUNK = 256 << 10


class Said(Struct):
    """An event or the answer to a command; each part that it does not have is empty."""

    id: int = 0
    method: str = ""
    session: str = msgspec.field(name="sessionId", default="")
    params: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"{}"))
    result: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"{}"))


class DevTools:
    """Open, from `connect` to `close`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._protocol = WSConnection(ConnectionType.CLIENT)
        self._count = 0

    @classmethod
    async def connect(cls, address: Address, path: str, *, timeout: float) -> "DevTools":
        """A connection; Unavailable when the browser does not want one."""
        try:
            async with asyncio.timeout(timeout):
                reader, writer = await asyncio.open_connection(address.host, address.port)
                tools = cls(reader, writer)
                await tools._shake_hands(address, path)
        except OSError as error:  # A TimeoutError is one.
            reason = str(error) or "no answer"
            raise Unavailable(f"The browser's DevTools cannot be reached: {reason}") from error
        return tools

    async def _shake_hands(self, address: Address, path: str) -> None:
        self._writer.write(self._protocol.send(Request(host=str(address), target=path)))
        while True:
            self._protocol.receive_data(await self._reader.read(CHUNK) or None)
            for event in self._protocol.events():
                if isinstance(event, AcceptConnection):
                    return
                if isinstance(event, RejectConnection | CloseConnection):
                    raise ConnectionRefusedError("it refuses a WebSocket")

    def send(self, method: str, params: dict[str, Any], *, session: str = "") -> int:
        """Gives a command; the id that its answer will have."""
        self._count += 1
        order = {"id": self._count, "method": method, "params": params}
        text = msgspec.json.encode({**order, "sessionId": session} if session else order).decode()
        self._writer.write(self._protocol.send(TextMessage(data=text)))
        return self._count

    async def listen(self) -> AsyncIterator[Said]:
        """What the browser says, until it is gone."""
        decoder = msgspec.json.Decoder(Said)
        parts: list[str] = []
        try:
            while data := await self._reader.read(CHUNK):
                self._protocol.receive_data(data)
                for event in self._protocol.events():
                    if isinstance(event, Ping):
                        self._writer.write(self._protocol.send(event.response()))
                    elif isinstance(event, CloseConnection):
                        return
                    elif isinstance(event, TextMessage):
                        parts.append(event.data)
                        if event.message_finished:
                            yield decoder.decode("".join(parts))
                            parts.clear()
        except (OSError, ProtocolError):
            return  # However it goes, it is gone.

    def close(self) -> None:
        self._writer.close()
