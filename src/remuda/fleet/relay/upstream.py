"""Connections to upstreams: each reads the answers to what it carries, and rests in a pool between."""

import asyncio
import logging
import ssl
from typing import Protocol, cast

from remuda.base.certificate import why_tls_failed
from remuda.base.descriptors import own_lack
from remuda.base.errors import Overloaded, UpstreamUnavailable, UpstreamUntrusted
from remuda.base.filters import connect_to_child
from remuda.fleet.relay.address import Address
from remuda.fleet.relay.body import Body, MalformedBody, UntilClose, body_of
from remuda.fleet.relay.errors import MalformedResponse
from remuda.fleet.relay.head import (
    END,
    MAX_HEAD,
    MEMORABLE,
    Request,
    Response,
    read_response,
    remember_response,
)
from remuda.fleet.relay.plan import Limits, TlsFor

log = logging.getLogger(__name__)

# How often and how long a connection waits for the descriptor that it needs.
LACK_TRIES = 10
LACK_PAUSE = 0.1


class UpstreamOwner(Protocol):
    """Whose request an upstream connection carries."""

    request: Request

    @property
    def body(self) -> Body | None:
        """What is still to come of the request's body; None once all of it has gone on."""

    def upgraded(self, response: Response, rest: bytes) -> None: ...
    def respond(self, response: Response, body: bytes) -> None: ...
    def respond_more(self, data: bytes) -> None: ...
    def responded(self) -> None: ...
    def upstream_lost(self, reason: str) -> None: ...
    def upstream_congested(self) -> None: ...


class Upstream(asyncio.Protocol):
    """One connection; carries one request at a time."""

    __slots__ = (
        "_body",
        "_buffer",
        "_keep_alive",
        "address",
        "idle_since",
        "is_held",
        "is_paused",
        "is_reused",
        "owner",
        "pool",
        "transport",
    )

    transport: asyncio.Transport

    def __init__(self, pool: "Pool", address: Address) -> None:
        self.pool = pool
        self.address = address
        self.owner: UpstreamOwner | None = None
        self.is_reused = False
        self.is_held = False
        self.is_paused = False
        self.idle_since = 0.0
        self._body: Body | None = None
        self._buffer = b""
        self._keep_alive = False

    def drop(self) -> None:
        """Close at once, without telling the owner, who knows."""
        self.owner = None
        self.transport.abort()

    def hold(self, *, hold: bool) -> None:
        """Stop or go on reading."""
        if hold != self.is_held and not self.transport.is_closing():
            self.is_held = hold
            (self.transport.pause_reading if hold else self.transport.resume_reading)()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        owner = self.owner
        if owner is None:
            # An answer without a request: the next request would take it for its own.
            self.pool.discard(self)
            self.transport.abort()
            return
        try:
            if self._body is not None:
                self._read_body(owner, self._body, data)
                return
            if self._buffer:
                data = self._buffer + data
            end = data.find(END) + 4
            if end < 4 or end >= MEMORABLE:
                self._read_long_head(owner, data, end)
                return
            response = remember_response(data[:end])
            if response.length != len(data) - end or response.status < 200 or owner.request.method == "HEAD":
                self._read_response(owner, response, data[end:])
                return
            # The usual case: a whole small answer in one segment goes on in one write.
            self._buffer = b""
            self._keep_alive = response.keep_alive
            owner.respond(response, data[end:])
            self._finish(owner)
        except (MalformedResponse, MalformedBody) as error:
            self._lose(f"{self.address} did not answer in HTTP/1.1: {error}.")

    def _read_long_head(self, owner: UpstreamOwner, data: bytes, end: int) -> None:
        if end >= 4:
            self._read_response(owner, read_response(data[:end]), data[end:])
        elif len(data) > MAX_HEAD:
            raise MalformedResponse("its head is too large")
        else:
            self._buffer = data

    def _read_response(self, owner: UpstreamOwner, response: Response, data: bytes) -> None:
        self._buffer = b""
        if response.status < 200:
            self._read_interim(owner, response, data)
            return
        self._keep_alive = response.keep_alive
        self._body = body = body_of(0 if owner.request.method == "HEAD" else response.length)
        passed, rest = body.feed(data)
        owner.respond(response, passed)
        if body.done:
            self._finish(owner, is_clean=not rest)

    def _read_interim(self, owner: UpstreamOwner, response: Response, rest: bytes) -> None:
        if response.status != 101:
            if not owner.request.head.is_http_10:
                owner.respond_more(response.head)
            if rest:
                self.data_received(rest)
        elif owner.request.is_upgrade:
            owner.upgraded(response, rest)
        else:
            raise MalformedResponse("it switched protocols without being asked")

    def _read_body(self, owner: UpstreamOwner, body: Body, data: bytes) -> None:
        passed, rest = body.feed(data)
        if passed:
            owner.respond_more(passed)
        if body.done:
            self._finish(owner, is_clean=not rest)

    def _finish(self, owner: UpstreamOwner, *, is_clean: bool = True) -> None:
        self.owner = None
        self._body = None
        if self._keep_alive and is_clean and owner.body is None:
            self.pool.put(self)
        else:
            # Not close: that would wait until the upstream has read what it no longer wants.
            self.transport.abort()
        owner.responded()

    def _lose(self, reason: str) -> None:
        owner, self.owner = self.owner, None
        self.transport.abort()
        if owner is not None:
            owner.upstream_lost(reason)

    def eof_received(self) -> None:
        self.pool.discard(self)
        if self.owner is not None and isinstance(self._body, UntilClose):
            self._keep_alive = False
            self._finish(self.owner)

    def connection_lost(self, exc: Exception | None) -> None:
        self.pool.discard(self)
        self._lose(f"{self.address} closed the connection before its answer was complete.")

    def pause_writing(self) -> None:
        self.is_paused = True
        if self.owner is not None:
            self.owner.upstream_congested()

    def resume_writing(self) -> None:
        self.is_paused = False
        if self.owner is not None:
            self.owner.upstream_congested()


