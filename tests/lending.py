"""What is dear to start is lent from test to test, and replaced if one of them has left it in a bad state."""

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Lender(Generic[T]):
    """Lends one thing to test after test."""

    def __init__(
        self, start: Callable[[], T], *, is_usable: Callable[[T], bool], end: Callable[[T], object]
    ) -> None:
        self._start = start
        self._is_usable = is_usable
        self._end = end
        self._kept: T | None = None

    def lend(self) -> T:
        """The thing that was lent before, or another one if that cannot be used any more."""
        if self._kept is not None and not self._is_usable(self._kept):
            self.end()
        if self._kept is None:
            self._kept = self._start()
        return self._kept

    def end(self) -> None:
        """Ends what is kept, if there is anything."""
        if self._kept is not None:
            kept, self._kept = self._kept, None
            self._end(kept)
