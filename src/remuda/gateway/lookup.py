"""The directory that Redis keeps: where managers, APIs and storages are, and which node holds a session.

All but the nodes are few, so all of them are known, refreshed in the background. A session is looked up
when its first command comes and remembered until its node refuses a connection.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from remuda.base import clock
from remuda.base.errors import Lost, SessionLost, SessionUnknown, Unavailable, UpstreamUnavailable
from remuda.base.ids import SessionId
from remuda.fleet.relay import Address
from remuda.fleet.role import running_roles
from remuda.grid.model import State, state_of
from remuda.grid.sessions import Sessions
from remuda.keyspace import grid, metrics
from remuda.keyspace.fleet import ROLE
from remuda.keyspace.log_codes import BY_CODE
from remuda.storage.model import StorageId
from remuda.store import Store

REFRESH_EVERY = 2.0
# Nobody who refuses comes back at the same address: a process that is restarted has a port of its own.
AVOID_FOR = 30.0
# Restarting takes a second, on a busy machine ten.
WAIT_FOR = 15.0
LOOK_EVERY = 0.1
MAX_SESSIONS = 20_000
# Sessions that are looked at for one with DevTools.
MAX_ASKED = 20


class RedisDirectory:
    """Finds processes by what they have written about themselves."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._managers: list[Address] = []
        self._apis: list[Address] = []
        self._storages: dict[StorageId, Address] = {}
        self._nodes: dict[SessionId, Address] = {}
        self._avoided: dict[Address, float] = {}
        self._turn = 0

    async def keep_fresh(self) -> None:
        """Refreshes what is known of managers, APIs and storages, for ever."""
        while True:
            with suppress(Unavailable):  # What was known stays good enough while Redis is away.
                await self.refresh()
            await asyncio.sleep(REFRESH_EVERY)

    async def refresh(self) -> None:
        """Reads which managers, APIs and storages are alive now."""
        self._avoided = {each: until for each, until in self._avoided.items() if until > clock.monotonic()}
        managers, roles = await self._live_managers(), await running_roles(self._store)
        self._managers = self._usable(managers)
        self._apis = self._usable([_address(role["address"]) for role in roles if role["name"] == "api"])
        # The id of a storage's role is the storage's own.
        storages = {
            StorageId(role["id"]): _address(role["address"]) for role in roles if role["name"] == "storage"
        }
        self._storages = {each: address for each, address in storages.items() if self._usable([address])}

    def _usable(self, addresses: list[Address]) -> list[Address]:
        return [each for each in addresses if each not in self._avoided]

    async def _live_managers(self) -> list[Address]:
        ids = await self._store.smembers(grid.MANAGERS())
        alive = [self._store.exists(grid.MANAGER_HEARTBEAT(each)) for each in ids]
        records = [self._store.hmget(grid.MANAGER(each), "host", "port") for each in ids]
        found = []
        for beats, record in zip(alive, records, strict=True):
            (host, port), is_alive = await record, await beats
            if is_alive and host and port:
                found.append(Address(host, int(port)))
        return found

    # What the door asks

    def find_manager(self) -> Address | Awaitable[Address]:
        return self._next(self._managers) or self._look_again("manager")

    def find_api(self) -> Address | Awaitable[Address]:
        return self._next(self._apis) or self._look_again("api")

    def find_node(self, session: SessionId) -> Address | Awaitable[Address]:
        return self._nodes.get(session) or self._look_up(session)

    def find_storage(self, storage: StorageId) -> Address | Awaitable[Address]:
        return self._storages.get(storage) or self._look_for(storage)

    async def look_again(self, session: SessionId) -> Address:
        self._nodes.pop(session, None)
        return await self._look_up(session)

    async def find_chromium(self) -> SessionId | None:
        for each in await self._store.send("SRANDMEMBER", grid.SESSIONS_ACTIVE(), MAX_ASKED):
            session = SessionId(each)
            status = self._store.hgetall(grid.SESSION_STATUS(session))
            actual = self._store.hget(grid.SESSION_CAPABILITIES(session), "actual")
            if "goog:chromeOptions" in (await actual or "") and state_of(await status) is State.ALIVE:
                return session
        return None

    def forget(self, address: Address) -> None:
        self._avoided[address] = clock.monotonic() + AVOID_FOR
        for known in (self._managers, self._apis):
            if address in known:
                known.remove(address)
        self._storages = {storage: each for storage, each in self._storages.items() if each != address}
        self._nodes = {session: each for session, each in self._nodes.items() if each != address}

    def _next(self, addresses: list[Address]) -> Address | None:
        self._turn += 1
        return addresses[self._turn % len(addresses)] if addresses else None

    async def _look_again(self, name: str) -> Address:
        return await self._wait_for(
            lambda: self._next(self._managers if name == "manager" else self._apis), f"No {name} is running"
        )

    async def _look_for(self, storage: StorageId) -> Address:
        # One that has just come has its record, one that is only away has left its metrics: nobody waits for
        # a storage that never was.
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

    async def _look_up(self, session: SessionId) -> Address:
        upstream = self._store.hmget(grid.SESSION_UPSTREAM(session), "host", "port")
        status = self._store.hgetall(grid.SESSION_STATUS(session))
        (host, port), stamps = await upstream, await status
        if host is None or port is None or state_of(stamps) is State.TERMINATED:
            raise await self._lost(session, stamps)
        if len(self._nodes) >= MAX_SESSIONS:
            self._nodes.pop(next(iter(self._nodes)))
        address = Address(host, int(port))
        if address in self._avoided:
            raise SessionLost(f"The node of session {session} does not answer; the session is lost")
        self._nodes[session] = address
        return address

    async def _lost(self, session: SessionId, stamps: dict[str, str]) -> SessionLost:
        """The error for a session that is not there, with when and why it ended."""
        if not stamps:
            return SessionUnknown(f"There is no session {session}")
        if state_of(stamps) is not State.TERMINATED:
            return SessionLost(f"Session {session} is still being created")
        code, meta = await Sessions(self._store).last_words(session) or ("", {})
        reason = meta.get("message") or (BY_CODE[code].meaning if code in BY_CODE else "nobody knows why")
        return SessionLost(f"Session {session} ended at {stamps[State.TERMINATED.stamp]}: {reason} ({code})")


def _address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return Address(host.strip("[]"), int(port))
