"""The index of WARC files: CDXJ lines, written while crawling and sorted at the end."""

import heapq
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

import msgspec

from remuda.archive.urls import without_session

_LINES_AT_ONCE = 100_000
_WWW = re.compile(r"www\d*\.")
_SLASHES = re.compile(r"/{2,}")
_encode = msgspec.json.encode


class CdxEntry(msgspec.Struct, omit_defaults=True):
    """The JSON of a line."""

    url: str
    mime: str
    status: str
    digest: str
    length: str
    offset: str
    filename: str
    truncated: str = ""


def surt_of(url: str) -> str:
    """The key by which replay finds a URL: host reversed, lower case, query sorted; as the package `surt`."""
    netloc, _, rest = without_session(url).partition("://")[2].partition("/")
    host, colon, port = netloc.rpartition("@")[2].partition(":")
    if not netloc.endswith("]"):
        host = _WWW.sub("", host, count=1) if _WWW.match(host) else host
        host = ",".join(reversed(host.split(".")))
    path, question, query = rest.lower().partition("?")
    if "//" in path:
        path = _SLASHES.sub("/", path)
    path = path.removesuffix("/")
    if question and query:
        path += "?" + "&".join(sorted(query.split("&")))
    return f"{host}{colon}{port})/{path}"


_second, _second_text = 0, ""


def cdx_line(entry: CdxEntry, timestamp: float) -> bytes:
    """A line of the index, with its line break."""
    global _second, _second_text
    second = int(timestamp)
    if second != _second:
        _second, _second_text = second, time.strftime("%Y%m%d%H%M%S", time.gmtime(second))
    return f"{surt_of(entry.url)} {_second_text} ".encode() + _encode(entry) + b"\n"


def sort_lines(source: Path, target: Path) -> None:
    """Sorts the lines of a file by their bytes, with little memory. Blocks."""
    with ExitStack() as stack, source.open("rb") as lines, target.open("wb") as result:
        runs: list[Iterator[bytes]] = []
        while run := sorted(islice(lines, _LINES_AT_ONCE)):
            # Beside the target: a job's directory has the space that a small /tmp may lack.
            file = stack.enter_context(tempfile.TemporaryFile(dir=target.parent))
            file.writelines(run)
            file.seek(0)
            runs.append(iter(file))
        result.writelines(heapq.merge(*runs))
