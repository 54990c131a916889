"""How much memory Redis takes, and how much it may."""

from dataclasses import dataclass

from remuda.store.store import Store
from remuda.store.wire import CommandRefused

NEARLY_FULL, FULL = 0.8, 0.9
"""Shares of the limit. From the first on it is worth a warning. From the second on no session is created: the
rest is for those that run, which must be able to go on and to end."""


@dataclass(frozen=True)
class Memory:
    """Bytes, as Redis counts them against its limit."""

    used: int
    limit: int
    """0 when there is none."""

    @property
    def share(self) -> float:
        """How much of the limit is used, from 0 to 1; 0 when there is none."""
        return self.used / self.limit if self.limit else 0.0

    def __str__(self) -> str:
        return f"{self.used / 1e6:.0f} of {self.limit / 1e6:.0f} MB"


async def read_memory(store: Store) -> Memory:
    """The memory of Redis as of now; no limit where Redis does not tell."""
    try:
        text = str(await store.send("INFO", "memory"))
    except CommandRefused:  # An account may be forbidden to ask.
        return Memory(0, 0)
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    return Memory(int(fields.get("used_memory", 0)), int(fields.get("maxmemory", 0)))
