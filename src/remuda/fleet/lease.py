"""One owner at a time: a lease is held until it is given back or not prolonged in time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from remuda.base.errors import LeaseLost, RemudaError, Unavailable
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
        asked_at = asyncio.get_running_loop().time()
        if not await self.acquire():
            raise LeaseLost(f"{self._key} is held by somebody else")
        body = asyncio.current_task()
        assert body is not None
        renewer = asyncio.create_task(self._renew(body, asked_at + self._ttl), name=f"renew {self._key}")
        try:
            try:
                yield
            finally:
                renewer.cancel()
                await self._give_back()
        except asyncio.CancelledError:
            # A renewer that is done, not cancelled, has found the lease lost and cancelled the block.
            if renewer.done() and not renewer.cancelled() and body.uncancel() == 0:
                raise LeaseLost(f"{self._key} was lost") from None
            raise

    async def _give_back(self) -> None:
        try:
            await self.release()
        except Unavailable as error:  # It runs out by itself; what the block ended with matters more.
            log.warning("lease not given back", lease=self._key, reason=error.message)

    async def _renew(self, body: asyncio.Task[object], held_until: float) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                # Counted from the question, not the answer: Redis counts from somewhere between them.
                async with asyncio.timeout_at(held_until):
                    await asyncio.sleep(self._ttl / RENEWALS_PER_TTL)
                    asked_at = loop.time()
                    if not await self.acquire():
                        break
                held_until = asked_at + self._ttl
            except TimeoutError:
                break
            except RemudaError as error:
                log.warning("lease not prolonged", lease=self._key, reason=error.message)
        body.cancel()
