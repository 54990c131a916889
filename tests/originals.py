"""playwright-distributed 0.3 as its neighbours in Redis see it: what its proxy and its worker read and write
there, and in which order. Nothing here knows Remuda's own keys."""

from collections.abc import Mapping
from dataclasses import dataclass

from remuda.keyspace.playwright import ACTIVE_CONNECTIONS, LIFETIME_CONNECTIONS, WORKER
from remuda.store import Store

MAX_CONCURRENT = 5
MAX_LIFETIME = 50


class WorkerNotFound(Exception):
    """The proxy's selector named a worker whose entry the proxy cannot use. Its count stays."""


@dataclass(frozen=True)
class Chosen:
    """A worker as the proxy reads it."""

    id: str
    browser: str
    endpoint: str

    @property
    def field(self) -> str:
        return f"{self.browser}:{self.id}"


class OriginalProxy:
    """Selects, counts, and takes its count off again."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def select(self, browser: str) -> Chosen | None:
        """A worker, counted; None when none is free."""
        store = self._store
        active = await store.hgetall(ACTIVE_CONNECTIONS())
        lifetimes = await store.hgetall(LIFETIME_CONNECTIONS())
        free: list[tuple[int, int, str]] = []
        for field, count in active.items():
            if not field.startswith(f"{browser}:"):
                continue
            key = WORKER(browser, field.partition(":")[2])
            ttl, entry = await store.ttl_ms(key), await store.hgetall(key)
            lifetime = int(lifetimes.get(field, 0))
            is_open = entry.get("status") == "available" and entry.get("browserType") == browser
            if ttl > 0 and is_open and int(count) < MAX_CONCURRENT and lifetime < MAX_LIFETIME:
                free.append((-lifetime, int(count), field))
        if not free:
            return None
        _, _, field = min(free)
        await store.send("HINCRBY", ACTIVE_CONNECTIONS(), field, 1)
        await store.send("HINCRBY", LIFETIME_CONNECTIONS(), field, 1)
        entry = await store.hgetall(WORKER(browser, field.partition(":")[2]))
        if not entry.get("id"):
            raise WorkerNotFound(field)
        return Chosen(entry["id"], entry["browserType"], entry["endpoint"])

    async def disconnected(self, chosen: Chosen) -> None:
        await self._store.send("HINCRBY", ACTIVE_CONNECTIONS(), chosen.field, -1)

    async def reap(self) -> list[str]:
        """Removes the counters of workers whose key is gone."""
        gone = []
        for field in await self._store.hgetall(LIFETIME_CONNECTIONS()):
            browser, _, name = field.partition(":")
            if not await self._store.exists(WORKER(browser, name)):
                await self._store.hdel(ACTIVE_CONNECTIONS(), field)
                await self._store.hdel(LIFETIME_CONNECTIONS(), field)
                gone.append(field)
        return gone


async def register_original(
    store: Store, name: str, *, endpoint: str = "", browser: str = "chromium", key_ttl: int = 60
) -> None:
    """What the original's worker writes when it starts, and when it finds its key gone."""
    field = f"{browser}:{name}"
    await store.hsetnx(ACTIVE_CONNECTIONS(), field, 0)
    await store.hsetnx(LIFETIME_CONNECTIONS(), field, 0)
    seconds, _ = await store.send("TIME")
    fields: Mapping[str, str | int] = {
        "id": name,
        "browserType": browser,
        "endpoint": endpoint or f"ws://host:1/{name}",
        "status": "available",
        "startedAt": int(seconds) * 1000,
        "lastHeartbeat": int(seconds) * 1000,
    }
    await store.hset(WORKER(browser, name), fields)
    await store.expire(WORKER(browser, name), key_ttl)
