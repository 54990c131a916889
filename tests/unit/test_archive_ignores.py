"""Ignore patterns mean what ArchiveBot's mean, and none of them can hang a crawl."""

import time

import pytest

from remuda.archive.ignores import Ignores, named_sets, patterns_of, validate
from remuda.base.errors import InvalidArgument


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
        (["{primary_url}x"], "", "http://x.example/", 0),
        ([r"/(.*)/(\1/){3,}"], "", "http://x.example/foo/foo/foo/foo/foo/", 0),
        (["o{3}"], "", "http://x.example/ooo", 0),
        (["{boom}"], "", "http://x.example/{boom}", 0),
        ([r"(?<!a)b"], "", "http://x.example/cb", 0),
    ],
)
def test_a_pattern_is_searched_for(
    patterns: list[str], primary: str, url: str, found: str | int | None
) -> None:
    expected = patterns[found] if isinstance(found, int) else found

    assert Ignores(patterns, primary_url=primary).find(url) == expected


def test_invalid_patterns_are_skipped_and_named() -> None:
    ignores = Ignores(["(", "good"])

    assert len(ignores) == 1
    assert "'('" in ignores.invalid["("]


@pytest.mark.parametrize("pattern", ["", "(", "a" * 3000, r"(?=x)(a*)*b", r"(a|aa)+(?=b)", r"(?!z).*.*.*.*="])
def test_patterns_that_cannot_be_used_are_refused(pattern: str) -> None:
    with pytest.raises(InvalidArgument):
        validate(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        r"(h)?(?(1)ttp://(q+)+$|b)",
        r"(?>(q+)+$)",
        r"(?=h)http://evil/q*q*q*q*q*q*q*q*x",
    ],
)
def test_a_pattern_that_is_slow_for_one_site_is_dropped_there(pattern: str) -> None:
    said: list[str] = []
    ignores = Ignores([pattern, "(?=z)zz"], on_slow=said.append)
    assert len(ignores) == 2

    started = time.process_time()
    found = [ignores.find(url + "q" * 60 + "!") for url in ("http://", "http://evil/")]

    assert found == [None, None]
    assert time.process_time() - started < 1
    assert repr(pattern) in said[0]
    assert len(ignores) == 1
    assert ignores.find("http://x.example/zz") == "(?=z)zz"


def test_many_slow_patterns_are_dropped_together() -> None:
    said: list[str] = []
    ignores = Ignores([f"(?>(q+)+{letter})" for letter in "abcdefghij"], on_slow=said.append)

    for _ in range(10):
        ignores.find("http://x.example/" + "q" * 60)

    assert len(ignores) == 0
    assert len(said) == 6


def test_every_pattern_of_every_named_set_is_matched_by_re2() -> None:
    assert {"global", "blogs", "forums", "wikis", "shops"} <= set(named_sets())
    for name in named_sets():
        ignores = Ignores(patterns_of(name))
        assert not ignores.invalid
        assert not ignores._by_re
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
