"""After a 101: two byte pipes, no parsing, so frames and close codes arrive as they were sent."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from remuda.fleet.relay.head import Request
from remuda.fleet.relay.plan import TunnelLimits
from remuda.fleet.relay.silence import probe_when_silent

if TYPE_CHECKING:
    from remuda.fleet.relay.relay import Relay


class Tunnel:
    """An upgraded connection: what comes in on one side goes out on the other."""

    __slots__ = (
        "_began",
        "_ended",
        "_heard",
        "_inward",
        "_limits",
        "_lost",
        "_on_closed",
        "_outward",
        "_relay",
        "client",
        "expires",
        "request",
        "upstream",
    )

    def __init__(
        self, relay: "Relay", request: Request, on_closed: Callable[[], None], limits: TunnelLimits
    ) -> None:
        self.request = request
        self.expires = float("inf")
        self._relay = relay
        self._on_closed = on_closed
        self._limits = limits
        self._began = self._heard = relay.now
        self._ended = 0
        self._lost = 0

    def open(self, client: asyncio.Transport, upstream: asyncio.Transport) -> None:
        """Take both connections over."""
        self.client = client
        self.upstream = upstream
        self._inward = Pipe(self, upstream)
        self._outward = Pipe(self, client)
        client.set_protocol(self._inward)
        upstream.set_protocol(self._outward)
        probe_when_silent(upstream)
        self._relay.connections.add(self)
        self._relay.tunnels.add(self)

    def count(self, bytes_in: int, bytes_out: int) -> None:
        """Add what went through beside the pipes, ahead of them."""
        self._inward.flowed += bytes_in
        self._outward.flowed += bytes_out

    def tell(self) -> None:
        """Tell the observer what has gone through since the last time."""
        bytes_in, self._inward.flowed = self._inward.flowed, 0
        bytes_out, self._outward.flowed = self._outward.flowed, 0
        if bytes_in:
            self._heard = self._relay.now
        if bytes_in or bytes_out:
            self._relay.observer.bytes_flowed(self.request, bytes_in, bytes_out)

    def overdue(self) -> str:
        """Why it is to end, in words; empty if it may go on."""
        now, limits = self._relay.now, self._limits
        if limits.lifetime and now - self._began >= limits.lifetime:
            return f"The connection has lasted {limits.lifetime:g} s, which is the limit"
        if limits.idle and now - self._heard >= limits.idle:
            return f"The client has been silent for {limits.idle:g} s, which is the limit"
        return limits.cause()

    def ended(self, to: asyncio.Transport) -> None:
        """One side has nothing more to say: tell the other, which may still speak."""
        self._ended += 1
        if self._ended == 2 or to.is_closing():
            self.close()
            return
        # A side that ignores the end of the other must not hold the tunnel open for ever.
        self.expires = self._relay.deadline()
        if to.can_write_eof():
            to.write_eof()
        else:
            # TLS to an upstream is the event loop's, which cannot close one direction only. A client that
            # says no more has most likely been killed, and its browser is to end now.
            self.close()

    def lost(self) -> None:
        """One side is gone, and so goes the other."""
        self._lost += 1
        if self._lost == 1:
            self.close()
            return
        self.tell()
        self._relay.tunnels.discard(self)
        self._relay.forget(self)
        self._on_closed()

    def is_idle(self) -> bool:
        """Never: an open tunnel is a request under way."""
        return False

    def close(self) -> None:
        """Close both sides once what was taken in is written."""
        self.expires = self._relay.deadline()
        self.client.close()
        self.upstream.close()

    def abort(self) -> None:
        """Close both sides now."""
        self.client.abort()
        self.upstream.abort()

    # A side that does not read its last bytes does not get them.
    expire = abort


class Pipe(asyncio.Protocol):
    """One direction: what its connection receives is written to the other."""

    __slots__ = ("_to", "_tunnel", "_write", "flowed")

    def __init__(self, tunnel: Tunnel, to: asyncio.Transport) -> None:
        self._tunnel = tunnel
        self._to = to
        # Bound once: an attribute less to look up for each message.
        self._write = to.write
        # Since the observer was last told; telling it of each message would double its cost.
        self.flowed = 0

    def data_received(self, data: bytes) -> None:
        self._write(data)
        self.flowed += len(data)

    def pause_writing(self) -> None:
        # Our connection takes too little of what the other one receives.
        if not self._to.is_closing():
            self._to.pause_reading()

    def resume_writing(self) -> None:
        if not self._to.is_closing():
            self._to.resume_reading()

    def eof_received(self) -> bool:
        self._tunnel.ended(self._to)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._tunnel.lost()
