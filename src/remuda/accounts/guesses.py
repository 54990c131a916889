"""Slows down addresses that guess tokens: the first wrong ones are answered at once, each further one later.

A right token is never delayed, so a client is not locked out by others at the same address.
"""

import asyncio
import ipaddress
from collections import Counter

from remuda.base import clock
from remuda.base.errors import TooManyGuesses

FREE = 5
"""Wrong tokens that are answered at once: a person may paste the wrong one, a client may retry."""
FIRST = 0.1
LONGEST = 5.0
FORGET_AFTER = 600.0
MAX_ADDRESSES = 10_000
# Each answer that is delayed holds a connection and a task.
MAX_DELAYED = 200
MAX_DELAYED_EACH = 10
# One client has a whole network of IPv6 addresses.
_IPV6_PREFIX = 64


class Guesses:
    """Wrong tokens of the last minutes, by the address that sent them."""

    def __init__(self, *, first: float = FIRST) -> None:
        self._first = first
        # The one that guessed last comes last.
        self._counts: dict[str, tuple[int, float]] = {}
        self._delayed: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._counts)

    def note(self, source: str) -> float:
        """Counts one more wrong token; for how many seconds its answer should be delayed."""
        now = clock.monotonic()
        count, last = self._counts.pop(source, (0, now))
        count = 1 if now - last > FORGET_AFTER else count + 1
        if len(self._counts) >= MAX_ADDRESSES:
            del self._counts[next(iter(self._counts))]
        self._counts[source] = count, now
        doublings = min(count - FREE - 1, 30)
        return 0.0 if doublings < 0 else min(self._first * 2**doublings, LONGEST)

    async def slow_down(self, address: str) -> None:
        """Returns when a wrong token from this address may be answered; TooManyGuesses if too many wait."""
        source = source_of(address)
        delay = self.note(source)
        if not delay:
            return
        if self._delayed.total() >= MAX_DELAYED or self._delayed[source] >= MAX_DELAYED_EACH:
            raise TooManyGuesses(retry_after=delay)
        self._delayed[source] += 1
        try:
            await asyncio.sleep(delay)
        finally:
            self._delayed[source] -= 1
            if not self._delayed[source]:
                del self._delayed[source]


def source_of(address: str) -> str:
    """What counts as one client: an IPv4 address, or the network of an IPv6 address."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, _IPV6_PREFIX), strict=False))
