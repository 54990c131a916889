"""The proxy: brings each Playwright client to a worker, and keeps count of it until it is over.

A place is given back exactly once, whatever ends the connection: `Connections` owns it from the pick on, and
a `Call` hands it back when its worker refuses or when the relay says that it is over.
"""

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from urllib.parse import urlsplit

from remuda.base import clock
from remuda.base.config import Config
from remuda.base.errors import Unavailable, VersionNotOffered
from remuda.base.ids import WorkerId, new_id
from remuda.base.log import get_logger
from remuda.fleet.origin import Origin
from remuda.fleet.relay import Address, Answer, Dial, Forward, Plan, Request, TunnelLimits
from remuda.fleet.secret import HerdSecret
from remuda.fleet.uses import Uses
from remuda.playwright.connections import Connections
from remuda.playwright.model import GUARDED, START_TIMEOUT, Outcome, Place, WorkerLimits, browsers_of
from remuda.playwright.revoked import Revoked
from remuda.playwright.room import PlaywrightConfig
from remuda.playwright.usage import PLAYWRIGHT
from remuda.playwright.waiting import WaitingRoom
from remuda.playwright.wish import Defaults, PlaywrightWish, read_wish
from remuda.store import Store

log = get_logger(__name__)

# How Playwright's server refuses a client of another version.
VERSION_MISMATCH = 428
# How a worker refuses launch options that it cannot honour.
NOT_HONOURED = 400
_PORTS = {"ws": 80, "wss": 443}


