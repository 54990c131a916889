"""The only source of time: wall time for what is written down, monotonic time for what is measured."""

import time
from datetime import UTC, datetime

monotonic = time.monotonic


def now() -> float:
    """Seconds since the Unix epoch."""
    return time.time()


def now_ms() -> int:
    """Whole milliseconds since the Unix epoch."""
    return time.time_ns() // 1_000_000


def rfc3339(timestamp: float | None = None) -> str:
    """The timestamp (by default: now) as RFC 3339 in UTC with milliseconds, `2026-01-02T03:04:05.678Z`."""
    moment = datetime.fromtimestamp(now() if timestamp is None else timestamp, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_rfc3339(text: str) -> float:
    """The Unix timestamp that an RFC 3339 text stands for; ValueError when it is none."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    return moment.timestamp()
