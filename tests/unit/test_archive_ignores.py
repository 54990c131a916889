"""Ignore patterns mean what ArchiveBot's mean, and none of them stops the process of others."""

import asyncio
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import TypeVar

import psutil
import pytest

from processes import helpers
from remuda.archive import matching
from remuda.archive.ignores import (
    MAX_PATTERN,
    MOST_DROPPED,
    Ignores,
    named_sets,
    patterns_of,
    validate,
)
from remuda.archive.matcher import Matcher
from remuda.base.errors import InvalidArgument
from remuda.base.processes import running_since
from waiting import eventually

T = TypeVar("T")

HANGING = "(?=q)q{0,1000}[^B-Z0-9_@!%&()*]*!!"
"""`re` takes minutes for a URL with thousands of q, and looks for no signal meanwhile."""
LONG_URL = "http://x.example/" + "q" * 7900
BOMB = ("(?i)(?=a)" + "[!-\U0010ffff]" * 400)[: MAX_PATTERN - 20].rpartition("[")[0]
"""`re` takes more than a second to compile it."""


@asynccontextmanager
async def using(*patterns: str, **options: object) -> AsyncIterator[Ignores]:
    ignores = Ignores(patterns, **options)  # type: ignore[arg-type]
    try:
        yield ignores
    finally:
        await ignores.close()


async def find(ignores: Ignores, url: str) -> str | None:
    """The pattern that matches, wherever it is tried."""
    return ignores.find(url) or await ignores.find_more(url)


async def while_serving(work: Awaitable[T]) -> tuple[T | BaseException, int]:
    """What comes of the work, and how often others had their turn meanwhile."""
    turns = 0

    async def serve() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0.001)
            turns += 1

    serving = asyncio.create_task(serve())
    (outcome,) = await asyncio.gather(work, return_exceptions=True)
    serving.cancel()
    return outcome, turns


@pytest.mark.parametrize(
    ("patterns", "primary", "url", "found"),
    [
        (["bar/.+/baz"], "", "http://x.example/bar/a/baz", "bar/.+/baz"),
        (["???", "bar/.+/baz"], "", "http://x.example/bar/a/baz", "bar/.+/baz"),
        (["nothing"], "", "http://x.example/", None),
        ([], "", "http://x.example/", None),
        (["b", "a"], "", "http://x.example/ab", "b"),
        (
            [r"{primary_netloc}/foo\.css\?"],
            "http://www.example.com/",
            "http://www.example.com/foo.css?body=1",
            0,
        ),
        (
            [r"{primary_netloc}/x"],
            "http://foo:bar@www.example.com:8080/",
            "http://foo:bar@www.example.com:8080/x",
            0,
        ),
        (["^{primary_url}$"], "http://x.example/bar.css??/", "http://x.example/bar.css??/", 0),
        (["^{primary_url}$"], "http://x.example/b.r", "http://x.example/bar", None),
        (["(?=h){primary_url}$"], "http://x.example/b.r", "http://x.example/b.r", 0),
        (["{primary_url}x"], "", "http://x.example/", 0),
        ([r"/(.*)/(\1/){3,}"], "", "http://x.example/foo/foo/foo/foo/foo/", 0),
        (["o{3}"], "", "http://x.example/ooo", 0),
        (["{boom}"], "", "http://x.example/{boom}", 0),
        ([r"(?<!a)b"], "", "http://x.example/cb", 0),
        (["(?=z)", "(?=c)", "(?=x)"], "", "http://x.example/c", "(?=c)"),
    ],
)
async def test_a_pattern_is_searched_for(
    patterns: list[str], primary: str, url: str, found: str | int | None
) -> None:
    expected = patterns[found] if isinstance(found, int) else found

    async with using(*patterns, primary_url=primary) as ignores:
        assert await find(ignores, url) == expected


