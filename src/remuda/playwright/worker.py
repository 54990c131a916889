"""The worker: holds a browser server and tells the fleet about it, for as long as the browser answers.

What a worker advertises works: it is registered after a client's first steps went well, those are repeated
before every beat, and the entry goes away with the browser. Sessions need no Redis, so no absence of Redis
ends one; a worker that is to leave first waits for them.
"""

import asyncio
import os
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

from remuda.base import clock
from remuda.base.config import Config, HerdConfig
from remuda.base.confinement import protection_of
from remuda.base.disk import find_lack
from remuda.base.errors import DriverUnavailable, Unavailable
from remuda.base.hosts import host_port, is_loopback
from remuda.base.ids import RoleId, WorkerId
from remuda.base.log import get_logger
from remuda.base.reach import use_open_temporary_directory
from remuda.fleet.internal import NO_TLS, InternalTls, internal_hosts_of
from remuda.fleet.leftovers import clear_orphans
from remuda.fleet.role import ROLE_ID, Role
from remuda.fleet.secret import HerdSecret
from remuda.playwright import model
from remuda.playwright.browsers import find_launch
from remuda.playwright.demand import announce_starter
from remuda.playwright.driver import served_version
from remuda.playwright.guarded import GuardedServer
from remuda.playwright.model import START_TIMEOUT
from remuda.playwright.own import OwnBrowsers
from remuda.playwright.registry import Registry
from remuda.playwright.room import PlaywrightConfig, are_browsers_own
from remuda.playwright.server import LOOPBACK, BrowserServer, with_host
from remuda.store import Store

log = get_logger(__name__)

Server = BrowserServer | GuardedServer | OwnBrowsers

CHECK_TIMEOUT = 10.0
"""So long a browser may take to answer before it counts as hanging; a busy machine makes it slow, too."""
END_GRACE = 1.0
LEAVE_TIMEOUT = 3.0
LOOK_EVERY = 0.5
CONNECT_GRACE = 10.0
"""A client that was sent here is connected after this time, or never will be."""


