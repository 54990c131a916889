"""The gateway's role: listens on the public port and brings what it counted to Redis once a second."""

import asyncio
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress

from remuda.accounts.access import Access
from remuda.accounts.first import ensure_admin_token, keep_admin_token
from remuda.accounts.room import AccountsConfig, is_auth_on
from remuda.accounts.tickets import Tickets
from remuda.base.certificate import Certificate
from remuda.base.config import Config, HerdConfig
from remuda.base.errors import Unavailable
from remuda.base.hosts import is_loopback
from remuda.base.log import get_logger
from remuda.fleet.internal import NO_TLS, InternalTls
from remuda.fleet.relay import Address
from remuda.fleet.role import Role
from remuda.fleet.room import Room, Surroundings
from remuda.fleet.secret import HerdSecret
from remuda.gateway.bidi import Bidi
from remuda.gateway.cdp import Cdp
from remuda.gateway.destinations import Backend
from remuda.gateway.door import Door, OriginRouter
from remuda.gateway.doorkeeper import Doorkeeper, Refusal
from remuda.gateway.handover import Handover
from remuda.gateway.listener import BACKLOG, listen
from remuda.gateway.lookup import RedisDirectory
from remuda.gateway.meter import Meter
from remuda.gateway.pages import PageRule
from remuda.gateway.probes import Probes
from remuda.gateway.proxies import TrustedProxies
from remuda.gateway.room import GatewayConfig
from remuda.grid.abandoned import Abandoned
from remuda.grid.sessions import Sessions
from remuda.keyspace import metrics
from remuda.keyspace.accounts import METRICS_ACCESS
from remuda.metering.push import Metering
from remuda.playwright.proxy import Proxy
from remuda.store import Store

log = get_logger(__name__)

FLUSH_EVERY = 1.0
LAST_WORDS = 1.0


