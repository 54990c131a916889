"""Ignore patterns: URLs that a job leaves out.

A pattern is a Python regular expression that is searched for in the URL. `{primary_url}` and
`{primary_netloc}` in it stand for the job's start URL and its host, escaped; other braces are left alone.

RE2 matches many patterns in one pass: those of the named sets, and those of clients as long as the product of
their program and the URL is small, for that is what it may take of the processor. All others are tried in a
process of their own (`matcher.py`): patterns with back-references or look-around, which only `re` has, large
ones, and all of a job's once they have taken too much of this process. One that takes too long there is
dropped.
"""

import asyncio
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from time import perf_counter, thread_time
from typing import Any
from weakref import WeakValueDictionary

from remuda.archive.matcher import Matcher, UsedUp
from remuda.archive.matching import compile_re2, fill, re2_options
from remuda.archive.urls import netloc_of
from remuda.base.clock import monotonic
from remuda.base.errors import InvalidArgument

MAX_PATTERN = 2000
MOST_DROPPED = 5
"""Patterns that are dropped before no other is tried in a process of its own."""
_SETS = files("remuda.archive") / "ignore_sets"

# What of clients' patterns is compiled and run here, in a process that others share. RE2 parses 500
# characters in at most 20 ms, compiles what fits its memory in 2 ms, and takes up to 15 ns for each character
# of a URL and instruction of the program.
_MOST_HERE = 500
_MOST_FILLED = 20_000
_MOST_COMPILING = 0.02
"""Seconds of the processor after which no more patterns are compiled."""
_MOST_PROGRAM = 20_000
"""Instructions of all patterns together."""
_MOST_WORK = 10_000_000
"""Instructions times characters: a tenth of a second at worst, a microsecond with good patterns."""
_MOST_TIME = 0.2
_MOST_SHARE = 0.05
"""Of the time of this process, after these seconds. What takes more gets a process of its own."""

_RE2_SET_MEMORY = 64 << 20
_MOST_CHECKING = 2
"""Seconds of the processor for all patterns of a request."""
_checks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
"""Held by an account's request while its patterns are checked: one process at a time."""


async def validate(patterns: Sequence[str], account: str) -> None:
    """InvalidArgument, with the reason, unless all patterns can be used."""
    for pattern in patterns:
        if not pattern or len(pattern) > MAX_PATTERN:
            raise InvalidArgument(f"An ignore pattern has 1 to {MAX_PATTERN} characters.")
    values = _values("http://example.com/")
    fitting, _ = _fitting(patterns, values)
    others = _without(patterns, fitting)
    if not others:
        return
    turn = _checks.setdefault(account, asyncio.Lock())
    async with turn:
        try:
            matcher = await Matcher.start(others, values, seconds=_MOST_CHECKING)
        except UsedUp as error:
            raise InvalidArgument(
                f"The ignore pattern {error.pattern[:200]!r} takes too long to compile, alone or with others."
            ) from None
        await matcher.stop()
    for pattern, reason in matcher.wrong.items():
        raise InvalidArgument(_describe_wrong(pattern, reason))


@cache
def named_sets() -> tuple[str, ...]:
    """The names of all ignore sets, `global` among them."""
    return tuple(
        sorted(each.name.removesuffix(".txt") for each in _SETS.iterdir() if each.name.endswith(".txt"))
    )


@cache
def patterns_of(name: str) -> tuple[str, ...]:
    """The patterns of a named set; InvalidArgument, with the known names, if there is none."""
    if name not in named_sets():
        raise InvalidArgument(f"There is no ignore set {name[:100]!r}. There are: {', '.join(named_sets())}.")
    lines = (_SETS / f"{name}.txt").read_text().splitlines()
    return tuple(line for line in lines if line and not line.startswith("# "))


@cache
def _named_patterns() -> frozenset[str]:
    return frozenset(pattern for name in named_sets() for pattern in patterns_of(name))


