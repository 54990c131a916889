"""The parts of a crawl by themselves: `python -m bench.archive_parts [frontier|ignores|warc]`.

A frontier of a million URLs, ignore matching with 300 patterns, and WARC writing of 64 KiB bodies beside
warcio and fastwarc. All rates are per second of CPU.
"""

import argparse
import io
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from bench.report import Samples, Target, report

URLS = 1_000_000
BATCH = 50
"""New links that a page brings."""
PATTERNS = 300
BODY = 64 << 10
BODIES = 300


def measure_frontier() -> tuple[float, float]:
    """URLs per second through a frontier of a million; megabytes that it took after the first tenth."""
    from remuda.archive.crawler.frontier import Found, Frontier, UrlState
    from remuda.archive.crawler.model import CrawlCounts

    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        frontier = Frontier(Path(directory) / "frontier.sqlite3")
        early = 0
        hosts = {}
        taken = 0
        started = time.process_time()
        for first in range(0, URLS, BATCH):
            found = [
                Found(
                    f"http://host{number % 7}.example/section/{number}/page.html?view={number}",
                    f"h{number % 7}",
                    1,
                    1,
                    3,
                    0,
                    0,
                )
                for number in range(first, first + BATCH)
            ]
            hosts.update({host.id: host for host in frontier.add(found)})
            for _ in range(BATCH // 2):
                taken += _take_one(frontier, list(hosts.values()), UrlState.DONE)
            if first % 5000 == 0:
                frontier.commit(CrawlCounts(queued=first), {"warc": first})
            if first == URLS // 10:
                early = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        while _take_one(frontier, list(hosts.values()), UrlState.DONE):
            taken += 1
            if taken % 5000 == 0:
                frontier.commit(CrawlCounts(finished=taken), {"warc": taken})
        frontier.commit(CrawlCounts(finished=taken), {})
        spent = time.process_time() - started
        assert taken == frontier.count_urls() == URLS
        frontier.close()
    return URLS / spent, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - early) / 1024


def _take_one(frontier, hosts, done) -> bool:  # type: ignore[no-untyped-def]
    for host in hosts:
        if claim := frontier.take(host):
            frontier.finish(claim, done, status=200, fetched=1.0, file=0, position=claim.id)
            hosts.append(hosts.pop(0))
            return True
    return False


def measure_ignores() -> float:
    """URLs per second against 300 patterns."""
    from remuda.archive.ignores import Ignores, named_sets, patterns_of

    patterns = [pattern for name in named_sets() for pattern in patterns_of(name)]
    patterns += [
        rf"^https?://www\.site{number}\.example/(?:a|b){{{number % 9}}}" for number in range(PATTERNS)
    ]
    ignores = Ignores(patterns[:PATTERNS])
    urls = [f"http://www.example.com/some/path/{number}/page.html?id={number}" for number in range(100_000)]
    started = time.process_time()
    for url in urls:
        ignores.find(url)
    return len(urls) / (time.process_time() - started)


def make_bodies() -> list[bytes]:
    """Text like that of pages: words of a vocabulary between tags."""
    chance = random.Random(1)
    words = ["".join(chance.choices("etaoinshrdlu", k=chance.randint(2, 9))) for _ in range(3000)]
    bodies = []
    for _ in range(BODIES):
        text = "".join(
            f'<p class="item"><a href="/{word}">{word}</a> ' for word in chance.choices(words, k=2500)
        )
        bodies.append(text.encode()[:BODY].ljust(BODY))
    return bodies


