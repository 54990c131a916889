"""The relay as its owner sees it: a protocol per connection, their deadlines, draining and closing."""

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Protocol

from remuda.base import descriptors
from remuda.base.errors import Overloaded, RemudaError
from remuda.fleet.relay.bodies import Bodies
from remuda.fleet.relay.client import Client
from remuda.fleet.relay.farewell import say_goodbye
from remuda.fleet.relay.head import Request
from remuda.fleet.relay.plan import Answer, Guard, Limits, Observer, RenderError, Router, TlsFor, Unobserved
from remuda.fleet.relay.surplus import Surplus
from remuda.fleet.relay.tls import TlsConnection
from remuda.fleet.relay.tunnel import Tunnel
from remuda.fleet.relay.upstream import Pool

log = logging.getLogger(__name__)

# For clients that are connected and whose first request is still on its way.
FIRST_WORDS = 1.0
# For both sides of a WebSocket to close it, once they are told to.
LAST_WORDS = 1.0


class Connection(Protocol):
    """A client or a tunnel."""

    expires: float

    def is_idle(self) -> bool: ...
    def expire(self) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...


class Relay:
    """Relays HTTP/1.1 and WebSocket: `await loop.create_server(relay.protocol, host, port)`.

    `guard` has no default: only the front door, which is for everybody, may go without. What it relays
    `to_child` reaches ports that this process has closed to others (`base/filters.py`); `tls_for` says which
    upstreams speak TLS. `account_of` says whose a request is, where accounts share the memory for bodies.
    """

    def __init__(
        self,
        router: Router,
        render_error: RenderError,
        *,
        guard: Guard | None,
        observer: Observer | None = None,
        limits: Limits | None = None,
        to_child: bool = False,
        tls_for: TlsFor = lambda _: None,
        account_of: Callable[[Request], str] = lambda _: "",
    ) -> None:
        self.router = router
        self.account_of = account_of
        self.guard = guard
        self.observer: Observer = observer or Unobserved()
        self.limits = limits or Limits()
        self.pool = Pool(self.limits, to_child=to_child, tls_for=tls_for)
        self.bodies = Bodies(self.limits.bodies)
        self.connections: set[Connection] = set()
        self.tunnels: set[Tunnel] = set()
        # The oldest first.
        self.handshakes: dict[TlsConnection, None] = {}
        self.is_draining = False
        # Descriptors from which on new clients are turned away, and not even heard. A quarter is for the
        # upstreams of those who are here, for Redis, and for saying no.
        limit = descriptors.limit()
        self.crowded_at, self.full_at = limit - limit // 4, limit - limit // 16
        self._turned_away = 0
        # The loop's time at the last tick: deadlines need no more precision, and a timer or a clock call
        # per request would cost more than routing it.
        self.now = 0.0
        self._render_error = render_error
        self._dismissed: dict[Tunnel, asyncio.Task[None]] = {}
        self._ticker: asyncio.TimerHandle | None = None
        self._on_empty: asyncio.Future[None] | None = None

    def protocol(self) -> asyncio.Protocol:
        """The protocol of a new client connection."""
        if self._ticker is None:
            self._tick()
        return Client(self)

    def deadline(self) -> float:
        """When a client that owes us something has had its time."""
        return self.now + self.limits.head_timeout

    def answer_for(self, request: Request | None, error: RemudaError) -> Answer:
        """The error in the owner's words."""
        try:
            return self._render_error(request, error)
        except Exception:
            log.exception("error cannot be rendered")
            return Answer(500)

    def tls_protocol(self, context: ssl.SSLContext) -> asyncio.Protocol:
        """The same for a client that speaks TLS."""
        return TlsConnection(self, context, self.protocol())

    def turn_away(self, transport: asyncio.Transport, descriptor: int) -> None:
        """Refuse a new client: too many files are open."""
        if not self._turned_away:
            log.warning("clients turned away: %d of %d files are open", descriptor, descriptors.limit())
        self._turned_away += 1
        surplus = Surplus(self, Overloaded())
        transport.set_protocol(surplus)
        surplus.connection_made(transport)
        if descriptor >= self.full_at:
            surplus.answer(b"")
            transport.close()

    def forget(self, connection: Connection) -> None:
        """The connection is closed, or has become another."""
        self.connections.discard(connection)
        if not self.connections and self._on_empty is not None and not self._on_empty.done():
            self._on_empty.set_result(None)

    async def drain(self, timeout: float) -> None:
        """Let the requests under way finish for so long, take no more, then close everything.

        The owner closes the listening socket first. Clients that still wait for an answer are told to try
        again. WebSockets that are still open then end with 1001, as far
        as possible; that takes another two seconds at most.
        """
        self.is_draining = True
        self._close_idle(lambda connection: not isinstance(connection, Client) or not connection.is_new)
        await self.emptied(min(timeout, FIRST_WORDS))
        self._close_idle(lambda connection: True)
        await self.emptied(max(timeout - FIRST_WORDS, 0.0))
        for connection in list(self.connections):
            if isinstance(connection, Client):
                connection.dismiss()
        if self.tunnels:
            self._stop_ticking()
            await say_goodbye(self.tunnels)
            await self.emptied(LAST_WORDS)
        self.close()

    def _close_idle(self, choose: Callable[[Connection], bool]) -> None:
        for connection in list(self.connections):
            if connection.is_idle() and choose(connection):
                connection.close()

    async def emptied(self, timeout: float) -> None:
        """Wait until every connection is gone and its end was reported, at most `timeout` seconds."""
        if self.connections:
            self._on_empty = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._on_empty], timeout=timeout)

    def close(self) -> None:
        """Close everything now."""
        self.is_draining = True
        for connection in list(self.connections):
            connection.abort()
        self.pool.close()
        self._stop_ticking()

    async def _dismiss(self, tunnel: Tunnel, reason: str) -> None:
        """End a WebSocket that is over its limits."""
        try:
            await say_goodbye([tunnel], reason)
            await asyncio.sleep(LAST_WORDS)
        finally:
            if tunnel in self.tunnels:
                tunnel.abort()
            self._dismissed.pop(tunnel, None)

    def _stop_ticking(self) -> None:
        if self._ticker is not None:
            self._ticker.cancel()

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        self.now = loop.time()
        self.pool.sweep(self.now)
        for connection in [each for each in self.connections if each.expires < self.now]:
            connection.expire()
        for tunnel in list(self.tunnels):
            tunnel.tell()
            if tunnel not in self._dismissed and (reason := tunnel.overdue()):
                self._dismissed[tunnel] = asyncio.create_task(self._dismiss(tunnel, reason), name="dismiss")
        if self._turned_away and descriptors.in_use() < self.crowded_at:
            log.warning("clients welcome again: %d were turned away", self._turned_away)
            self._turned_away = 0
        self._ticker = loop.call_later(self.limits.tick, self._tick)
