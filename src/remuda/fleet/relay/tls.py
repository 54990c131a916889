"""TLS between a client and the relay: a protocol to the client's connection, and a transport to the relay.

Not that of the event loop, for three reasons. With small requests and keep-alive, in the best of eight rounds
on a busy machine, a request took 105 µs of processor time with uvloop's TLS, 108 with asyncio's, 81 with this
and 48 without; on a quiet one it takes 60 with this and 40 without (medians).
They cannot close one direction only, which answers to half-read requests and tunnels need. And they end a
connection without a word if the client speaks plain HTTP.
"""

import asyncio
import logging
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from remuda.fleet.relay.errors import TlsRequired
from remuda.fleet.relay.surplus import Surplus

if TYPE_CHECKING:
    from remuda.fleet.relay.relay import Relay

log = logging.getLogger(__name__)

HANDSHAKE_TIMEOUT = 10.0
# Each may hold some 100 KB. A herd's own clients need a millisecond for theirs, so the oldest is not real.
MOST_HANDSHAKES = 1000
# What OpenSSL answers by itself, to a client that reads nothing.
MOST_UNREAD = 64 * 1024
# A record holds at most so much (RFC 8446 5.1), and no read gives more than one.
_RECORD = 16384
# RFC 8446 5.1: the first byte of every handshake. No HTTP request begins with it.
_HANDSHAKE = 0x16


