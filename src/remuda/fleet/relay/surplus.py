"""Clients that are not served, whatever they ask for: each hears why in its own words, and is gone soon.

Such come when hardly a descriptor is left. Without this the process would run out of descriptors for the
clients it has, which need one more each for their upstream, and for Redis. Others speak plain HTTP to a port
for TLS.
"""

import asyncio
from typing import TYPE_CHECKING, cast

from remuda.base.errors import RemudaError
from remuda.fleet.relay.errors import MalformedRequest
from remuda.fleet.relay.head import END, MAX_HEAD, Request, read_head
from remuda.fleet.relay.rewrite import render

if TYPE_CHECKING:
    from remuda.fleet.relay.relay import Relay

# For its request to arrive, and for the answer to be read.
PATIENCE = 2.0


class Surplus(asyncio.Protocol):
    """One such connection."""

    _transport: asyncio.Transport

    def __init__(self, relay: "Relay", error: RemudaError) -> None:
        self._relay = relay
        self._error = error
        self._peer = ""
        self._buffer = b""
        self._is_answered = False
        self.expires = relay.now + PATIENCE

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self._peer = peer[0] if isinstance(peer, tuple) else ""
        self._relay.connections.add(self)

    def data_received(self, data: bytes) -> None:
        if self._is_answered:
            return
        self._buffer += data
        end = self._buffer.find(END) + 4
        if 4 <= end <= MAX_HEAD or len(self._buffer) > MAX_HEAD:
            self.answer(self._buffer[:end])

    def answer(self, head: bytes) -> None:
        """Say why it is not served, and nothing else."""
        self._is_answered = True
        request: Request | None = None
        try:
            read = read_head(head)
            request = Request(read, read.method, read.target, self._peer)
        except MalformedRequest:
            pass  # It gets the same answer as all others.
        answer = self._relay.answer_for(request, self._error)
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
