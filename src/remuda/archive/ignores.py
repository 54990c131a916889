"""Ignore patterns: URLs that a job leaves out.

A pattern is a Python regular expression that is searched for in the URL. `{primary_url}` and
`{primary_netloc}` in it stand for the job's start URL and its host, escaped; other braces are left alone.

RE2 matches all patterns in one pass and in linear time. Patterns with back-references or look-around, which
it lacks, go through `re` one by one, and are dropped when they take too long. Those that are obviously slow
are refused before. That alone is not enough: a pattern can be slow only for URLs of a certain site.
"""

import re
import re._parser as _parser  # type: ignore[import-not-found]
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from typing import Any

from remuda.archive.urls import netloc_of
from remuda.base.errors import InvalidArgument

MAX_PATTERN = 2000
_SETS = files("remuda.archive") / "ignore_sets"
_PLACEHOLDER = re.compile(r"\{primary_(url|netloc)\}")
# A pattern of `re` is tried on texts that make bad ones backtrack. One that is good takes microseconds.
_MOST_TRIAL = 0.01
_MOST_TIME = 0.05
"""Seconds of the processor for all patterns of `re` and one URL. Other jobs wait meanwhile."""
_MOST_SLOW = 5
"""Patterns that may take too long before no pattern of `re` is used any more."""
_PROBE_LENGTHS = (16, 20, 24, 28, 40, 80, 160, 320, 640, 1280, 2560)
_PROBE_TEXTS = ("a", "/", "a/", "/a", "%25", "0", "=", "&a=", "-a", "aa/", "x.")


def validate(pattern: str) -> None:
    """InvalidArgument, with the reason, unless the pattern can be used."""
    if not pattern or len(pattern) > MAX_PATTERN:
        raise InvalidArgument(f"An ignore pattern has 1 to {MAX_PATTERN} characters.")
    try:
        compiled = re.compile(_filled(pattern, "http://example.com/"))
    except (re.error, RecursionError, OverflowError) as error:
        raise InvalidArgument(
            f"The ignore pattern {pattern[:200]!r} is not a regular expression: {error}"
        ) from None
    if _fits_re2(compiled.pattern):
        return
    if _nests_repetition(_parser.parse(compiled.pattern)) or _is_slow(compiled):
        raise InvalidArgument(
            f"The ignore pattern {pattern[:200]!r} could take too long. Write it without nested repetition, "
            "or without look-around and back-references."
        )


def _nests_repetition(parsed: _parser.SubPattern, *, is_repeated: bool = False) -> bool:
    """Whether something is repeated that itself repeats or has alternatives: that can take for ever."""
    for operation, argument in parsed:
        if operation in (_parser.MAX_REPEAT, _parser.MIN_REPEAT):
            _, most, inner = argument
            if most > 1 and is_repeated:
                return True
            if _nests_repetition(inner, is_repeated=is_repeated or most is _parser.MAXREPEAT):
                return True
        elif operation is _parser.BRANCH:
            if is_repeated or any(_nests_repetition(each) for each in argument[1]):
                return True
        elif (
            isinstance(argument, tuple)
            and isinstance(argument[-1], _parser.SubPattern)
            and _nests_repetition(argument[-1], is_repeated=is_repeated)
        ):
            return True
    return False


def _is_slow(compiled: re.Pattern[str]) -> bool:
    for text in _PROBE_TEXTS:
        for length in _PROBE_LENGTHS:
            try:
                with _limited(_MOST_TRIAL):
                    compiled.search("http://example.com/" + text * (length // len(text)) + "!")
            except _TookTooLong:
                return True
    return False


class _TookTooLong(Exception):
    """Raised inside a search by `re`, which looks for signals every few thousand steps."""


_is_limited = False


def _interrupt(_number: int, _frame: object) -> None:
    # A signal may be noticed only after the search.
    if _is_limited:
        raise _TookTooLong


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Raises _TookTooLong if what is inside takes more of the processor. Only in the main thread, where event
    loops run: no other is interrupted by signals."""
    global _is_limited
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGVTALRM, _interrupt)
    try:
        _is_limited = True
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
        yield
    finally:
        _is_limited = False
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


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


class Ignores:
    """Finds which of many patterns matches a URL."""

    def __init__(
        self,
        patterns: Iterable[str],
        *,
        primary_url: str = "",
        on_slow: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Invalid patterns are skipped and kept in `invalid`, with the reason. `on_slow` hears of each that
        is dropped later."""
        import re2

        self._on_slow = on_slow
        self._slow = 0
        self.invalid: dict[str, str] = {}
        self._by_re2: list[str] = []
        self._by_re: list[tuple[str, re.Pattern[str]]] = []
        self._set = re2.Set.SearchSet(_options())
        for pattern in patterns:
            filled = _filled(pattern, primary_url)
            try:
                self._set.Add(filled)
                self._by_re2.append(pattern)
                continue
            except re2.error:
                pass  # Not for RE2; perhaps for `re`.
            try:
                validate(pattern)
                self._by_re.append((pattern, re.compile(filled)))
            except InvalidArgument as error:
                self.invalid[pattern] = error.message
        self._has_set = bool(self._by_re2)
        if self._has_set:
            self._set.Compile()

    def __len__(self) -> int:
        return len(self._by_re2) + len(self._by_re)

    def find(self, url: str) -> str | None:
        """The pattern that matches, as it was given; the first if several do."""
        matches: list[int] | None = self._set.Match(url) if self._has_set else None
        if matches:
            return self._by_re2[min(matches)]
        return self._find_by_re(url) if self._by_re else None

    def _find_by_re(self, url: str) -> str | None:
        pattern = ""
        try:
            with _limited(_MOST_TIME):
                for pattern, compiled in self._by_re:
                    if compiled.search(url):
                        return pattern
        except _TookTooLong:
            self._slow += 1
            self._on_slow(
                f"The ignore pattern {pattern[:200]!r} takes too long for {url[:200]}; it is dropped"
            )
            if self._slow == _MOST_SLOW:
                self._on_slow("All other ignore patterns with look-around or back-references are dropped too")
            self._by_re = [each for each in self._by_re if each[0] != pattern and self._slow < _MOST_SLOW]
        return None


def _filled(pattern: str, primary_url: str) -> str:
    """The pattern with its placeholders filled; not by `str.format`, for `{3,}` must stay as it is."""
    if "{primary_" not in pattern:
        return pattern
    values = {
        "url": re.escape(primary_url),
        "netloc": re.escape(netloc_of(primary_url)) if primary_url else "",
    }
    return _PLACEHOLDER.sub(lambda placeholder: values[placeholder[1]], pattern)


def _fits_re2(pattern: str) -> bool:
    import re2

    try:
        re2.compile(pattern, _options())
    except re2.error:
        return False
    return True


def _options() -> Any:
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = 64 << 20
    return options