class Proxy:
    """A gateway's Playwright side. Run `run()` as a task of the gateway's, and `finish()` at its end."""

    def __init__(self, store: Store, config: Config, secret: HerdSecret) -> None:
        self._secret = secret
        options = config[PlaywrightConfig]
        self._defaults = Defaults.of(config)
        self._dial_timeout = float(options.playwright_dial)
        self._limits = TunnelLimits(float(options.playwright_timeout), float(options.playwright_idle))
        self._connections = Connections(store, WorkerLimits.of(options))
        self.revoked = Revoked(store)
        self._uses = Uses(store, services=(PLAYWRIGHT.name,))
        self._room = WaitingRoom(
            store,
            self._connections,
            self._uses,
            patience=float(options.playwright_wait),
            longest=options.playwright_queue,
            expected=browsers_of(options.playwright_expected),
        )

    def route(self, request: Request, origin: Origin) -> Plan | Awaitable[Plan]:
        """What becomes of a request; the relay's router for all that is Playwright's."""
        wish = read_wish(request, self._defaults, front_door=origin.websocket_url)
        if isinstance(wish, Answer):
            return wish
        wish = replace(wish, origin=origin)
        if wish.dropped:
            log.info("launch arguments dropped", browser=wish.browser, arguments=list(wish.dropped))
        limits = self._limits._replace(cause=self.revoked.cause_for(origin))
        call = Call(self._room, self._connections, self._uses, wish, self._dial_timeout, limits, self._secret)
        return call.begin()

    async def run(self) -> None:
        """Keeps what is open counted and what waits in line, until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._connections.run(), name="keep connections counted")
            group.create_task(self._room.run(), name="keep places in line")
            group.create_task(self.revoked.run(), name="look for revoked tokens")
            group.create_task(self._uses.run(), name="keep uses of accounts")

    def close(self) -> None:
        """Refuses new clients and those that wait."""
        self._room.close()

    async def finish(self) -> None:
        """Ends when every place has been given back, once the relay has closed its connections."""
        await self._connections.finish()
        await self._uses.finish()


class Call:
    """One client's connection, from its request to its end; the relay's caller."""

    def __init__(
        self,
        room: WaitingRoom,
        connections: Connections,
        uses: Uses,
        wish: PlaywrightWish,
        dial_timeout: float,
        limits: TunnelLimits,
        secret: HerdSecret,
    ) -> None:
        self._room = room
        self._connections = connections
        self._uses = uses
        self._use = new_id()
        self._wish = wish
        self._limits = limits
        self._secret = secret
        self._came = clock.monotonic()
        # A browser of one's own is launched within this time.
        self._dial_timeout = max(dial_timeout, START_TIMEOUT) if wish.browser.is_own else dial_timeout
        self._place: Place | None = None
        self._outcome = Outcome.UNUSED
        self._failed: list[WorkerId] = []
        self._mismatch: Answer | None = None
        """What the last worker said that speaks another version."""

    async def begin(self) -> Dial:
        """A worker to try; AccountLimitReached where the account may not have one more connection."""
        try:
            return await self.dial()
        except BaseException:  # Nothing began that could end.
            self._give_use_back()
            raise

    async def dial(self) -> Dial:
        """A worker to try."""
        while True:
            place = await self._room.find(self._wish, self._use, came=self._came, failed=self._failed)
            self._place = place
            # Only those are processes of the herd: behind other workers listens Playwright's driver itself.
            is_guarded = self._wish.browser.is_own or GUARDED in place.endpoint
            credential = self._secret.line if is_guarded else b""
            forward = way_to(
                place.endpoint, query=self._wish.query, credential=credential, limits=self._limits
            )
            if forward is not None:
                return Dial(
                    forward,
                    self,
                    self._dial_timeout,
                    quoted=VERSION_MISMATCH,
                    on_quote=self._note_mismatch,
                )
            # Not which: its path is a secret.
            self._give_up("its endpoint is not a ws:// or wss:// address")

    def is_answer(self, status: int) -> bool:
        if self._wish.browser.is_own and status == NOT_HONOURED:
            return True
        # A client that tells no version cannot be helped by another worker.
        return status == VERSION_MISMATCH and not self._wish.version

    def taken(self, status: int) -> None:
        # A worker that refuses with a message for the client has not served it.
        if status == 101:
            self._outcome = Outcome.SERVED

    def _note_mismatch(self, answer: Answer) -> None:
        place, self._place = self._place, None
        assert place is not None
        log.info("worker speaks another version", worker=place.worker, version=self._wish.version)
        self._room.note_unsuited(place.worker, self._wish.version)
        self._failed.append(place.worker)
        self._connections.close(place, Outcome.UNUSED)
        self._mismatch = answer

    async def refused(self, reason: str) -> Dial | Answer:
        if self._place is not None:
            self._give_up(reason)
        try:
            return await self.dial()
        except VersionNotOffered:
            # No other worker can serve the client either. The message of the first one says what to do.
            if self._mismatch is None:
                raise
            return self._mismatch
        except Unavailable as error:
            raise Unavailable(
                f"{error.message}. The last worker that was tried failed: {reason}",
                retry_after=error.retry_after,
            ) from error

    def _give_up(self, reason: str) -> None:
        place, self._place = self._place, None
        assert place is not None
        log.warning("worker does not answer", worker=place.worker, browser=place.browser, reason=reason)
        self._failed.append(place.worker)
        self._connections.close(place, Outcome.FAILED)

    def ended(self) -> None:
        place, self._place = self._place, None
        if place is not None:
            self._connections.close(place, self._outcome)
        self._give_use_back()

    def _give_use_back(self) -> None:
        self._uses.give_back_soon(self._wish.origin.account, self._use)


def way_to(endpoint: str, *, query: str, credential: bytes, limits: TunnelLimits) -> Forward | None:
    """The way to a worker's browser; None if its endpoint is not an address.

    The query of the client stays here: the worker's path, and this, is all that it must know.
    """
    try:
        parts = urlsplit(endpoint)
        host, port = parts.hostname, parts.port or _PORTS[parts.scheme]
    except (ValueError, KeyError):
        return None
    if not host:
        return None
    queries = "&".join(each for each in (parts.query, query) if each)
    target = parts.path + (f"?{queries}" if queries else "")
    netloc = parts.netloc.rpartition("@")[2]
    address = Address(host, port, parts.scheme == "wss")
    return Forward(address, target or "/", host=netloc, credential=credential, limits=limits)