async def test_invalid_patterns_are_skipped_and_named_once() -> None:
    said: list[str] = []

    async with using("(", "good", "(?=first)", "half of a pair: \udc80", on_wrong=said.append) as ignores:
        assert await ignores.find_more("http://a.example/") is None
        ignores.change(["(", "(?=second)", "good"])
        assert await ignores.find_more("http://second.example/") == "(?=second)"

        assert len(ignores) == 2
    assert len(said) == 2
    assert "'('" in said[0]


@pytest.mark.parametrize("pattern", ["", "(", "a" * 3000, pytest.param(BOMB, id="bomb")])
async def test_patterns_that_cannot_be_used_are_refused_while_others_are_served(pattern: str) -> None:
    outcome, turns = await while_serving(validate(["good", pattern], "default"))

    assert isinstance(outcome, InvalidArgument)
    assert turns > 5 or pattern != BOMB


async def test_patterns_that_take_long_to_compile_together_are_refused() -> None:
    one = BOMB[: len(BOMB) // 5].rpartition("[")[0]

    with pytest.raises(InvalidArgument, match="with others"):
        await validate([f"{one}{number}" for number in range(400)], "default")


async def test_a_pattern_that_only_the_slow_library_takes_may_be_used() -> None:
    await validate(["(?=x)(a*)*b", r"(.)\1", HANGING], "default")


async def test_a_pattern_that_takes_too_long_is_dropped_while_others_are_served() -> None:
    heard: list[tuple[str, str]] = []

    async with using(HANGING, "(?=z)zz", on_dropped=lambda *what: heard.append(what)) as ignores:
        outcome, turns = await while_serving(ignores.find_more(LONG_URL))

        assert (outcome, len(ignores)) == (None, 1)
        assert turns > 5
        assert [pattern for pattern, _ in heard] == [HANGING]
        assert repr(HANGING) in heard[0][1]
        assert await ignores.find_more("http://x.example/zz") == "(?=z)zz"


async def test_a_pattern_that_takes_too_long_to_compile_is_dropped() -> None:
    heard: list[str] = []

    async with using(BOMB, "(?=z)zz", on_dropped=lambda pattern, _: heard.append(pattern)) as ignores:
        assert await ignores.find_more("http://x.example/zz") == "(?=z)zz"

    assert heard == [BOMB]


async def test_a_dropped_pattern_is_not_used_again() -> None:
    async with using("(?=z)zz", "own", "good", dropped=["(?=z)zz", "own"]) as ignores:
        ignores.change(["own", "(?=z)zz", "good"])

        assert len(ignores) == 1
        assert not ignores.has_more
        assert ignores.find("http://x.example/own") is None


async def test_after_some_have_been_dropped_none_is_tried_elsewhere() -> None:
    heard: list[str] = []
    patterns = [f"(?>(q+)+{letter})" for letter in "abcdefghij"]

    async with using(*patterns, "good", on_dropped=lambda pattern, _: heard.append(pattern)) as ignores:
        assert await ignores.find_more("http://x.example/" + "q" * 60) is None

        assert not ignores.has_more
        assert ignores.find("http://x.example/good") == "good"
        ignores.change([*patterns, "(?=new)"])
        assert not ignores.has_more
    assert heard == patterns[:MOST_DROPPED]


HEAVY = [f"q.{{0,999}}!{number}" for number in range(4)]
"""RE2 takes half a second for a long URL that does not repeat itself."""


def unsteady_url(length: int, seed: int) -> str:
    return "http://x.example/" + "".join(random.Random(seed).choices("qw", k=length))


@pytest.mark.parametrize(
    ("patterns", "lengths"),
    [
        pytest.param(HEAVY, [7900], id="a long URL"),
        pytest.param(HEAVY, [900] * 100, id="many URLs"),
        pytest.param([rf"{each}(?i)\pL{{1000}}" for each in HEAVY], [], id="too large a program"),
        pytest.param(["{primary_url}" * 100], [], id="a long URL, many times"),
        pytest.param(["q" * 600], [], id="long to parse"),
    ],
)
async def test_what_re2_takes_long_for_is_tried_elsewhere(patterns: list[str], lengths: list[int]) -> None:
    async with using(*patterns, "good", *patterns_of("global"), primary_url=LONG_URL) as ignores:
        for seed, length in enumerate(lengths):
            assert ignores.find(unsteady_url(length, seed)) is None

        assert ignores.has_more
        assert len(ignores) == len(patterns) + 1 + len(patterns_of("global"))
        assert ignores.find("http://hidden.onion/") in patterns_of("global")
        assert await find(ignores, "http://x.example/good") == "good"


async def test_the_process_is_limited_and_made_only_for_what_needs_it() -> None:
    async with using("good") as ignores:
        assert not ignores.has_more
        assert await ignores.find_more(LONG_URL) is None
        assert helpers(matching) == []

    matcher = await Matcher.start(["(?=z)zz"], {})
    (process,) = helpers(matching)
    assert process.nice() == 19
    assert process.rlimit(psutil.RLIMIT_AS) == (matching.MOST_MEMORY, matching.MOST_MEMORY)
    await matcher.stop()
    assert not process.is_running()


async def test_a_process_that_was_killed_is_replaced() -> None:
    async with using("(?=z)zz") as ignores:
        assert await ignores.find_more("http://x.example/") is None
        (process,) = helpers(matching)
        process.kill()
        await eventually(lambda: not psutil.pid_exists(process.pid))

        assert await ignores.find_more("http://x.example/zz") == "(?=z)zz"
        assert len(ignores) == 1


_OWNER = """
import asyncio, psutil
from remuda.archive.matcher import Matcher

async def main():
    await Matcher.start(["(?=z)zz"], {})
    print(psutil.Process().children()[0].pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_the_process_dies_with_its_owner() -> None:
    with subprocess.Popen([sys.executable, "-c", _OWNER], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        process = psutil.Process(int(await asyncio.to_thread(owner.stdout.readline)))
        process.send_signal(signal.SIGSTOP)  # It cannot see that it has nobody to answer.

        owner.kill()
        await eventually(lambda: running_since(process.pid) is None)


async def test_an_account_waits_only_for_its_own_patterns() -> None:
    slow = [asyncio.create_task(validate([BOMB], "hostile")) for _ in range(4)]

    await validate(["(?=x)"], "other")

    assert not all(task.done() for task in slow)
    for task in slow:
        task.cancel()
    await asyncio.gather(*slow, return_exceptions=True)


def test_every_pattern_of_every_named_set_is_matched_here() -> None:
    assert {"global", "blogs", "forums", "wikis", "shops"} <= set(named_sets())
    for name in named_sets():
        ignores = Ignores(patterns_of(name))
        assert not ignores.has_more
        assert len(set(patterns_of(name))) == len(patterns_of(name)) == len(ignores)
    with pytest.raises(InvalidArgument, match="global"):
        patterns_of("nonsense")


@pytest.mark.parametrize(
    ("url", "is_ignored"),
    [
        ("https://www.facebook.com/sharer/sharer.php?u=http://x.example/", True),
        ("https://twitter.com/intent/tweet?text=x", True),
        ("http://x.example/?share=twitter", True),
        ("http://x.example/post/?replytocom=12", True),
        ("https://www.google-analytics.com/collect?v=1", True),
        ("http://x.example/?a=amp;amp;amp;amp;b", True),
        ("http://x.example/page?y=3021", True),
        ("http://hidden.onion/", True),
        ("https://web.archive.org/save/http://x.example/", True),
        ("https://www.facebook.com/somebody", False),
        ("http://x.example/shared/documents/", False),
        ("http://x.example/login-history.html", False),
        ("http://127.0.0.1:8080/", False),
        ("http://x.example/calendar/2024/05/", False),
        ("https://archive.org/details/x", False),
    ],
)
def test_the_global_set_leaves_out_noise_and_nothing_else(url: str, is_ignored: bool) -> None:
    assert (Ignores(patterns_of("global")).find(url) is not None) is is_ignored
