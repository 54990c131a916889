"""The directory that Redis keeps: where managers, APIs and storages are, and which node holds a session.

All but the nodes are few, so all of them are known, refreshed in the background. A session is looked up
when its first command comes and remembered until its node refuses a connection.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from remuda.base import clock
from remuda.base.errors import Lost, SessionEnded, SessionLost, SessionUnknown, UpstreamUnavailable
from remuda.base.ids import SessionId
from remuda.fleet.origin import DEFAULT_ACCOUNT
from remuda.fleet.relay import Address
from remuda.fleet.role import running_roles
from remuda.fleet.tasks import repeat
from remuda.gateway.directory import Viewer
from remuda.grid.model import State, state_of
from remuda.grid.sessions import Sessions
from remuda.keyspace import grid, metrics
from remuda.keyspace.fleet import ROLE
from remuda.keyspace.log_codes import BY_CODE
from remuda.storage.model import StorageId
from remuda.store import Store

REFRESH_EVERY = 2.0
# A process that is restarted has another port, so a refused address does not come back.
AVOID_FOR = 30.0
# Restarting takes a second, on a busy machine ten.
WAIT_FOR = 15.0
LOOK_EVERY = 0.1
MAX_SESSIONS = 20_000
# Sessions that are looked at for one with DevTools.
MAX_ASKED = 20


class _Node(NamedTuple):
    """Where a session is, and whose it is."""

    address: Address
    account: str


class RedisDirectory:
    """Finds processes by what they have written about themselves."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.hidden = 0
        """How often a session was asked for by another account than its own."""
        self._managers: list[Address] = []
        self._apis: list[Address] = []
        self._storages: dict[StorageId, Address] = {}
        self._nodes: dict[SessionId, _Node] = {}
        self._avoided: dict[Address, float] = {}
        self._turn = 0

    async def keep_fresh(self) -> None:
        """Refreshes what is known of managers, APIs and storages, for ever."""
        # What was known stays good enough while Redis is away.
        await repeat(self.refresh, every=REFRESH_EVERY, failure="directory not refreshed")

    async def refresh(self) -> None:
        """Reads which managers, APIs and storages are alive now."""
        self._avoided = {each: until for each, until in self._avoided.items() if until > clock.monotonic()}
        managers, roles = await self._live_managers(), await running_roles(self._store)
        self._managers = self._usable(managers)
        self._apis = self._usable([_address_of(role) for role in roles if role["name"] == "api"])
        # The id of a storage's role is the storage's own.
        storages = {StorageId(role["id"]): _address_of(role) for role in roles if role["name"] == "storage"}
        self._storages = {each: address for each, address in storages.items() if self._usable([address])}

    def _usable(self, addresses: list[Address]) -> list[Address]:
        return [each for each in addresses if each not in self._avoided]

    async def _live_managers(self) -> list[Address]:
        ids = await self._store.smembers(grid.MANAGERS())
        alive = [self._store.exists(grid.MANAGER_HEARTBEAT(each)) for each in ids]
        records = [self._store.hmget(grid.MANAGER(each), "host", "port") for each in ids]
        schemes = [self._store.get(grid.MANAGER_SCHEME(each)) for each in ids]
        found = []
        for beats, record, scheme in zip(alive, records, schemes, strict=True):
            (host, port), is_alive, is_tls = await record, await beats, await scheme == "https"
            if is_alive and host and port:
                found.append(Address(host, int(port), is_tls))
        return found

    def count_apis(self) -> int:
        """How many APIs are known to be there."""
        return len(self._apis)

    # What the door asks

    def find_manager(self) -> Address | Awaitable[Address]:
        return self._next(self._managers) or self._look_again("manager")

    def find_api(self) -> Address | Awaitable[Address]:
        return self._next(self._apis) or self._look_again("api")

    def find_node(self, session: SessionId, viewer: Viewer) -> Address | Awaitable[Address]:
        known = self._nodes.get(session)
        # Another's is looked up like one that does not exist, so that it takes as long.
        if known is None or not viewer.sees(known.account):
            return self._look_up(session, viewer)
        return known.address

    def is_known(self, session: SessionId, viewer: Viewer) -> bool:
        known = self._nodes.get(session)
        return known is not None and viewer.sees(known.account)

    def find_storage(self, storage: StorageId) -> Address | Awaitable[Address]:
        return self._storages.get(storage) or self._look_for(storage)

    async def look_again(self, session: SessionId, viewer: Viewer) -> Address:
        self._nodes.pop(session, None)
        return await self._look_up(session, viewer)

    async def end_session(self, session: SessionId, reason: str) -> None:
        await Sessions(self._store).move(session, State.TERMINATED, code="TERM", message=reason)

    async def find_chromium(self) -> SessionId | None:
        for each in await self._store.send("SRANDMEMBER", grid.SESSIONS_ACTIVE(), MAX_ASKED):
            session = SessionId(each)
            status = self._store.hgetall(grid.SESSION_STATUS(session))
            actual = self._store.hget(grid.SESSION_CAPABILITIES(session), "actual")
            if "goog:chromeOptions" in (await actual or "") and state_of(await status) is State.ALIVE:
                return session
        return None

    def forget(self, address: Address, *, may_run: bool) -> None:
        # A process that serves many clients is not given up for one of them: the next look brings it back if
        # it is still registered. A node that breaks off without an answer has died, and its session with it.
        is_shared = address in (*self._managers, *self._apis, *self._storages.values())
        if not (may_run and is_shared):
            self._avoided[address] = clock.monotonic() + AVOID_FOR
        for known in (self._managers, self._apis):
            if address in known:
                known.remove(address)
        self._storages = {storage: each for storage, each in self._storages.items() if each != address}
        self._nodes = {session: each for session, each in self._nodes.items() if each.address != address}

    def _next(self, addresses: list[Address]) -> Address | None:
        self._turn += 1
        return addresses[self._turn % len(addresses)] if addresses else None

    async def _look_again(self, name: str) -> Address:
        return await self._wait_for(
            lambda: self._next(self._managers if name == "manager" else self._apis), f"No {name} is running"
        )

    async def _look_for(self, storage: StorageId) -> Address:
        # One that has just come has its record, one that is only away has left its metrics. A storage
        # that never existed has neither, and is not waited for.
        record = self._store.exists(ROLE(storage))
        measure = self._store.hget(metrics.METRICS_STORAGE_TOTAL(), storage)
        if not (await record or await measure):
            raise Lost(f"There is no storage {storage}")
        return await self._wait_for(lambda: self._storages.get(storage), f"Storage {storage} is not running")

    async def _wait_for(self, look: Callable[[], Address | None], missing: str) -> Address:
        """One that runs, if need be after a while: one that restarts must not be noticed by clients."""
        deadline = clock.monotonic() + WAIT_FOR
        while True:
            await self.refresh()
            found = look()
            if found is not None:
                return found
            if clock.monotonic() > deadline:
                raise UpstreamUnavailable(missing)
            await asyncio.sleep(LOOK_EVERY)

    async def _look_up(self, session: SessionId, viewer: Viewer) -> Address:
        upstream = self._store.hmget(grid.SESSION_UPSTREAM(session), "host", "port")
        scheme = self._store.get(grid.SESSION_SCHEME(session))
        status = self._store.hgetall(grid.SESSION_STATUS(session))
        owner = self._store.hget(grid.SESSION_ORIGIN(session), "account")
        (host, port), stamps, account = await upstream, await status, await owner or DEFAULT_ACCOUNT
        is_tls = await scheme == "https"
        if stamps and not viewer.sees(account):
            self.hidden += 1
            raise _unknown(session)
        if host is None or port is None or state_of(stamps) is State.TERMINATED:
            raise await self._lost(session, stamps)
        if len(self._nodes) >= MAX_SESSIONS:
            self._nodes.pop(next(iter(self._nodes)))
        address = Address(host, int(port), is_tls)
        if address in self._avoided:
            raise SessionLost(f"The node of session {session} does not answer; the session is lost")
        self._nodes[session] = _Node(address, account)
        return address

    async def _lost(self, session: SessionId, stamps: dict[str, str]) -> SessionLost:
        """The error for a session that is not there, with when and why it ended."""
        if not stamps:
            return _unknown(session)
        if state_of(stamps) is not State.TERMINATED:
            return SessionLost(f"Session {session} is still being created")
        code, meta = await Sessions(self._store).last_words(session) or ("", {})
        reason = meta.get("message") or (
            BY_CODE[code].meaning if code in BY_CODE else "for an unknown reason"
        )
        return SessionEnded(f"Session {session} ended at {stamps[State.TERMINATED.stamp]}: {reason} ({code})")


def _unknown(session: SessionId) -> SessionUnknown:
    return SessionUnknown(f"There is no session {session}")


def _address_of(role: Mapping[str, str]) -> Address:
    host, _, port = role["address"].rpartition(":")
    return Address(host.strip("[]"), int(port), role.get("scheme") == "https")
