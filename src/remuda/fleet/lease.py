"""One owner at a time: a lease is held until it is given back or not prolonged in time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from remuda.base.errors import LeaseLost, Unavailable
from remuda.base.log import get_logger
from remuda.keyspace.fleet import LEASE
from remuda.store import Store, load_script

log = get_logger(__name__)

_ACQUIRE = load_script(__file__, "acquire.lua", keys=[LEASE], args=["owner", "seconds"])
_RELEASE = load_script(__file__, "release.lua", keys=[LEASE], args=["owner"])

RENEWALS_PER_TTL = 3


class Lease:
    """The right of one owner to a resource, for `ttl` seconds after each `acquire`."""

    def __init__(self, store: Store, resource: str, *, owner: str, ttl: int = 15) -> None:
        self._store = store
        self._key = LEASE(resource)
        self._owner = owner
        self._ttl = ttl

    async def acquire(self) -> bool:
        """Takes or prolongs the lease; False if somebody else holds it."""
        return bool(await self._store.run(_ACQUIRE, keys=[self._key], args=[self._owner, self._ttl]))

    async def release(self) -> bool:
        """Gives the lease back; False if it was not ours any more."""
        return bool(await self._store.run(_RELEASE, keys=[self._key], args=[self._owner]))

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Holds the lease for a block; LeaseLost if it cannot be had, or is lost (the block is cancelled)."""
        if not await self.acquire():
            raise LeaseLost(f"{self._key} is held by somebody else")
        body = asyncio.current_task()
        assert body is not None
        renewer = asyncio.create_task(self._renew(body), name=f"renew {self._key}")
        try:
            yield
        except asyncio.CancelledError:
            if renewer.done() and body.uncancel() == 0:
                raise LeaseLost(f"{self._key} was lost") from None
            raise
        finally:
            renewer.cancel()
            await self.release()

    async def _renew(self, body: asyncio.Task[object]) -> None:
        prolonged_at = asyncio.get_running_loop().time()
        while True:
            await asyncio.sleep(self._ttl / RENEWALS_PER_TTL)
            try:
                held = await self.acquire()
            except Unavailable as error:
                log.warning("lease not prolonged", lease=self._key, reason=error.message)
                held = asyncio.get_running_loop().time() - prolonged_at < self._ttl
            else:
                prolonged_at = asyncio.get_running_loop().time()
            if not held:
                body.cancel()
                return
