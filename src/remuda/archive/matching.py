"""The process that tries ignore patterns which must not be tried where others are served; see `matcher.py`.

It limits itself before it sees the first of them: the kernel kills it when it uses too much of the processor,
whatever a library is doing then. What it is busy with stands in memory that it shares with its parent.
Each line in and out is JSON. Nothing of Remuda is imported: it starts in a few milliseconds.
"""

import json
import mmap
import os
import re
import resource
import signal
import struct
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

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
            self._limit(compiling)
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
        self._limit(self._seconds)
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
        self._limit(0)
        self._begin(-1)

    def _limit(self, seconds: float) -> None:
        # Of the process, in the system too. The signal's default action, which ends it, needs no Python code.
        signal.setitimer(signal.ITIMER_PROF, seconds)


def _compile(pattern: str) -> Search:
    pattern.encode()  # From Redis it may hold bytes that are not UTF-8.
    compiled = compile_re2(pattern) or re.compile(pattern)
    search: Search = compiled.search
    return search


def _limit_this_process(seconds: int) -> None:
    os.nice(19)
    limits = {resource.RLIMIT_AS: MOST_MEMORY, resource.RLIMIT_CORE: 0}
    if seconds:
        limits[resource.RLIMIT_CPU] = seconds
    for limit, most in limits.items():
        hard = resource.getrlimit(limit)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(limit, (most, most))
    # What this process has inherited may block or ignore them.
    for number in (signal.SIGPROF, signal.SIGXCPU):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def main() -> None:
    """Answers each line, until there are no more."""
    _limit_this_process(seconds=int(sys.argv[2]))
    with mmap.mmap(int(sys.argv[1]), BUSY.size) as busy:
        patterns = _Patterns(busy)
        for line in sys.stdin:
            request = json.loads(line)
            answer = patterns.find(request) if isinstance(request, str) else patterns.load(**request)
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
