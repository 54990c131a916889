"""The gateway's role: listens on the public port and brings what it counted to Redis once a second."""

import asyncio
import socket

from remuda.base.config import Config
from remuda.base.errors import Unavailable
from remuda.base.hosts import is_loopback
from remuda.base.log import get_logger
from remuda.fleet.relay import Address, Router
from remuda.fleet.role import Role
from remuda.fleet.secret import HerdSecret
from remuda.gateway.bidi import Bidi
from remuda.gateway.cdp import Cdp
from remuda.gateway.door import Door
from remuda.gateway.listener import BACKLOG, listen
from remuda.gateway.lookup import RedisDirectory
from remuda.gateway.origin import OriginRule
from remuda.gateway.routes import Kind
from remuda.grid.abandoned import Abandoned
from remuda.grid.sessions import Sessions
from remuda.keyspace import metrics
from remuda.playwright.proxy import Proxy
from remuda.store import Store

log = get_logger(__name__)

FLUSH_EVERY = 1.0
LAST_WORDS = 1.0


class Gateway(Role):
    """The front door."""

    name = "gateway"

    def __init__(self, store: Store, config: Config, listener: socket.socket | None = None) -> None:
        super().__init__()
        self._store = store
        self._config = config
        self._listener = listener
        self._directory = RedisDirectory(store)
        self._abandoned = Abandoned(store)
        origins = [origin.strip() for origin in config.allow_origins.split(",") if origin.strip()]
        rule = OriginRule(origins, is_bound_to_loopback=is_loopback(config.host))
        self._secret = HerdSecret(store)
        self._cdp = Cdp(self._directory, self._secret, keep=config.cdp_reconnect)
        self._playwright = Proxy(store, config, self._secret)
        self.bidi = Bidi(self._directory, self._secret)
        rooms: dict[Kind, Router] = {
            Kind.CDP: self._cdp.route,
            Kind.BIDI: self.bidi.route,
            Kind.PLAYWRIGHT: self._playwright.route,
        }
        self._door = Door(self._directory, rooms=rooms, origins=rule, secret=self._secret)
        self._counters = self._door.counters
        self._sessions = Sessions(store)
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        await self._secret.read()
        await self.bidi.start()
        listener = self._listener or listen(self._config)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._door.relay.protocol, sock=listener, backlog=BACKLOG)
        host, port = listener.getsockname()[:2]
        self.address = str(Address(host, port))

    async def serve(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._directory.keep_fresh(), name="keep the directory fresh")
            group.create_task(self._secret.keep(), name="keep the herd's secret")
            group.create_task(self._keep_flushing(), name="flush counters")
            group.create_task(self._playwright.run(), name="keep Playwright connections")
            # On one machine the manager shares a process with all others who look, and the gateway does not.
            group.create_task(self._abandoned.run(), name="look for gone managers")

    async def drain(self) -> None:
        if self._server is not None:
            self._server.close()
        self._playwright.close()
        # Who is still connected must be counted as long as it is.
        keeping = asyncio.create_task(self._playwright.run(), name="keep Playwright connections")
        try:
            await self._door.relay.drain(float(self._config.gateway_drain))
        finally:
            keeping.cancel()

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        self._door.relay.close()
        await self._door.relay.emptied(LAST_WORDS)
        await self.bidi.stop()
        await self._playwright.finish()
        await self._flush()

    async def _keep_flushing(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_EVERY)
            await self._flush()
            await self._door.journal.write(self._sessions)

    async def _flush(self) -> None:
        """Adds what was counted to the documented keys; what cannot be delivered comes with the next."""
        counts = self._counters.take()
        if not (counts.requests or counts.bytes_in or counts.bytes_out):
            return
        try:
            async with self._store.transaction() as transaction:
                for (method, status), count in counts.requests.items():
                    transaction.hincrby(metrics.METRICS_HTTP_REQUESTS(method), str(status), count)
                transaction.hincrby(metrics.METRICS_HTTP_BYTES(), "in", counts.bytes_in)
                transaction.hincrby(metrics.METRICS_HTTP_BYTES(), "out", counts.bytes_out)
        except Unavailable as error:
            self._counters.put_back(counts)
            log.warning("counters kept", reason=error.message)
