"""Web sites made for crawling, on loopback addresses, and what a crawl made of them."""

import asyncio
import gzip
import ssl
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, redirect_stdout
from dataclasses import dataclass, field
from io import BytesIO, StringIO
from pathlib import Path
from types import SimpleNamespace

import zstandard
from fastwarc.warc import ArchiveIterator as FastIterator
from warcio.archiveiterator import ArchiveIterator
from warcio.bufferedreaders import BufferedReader
from warcio.checker import Checker

from remuda.archive.crawler.crawl import Crawl
from remuda.archive.crawler.model import (
    CrawlCounts,
    CrawlEnd,
    CrawlOrder,
    CrawlSettings,
    DownloadEntry,
    IgnoreEntry,
    StdoutEntry,
)
from remuda.archive.crawler.network import Network

HOSTS = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
NETWORK = Network(allow_private_addresses=True, connect_timeout=10, head_timeout=10, idle_timeout=5)
FAST = CrawlSettings(delay_min=0, delay_max=0, concurrency=3)
IDENT = "0123456789abcdefghijklmno"

Handler = Callable[["Request", asyncio.StreamWriter], Awaitable[None]]


@dataclass(frozen=True)
class Request:
    """What the site was asked."""

    host: str
    path: str
    fields: dict[str, str]


def encode(body: bytes, coding: str) -> bytes:
    """The body in a content coding."""
    if coding == "gzip":
        return gzip.compress(body)
    if coding == "deflate":
        return zlib.compress(body)
    if coding == "br":
        import brotli

        return bytes(brotli.compress(body))
    if coding == "zstd":
        return zstandard.ZstdCompressor().compress(body)
    return body