class WorkerRole(Role):
    """One browser of one type for all its clients, or one for each. Needs a process of its own."""

    name = "worker"

    def __init__(
        self,
        store: Store,
        config: Config,
        *,
        tls: InternalTls = NO_TLS,
        check_timeout: float = CHECK_TIMEOUT,
    ) -> None:
        super().__init__()
        self.id = RoleId(os.environ.get(ROLE_ID) or self.id)
        self._store = store
        self._config = config
        self._options = config[PlaywrightConfig]
        self._hosts = internal_hosts_of(config, store, tls, advertise=self._options.playwright_host)
        self.scheme = self._hosts.scheme
        self._check_timeout = check_timeout
        engine = model.browser_of(self._options.browser)
        self._browser = engine.own if are_browsers_own(config) else engine
        self._server: Server | None = None
        self._registry: Registry | None = None
        self._is_draining = False
        self._obstacle: str | None = None
        self._beating: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[int] | None = None

    # Its life

    async def start(self) -> None:
        # Server and entry are kept before they are used: a start that is given up half-way leaves nothing.
        self._server = server = await asyncio.to_thread(self._make_server)
        # Clients wait for a browser that is on its way.
        await announce_starter(self._store, self.id, [self._browser])
        await server.start(timeout=START_TIMEOUT)
        self._ending = asyncio.create_task(server.ended(), name="end of the browser")
        await server.check(timeout=START_TIMEOUT)
        self._registry = registry = self._make_entry(server)
        await registry.register(obstacle=await self._find_obstacle())
        log.info("worker registered", worker=self.id, browser=self._browser)
        self._beating = asyncio.create_task(self._keep_beating(server, registry), name="beat")

    def _make_server(self) -> Server:
        config, options, engine = self._config, self._options, self._browser.engine
        protection = protection_of(config)
        # An earlier worker may have been killed together with what clears up after it.
        clear_orphans(protection.users)
        if protection.uids:
            use_open_temporary_directory()
        launch = find_launch(engine, config)
        hosts, port, secret = self._hosts, options.playwright_port, HerdSecret(self._store)
        if self._browser.is_own:
            return OwnBrowsers(engine, config, secret, hosts=hosts, port=port)
        if is_loopback(hosts.listen) and hosts.certificate is None:
            return BrowserServer(launch, protection, host=hosts.listen, port=port)
        return GuardedServer(launch, protection, secret, hosts=hosts, port=port)

    def _make_entry(self, server: Server) -> Registry:
        """What it says of itself to the fleet."""
        options = self._options
        endpoint = with_host(server.endpoint, self._hosts.advertise)
        parts = urlsplit(endpoint)
        self.address = host_port(parts.hostname or LOOPBACK, parts.port or 0)
        entry = model.Worker(self._browser, WorkerId(self.id), endpoint, served_version())
        return Registry(
            self._store, entry, key_ttl=options.playwright_key_ttl, lease=options.playwright_lease
        )

    async def serve(self) -> None:
        assert self._beating is not None
        assert self._ending is not None
        await asyncio.wait([self._beating, self._ending], return_when=asyncio.FIRST_COMPLETED)
        if self._beating.done():
            self._beating.result()
        complaint = self._server.tail() if self._server else ""
        raise DriverUnavailable(f"The browser has ended by itself: {complaint or 'no output'}")

    async def drain(self) -> None:
        """Takes no new connections and waits for those that it has, or for the end of the browser."""
        assert self._registry is not None
        assert self._ending is not None
        self._is_draining = True
        # Its sessions need no Redis, so one that is away does not hold it up.
        self._store.hasten()
        try:
            await self._registry.drain()
        except Unavailable as error:  # The next beat says it, too.
            log.warning("drain not told", worker=self.id, reason=error.message)
        log.info("worker drains", worker=self.id)
        idle = asyncio.create_task(self._until_idle(), name="wait for the last connection")
        try:
            await asyncio.wait([idle, self._ending], return_when=asyncio.FIRST_COMPLETED)
        finally:
            idle.cancel()

    async def stop(self) -> None:
        for task in (self._beating, self._ending):
            if task is not None:
                task.cancel()
        # First this: no client may be sent to a browser that is being killed.
        if self._registry is not None:
            try:
                async with asyncio.timeout(LEAVE_TIMEOUT):
                    await self._registry.leave()
            except (Unavailable, TimeoutError) as error:  # Its key runs out, and the reaper does the rest.
                log.warning("worker not withdrawn", worker=self.id, reason=str(error) or "no answer")
        if self._server is not None:
            await self._server.stop()

    # While it serves

    async def _keep_beating(self, server: Server, registry: Registry) -> None:
        """Beats for ever, through any absence of Redis."""
        with self._store.subscribe(registry.command_channel) as calls:
            while True:
                # A call only says "look"; so does the return of Redis, which may have forgotten us.
                await calls.wait(self._options.playwright_beat)
                # First: the check-up is a connection, too.
                sockets = await self._connections()
                if not self._is_draining:
                    await self._check(server)
                await self._beat(registry, sockets)

    async def _check(self, server: Server) -> None:
        """Has a worker leave whose browser does not answer. It drains: what still works may finish."""
        try:
            await server.check(timeout=self._check_timeout)
        except DriverUnavailable as error:
            # `serve` handles a browser that has ended. Its port may be closed a moment earlier.
            assert self._ending is not None
            done, _ = await asyncio.wait([self._ending], timeout=END_GRACE)
            if not done:
                log.error("browser does not answer", worker=self.id, reason=error.message)
                self.leave("its browser does not answer")

    async def _find_obstacle(self) -> str | None:
        """Why it can take no connections just now, in words."""
        places, megabytes = [Path(tempfile.gettempdir())], self._config[HerdConfig].min_free_megabytes
        found = await asyncio.to_thread(find_lack, places, megabytes=megabytes)
        if found and not self._obstacle:
            log.warning("worker takes no connections", worker=self.id, reason=found)
        elif self._obstacle and not found:
            log.warning("worker takes connections again", worker=self.id)
        self._obstacle = found
        return found

    async def _beat(self, registry: Registry, sockets: int) -> None:
        obstacle = None if self._is_draining else await self._find_obstacle()
        try:
            is_told_to_leave = await registry.beat(sockets=sockets, obstacle=obstacle)
        except Unavailable as error:
            log.warning("beat missed", worker=self.id, reason=error.message)
            return
        if is_told_to_leave and not self._is_draining:
            self.leave("it was told to by a command in Redis, as after its lifetime of connections")

    # While it drains

    async def _until_idle(self) -> None:
        """Waits until no client is connected and none will be."""
        quiet_since = clock.monotonic()
        while True:
            if await self._connections():
                quiet_since = clock.monotonic()
            elif await self._expected() == 0 or clock.monotonic() - quiet_since > CONNECT_GRACE:
                return
            await asyncio.sleep(LOOK_EVERY)

    async def _connections(self) -> int:
        """How many clients are connected, by the sockets: Redis may have lost count."""
        assert self._server is not None
        return await asyncio.to_thread(self._server.connections)

    async def _expected(self) -> int | None:
        """How many clients are connected or on the way here, as Redis has it; None if it does not answer."""
        assert self._registry is not None
        try:
            return await self._registry.active()
        except Unavailable:
            return None
