"""Time slots: fifteen-minute steps of UTC, named by their start in milliseconds of the Unix epoch. Pure."""

from collections.abc import Iterator

LENGTH_MS = 15 * 60 * 1000


def floor(timestamp_ms: int) -> int:
    """The start of the time slot that the moment lies in."""
    # The epoch begins on a full hour of UTC, so no calendar is needed, and no daylight saving can shift it.
    return timestamp_ms - timestamp_ms % LENGTH_MS


def is_start(timestamp_ms: int) -> bool:
    """Whether a time slot begins at this very moment."""
    return timestamp_ms % LENGTH_MS == 0


def is_end(timestamp_ms: int) -> bool:
    """Whether this is the last millisecond of a time slot."""
    return is_start(timestamp_ms + 1)


def between(start_ms: int, end_ms: int) -> Iterator[int]:
    """The start of every time slot that the closed range touches, in order."""
    return iter(range(floor(start_ms), end_ms + 1, LENGTH_MS))
