"""A crawl against wget: `python -m bench.archive`.

A site of 2,000 pages on loopback, served from memory by a process of its own. Both crawl it recursively with
page requisites and write a compressed WARC with an index; ours also keeps its durable frontier and its log,
and matches each URL against 300 ignore patterns. What counts is CPU time, user and system, of the crawling
process alone. `make bench` installs wget from Debian.
"""

import argparse
import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import cast

import uvloop

from bench.report import Samples, Target, ratio, report

PAGES = 2000
LINKS = 20
WPULL = 55
"""URLs per CPU second of wpull on such a site, as measured for the design."""
WGET = [
    *("wget", "--quiet", "--recursive", "--level=inf", "--page-requisites", "--no-parent", "--warc-cdx"),
    *("--delete-after", "-e", "robots=off"),
]
RATE = "URLs per CPU second"
WALL = "URLs per second"


def make_site() -> dict[str, bytes]:
    """The responses by path: pages of 2.6 KB with links to their neighbours, and a few files."""
    files: dict[str, tuple[str, bytes]] = {
        "/style.css": ("text/css", b"body { background: url(/img/back.png) }" + b"/* rule */" * 200),
        "/robots.txt": ("text/plain", b"User-agent: *\nDisallow:\n"),
        "/img/back.png": ("image/png", os.urandom(3000)),
        "/script.js": ("text/javascript", b"let x = 1;" * 300),
    }
    for number in range(8):
        files[f"/img/{number}.png"] = ("image/png", os.urandom(8000))
    for page in range(PAGES):
        own_path = "/" if page == 0 else f"/page/{page}.html"
        targets = [(page * 7 + step * step) % PAGES for step in range(1, LINKS)] + [(page + 1) % PAGES]
        paths = ["/" if target == 0 else f"/page/{target}.html" for target in targets]
        links = "\n".join(f'<li><a class="item" href="{path}">Page {path}</a></li>' for path in paths)
        text = " ".join(f"word{page * 31 % 997 + word}" for word in range(110))
        files[own_path] = (
            "text/html; charset=utf-8",
            f"""<!doctype html><html><head><title>Page {page}</title><link rel="stylesheet" href="/style.css">
<script src="/script.js"></script></head><body><h1>Page {page}</h1><img src="/img/{page % 8}.png" alt="">
<ul>{links}</ul><p>{text}</p></body></html>""".encode(),
        )
    return {
        path: f"HTTP/1.1 200 OK\r\nServer: bench\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        "Date: Tue, 17 Nov 2026 12:00:00 GMT\r\nCache-Control: max-age=60\r\n\r\n".encode()
        + body
        for path, (kind, body) in files.items()
    }


class _SiteProtocol(asyncio.Protocol):
    def __init__(self, site: dict[str, bytes]) -> None:
        self._site = site
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while b"\r\n\r\n" in self._buffer:
            head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
            path = head.split(b" ", 2)[1].decode()
            missing = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
            self._transport.write(self._site.get(path, missing))


async def serve() -> None:
    """The site, until the end of standard input."""
    site = make_site()
    server = await asyncio.get_running_loop().create_server(lambda: _SiteProtocol(site), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)


async def crawl(url: str, directory: Path) -> None:
    """Our crawl, in a process of its own."""
    from remuda.archive.crawler.crawl import Crawl
    from remuda.archive.crawler.model import (
        CrawlCounts,
        CrawlOrder,
        CrawlSettings,
        DownloadEntry,
        IgnoreEntry,
        StdoutEntry,
    )
    from remuda.archive.crawler.network import Network
    from remuda.archive.ignores import named_sets, patterns_of

    class Quiet:
        """Hears everything, keeps the number."""

        downloads = 0

        def downloaded(self, entry: DownloadEntry) -> None:
            self.downloads += 1

        def ignored(self, entry: IgnoreEntry) -> None: ...

        def said(self, entry: StdoutEntry) -> None: ...

        def dropped(self, pattern: str) -> None: ...

        def counted(self, counts: CrawlCounts, current: tuple[str, ...]) -> None: ...

    patterns = [pattern for name in named_sets() for pattern in patterns_of(name)]
    patterns += [rf"^https?://www\.site{number}\.example/(?:a|b){{{number % 9}}}" for number in range(300)]
    order = CrawlOrder(ident="bench" + "0" * 20, urls=(url,), slug="bench-inf", wacz=False)
    settings = CrawlSettings(0.0, 0.0, 4, ignores=tuple(patterns[:300]))
    network = Network(allow_private_addresses=True)
    quiet = Quiet()
    end = await Crawl(order, directory, settings, quiet, network=network).run()
    print(end.reason, end.counts.downloaded, flush=True)


def run_measured(command: list[str], directory: Path) -> tuple[float, float]:
    """CPU and wall seconds of a program."""
    started = time.perf_counter()
    # Some machines forbid to keep compiled modules. An installed program has them.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen(command, cwd=directory, stdout=subprocess.DEVNULL, env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    # wget ends with 8 when a page was missing: the site has no /sitemap.xml.
    assert process.returncode in (0, 8), f"{command[0]} ended with {process.returncode}"
    return usage.ru_utime + usage.ru_stime, time.perf_counter() - started


def measure(rounds: int) -> Samples:
    """Both crawls, alternately."""
    server = subprocess.Popen(
        [sys.executable, "-m", "bench.archive", "serve"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    assert server.stdin is not None
    url = f"http://127.0.0.1:{server.stdout.readline().strip()}/"
    samples: Samples = {RATE: {"remuda": [], "wget": []}, WALL: {"remuda": [], "wget": []}}
    ours = [sys.executable, "-m", "bench.archive", "crawl", url]
    urls = len(make_site())
    try:
        with tempfile.TemporaryDirectory(prefix="bench-") as name:
            run_measured([*ours, str(Path(name) / "first")], Path.cwd())  # Compiles what is not yet.
            for number in range(rounds):
                directory = Path(name) / str(number)
                directory.mkdir()
                found = {
                    "wget": run_measured([*WGET, f"--warc-file={directory}/wget", url], directory),
                    "remuda": run_measured([*ours, str(directory / "remuda")], Path.cwd()),
                }
                for whom, (cpu, wall) in found.items():
                    samples[RATE][whom].append(urls / cpu)
                    samples[WALL][whom].append(urls / wall)
                shutil.rmtree(directory)
    finally:
        server.stdin.close()
        server.wait()
    return samples


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="?", default="measure", choices=["measure", "serve", "crawl"])
    parser.add_argument("arguments", nargs="*")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    if options.what == "serve":
        uvloop.run(serve())
    elif options.what == "crawl":
        uvloop.run(crawl(options.arguments[0], Path(options.arguments[1])))
    else:
        samples = measure(options.rounds)
        rates = samples[RATE]
        targets = [
            Target("of wget's URLs per CPU second", ratio(rates["remuda"], rates["wget"]), 0.8),
            Target("of wpull's", median(rates["remuda"]) / WPULL, 20.0),
        ]
        report("archive", samples, targets)


if __name__ == "__main__":
    main()