class TlsConnection(asyncio.Transport, asyncio.Protocol):
    """One connection: downwards the protocol of the bytes on the wire, upwards the transport of `inner`."""

    __slots__ = (
        "_has_begun",
        "_has_said_end",
        "_incoming",
        "_inner",
        "_is_closing",
        "_is_ended",
        "_is_open",
        "_is_paused",
        "_outgoing",
        "_records",
        "_relay",
        "_stays_open",
        "_tls",
        "_transport",
        "_unread",
        "expires",
    )

    _transport: asyncio.Transport

    def __init__(self, relay: "Relay", context: ssl.SSLContext, inner: asyncio.Protocol) -> None:
        self._relay = relay
        self._inner = inner
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        # What SSLObject wraps: its own `read` and `write` only cost a frame.
        self._records = self._tls._sslobj  # type: ignore[attr-defined]
        self._has_begun = False
        self._is_open = False
        # Whether the client has said that nothing more comes.
        self._is_ended = False
        self._stays_open = False
        self._has_said_end = False
        self._is_closing = False
        self._is_paused = False
        self._unread = 0
        self.expires = relay.now + HANDSHAKE_TIMEOUT

    # The protocol of the wire.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        # As long as it shakes hands, the relay sees to its deadline.
        relay = self._relay
        relay.connections.add(self)
        relay.handshakes[self] = None
        if len(relay.handshakes) > MOST_HANDSHAKES:
            oldest = next(iter(relay.handshakes))
            del relay.handshakes[oldest]
            oldest.abort()
        if transport.get_extra_info("socket").fileno() >= relay.full_at:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        incoming = self._incoming
        incoming.write(data)
        try:
            if not self._is_open and not self._shake_hands(data):
                return
            # For _RECORD, 16 KB would be allocated and most of it given back. A record is longer than what it
            # holds, so more may be left only of one that began before `data`.
            size = len(data)
            piece = self._records.read(size)
            # The usual case: one record, with a whole request in it.
            if 0 < len(piece) < size and not incoming.pending and not self._outgoing.pending:
                self._inner.data_received(piece)
            else:
                self._read_on(piece)
        except ssl.SSLWantReadError:
            self._send_unasked()  # What has come is half a record, or not for the relay.
        except ssl.SSLZeroReturnError:
            self._read_on(b"")
        except ssl.SSLError as error:
            # Scanners, clients that do not trust the certificate, and broken records.
            log.debug("TLS ended: %s", error)
            self._is_closing = True
            self._send()
            # One that does not read its answer would not read the alert either.
            (self._transport.abort if self._is_paused else self._transport.close)()

    def _shake_hands(self, data: bytes) -> bool:
        """Go on with the handshake; False if the client does not want one."""
        if not self._has_begun:
            self._has_begun = True
            if data[0] != _HANDSHAKE:
                self._refuse(data)
                return False
        try:
            self._tls.do_handshake()  # SSLWantReadError until it is done.
        finally:
            self._send()
        self._is_open = True
        self._relay.connections.discard(self)
        self._relay.handshakes.pop(self, None)
        self._inner.connection_made(self)
        return True

    def _refuse(self, data: bytes) -> None:
        refusal = Surplus(self._relay, TlsRequired())
        self._transport.set_protocol(refusal)
        self._relay.connections.discard(self)
        self._relay.handshakes.pop(self, None)
        refusal.connection_made(self._transport)
        refusal.data_received(data)

    def _read_on(self, piece: bytes) -> None:
        """Pass on this piece and whatever else has come in whole records."""
        pieces = []
        try:
            while piece:
                pieces.append(piece)
                piece = self._records.read(_RECORD)
            is_end = True
        except ssl.SSLWantReadError:
            is_end = False
        except ssl.SSLZeroReturnError:
            is_end = True
        self._send_unasked()
        if pieces:
            self._inner.data_received(b"".join(pieces))
        if is_end and not self._end():
            self.close()

    def eof_received(self) -> bool:
        return self._is_open and self._end()

    def _end(self) -> bool:
        """The client will send no more; whether the connection stays open for what it has still to get."""
        if not self._is_ended:
            self._is_ended = True
            self._stays_open = bool(self._inner.eof_received())
        return self._stays_open

    def pause_writing(self) -> None:
        self._is_paused = True
        if self._is_open:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._is_paused = False
        self._unread = 0
        if self._is_open:
            self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_closing = True
        if self._is_open:
            self._inner.connection_lost(exc)
        else:
            self._relay.handshakes.pop(self, None)
            self._relay.forget(self)

    def _send(self) -> None:
        if self._outgoing.pending:
            self._transport.write(self._outgoing.read())

    def _send_unasked(self) -> None:
        """Send what OpenSSL answers by itself: to a client that changes its keys (RFC 8446 4.6.3), or that
        wants to shake hands again. Nothing stops one that reads no answer from going on, so it is let go."""
        if not self._outgoing.pending:
            return
        answer = self._outgoing.read()
        self._transport.write(answer)
        if self._is_paused:
            self._unread += len(answer)
            if self._unread > MOST_UNREAD:
                self.abort()

    # What the relay sees to until the handshake is done.

    def is_idle(self) -> bool:
        """Always: nothing is under way for it."""
        return True

    def expire(self) -> None:
        """It took too long."""
        self._transport.abort()

    # The transport of the relay.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt and send."""
        if self._is_closing or self._has_said_end or not data:
            return
        sent = self._records.write(data)
        while sent < len(data):
            sent += self._records.write(memoryview(data)[sent:])
        self._transport.write(self._outgoing.read())

    def can_write_eof(self) -> bool:
        """Whether one direction can be closed alone: yes, since TLS 1.3 (RFC 8446 6.1)."""
        return True

    def write_eof(self) -> None:
        """Send no more; what still comes is read."""
        self._say_end()
        if not self._transport.is_closing():
            self._transport.write_eof()

    def _say_end(self) -> None:
        if self._is_open and not self._has_said_end:
            self._has_said_end = True
            # It would wait for the client's own, which comes or does not.
            with suppress(ssl.SSLError):
                self._tls.unwrap()
            self._send()

    def close(self) -> None:
        """Close once what was written has gone out."""
        self._is_closing = True
        self._say_end()
        self._transport.close()

    def abort(self) -> None:
        """Close now."""
        self._is_closing = True
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._is_closing or self._transport.is_closing()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._inner = cast(asyncio.Protocol, protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._inner
