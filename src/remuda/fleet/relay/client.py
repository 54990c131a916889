"""The client's side: cuts the byte stream into requests, one at a time, and minds the connection."""

import asyncio
import socket
import struct
from typing import TYPE_CHECKING, cast

from remuda.base.errors import Draining, InternalPort, RemudaError
from remuda.fleet.relay.body import body_of
from remuda.fleet.relay.errors import HeadTooLarge, MalformedRequest, RequestTimeout
from remuda.fleet.relay.exchange import HIGH_WATER, Exchange
from remuda.fleet.relay.head import END, MAX_HEAD, MEMORABLE, Request, read_head, remember_head
from remuda.fleet.relay.plan import Guard
from remuda.fleet.relay.rewrite import render
from remuda.fleet.relay.silence import probe_when_silent
from remuda.fleet.relay.tunnel import Tunnel

if TYPE_CHECKING:
    from remuda.fleet.relay.relay import Relay

NEVER = float("inf")


class Nowhere(asyncio.Transport):
    """Takes the answer to a client that has left: a transport that is closed takes nothing any more."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        return

    def is_closing(self) -> bool:
        return True

    def close(self) -> None:
        return

    def abort(self) -> None:
        return


class Client(asyncio.Protocol):
    """One connection from a client."""

    __slots__ = (
        "_buffer",
        "_is_challenged",
        "_is_held",
        "_is_leaving",
        "_peer",
        "exchange",
        "expires",
        "is_paused",
        "relay",
        "transport",
    )

    transport: asyncio.Transport

    def __init__(self, relay: "Relay") -> None:
        self.relay = relay
        self.exchange: Exchange | None = None
        self.expires = NEVER
        self._peer = ""
        # What is not yet part of a request: half a head, or requests sent ahead of their turn.
        self._buffer = b""
        self._is_challenged = False
        self._is_held = False
        # Whether more was written than the client has taken.
        self.is_paused = False
        self._is_leaving = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self._peer = peer[0] if isinstance(peer, tuple) else ""
        self.expires = self.relay.deadline()
        descriptor = probe_when_silent(transport)
        if descriptor >= self.relay.crowded_at:
            self.relay.turn_away(self.transport, descriptor)
        else:
            self.relay.connections.add(self)

    def data_received(self, data: bytes) -> None:
        if self.exchange is not None or self.is_paused or self._is_leaving or self._is_challenged:
            self._receive_ahead(data)
            return
        if self._buffer:
            data = self._buffer + data
        end = data.find(END) + 4
        if end < 4 or end > MAX_HEAD:
            self._wait_for_head(data)
            return
        try:
            head = remember_head(data[:end]) if end < MEMORABLE else read_head(data[:end])
        except MalformedRequest as error:
            self._refuse(error, len(data))
            return
        guard = self.relay.guard
        if guard is not None and not guard.admits(head.fields.credential):
            self._challenge(guard, head.fields.credential, data)
            return
        self.expires = NEVER
        request = Request(head, head.method, head.target, self._peer)
        self.exchange = exchange = Exchange(self, request, end)
        self.relay.observer.request_started(request)
        if head.length:
            exchange.body = body_of(head.length, is_request=True)
            self._buffer = self._read_body(exchange, data[end:])
        else:
            self._buffer = data[end:]
        # A malformed body has been answered by now.
        if self.exchange is exchange:
            exchange.start()

    def _receive_ahead(self, data: bytes) -> None:
        """Take what comes while a request is under way: its body, and perhaps more requests."""
        if self._is_leaving:
            return
        exchange = self.exchange
        if exchange is not None and exchange.body is not None:
            data = self._read_body(exchange, data)
        self._buffer += data
        if self.exchange is None:
            self._read_on_soon()
        self.settle()

    def _read_body(self, exchange: Exchange, data: bytes) -> bytes:
        rest = exchange.feed(data)
        if self.exchange is exchange:
            self.expires = self.relay.deadline() if exchange.body is not None else NEVER
        return rest

    def _wait_for_head(self, data: bytes) -> None:
        if len(data) > MAX_HEAD:
            self._refuse(HeadTooLarge(), len(data))
            return
        # What can never become a head is refused now, not when its time is up.
        if data.count(b"\n") != data.count(b"\r\n") or not (data[0] == 13 or 65 <= data[0] <= 90):
            self._refuse(MalformedRequest("This is not an HTTP/1.1 request."), len(data))
            return
        if not self._buffer:
            self.expires = self.relay.deadline()
        self._buffer = data

    def _challenge(self, guard: Guard, credential: bytes | None, data: bytes) -> None:
        """Refuse a request with a wrong credential, unless that turns out to be the new one.

        Before the observer hears of it: to a stranger's request, a session is still idle.
        """

        def judge() -> None:
            self._is_challenged = False
            if self._is_leaving or self.transport.is_closing():
                return
            if guard.admits(credential):
                self._read_on()
            else:
                self._refuse(InternalPort(), len(self._buffer))

        self._buffer = data
        self._is_challenged = True
        self.settle()
        guard.look_again(judge)

    def _read_on_soon(self) -> None:
        # Not at once: requests sent ahead, each answered as it is read, would fill the stack.
        asyncio.get_running_loop().call_soon(self._read_on)

    def _read_on(self) -> None:
        is_free = self.exchange is None and not (self.is_paused or self._is_leaving or self._is_challenged)
        if self._buffer and is_free:
            data, self._buffer = self._buffer, b""
            self.data_received(data)
        self.settle()

    def _refuse(self, error: RemudaError, bytes_in: int) -> None:
        answer = self.relay.answer_for(None, error)
        data = render(answer, None, keep_alive=False)
        self.transport.write(data)
        self.relay.observer.request_refused(answer.status, bytes_in, len(data))
        self._part()

    def release(self, *, keep_alive: bool) -> None:
        """The exchange is over: wait for the next request, or part."""
        exchange, self.exchange = self.exchange, None
        if keep_alive:
            self.expires = self.relay.now + self.relay.limits.idle_timeout
            if self._buffer or self._is_held:
                self._read_on_soon()
            return
        if exchange is not None and exchange.body is not None:
            self._part()
        else:
            self.close()

    def _part(self) -> None:
        """Say goodbye, then listen until the client does: closing on unread bytes would reset the
        connection, and the client might never see the answer."""
        self._is_leaving = True
        self._buffer = b""
        self.expires = self.relay.deadline()
        if not self.transport.is_closing():
            self.transport.write_eof()
            self._hold(hold=False)

    def become(self, tunnel: Tunnel, upstream: asyncio.Transport) -> bytes:
        """Hand the connection to the tunnel; returns what the client sent ahead of the upgrade."""
        early, self._buffer = self._buffer, b""
        self._hold(hold=False)
        self.exchange = None
        tunnel.open(self.transport, upstream)
        self.relay.forget(self)
        return early

    def settle(self) -> None:
        """Read the client exactly when there is room for what it sends.

        It is read while it waits for an answer, too: that is how one that left is noticed.
        """
        exchange = self.exchange
        self._hold(
            hold=len(self._buffer) > HIGH_WATER
            or self._is_challenged
            or (self.is_paused and exchange is None)
            or (exchange is not None and exchange.is_congested())
        )

    def _hold(self, *, hold: bool) -> None:
        if hold == self._is_held or self.transport.is_closing():
            return
        self._is_held = hold
        if hold:
            self.transport.pause_reading()
            return
        self.transport.resume_reading()
        if self.exchange is not None and self.exchange.body is not None:
            self.expires = self.relay.deadline()

    def pause_writing(self) -> None:
        self.is_paused = True
        if self.exchange is not None:
            self.exchange.hold_answer(hold=True)

    def resume_writing(self) -> None:
        self.is_paused = False
        if self.exchange is not None:
            self.exchange.hold_answer(hold=False)
        self._read_on()

    def eof_received(self) -> None:
        # Half a close is taken for a whole one while an answer is due: the two look the same from here,
        # and a manager must learn at once that its client has left.
        self._leave()

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        self.relay.forget(self)

    def _leave(self) -> None:
        self._is_leaving = True
        exchange, self.exchange = self.exchange, None
        if exchange is None:
            return
        if exchange.outlives_client and not self.transport.get_write_buffer_size():
            self.transport = Nowhere()
        else:
            exchange.leave()

    def is_idle(self) -> bool:
        """Whether it neither waits for an answer nor has begun to ask."""
        return self.exchange is None and not self._buffer

    @property
    def is_new(self) -> bool:
        """Whether it came not long ago, so that its first request may be on its way."""
        # One that has asked before has more time until its next request.
        return self.expires <= self.relay.deadline()

    def expire(self) -> None:
        """Time is up for whatever it was waiting for."""
        if self._is_leaving or self.transport.is_closing():
            self.transport.abort()
        elif self.exchange is not None:
            # A body that waits for a slow upstream is not the client's fault.
            if not self._is_held:
                self.exchange.fail(RequestTimeout())
        elif self._buffer:
            self._refuse(RequestTimeout(), len(self._buffer))
        else:
            self.close()

    def dismiss(self) -> None:
        """Tell a client that waits for an answer that it will get none here."""
        if self.exchange is not None:
            self.exchange.fail(Draining())

    def close(self) -> None:
        """Close once what was written has gone out."""
        self.expires = self.relay.deadline()
        self.transport.close()

    def abort(self) -> None:
        """Close now."""
        self.transport.abort()

    def reset(self) -> None:
        """Close with a reset: the only ending that cannot be taken for the end of an answer."""
        if isinstance(self.transport, Nowhere):
            return
        sock = self.transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()
