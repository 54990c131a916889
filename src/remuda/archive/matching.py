"""The helper process that tries ignore patterns which must not be tried where others are served; see
`matcher.py`.

The kernel kills it when it uses too much of the processor, whatever a library is doing then. What it is busy
with stands in memory that it shares with its parent. Each request and each answer is JSON.
"""

import json
import mmap
import re
import struct
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from remuda.base.helping import answer_requests, limit_processor

MOST_MEMORY = 512 << 20
"""Bytes of addresses; a third of that is the interpreter."""
BUSY = struct.Struct("=i")
"""The number of the pattern that is tried, in the shared memory; below zero there is none."""
RE2_MEMORY = 256 << 10
"""Bytes that one pattern may take in RE2, which bounds the time of compiling it."""
_PLACEHOLDER = re.compile(r"\{primary_(url|netloc)\}")

Search = Callable[[str], object]


def fill(pattern: str, values: Mapping[str, str]) -> str:
    """The pattern with its placeholders filled; not by `str.format`, for `{3,}` must stay as it is."""
    return _PLACEHOLDER.sub(lambda placeholder: values[placeholder[1]], pattern)


def compile_re2(pattern: str) -> Any:
    """The pattern as RE2 runs it; None if RE2 does not take it."""
    import re2

    with suppress(re2.error, UnicodeError):
        return re2.compile(pattern, re2_options(RE2_MEMORY))
    return None


def re2_options(memory: int) -> Any:
    """Options of RE2 with this limit in bytes."""
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = memory
    return options


class _Patterns:
    """The patterns that the parent has named, compiled."""

    def __init__(self, busy: mmap.mmap) -> None:
        self._busy = busy
        self._searches: list[Search | None] = []
        self._seconds = 0.0

    def load(
        self, patterns: list[str], values: Mapping[str, str], compiling: float, searching: float
    ) -> list[tuple[int, str]]:
        """Takes these patterns, with so many seconds of the processor to compile each, and later for each
        URL. What is no regular expression is told by its number, with the reason."""
        self._seconds = searching
        wrong: list[tuple[int, str]] = []
        for number, pattern in enumerate(patterns):
            self._begin(number)
            limit_processor(compiling)
            search: Search | None = None
            try:
                search = _compile(fill(pattern, values))
            except (re.error, RecursionError, OverflowError, UnicodeError) as error:
                wrong.append((number, str(error)[:200]))
            self._searches.append(search)
        self._end()
        return wrong

    def find(self, url: str) -> int | None:
        """The number of the first pattern that matches."""
        limit_processor(self._seconds)
        found = None
        for number, search in enumerate(self._searches):
            self._begin(number)
            if search is not None and search(url):
                found = number
                break
        self._end()
        return found

    def _begin(self, number: int) -> None:
        BUSY.pack_into(self._busy, 0, number)

    def _end(self) -> None:
        limit_processor(0)
        self._begin(-1)


def _compile(pattern: str) -> Search:
    pattern.encode()  # From Redis it may hold bytes that are not UTF-8.
    compiled = compile_re2(pattern) or re.compile(pattern)
    search: Search = compiled.search
    return search


def main() -> None:
    """Tries patterns for the parent. The arguments are the shared memory, and seconds of the processor."""
    with mmap.mmap(int(sys.argv[1]), BUSY.size) as busy:
        patterns = _Patterns(busy)

        def answer(request: bytes) -> bytes:
            asked = json.loads(request)
            found = patterns.find(asked) if isinstance(asked, str) else patterns.load(**asked)
            return json.dumps(found).encode()

        answer_requests(answer, memory=MOST_MEMORY, seconds=int(sys.argv[2]))


if __name__ == "__main__":
    main()