def write_ours(bodies: list[bytes], directory: Path) -> None:
    """As the recorder of a crawl does."""
    from remuda.archive.crawler.response import FetchedBody
    from remuda.archive.warc.records import END, Compression, digest_text, new_id, record_head, warc_date
    from remuda.archive.warc.writer import WarcWriter

    writer = WarcWriter(
        directory,
        "bench",
        compression=Compression.GZIP,
        split_size=1 << 40,
        describe=lambda _: b"WARC/1.1\r\n\r\n",
    )
    for number, data in enumerate(bodies):
        http_head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % len(data)
        body = FetchedBody(http_head, directory)
        body.add(data)
        fields = [
            ("WARC-Record-ID", new_id()),
            ("WARC-Date", warc_date(1_700_000_000.0)),
            ("WARC-Target-URI", f"http://example.com/{number}"),
            ("Content-Type", "application/http;msgtype=response"),
            ("WARC-Block-Digest", digest_text(body.block_digest)),
            ("WARC-Payload-Digest", digest_text(body.payload_digest)),
        ]
        head = record_head("response", fields, len(http_head) + body.size)
        writer.append(b"".join((head, http_head, *body.pieces(), END)))
    writer.close()


def write_warcio(bodies: list[bytes], directory: Path) -> None:
    from warcio.statusandheaders import StatusAndHeaders
    from warcio.warcwriter import WARCWriter

    with (directory / "warcio.warc.gz").open("wb") as file:
        writer = WARCWriter(file, gzip=True)
        for number, body in enumerate(bodies):
            head = StatusAndHeaders("200 OK", [("Content-Type", "text/html")], protocol="HTTP/1.1")
            url = f"http://example.com/{number}"
            record = writer.create_warc_record(url, "response", payload=io.BytesIO(body), http_headers=head)
            writer.write_record(record)


def write_fastwarc(bodies: list[bytes], directory: Path) -> None:
    from fastwarc.stream_io import GzipWriter
    from fastwarc.warc import WarcRecord, WarcRecordType

    with (directory / "fastwarc.warc.gz").open("wb") as file:
        for number, body in enumerate(bodies):
            stream = GzipWriter(file, compression_level=1)
            record = WarcRecord()
            record.init_headers(WarcRecordType.response)
            record.headers["WARC-Target-URI"] = f"http://example.com/{number}"
            record.set_bytes_content(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" + body)
            record.write(stream, checksum_data=True)
            stream.finish()


def measure_warc(write: Callable[[list[bytes], Path], None]) -> float:
    """Megabytes of bodies per second."""
    bodies = make_bodies()
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        write(bodies[:5], Path(directory))  # Imports.
        for path in Path(directory).iterdir():
            path.unlink()
        started = time.process_time()
        write(bodies, Path(directory))
        return sum(map(len, bodies)) / 1e6 / (time.process_time() - started)


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", nargs="?", choices=["frontier", "ignores", "warc", "grow"])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if options.part == "grow":
        print(*measure_frontier())
        return
    samples: Samples = {}
    targets: list[Target] = []
    if options.part in (None, "frontier"):
        # In a process of its own, whose memory is only the frontier's.
        command = [sys.executable, "-m", "bench.archive_parts", "grow"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
        rate, grown = map(float, done.stdout.split())
        samples["frontier, a million URLs"] = {"URLs/s": [rate], "MB grown": [grown]}
        targets += [
            Target("frontier, URLs in and out per second", rate, 20_000),
            Target("frontier, growth from 100,000 to a million", grown, 30, "MB", is_ceiling=True),
        ]
    if options.part in (None, "ignores"):
        rates = [measure_ignores() for _ in range(options.rounds)]
        samples["ignores, 300 patterns"] = {"URLs/s": rates}
        targets.append(Target("ignores, URLs per second", median(rates), 200_000))
    if options.part in (None, "warc"):
        writers = {"remuda": write_ours, "fastwarc": write_fastwarc, "warcio": write_warcio}
        found = {
            name: [measure_warc(write) for _ in range(options.rounds)] for name, write in writers.items()
        }
        samples["WARC writing, MB/s"] = found
        targets.append(Target("WARC writing", median(found["remuda"]), 250, "MB/s"))
    report("archive_parts", samples, targets)


if __name__ == "__main__":
    main()
