"""Small bodies that could become large ones: none takes its reader much more memory than any other body."""

import io
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Protocol

import brotli
import pytest
import zstandard

import bombs

pytestmark = pytest.mark.xdist_group("bombs")

MOST = 224 << 20
"""Bytes, with 45 MB of the interpreter of a crawl's helper."""
MB = 1 << 20
LONG = 15 * MB
"""Just below the longest document that is looked through."""


ZEROS = 256 * MB


def gzipped(document: bytes) -> bytes:
    packer = zlib.compressobj(6, wbits=31)
    return packer.compress(document) + packer.flush()


class Packer(Protocol):
    """What zlib, brotli and zstandard have in common, but for names."""

    def compress(self, data: bytes, /) -> bytes: ...
    def flush(self) -> bytes: ...


def zeros(packer: Packer, size: int = ZEROS) -> bytes:
    """So many zeros, compressed."""
    block = bytes(16 * MB)
    return b"".join(packer.compress(block) for _ in range(size // len(block))) + packer.flush()


@cache
def gzipped_zeros() -> bytes:
    return zeros(zlib.compressobj(1, wbits=31))


def zip_of(name: str, content: bytes, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", method, compresslevel=1) as archive:
        archive.writestr(name, content)
    return packed.getvalue()


def declared(root: str, declarations: str, body: str) -> bytes:
    """An XML document with these declarations, made long so that expat lets entities grow."""
    head = f"<?xml version='1.0'?><!DOCTYPE {root} [{declarations}]><{root}>".encode()
    return head + bytes(LONG).replace(b"\0", b" ") + body.encode() + f"</{root}>".encode()


ENTITY = f"<!ENTITY e '{'x' * 100_000}'>"
NESTED = "<!ENTITY e0 'xxxxxxxxxx'>" + "".join(
    f"<!ENTITY e{number} '{f'&e{number - 1};' * 10}'>" for number in range(1, 8)
)
MANY = range(150_000)


def numbered(text: str, numbers: range = MANY) -> bytes:
    return "".join(text.replace("#", str(number)) for number in numbers).encode()


BOMBS: dict[tuple[str, str], Callable[[], bytes]] = {
    ("page", "gzip"): gzipped_zeros,
    ("page-deflate", "deflate"): lambda: zeros(zlib.compressobj(1)),
    ("page-br", "brotli"): lambda: brotli.compress(bytes(ZEROS), quality=1),
    ("page-zstd", "zstd"): lambda: zeros(zstandard.ZstdCompressor().compressobj()),
    ("page-thrice", "gzip in gzip in gzip"): lambda: gzipped(gzipped(gzipped_zeros())),
    ("sitemap", "gzip without a word of it"): gzipped_zeros,
    ("sitemap", "text of entities"): lambda: gzipped(
        declared("urlset", ENTITY, f"<loc>{'&e;' * 10_000}</loc>")
    ),
    ("sitemap", "texts of entities"): lambda: gzipped(
        declared("urlset", ENTITY, "".join(f"<loc>{n}&e;</loc>" for n in range(10_000)))
    ),
    ("sitemap", "a doctype that is another's"): lambda: gzipped(
        declared("svg", ENTITY, f"<loc>{'&e;' * 10_000}</loc>")
    ),
    ("sitemap", "names"): lambda: gzipped(b"<urlset>" + numbered("<a#/>")),
    ("sitemap", "links"): lambda: gzipped(
        b"<urlset>" + numbered("<loc>#</loc>", range(10**6, 10**6 + 800_000))
    ),
    ("feed", "text of entities"): lambda: gzipped(
        declared("rss", ENTITY, f"<item><link>{'&e;' * 10_000}</link></item>")
    ),
    ("feed", "quoted entities"): lambda: gzipped(
        declared("rss", ENTITY, f"<item><description>&lt;{'&e;' * 10_000}</description></item>")
    ),
    ("feed", "quoted tags"): lambda: gzipped(
        b"<?xml version='1.0'?><rss><description>" + b"&lt;i>" * 2_500_000 + b"</description></rss>"
    ),
    ("svg", "entities in attributes"): lambda: gzipped(
        declared("svg", ENTITY, "".join(f"<a href='{n}&e;'/>" for n in range(10_000)))
    ),
    ("svg", "entities in one attribute"): lambda: gzipped(
        declared("svg", ENTITY, f"<a href='{'&e;' * 10_000}'/>")
    ),
    ("svg", "entities of entities"): lambda: gzipped(declared("svg", NESTED, "<a href='&e7;'/>" * 20)),
    ("svg", "entities of later entities"): lambda: gzipped(
        declared("svg", f"<!ENTITY f '{'&e;' * 10_000}'>{ENTITY}", "<a href='&f;'/>")
    ),
    ("svg", "entities in a default"): lambda: gzipped(
        declared("svg", f"{ENTITY}<!ATTLIST a href CDATA '{'&e;' * 10_000}'>", "<a/>")
    ),
    ("svg", "entities in UTF-16"): lambda: gzipped(
        declared("svg", ENTITY, f"<a href='{'&e;' * 10_000}'/>")[: LONG // 2 + 200_000]
        .decode()
        .encode("utf-16")
    ),
    ("svg", "defaults"): lambda: gzipped(
        f"<!DOCTYPE svg [<!ATTLIST a href CDATA '{'x' * MB}'>]><svg>{'<a/>' * 500_000}".encode()
    ),
    ("svg", "a long attribute"): lambda: gzipped(
        b"<svg><a href='" + b"x" * LONG + "\U0001f600'/></svg>".encode()
    ),
    ("svg", "attributes"): lambda: gzipped(b"<svg><a " + numbered("a#='' ") + b"/></svg>"),
    ("page", "a base"): lambda: gzipped(b"<base href='/" + b"x" * 8000 + b"/'>" + numbered("<a href=#></a>")),
    ("page", "names in JSON"): lambda: gzipped(
        b'<script type="application/ld+json">{"'
        + b"x" * 100_000
        + b'":{'
        + numbered('"#":1,')
        + b'"":1}}</script>'
    ),
    ("page", "lists in JSON"): lambda: gzipped(
        b'<script type="application/ld+json">[' + b"[]," * (LONG // 3) + b"[]]</script>"
    ),
    ("page", "an applet"): lambda: gzipped(
        b'<applet codebase="' + b"x" * 100_000 + b'" archive="' + numbered("#.,") + b'">'
    ),
    ("page", "tags"): lambda: gzipped(b"<b>x</b>x" * 199_000),
    ("style", "escapes"): lambda: gzipped(b"a{b:url(" + b"\\a" * (LONG // 2) + b")}"),
    ("robots-sitemaps", "lines"): lambda: gzipped(b"sitemap:x\n" * 10 + numbered("sitemap:#\n")),
    ("robots-rules", "zeros"): gzipped_zeros,
    ("robots-rules", "rules of many"): lambda: gzipped(
        numbered("User-agent:#\n", range(10_000)) + numbered("Allow:/#\n", range(10_000))
    ),
    ("url-file", "zeros"): gzipped_zeros,
    ("url-file", "lines"): lambda: gzipped(b"ab\n" * (16 * MB // 3)),
    ("upload", "zeros"): lambda: zip_of("x", bytes(200 * MB)),
    ("extension", "zeros"): lambda: zip_of("manifest.json", bytes(ZEROS)),
    ("profile", "preferences"): lambda: zip_of("user.js", bytes(ZEROS)),
    ("profile", "an extension"): lambda: zip_of(
        "extensions/x.xpi", zip_of("manifest.json", bytes(120 * MB), zipfile.ZIP_STORED)
    ),
    ("warc-gzip", "zeros"): gzipped_zeros,
    ("warc-zstd", "zeros"): lambda: zeros(zstandard.ZstdCompressor().compressobj()),
}


@pytest.fixture(scope="module")
def readers() -> Iterator[subprocess.Popen[str]]:
    """The process in which bodies are read."""
    with subprocess.Popen(
        [sys.executable, bombs.__file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process


@pytest.mark.parametrize(("reader", "kind"), list(BOMBS), ids=map(" ".join, BOMBS))
def test_no_body_takes_its_reader_much_memory(
    reader: str, kind: str, readers: subprocess.Popen[str], tmp_path: Path
) -> None:
    bomb = tmp_path / "bomb"
    bomb.write_bytes(BOMBS[reader, kind]())
    assert readers.stdin
    assert readers.stdout

    print(reader, bomb, file=readers.stdin, flush=True)
    taken = int(readers.stdout.readline())

    assert taken < MOST
