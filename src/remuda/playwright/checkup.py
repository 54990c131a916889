"""Whether a browser server really serves: the first steps of a client, down to the browser and back.

A server that accepts connections proves nothing about its browser, which may hang. A new context is the one
thing that every engine must ask its browser for; it goes away with the connection.
"""

import asyncio
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import msgspec

from remuda.base.errors import DriverTimeout, DriverUnavailable, UpstreamUnavailable
from remuda.fleet.relay import Address
from remuda.fleet.websocket import WebSocket, WebSocketClosed


async def check_up(endpoint: str, *, to_child: bool = False, timeout: float) -> None:
    """Returns if the browser behind this WebSocket URL answers; DriverUnavailable if it does not. It
    may be one that this process has closed to others."""
    parts = urlsplit(endpoint)
    address = Address(parts.hostname or "", parts.port or 80)
    try:
        async with asyncio.timeout(timeout):
            socket = await WebSocket.open(address, parts.path, to_child=to_child, timeout=None)
            with closing(socket):
                client = _Client(socket)
                await client.call("", "initialize", {"sdkLanguage": "javascript"})
                await client.call(client.browser, "newContext", {})
    except TimeoutError:
        raise DriverTimeout(f"The browser has not answered for {timeout:g} s") from None
    except (UpstreamUnavailable, WebSocketClosed, msgspec.DecodeError) as error:
        raise DriverUnavailable(f"The browser server does not answer: {error}") from error


class _Client:
    """Playwright's protocol, as far as it is needed here."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket
        self._last_id = 0
        self.browser = ""
        """The name by which the browser is addressed; known once the server has been greeted."""

    async def call(self, target: str, method: str, params: dict[str, Any]) -> None:
        """Has something done, and waits until it is."""
        self._last_id += 1
        request = {"id": self._last_id, "guid": target, "method": method, "params": params}
        self._socket.send(msgspec.json.encode({**request, "metadata": {"wallTime": 0}}).decode())
        while (message := msgspec.json.decode(await self._socket.receive())).get("id") != self._last_id:
            if message.get("method") == "__create__" and message["params"]["type"] == "Browser":
                self.browser = message["params"]["guid"]
        if "error" in message:
            raise DriverUnavailable(f"The browser refuses {method}: {message['error']}")
