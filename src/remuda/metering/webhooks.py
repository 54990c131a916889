"""Tells the operator's webhook of every quota that is reached: signed, and at least once.

What has to be told is in a list in Redis, written in the step that counted the usage. An event leaves it only
when the webhook has answered with 2xx; until then it is tried again, after ever longer pauses.
"""

import hashlib
import hmac
import ssl
from urllib.parse import SplitResult, urlsplit

from remuda.base import clock
from remuda.base.errors import Misconfigured, Unavailable
from remuda.base.log import get_logger, redact_wrong_url
from remuda.fleet.http_client import ask
from remuda.fleet.relay import Address
from remuda.keyspace.metering import QUOTA_EVENTS
from remuda.store import Store

log = get_logger(__name__)

DELIVER_EVERY = 1.0
TIMEOUT = 10.0
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 300.0
AT_ONCE = 100
_PORTS = {"http": 80, "https": 443}


def sign(secret: str, timestamp: str, body: bytes) -> str:
    """The signature of a webhook: of its time and body, so that an old one cannot be sent again as new."""
    return hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()


class Webhooks:
    """Delivers to one URL; without one, what would be told is dropped."""

    def __init__(self, store: Store, url: str, *, secret: str) -> None:
        self._store = store
        try:
            parts = urlsplit(url)
            port = parts.port or _PORTS.get(parts.scheme, 0)
        except ValueError:
            parts, port = SplitResult("", "", "", "", ""), 0
        if url and (parts.scheme not in _PORTS or not parts.hostname):
            raise Misconfigured(f"quota_webhook: {redact_wrong_url(url)!r} is not an http:// or https:// URL")
        self._address = Address(parts.hostname or "", port)
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._host = parts.netloc.rpartition("@")[2]
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._is_wanted = bool(url)
        self._secret = secret
        self._failures = 0
        self._next_try = 0.0

    async def deliver_webhooks(self) -> int:
        """Delivers what waits, in its order, unless it is too early for another try; how many that were."""
        if not self._is_wanted:
            await self._store.delete(QUOTA_EVENTS())
            return 0
        if clock.monotonic() < self._next_try:
            return 0
        delivered = 0
        for event in await self._store.lrange(QUOTA_EVENTS(), 0, AT_ONCE - 1):
            if not await self._deliver(event.encode()):
                break
            # By its text: the list may have been cut off meanwhile.
            await self._store.lrem(QUOTA_EVENTS(), event)
            delivered += 1
        return delivered

    async def _deliver(self, body: bytes) -> bool:
        timestamp = str(int(clock.now()))
        headers = {
            "Host": self._host,
            "Content-Type": "application/json",
            "X-Remuda-Timestamp": timestamp,
            "X-Remuda-Signature": f"sha256={sign(self._secret, timestamp, body)}",
        }
        try:
            status, _ = await ask(
                self._address, "POST", self._target, body, timeout=TIMEOUT, headers=headers, tls=self._tls
            )
            failure = "" if 200 <= status < 300 else f"it answered {status}"
        except Unavailable as error:
            failure = error.message
        if not failure:
            self._failures = 0
            return True
        self._failures += 1
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (self._failures - 1))
        self._next_try = clock.monotonic() + pause
        log.warning("webhook not delivered", reason=failure, again_in=pause)
        return False
