"""Readers of bodies, in a process of their own, which says how much memory each body took them. That of a
crawl has a helper, which is counted whole.

`python tests/bombs.py` reads lines, `READER PATH`, and answers each with bytes. Every reader runs in a fork:
none finds memory that another has left.
"""

import asyncio
import base64
import json
import os
import resource
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from remuda.archive.crawler.discovery import Discovery
from remuda.archive.crawler.frontier import Found, Frontier
from remuda.archive.crawler.model import CrawlOrder
from remuda.archive.crawler.reader import DocumentReader
from remuda.archive.crawler.response import FetchedResponse
from remuda.archive.crawler.scope import ScopeRules
from remuda.archive.crawler.visiting import RobotRules
from remuda.archive.ignores import Ignores
from remuda.archive.pipeline import url_file
from remuda.archive.urls import host_of
from remuda.archive.warc.repair import whole_size
from remuda.base.errors import InvalidArgument
from remuda.base.helper import HelperEnded
from remuda.fleet.permits import NOTHING_MORE
from remuda.grid.node.extensions import check_extension
from remuda.grid.node.profile import take_apart
from remuda.grid.node.uploads import Uploads

LIMIT = 3 << 30
"""Bytes of address space. A reader that wants more fails, and counts as if it had them."""
PATIENCE = 60
"""Seconds of processor time, for the same reason."""


def main() -> None:
    for line in sys.stdin:
        name, path = line.split()
        if (child := os.fork()) == 0:
            try:
                _measure(READERS[name], Path(path))
                os._exit(0)
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        if status:
            _answer(LIMIT)


def _measure(read: Callable[[bytes, Path], object], path: Path) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT))
    resource.setrlimit(resource.RLIMIT_CPU, (PATIENCE, PATIENCE))
    body = path.read_bytes()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with TemporaryDirectory() as directory, suppress(InvalidArgument):
        read(body, Path(directory))
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    helper = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    _answer((after - before + helper) * 1024)


def _answer(taken: int) -> None:
    sys.stdout.write(f"{taken}\n")
    sys.stdout.flush()


def _response(body: bytes, directory: Path, *, kind: str, coding: str = "") -> FetchedResponse:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Encoding: {coding}\r\n\r\n".encode()
    response = FetchedResponse(head, directory)
    response.body.add(body)
    return response


def _crawler(path: str, kind: str, coding: str = "") -> Callable[[bytes, Path], None]:
    """What a crawl does with a response: its document, its links, and the URLs that they are."""

    def read(body: bytes, directory: Path) -> None:
        url = f"http://a.example{path}"
        order = CrawlOrder(ident="0" * 25, urls=(url,), slug="a", metadata_records=True)
        frontier = Frontier(directory / "frontier")
        frontier.add([Found(url, host_of(url), 0, 0, 0, 0, 0)])
        claim = frontier.claim_of(url)
        assert claim is not None
        discovery = Discovery(
            order,
            frontier,
            ScopeRules(order, [url]),
            Ignores(),
            on_ignored=lambda *_: None,
            on_loop=lambda _: None,
        )
        response = _response(body, directory, kind=kind, coding=coding)

        async def look_through() -> None:
            reader = DocumentReader()
            try:
                links = await reader.read(url, response)
            except HelperEnded:
                links = None
            await reader.close()
            found = await discovery.look_through(claim, response, links)
            frontier.add(found.urls)

        asyncio.run(look_through())

    return read


def _robots(body: bytes, directory: Path) -> None:
    rules = RobotRules(_response(body, directory, kind="text/plain", coding="gzip"))
    rules.allow("http://a.example/", "Remuda")


def _lines(body: bytes, directory: Path) -> None:
    kept = directory / "urls"
    response = _response(body, directory, kind="text/plain", coding="gzip")
    kept.write_bytes(response.read_document(limit=url_file.MAX_FILE))
    url_file.read_lines(kept)


def _upload(body: bytes, directory: Path) -> None:
    Uploads(directory).take(json.dumps({"file": base64.b64encode(body).decode()}).encode())


def _warc(suffix: str) -> Callable[[bytes, Path], None]:
    def read(body: bytes, directory: Path) -> None:
        path = directory / f"x.warc.{suffix}"
        path.write_bytes(body)
        whole_size(path)

    return read


READERS: dict[str, Callable[[bytes, Path], object]] = {
    "page": _crawler("/", "text/html", "gzip"),
    "page-deflate": _crawler("/", "text/html", "deflate"),
    "page-br": _crawler("/", "text/html", "br"),
    "page-zstd": _crawler("/", "text/html", "zstd"),
    "page-thrice": _crawler("/", "text/html", "gzip, gzip, gzip"),
    "style": _crawler("/style.css", "text/css", "gzip"),
    "sitemap": _crawler("/sitemap.xml", "application/xml"),
    "feed": _crawler("/feed", "application/rss+xml", "gzip"),
    "svg": _crawler("/picture.svg", "image/svg+xml", "gzip"),
    "robots-sitemaps": _crawler("/robots.txt", "text/plain", "gzip"),
    "robots-rules": _robots,
    "url-file": _lines,
    "upload": _upload,
    "profile": lambda body, _: take_apart(base64.b64encode(body).decode(), NOTHING_MORE),
    "extension": lambda body, _: check_extension(body, NOTHING_MORE, where="a test"),
    "warc-gzip": _warc("gz"),
    "warc-zstd": _warc("zst"),
}

if __name__ == "__main__":
    main()
