"""A WebSocket of our own to another process: messages go out, whole messages come in.

Pings are answered here, and fragments put together; wsproto knows the frames.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator, Mapping
from typing import Any, Self

from wsproto.connection import CLIENT, Connection, ConnectionState
from wsproto.events import BytesMessage, CloseConnection, Ping, TextMessage

from remuda.base.errors import Lost
from remuda.fleet.http_client import dial_websocket
from remuda.fleet.relay.address import Address

MAX_MESSAGE = 64 << 20
NORMAL, ABNORMAL, TOO_BIG = 1000, 1006, 1009
_PIECE = 256 << 10


class WebSocketClosed(Lost):
    """The WebSocket is closed; `code` is that of RFC 6455 7.4."""

    def __init__(self, code: int, reason: str = "") -> None:
        super().__init__(f"The WebSocket was closed with {code}{f': {reason}' if reason else ''}")
        self.code = code


class WebSocket:
    """Open from `open` to `close`, unless the other side closes it before."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, max_message: int = MAX_MESSAGE
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._max_message = max_message
        self._frames = Connection(CLIENT)
        self._parts: list[Any] = []
        self._size = 0
        self._messages: deque[str | bytes] = deque()
        self._end: tuple[int, str] | None = None
        """Code and reason, once it is over."""

    @classmethod
    async def open(
        cls,
        address: Address,
        target: str,
        *,
        timeout: float | None,
        credential: bytes = b"",
        headers: Mapping[str, str] | None = None,
        to_child: bool = False,
        tls: ssl.SSLContext | None = None,
        max_message: int = MAX_MESSAGE,
    ) -> Self:
        """A WebSocket; UpstreamUnavailable when there is none to be had. The arguments are those of `ask`."""
        reader, writer = await dial_websocket(
            address,
            target,
            timeout=timeout,
            credential=credential,
            headers=headers,
            to_child=to_child,
            tls=tls,
        )
        return cls(reader, writer, max_message=max_message)

    def send(self, message: str | bytes) -> None:
        """Sends a message, without waiting until it has gone; WebSocketClosed if it cannot."""
        if self._end is not None:
            raise WebSocketClosed(*self._end)
        event = TextMessage(message) if isinstance(message, str) else BytesMessage(message)
        self._writer.write(self._frames.send(event))

    async def drain(self) -> None:
        """Waits until the other side has read most of what was sent: for callers that send much."""
        try:
            await self._writer.drain()
        except OSError as error:
            raise WebSocketClosed(ABNORMAL, str(error)) from error

    async def receive(self) -> str | bytes:
        """The next message; WebSocketClosed when none will come."""
        while not self._messages:
            if self._end is not None:
                raise WebSocketClosed(*self._end)
            try:
                data = await self._reader.read(_PIECE)
            except OSError as error:
                self._end = ABNORMAL, str(error)
                continue
            self._frames.receive_data(data or None)
            for event in self._frames.events():
                if isinstance(event, Ping):
                    self._writer.write(self._frames.send(event.response()))
                elif isinstance(event, CloseConnection):
                    self.close(event.code, event.reason or "")
                elif isinstance(event, TextMessage | BytesMessage):
                    self._take(event)
                if self._end is not None:
                    break
        return self._messages.popleft()

    async def __aiter__(self) -> AsyncIterator[str | bytes]:
        """All messages up to the end, however that comes."""
        try:
            while True:
                yield await self.receive()
        except WebSocketClosed:
            return

    def close(self, code: int = NORMAL, reason: str = "") -> None:
        """Says goodbye if that has not happened, and closes the connection."""
        if self._frames.state in (ConnectionState.OPEN, ConnectionState.REMOTE_CLOSING):
            self._writer.write(self._frames.send(CloseConnection(code, reason)))
        self._end = self._end or (code, reason)
        self._writer.close()

    def _take(self, event: TextMessage | BytesMessage) -> None:
        # Text is counted in characters: exact enough for a bound on memory.
        self._size += len(event.data)
        if self._size > self._max_message:
            self.close(TOO_BIG, f"a message has more than {self._max_message} bytes")
            return
        self._parts.append(event.data)
        if event.message_finished:
            self._messages.append(("" if isinstance(event, TextMessage) else b"").join(self._parts))
            self._parts.clear()
            self._size = 0