class Ignores:
    """Finds which of many patterns matches a URL."""

    def __init__(
        self,
        patterns: Iterable[str] = (),
        *,
        primary_url: str = "",
        dropped: Iterable[str] = (),
        on_wrong: Callable[[str], None] = lambda _: None,
        on_dropped: Callable[[str, str], None] = lambda *_: None,
    ) -> None:
        """`dropped` are patterns that were dropped before. `on_wrong` hears of each that is not a regular
        expression, `on_dropped` of each that is dropped, with the reason."""
        self._values = _values(primary_url)
        self._dropped = list(dropped)
        self._wrong: set[str] = set()
        self._on_wrong = on_wrong
        self._on_dropped = on_dropped
        self._since = monotonic()
        self._taken = 0.0
        """Seconds that patterns have taken of this process."""
        self._is_too_much = False
        self._here: list[str] = []
        self._elsewhere: list[str] = []
        """What is tried in a process of its own. Another list whenever that is to change."""
        self._asking = asyncio.Lock()
        self._matcher: Matcher | None = None
        self._matcher_has = self._elsewhere
        self.change(patterns)

    def change(self, patterns: Iterable[str]) -> None:
        """Uses these patterns from now on."""
        patterns = _without(patterns, {*self._dropped, *self._wrong})
        own = _without(patterns, _named_patterns())
        fitting, program = ([], 0) if self._is_too_much else _fitting(own, self._values)
        self._use(_without(patterns, _without(own, fitting)), program)
        elsewhere = _without(own, fitting) if len(self._dropped) < MOST_DROPPED else []
        if elsewhere != self._elsewhere:
            self._elsewhere = elsewhere

    def _use(self, here: list[str], program: int) -> None:
        """Tries these patterns in this process; the program of those of the client has this size."""
        import re2

        self._here = here
        self._set = re2.Set.SearchSet(re2_options(_RE2_SET_MEMORY))
        for pattern in here:
            self._set.Add(fill(pattern, self._values))
        self._set.Compile()
        self._longest = _MOST_WORK // program if program else sys.maxsize
        """Characters of the longest URL for which they are tried here."""
        self._allowed = _MOST_TIME if program else math.inf
        """Seconds after which it is looked whether they have taken too much of this process."""

    def __len__(self) -> int:
        return len(self._here) + len(self._elsewhere)

    @property
    def has_more(self) -> bool:
        """Whether there are patterns that only `find_more` tries."""
        return bool(self._elsewhere)

    def find(self, url: str) -> str | None:
        """The pattern that matches, as it was given; the first if several do. Of patterns that are tried
        here: see `has_more`."""
        if len(url) > self._longest or self._taken > self._allowed:
            self._look_at_share(url)
        started = perf_counter()
        matches: list[int] = self._set.Match(url)
        self._taken += perf_counter() - started
        return self._here[min(matches)] if matches else None

    def _look_at_share(self, url: str) -> None:
        """Has the client's patterns tried elsewhere from now on, if they take too much of this process."""
        self._allowed = _MOST_TIME + _MOST_SHARE * (monotonic() - self._since)
        if self._taken > self._allowed or len(url) > self._longest:
            self._is_too_much = True
            own = _without(self._here, _named_patterns())
            self._elsewhere = [*own, *self._elsewhere]
            self._use(_without(self._here, own), program=0)

    async def find_more(self, url: str) -> str | None:
        """The pattern that matches, of those that are tried in a process of their own."""
        async with self._asking:
            while patterns := self._elsewhere:
                try:
                    matcher = self._matcher
                    if matcher is not None and matcher.is_alive and self._matcher_has is patterns:
                        return await matcher.find(url)
                    await self._start_matcher(patterns)
                except UsedUp as error:
                    self._drop(error.pattern, url)
        return None

    async def _start_matcher(self, patterns: list[str]) -> None:
        await self.close()
        self._matcher = matcher = await Matcher.start(patterns, self._values)
        self._matcher_has = patterns
        if not matcher.wrong:
            return
        self._wrong |= matcher.wrong.keys()
        for pattern, reason in matcher.wrong.items():
            self._on_wrong(_describe_wrong(pattern, reason))
        if self._elsewhere is patterns:
            self._elsewhere = self._matcher_has = _without(patterns, matcher.wrong)

    def _drop(self, pattern: str, url: str) -> None:
        self._dropped.append(pattern)
        reason = f"The ignore pattern {pattern[:200]!r} takes too long for {url[:200]}; it is dropped."
        if len(self._dropped) >= MOST_DROPPED:
            reason += " So are all others that take a process of their own."
        self._elsewhere = _without(self._elsewhere, [pattern]) if len(self._dropped) < MOST_DROPPED else []
        self._on_dropped(pattern, reason)

    async def close(self) -> None:
        """Ends the process for patterns, if there is one."""
        if self._matcher is not None:
            await self._matcher.stop()
            self._matcher = None


def _fitting(patterns: Iterable[str], values: Mapping[str, str]) -> tuple[list[str], int]:
    """Which patterns of a client can be compiled and run in this process, and the size of their program."""
    fitting, size, started = [], 0, thread_time()
    for pattern in patterns:
        if thread_time() - started > _MOST_COMPILING:
            break
        # Before it is filled: a thousand patterns may each name a long URL a hundred times.
        filled = len(pattern) + pattern.count("{primary_") * len(values["url"])
        if len(pattern) > _MOST_HERE or filled > _MOST_FILLED:
            continue
        compiled: Any = compile_re2(fill(pattern, values))
        if compiled is not None and size + compiled.programsize <= _MOST_PROGRAM:
            size += compiled.programsize
            fitting.append(pattern)
    return fitting, size


def _values(primary_url: str) -> dict[str, str]:
    """What the placeholders stand for."""
    return {
        "url": re.escape(primary_url),
        "netloc": re.escape(netloc_of(primary_url)) if primary_url else "",
    }


def _without(patterns: Iterable[str], others: Iterable[str]) -> list[str]:
    known = frozenset(others)
    return [pattern for pattern in patterns if pattern not in known]


def _describe_wrong(pattern: str, reason: str) -> str:
    return f"The ignore pattern {pattern[:200]!r} is not a regular expression: {reason}"
