"""The index of WARC files: CDXJ lines, written while crawling and sorted at the end."""

import heapq
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from urllib.parse import quote_from_bytes, unquote_to_bytes

import msgspec

from remuda.archive.urls import without_session

_LINES_AT_ONCE = 100_000
_WWW = re.compile(r"^www\d*\.")
_SLASHES = re.compile(r"/{2,}")
_PLAIN = "!\"$&'()*+,-./:;<=>?@[\\]^_`{|}~"
"""What `surt` never escapes."""
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
    server = netloc.rpartition("@")[2]
    if server.startswith("["):
        server = server.replace("[", "").replace("]", "")
    else:
        host, colon, port = _WWW.sub("", server, count=1).partition(":")
        server = ",".join(reversed(host.split("."))) + colon + port
    path, _, query = rest.partition("?")
    path = _SLASHES.sub("/", "/" + _unescaped(path)).lower()
    if path != "/":
        path = path.removesuffix("/")
    if query:
        # By their names, then by their values: `p=1` is before `p2=1`, though `2` is before `=`.
        parameters = sorted(each.split("=", 1) for each in _unescaped(query).lower().split("&"))
        path += "?" + "&".join(["=".join(each) for each in parameters])
    return f"{server}){path}"


def _unescaped(text: str) -> str:
    """This part of a URL with no more escapes than it needs."""
    if "%" not in text:
        return text
    raw = text.encode()
    while (plain := unquote_to_bytes(raw)) != raw:
        raw = plain
    return quote_from_bytes(raw, safe=_PLAIN)


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