def answer(
    body: str | bytes = b"",
    *,
    kind: str = "text/html; charset=utf-8",
    status: str = "200 OK",
    fields: Iterable[str] = (),
    coding: str = "",
    chunk: int = 0,
) -> bytes:
    """The bytes of a response; chunked if `chunk` says how long its chunks are."""
    raw = encode(body.encode() if isinstance(body, str) else body, coding)
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", *fields]
    if coding:
        lines.append(f"Content-Encoding: {coding}")
    if chunk:
        lines.append("Transfer-Encoding: chunked")
        parts = [raw[start : start + chunk] for start in range(0, len(raw), chunk)]
        raw = (
            b"".join(b"%x;note=1\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\nX-Sum: 1\r\n\r\n"
        )
    else:
        lines.append(f"Content-Length: {len(raw)}")
    return "\r\n".join([*lines, "", ""]).encode() + raw


class Site:
    """Pages by host and path. It remembers what it was asked and what it sent last."""

    def __init__(self) -> None:
        self.port = 0
        self._pages: dict[tuple[str, str], bytes | Handler] = {}
        self.requests: list[Request] = []

    def url(self, path: str = "/", host: str = HOSTS[0]) -> str:
        return f"http://{host}:{self.port}{path}"

    def add(self, path: str, response: bytes | Handler, host: str = HOSTS[0]) -> None:
        """Serves these bytes, or what the handler writes."""
        self._pages[host, path] = response

    def page(self, path: str, *links: str, host: str = HOSTS[0]) -> None:
        """A page of its own with these links."""
        anchors = "".join(f'<a href="{link}">to {link}</a>' for link in links)
        self.add(path, answer(f"<!doctype html><title>{path}</title><p>{path * 5}</p>{anchors}"), host)

    def sent(self, url: str) -> bytes:
        """The bytes that are the response to a URL."""
        host, _, rest = url.removeprefix("http://").partition(":")
        found = self._pages[host, rest[len(str(self.port)) :]]
        assert isinstance(found, bytes)
        return found

    @property
    def asked(self) -> Counter[str]:
        """How often each URL was asked for."""
        return Counter(self.url(request.path, request.host) for request in self.requests)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves one connection."""
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                line, *lines = head.rstrip().split("\r\n")
                fields = {name.lower(): value for name, _, value in (each.partition(": ") for each in lines)}
                host = fields["host"].partition(":")[0]
                request = Request(host, line.split(" ")[1], fields)
                self.requests.append(request)
                found = self._pages.get((host, request.path))
                if callable(found):
                    await found(request, writer)
                else:
                    writer.write(found or answer("<p>nothing here", status="404 Not Found"))
                await writer.drain()
                if isinstance(found, bytes) and found.startswith(b"HTTP/1.0"):
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def serving(site: Site, tls: ssl.SSLContext | None = None) -> AsyncIterator[Site]:
    """The site, on all its addresses."""
    first = await asyncio.start_server(site.answer, HOSTS[0], 0, ssl=tls)
    site.port = first.sockets[0].getsockname()[1]
    others = await asyncio.start_server(site.answer, HOSTS[1:], site.port, ssl=tls)
    try:
        yield site
    finally:
        for server in (first, others):
            server.close()


@dataclass
class Heard:
    """A report that keeps everything."""

    downloads: list[DownloadEntry] = field(default_factory=list)
    ignores: list[IgnoreEntry] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    counts: list[CrawlCounts] = field(default_factory=list)
    dropped_ignores: list[str] = field(default_factory=list)

    def downloaded(self, entry: DownloadEntry) -> None:
        self.downloads.append(entry)

    def ignored(self, entry: IgnoreEntry) -> None:
        self.ignores.append(entry)

    def said(self, entry: StdoutEntry) -> None:
        self.messages.append(entry.message)

    def dropped(self, pattern: str) -> None:
        self.dropped_ignores.append(pattern)

    def counted(self, counts: CrawlCounts, current: tuple[str, ...]) -> None:
        self.counts.append(counts)


def order_for(*urls: str, **options: object) -> CrawlOrder:
    """An order with these options; few tries, short waits."""
    found: dict[str, object] = {"sitemaps": False, "wacz": False, "retry_wait": 0.05, **options}
    return CrawlOrder(ident=IDENT, urls=urls, slug="site-inf", **found)  # type: ignore[arg-type]


async def crawl(
    order: CrawlOrder,
    directory: Path,
    *,
    settings: CrawlSettings = FAST,
    network: Network = NETWORK,
    heard: Heard | None = None,
) -> CrawlEnd:
    """Runs a crawl to its end."""
    async with asyncio.timeout(60):
        return await Crawl(order, directory, settings, heard or Heard(), network=network).run()


@dataclass(frozen=True)
class Record:
    """A record of a WARC file."""

    kind: str
    url: str
    fields: dict[str, str]
    block: bytes


def warcs_in(directory: Path) -> list[Path]:
    """The WARC files of a job, without its log."""
    return sorted(path for path in directory.glob("*.warc.*") if "-meta" not in path.name)


def readable(path: Path) -> Path:
    """The file as warcio can read it: it does not know zstd."""
    if path.suffix != ".zst":
        return path
    plain = path.parent / "state" / path.name.removesuffix(".zst")
    with path.open("rb") as source:
        reader = zstandard.ZstdDecompressor().stream_reader(source, read_across_frames=True)
        plain.write_bytes(reader.read())
    return plain


def read_records(path: Path) -> list[Record]:
    """The records as warcio reads them; fastwarc must read the same."""
    with readable(path).open("rb") as file:
        found = [
            Record(
                each.rec_type,
                each.rec_headers.get_header("WARC-Target-URI") or "",
                dict(each.rec_headers.headers),
                each.content_stream().read(),
            )
            for each in ArchiveIterator(file, no_record_parse=True)
        ]
    fast = [each.reader.read() for each in FastIterator(BytesIO(path.read_bytes()), parse_http=False)]
    assert [each.block for each in found] == fast
    return found


def records_in(directory: Path) -> list[Record]:
    """The records of all WARC files of a job."""
    return [record for path in warcs_in(directory) for record in read_records(path)]


def responses_in(directory: Path) -> dict[str, Record]:
    """The one response or revisit of each URL; fails if there are two."""
    found = [each for each in records_in(directory) if each.kind in ("response", "revisit")]
    twice = [url for url, count in Counter(each.url for each in found).items() if count > 1]
    assert not twice, f"recorded twice: {twice}"
    return {each.url: each for each in found}


def check_warcs(directory: Path) -> None:
    """`warcio check` on all of them."""
    # warcio fails with the brotli of today; without it, it leaves such bodies alone.
    BufferedReader.DECOMPRESSORS.pop("br", None)
    said = StringIO()
    files = [str(readable(path)) for path in sorted(directory.glob("*.warc.*"))]
    checker = Checker(SimpleNamespace(inputs=files, verbose=False))
    with redirect_stdout(said):
        assert checker.process_all() == 0, said.getvalue()
