"""WARC 1.1 records as bytes: their heads, ids, dates and digests. Pure.

The block of a response is what came over the wire, chunks included, and the payload whose digest is given is
the body as it stands there. By WARC 1.1, 6.3.2, it would be the body without its chunks, but readers go by
the bytes as stored: warcio and FastWARC when they check, cdxj-indexer and pywb when they index. Replay puts
the head of a revisit before the body of the record that it refers to, so both must be chunked alike, too.
"""

import hashlib
import random
import time
from collections.abc import Iterable
from enum import StrEnum

VERSION = b"WARC/1.1\r\n"
END = b"\r\n\r\n"
SAME_PAYLOAD = "http://netpreserve.org/warc/1.1/revisit/identical-payload-digest"
HTTP_REQUEST = "application/http;msgtype=request"
HTTP_RESPONSE = "application/http;msgtype=response"
FIELDS = "application/warc-fields"


class Compression(StrEnum):
    """How records are compressed, each by itself."""

    GZIP = "gzip"
    ZSTD = "zstd"


_random = random.SystemRandom()
_seed = random.Random(_random.getrandbits(256))


def new_id() -> str:
    """A new record id. From a generator that was seeded by the system: an id need not be a secret."""
    number = f"{_seed.getrandbits(128):032x}"
    return (
        f"<urn:uuid:{number[:8]}-{number[8:12]}-4{number[13:16]}-"
        f"{'89ab'[int(number[16], 16) & 3]}{number[17:20]}-{number[20:]}>"
    )


_second, _second_text = 0, ""


def warc_date(timestamp: float) -> str:
    """The time as WARC-Date, with milliseconds."""
    global _second, _second_text
    second = int(timestamp)
    if second != _second:
        _second, _second_text = second, time.strftime("%Y-%m-%dT%H:%M:%S.", time.gmtime(second))
    return f"{_second_text}{int(timestamp * 1000) % 1000:03d}Z"


# Base 32 (RFC 4648), two characters at a time: a record needs it three times, and `base64` takes 11 µs.
_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_BASE32 = [first + second for first in _ALPHABET for second in _ALPHABET]
_SHIFTS = tuple(range(150, -1, -10))


def digest_text(digest: bytes) -> str:
    """A SHA-1 as the fields of a record expect it."""
    number = int.from_bytes(digest, "big")
    return "sha1:" + "".join([_BASE32[number >> shift & 1023] for shift in _SHIFTS])


def sha1(data: bytes) -> bytes:
    """The SHA-1 of the data: what all readers of WARC expect. It finds duplicates and damage, not fraud."""
    return hashlib.sha1(data, usedforsecurity=False).digest()


def record_head(kind: str, fields: Iterable[tuple[str, str]], length: int) -> bytes:
    """The head of a record, up to the empty line before its block."""
    lines = "".join([f"{name}: {value}\r\n" for name, value in fields])
    return VERSION + f"WARC-Type: {kind}\r\n{lines}Content-Length: {length}\r\n\r\n".encode()


def fields_block(fields: Iterable[tuple[str, str]]) -> bytes:
    """A block of type `application/warc-fields`. Line breaks in values would make fields of their own."""
    return "".join([f"{name}: {' '.join(value.split())}\r\n" for name, value in fields]).encode()


def whole_record(kind: str, fields: list[tuple[str, str]], block: bytes) -> bytes:
    """A record with its block and block digest, not compressed."""
    fields = [*fields, ("WARC-Block-Digest", digest_text(sha1(block)))]
    return b"".join((record_head(kind, fields, len(block)), block, END))


def request_record(common: list[tuple[str, str]], request_id: str, response_id: str, block: bytes) -> bytes:
    """The request that a response answers."""
    fields = [
        ("WARC-Record-ID", request_id),
        *common,
        ("WARC-Concurrent-To", response_id),
        ("Content-Type", HTTP_REQUEST),
    ]
    return whole_record("request", fields, block)


def revisit_record(
    fields: list[tuple[str, str]], head: bytes, digest: str, original: tuple[str, float]
) -> bytes:
    """WARC 1.1, 6.7.2: the payload is the same as that of another record."""
    url, fetched = original
    fields = [
        *fields,
        ("Content-Type", HTTP_RESPONSE),
        ("WARC-Profile", SAME_PAYLOAD),
        ("WARC-Refers-To-Target-URI", url),
        ("WARC-Refers-To-Date", warc_date(fetched)),
        ("WARC-Payload-Digest", digest),
    ]
    return whole_record("revisit", fields, head)


def outlinks_record(common: list[tuple[str, str]], response_id: str, outlinks: list[str]) -> bytes:
    """The links of a response, as metadata."""
    block = fields_block([("outlink", url) for url in outlinks])
    fields = [
        ("WARC-Record-ID", new_id()),
        *common,
        ("WARC-Refers-To", response_id),
        ("Content-Type", FIELDS),
    ]
    return whole_record("metadata", fields, block)