class Pool:
    """Idle connections by address. The last one used goes first: the others can then time out."""

    def __init__(self, limits: Limits, *, to_child: bool = False, tls_for: TlsFor = lambda _: None) -> None:
        self._limits = limits
        self._tls_for = tls_for
        self._to_child = to_child
        self._idle: dict[Address, list[Upstream]] = {}
        self.now = 0.0

    def take(self, address: Address) -> Upstream | None:
        """An idle connection to the address, if there is one."""
        idle = self._idle.get(address)
        while idle:
            upstream = idle.pop()
            if not upstream.transport.is_closing():
                return upstream
        return None

    def put(self, upstream: Upstream) -> None:
        """Keep the connection for the next request."""
        idle = self._idle.get(upstream.address)
        if idle is None:
            idle = self._idle[upstream.address] = []
        if len(idle) >= self._limits.pool_size:
            upstream.transport.close()
            return
        upstream.is_reused = True
        upstream.idle_since = self.now
        if upstream.is_held:
            # For a client that read slowly; an idle connection must see its other side close.
            upstream.hold(hold=False)
        idle.append(upstream)

    def discard(self, upstream: Upstream) -> None:
        """Forget a connection that is about to close."""
        idle = self._idle.get(upstream.address)
        if idle and upstream in idle:
            idle.remove(upstream)

    async def connect(self, address: Address) -> Upstream:
        """A new connection; raises UpstreamUnavailable, or Overloaded when it is not the upstream's fault."""
        for _ in range(LACK_TRIES):
            try:
                return await self._connect(address)
            except Overloaded:
                # What is idle gives way, and what is under way ends.
                self.close()
                await asyncio.sleep(LACK_PAUSE)
        return await self._connect(address)

    async def _connect(self, address: Address) -> Upstream:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._limits.connect_timeout):
                if self._to_child:
                    connection = await connect_to_child(address.host, address.port)
                    _, upstream = await loop.create_connection(
                        lambda: Upstream(self, address), sock=connection
                    )
                else:
                    _, upstream = await loop.create_connection(
                        lambda: Upstream(self, address),
                        address.host,
                        address.port,
                        ssl=self._tls_for(address),
                    )
        except ssl.SSLError as error:
            reason = f"{address} cannot be reached by TLS: {why_tls_failed(error)}."
            log.warning("%s", reason)
            is_untrusted = isinstance(error, ssl.SSLCertVerificationError)
            raise (UpstreamUntrusted if is_untrusted else UpstreamUnavailable)(reason) from error
        except OSError as error:
            lack = own_lack(error)
            raise lack or UpstreamUnavailable(f"{address} cannot be reached: {error}.") from error
        return upstream

    def sweep(self, now: float) -> None:
        """Close what has been idle for too long."""
        self.now = now
        for address, idle in list(self._idle.items()):
            stale = [upstream for upstream in idle if upstream.idle_since < now - self._limits.pool_idle]
            for upstream in stale:
                idle.remove(upstream)
                upstream.transport.close()
            if not idle:
                del self._idle[address]

    def is_empty(self) -> bool:
        """Whether no connection is kept."""
        return not any(self._idle.values())

    def close(self) -> None:
        """Close every idle connection."""
        for idle in self._idle.values():
            for upstream in idle:
                upstream.transport.close()
        self._idle.clear()
