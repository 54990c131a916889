"""What a hostile page writes into its links, headers and cookies raises no error."""

import random
import time
from collections.abc import Callable

import pytest

from remuda.archive.crawler.cookies import Cookies
from remuda.archive.crawler.duplicates import fingerprint, is_loop
from remuda.archive.crawler.links import extract, links_of_headers, urls_of_css, urls_of_srcset
from remuda.archive.urls import Base, directory_of, host_of, normalise, without_session
from remuda.archive.warc.cdxj import surt_of

LETTERS = "ab./\\:?#[]@%&=;,<>\"' \t\n\r\x00\u00fc\ud800\u65e5{}|^~`()+-_*!$0123hHtTpPsSxX"
STARTS = (
    "",
    "http://",
    "https://",
    "//",
    "http:",
    "HTTP:\\\\",
    "http://[",
    "http://a.b@",
    "http://1.2.",
    "?",
    "http://xn--",
)
PIECES = (
    *(
        "<a href=",
        "<img srcset='",
        "<style>",
        "<script type=application/ld+json>",
        "<base href=",
        "<link rel=x href=",
    ),
    *(
        "<meta http-equiv=refresh content='",
        "<p style='",
        "data-src=",
        "'",
        '"',
        ">",
        "</a>",
        "<!--",
        "<svg>",
    ),
    *("<template>", "<title>", '{"a":["http://x"]}', "<math>", "<table>", "<form action="),
)
CHARSETS = ("utf-16", "utf-7", "shift_jis", "idna", "punycode", "hex", "x-foo", "unicode_escape", "undefined")
chance = random.Random(7)


def noise(most: int) -> str:
    return "".join(chance.choices(LETTERS, k=chance.randint(0, most)))


def test_every_reference_resolves_to_a_stable_url_or_to_none() -> None:
    base = Base("http://a.example/b/c?d")
    found = 0
    for _ in range(4000):
        url = base.resolve(chance.choice(STARTS) + noise(25))
        if url is None:
            continue
        found += 1
        assert normalise(url) == url
        assert url.isascii()
        assert host_of(url)
        assert url.startswith(directory_of(url))
        Base(url)
        surt_of(url)
        is_loop(url)
        without_session(url)
    assert found > 1000


@pytest.mark.parametrize(
    "read",
    [
        lambda text: list(urls_of_css(f"a{{b:url({text})}}@import {text}")),
        lambda text: list(urls_of_srcset(text)),
        lambda text: links_of_headers([f"<{text}>{text}"], text),
        lambda text: Cookies().store(text, "a.example", "/x", moment=1.0),
    ],
)
def test_noise_in_values_raises_nothing(read: Callable[[str], object]) -> None:
    for _ in range(1000):
        read(noise(25))


def test_noise_in_documents_raises_nothing() -> None:
    for _ in range(300):
        text = "".join(chance.choice(PIECES) + noise(8) for _ in range(chance.randint(1, 25)))
        document = text.encode("utf-8", "replace")
        for kind in (
            "text/html",
            f"text/html; charset={chance.choice(CHARSETS)}",
            "application/rss+xml",
            "text/css",
            "",
        ):
            extract(document, kind, path=chance.choice(("/", "/a.xml", "/robots.txt", "/x.xml.gz")))


@pytest.mark.parametrize(
    "document",
    [
        b"<style>a{b:url(" + b" " * 300_000,
        b"<style>" + b"url(" * 100_000,
        b"<style>" + b"/*" * 100_000,
        b"<style>" + b'@import "' * 50_000,
        b"<style>" + b"url('\\" * 50_000,
        b"<meta http-equiv=refresh content='0;" + b" " * 300_000 + b"x'>",
        b"<meta http-equiv=refresh content='0;url=x" + b" " * 300_000 + b"y'>",
        b"<img srcset='" + b" (," * 100_000 + b"'>",
        b"<img srcset='" + b"a " * 100_000 + b"'>",
        b"<p data-src='" + b"a." * 100_000 + b"'>",
        b"<style>url(x)'" + b"\\'" * 100_000,
        b"<style>" + b"image-set(" * 100_000,
        b"<style>" + b"image-set(()" * 100_000,
        b"<style>image-set(url(" + b" " * 3_000 + b"'x' y))",
        b"<!--" * 100_000,
        b"<!---->" * 100_000,
        b"<input hidden" * 40_000,
        b"<a " + b"b=c " * 60_000 + b">",
        b"<div>" * 3900 + b"</p>" * 20_000,
        b"<meta charset" * 30_000,
        b"<script type=application/ld+json>" + b"[" * 300_000,
        b"<rss>" * 60_000,
        b"<p" + b" " * 300_000,
        b"&" * 300_000,
        b"<" * 8_000_000,
    ],
    ids=lambda document: repr(document[:20]),
)
def test_no_document_takes_for_ever(document: bytes) -> None:
    began = time.thread_time()
    for kind in ("text/html", "text/css", "text/xml", ""):
        extract(document, kind, path="/a.xml")
    fingerprint(document, "http://a.example/b")

    assert time.thread_time() - began < 2.0


def test_no_content_type_takes_for_ever() -> None:
    began = time.thread_time()
    for blanks in ("charset=" + " " * 60_000 + "!", "charset" + " " * 60_000):
        extract(b"<p>", f"text/html; {blanks}", path="/")

    assert time.thread_time() - began < 2.0