class Gateway(Role):
    """The front door."""

    name = "gateway"

    def __init__(
        self,
        store: Store,
        config: Config,
        listener: socket.socket | None = None,
        *,
        rooms: Sequence[Room] = (),
        metering: Metering | None = None,
        tls: InternalTls = NO_TLS,
    ) -> None:
        """Meters what its clients send where there is a `metering`."""
        super().__init__()
        self._store = store
        self._config = config
        self._listener = listener
        self._directory = RedisDirectory(store)
        self._abandoned = Abandoned(store)
        options = config[GatewayConfig]
        origins = [origin.strip() for origin in options.allow_origins.split(",") if origin.strip()]
        self._certificate = Certificate.of(options.tls_cert, options.tls_key)
        self.scheme = scheme = "http" if self._certificate is None else "https"
        rule = PageRule(origins, is_bound_to_loopback=is_loopback(config[HerdConfig].host), scheme=scheme)
        self._secret = HerdSecret(store)
        tickets = Tickets(self._secret, config[AccountsConfig].ticket_lifetime)
        self._access = Access(store, is_on=is_auth_on(config))
        self._keeper = Doorkeeper(store, self._access, tickets) if is_auth_on(config) else None
        self._playwright = Proxy(store, config, self._secret)
        revoked = self._playwright.revoked
        self._cdp = Cdp(self._directory, self._secret, tickets, revoked, tls=tls, keep=options.cdp_reconnect)
        self.bidi = Bidi(self._directory, self._secret, tls)
        self._probes = Probes(
            Surroundings(store, config, rooms),
            is_draining=lambda: self._door.relay.is_draining,
            count_apis=self._directory.count_apis,
        )
        routers: dict[Backend, OriginRouter] = {
            Backend.CDP: self._cdp.route,
            Backend.BIDI: self.bidi.route,
            Backend.PLAYWRIGHT: self._playwright.route,
            Backend.PROBES: self._probes.route,
        }
        self._meter = None if metering is None else Meter(metering)
        self._door = Door(
            self._directory,
            rooms=routers,
            origins=rule,
            secret=self._secret,
            keeper=self._keeper,
            revoked=revoked,
            proxies=TrustedProxies(options.trusted_proxy),
            scheme=scheme,
            handover=Handover(self._directory),
            meter=self._meter,
            tls_for=tls.context_for,
        )
        self._counters = self._door.counters
        self._sessions = Sessions(store)
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        await self._secret.read()
        await ensure_admin_token(self._store, self._config)
        await self.bidi.start()
        listener = self._listener = self._listener or listen(self._config)
        listener.setblocking(False)
        host, port = listener.getsockname()[:2]
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._make_protocol, sock=listener, backlog=BACKLOG)
        self.address = str(Address(host, port))

    def _make_protocol(self) -> asyncio.Protocol:
        relay, certificate = self._door.relay, self._certificate
        return relay.protocol() if certificate is None else relay.tls_protocol(certificate.context)

    async def serve(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._directory.keep_fresh(), name="keep the directory fresh")
            group.create_task(self._secret.keep(), name="keep the herd's secret")
            group.create_task(self._access.run(), name="keep tokens fresh")
            group.create_task(keep_admin_token(self._store, self._config), name="keep the admin token")
            if self._certificate is not None:
                group.create_task(self._certificate.keep_fresh(), name="keep the certificate fresh")
            group.create_task(self._keep_flushing(), name="flush counters")
            group.create_task(self._playwright.run(), name="keep Playwright connections")
            # On one machine the manager shares a process with all others who look, and the gateway does not.
            group.create_task(self._abandoned.run(), name="look for gone managers")

    async def reload(self) -> None:
        if self._certificate is not None:
            await self._certificate.look()

    async def drain(self) -> None:
        if self._server is not None:
            await self._accept_waiting()
            self._server.close()
        self._playwright.close()
        # Who is still connected must be counted as long as it is, and may do no more than its token says.
        keeping = [
            asyncio.create_task(self._playwright.run(), name="keep Playwright connections"),
            asyncio.create_task(self._access.run(), name="keep tokens fresh"),
        ]
        try:
            await self._door.relay.drain(float(self._config[GatewayConfig].gateway_drain))
        finally:
            for task in keeping:
                task.cancel()

    async def _accept_waiting(self) -> None:
        """Takes the clients that the kernel has connected and that would be cut off with the listener."""
        assert self._listener is not None
        loop = asyncio.get_running_loop()
        with suppress(BlockingIOError):
            while True:
                client, _ = self._listener.accept()
                await loop.connect_accepted_socket(self._make_protocol, client)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        self._door.relay.close()
        await self._door.relay.emptied(LAST_WORDS)
        await self.bidi.stop()
        await self._playwright.finish()
        await self._flush()
        if self._meter is not None:
            await self._meter.finish()

    async def _keep_flushing(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_EVERY)
            await self._flush()
            if self._meter is not None:
                await self._meter.flush()
            await self._door.journal.write(self._sessions)

    async def _flush(self) -> None:
        """Adds what was counted to the documented keys; what cannot be delivered comes with the next."""
        counts, refusals = self._counters.take(), self._take_refusals()
        if not (counts.requests or counts.bytes_in or counts.bytes_out or refusals):
            return
        try:
            async with self._store.transaction() as transaction:
                for (method, status), count in counts.requests.items():
                    transaction.hincrby(metrics.METRICS_HTTP_REQUESTS(method), str(status), count)
                transaction.hincrby(metrics.METRICS_HTTP_BYTES(), "in", counts.bytes_in)
                transaction.hincrby(metrics.METRICS_HTTP_BYTES(), "out", counts.bytes_out)
                for reason, count in refusals.items():
                    transaction.hincrby(METRICS_ACCESS(), reason, count)
        except Unavailable as error:
            self._counters.put_back(counts)
            if self._keeper is not None:
                for reason, count in refusals.items():
                    self._keeper.count(reason, count)
            log.warning("counters kept", reason=error.message)

    def _take_refusals(self) -> Mapping[Refusal, int]:
        if self._keeper is None:
            return {}
        hidden, self._directory.hidden = self._directory.hidden, 0
        if hidden:
            self._keeper.count(Refusal.OTHER_ACCOUNT, hidden)
        return self._keeper.take()
