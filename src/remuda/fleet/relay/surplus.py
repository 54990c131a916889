"""Clients that come when hardly a descriptor is left: each hears so in its own words, and is gone soon.

Without this the process would run out of descriptors for the clients it has, which need one more each for
their upstream, and for Redis.
"""

import asyncio
from typing import TYPE_CHECKING

from remuda.base.errors import Overloaded
from remuda.fleet.relay.errors import MalformedRequest
from remuda.fleet.relay.head import END, MAX_HEAD, Request, read_head
from remuda.fleet.relay.rewrite import render

if TYPE_CHECKING:
    from remuda.fleet.relay.relay import Relay

# For its request to arrive, and for the answer to be read.
PATIENCE = 2.0


class Surplus(asyncio.Protocol):
    """One such connection."""

    def __init__(self, relay: "Relay", transport: asyncio.Transport, peer: str) -> None:
        self._relay = relay
        self._transport = transport
        self._peer = peer
        self._buffer = b""
        self._is_answered = False
        self.expires = relay.now + PATIENCE

    def data_received(self, data: bytes) -> None:
        if self._is_answered:
            return
        self._buffer += data
        end = self._buffer.find(END) + 4
        if 4 <= end <= MAX_HEAD or len(self._buffer) > MAX_HEAD:
            self.answer(self._buffer[:end])

    def answer(self, head: bytes) -> None:
        """Say that there is no room, and nothing else."""
        self._is_answered = True
        request: Request | None = None
        try:
            read = read_head(head)
            request = Request(read, read.method, read.target, self._peer)
        except MalformedRequest:
            pass  # It gets the same answer as all others.
        answer = self._relay.answer_for(request, Overloaded())
        data = render(answer, request, keep_alive=False)
        self._relay.observer.request_refused(answer.status, len(self._buffer), len(data))
        self._transport.write(data)
        # Not close: on unread bytes that would reset the connection, and the answer might be lost.
        self._transport.write_eof()

    def connection_lost(self, exc: Exception | None) -> None:
        self._relay.forget(self)

    def is_idle(self) -> bool:
        """Always: nothing is under way for it."""
        return True

    def abort(self) -> None:
        """Close now."""
        self._transport.abort()

    expire = close = abort
