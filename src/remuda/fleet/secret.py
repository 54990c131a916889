"""The herd's secret: its processes show it to each other, so that internal ports answer nothing else.

It is 256 random bits in Redis, made by the process that needs them first. Whatever can read the herd's Redis
belongs to the herd; a web page or another program of the machine does not. It goes with every request, not
only with the first of a connection: a proxy between two machines may let several callers share one.
"""

import asyncio
import hashlib
import hmac
import secrets
from collections.abc import Callable

from remuda.base import clock
from remuda.base.errors import RemudaError
from remuda.base.log import get_logger
from remuda.fleet.relay import CREDENTIAL_HEADER
from remuda.fleet.tasks import repeat
from remuda.keyspace.fleet import SECRET
from remuda.store import Store

log = get_logger(__name__)

BITS = 256
# A stranger's requests must not become as many requests to Redis.
LOOK_AT_MOST_EVERY = 1.0
KEEP_EVERY = 2.0
UNREAD = "the herd's secret cannot be read"


class HerdSecret:
    """What a process knows of the secret: a caller sends its `line`, a server admits whatever shows the same.

    Until it is read from Redis it is a proposal, which nothing else knows and thus admits nothing.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._look: asyncio.Task[None] | None = None
        self._looked_at = -LOOK_AT_MOST_EVERY
        self._learn(secrets.token_hex(BITS // 8))

    def _learn(self, value: str) -> None:
        self._value = value.encode()
        self.header = (CREDENTIAL_HEADER, value)
        self.line = f"{CREDENTIAL_HEADER}: {value}\r\n".encode()

    async def read(self) -> None:
        """Reads the secret; where Redis has none, it becomes the one that this process knows.

        So after a loss of Redis' data the processes that run go on with the secret that they share.
        """
        value = await self._store.get(SECRET())
        if value is None:
            proposed = self._store.set_if_absent(SECRET(), self._value)
            chosen = self._store.get(SECRET())
            await proposed
            value = await chosen
        if value is not None:
            self._learn(value)

    async def keep(self) -> None:
        """Reads it every few seconds, for ever. Callers need that: a refusal does not tell them why."""
        await repeat(self.read, every=KEEP_EVERY, failure=UNREAD)

    def sign(self, purpose: str, text: str) -> str:
        """A signature of the text that only the herd can make; one for another purpose does not match."""
        # Both lengths are unambiguous: no purpose has a line break in it.
        return hmac.new(self._value, f"{purpose}\n{text}".encode(), hashlib.sha256).hexdigest()

    def has_signed(self, purpose: str, text: str, signature: str) -> bool:
        """Whether the herd has signed this text for this purpose, found out in constant time."""
        return hmac.compare_digest(self.sign(purpose, text).encode(), signature.encode())

    def admits(self, credential: bytes | None) -> bool:
        """Whether this is the secret, found out in constant time."""
        return credential is not None and hmac.compare_digest(credential, self._value)

    def look_again(self, then: Callable[[], None]) -> None:
        """Reads the secret again unless that was just done, then calls back: it may have changed."""
        if self._look is None and clock.monotonic() - self._looked_at >= LOOK_AT_MOST_EVERY:
            self._look = asyncio.create_task(self._look_quietly(), name="read the herd's secret")
            self._look.add_done_callback(self._looked)
        if self._look is None:
            asyncio.get_running_loop().call_soon(then)
        else:
            self._look.add_done_callback(lambda _: then())

    def _looked(self, _: asyncio.Task[None]) -> None:
        self._look = None
        self._looked_at = clock.monotonic()

    async def _look_quietly(self) -> None:
        try:
            await self.read()
        except RemudaError as error:
            log.warning(UNREAD, reason=error.message)
