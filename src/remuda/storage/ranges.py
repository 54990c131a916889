"""Which part of a file a request wants, if any: the conditions and ranges of RFC 9110, 13 and 14. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import formatdate, parsedate_to_datetime
from typing import NamedTuple

_SET = re.compile(r"\s*bytes\s*=(.*)", re.ASCII | re.IGNORECASE | re.DOTALL)
# Possessive: with what is between two numbers, nothing is tried twice.
_RANGE = re.compile(r"\s*+(\d*+)\s*+-\s*+(\d*+)\s*+", re.ASCII)
# Beyond every file, and short enough for Python to read.
_MOST_DIGITS = 18


class ByteSpan(NamedTuple):
    """Bytes from `start` up to, not including, `stop`; an empty one can satisfy no range."""

    start: int
    stop: int

    @property
    def size(self) -> int:
        return max(0, self.stop - self.start)


@dataclass(frozen=True)
class Version:
    """A file as its validators describe it."""

    etag: str
    modified: float
    size: int

    @property
    def last_modified(self) -> str:
        return formatdate(int(self.modified), usegmt=True)


class RangeOutcome(NamedTuple):
    """How a request is answered: 200, 206, 304 or 416, and with which bytes."""

    status: int
    span: ByteSpan

    def headers(self, version: Version) -> dict[str, str]:
        """What the answer says of the file and of the part that it brings."""
        headers = {"Accept-Ranges": "bytes", "ETag": version.etag, "Last-Modified": version.last_modified}
        if self.status == 206:
            headers["Content-Range"] = f"bytes {self.span.start}-{self.span.stop - 1}/{version.size}"
        elif self.status == 416:
            headers["Content-Range"] = f"bytes */{version.size}"
        return headers


def decide(method: str, headers: Mapping[str, str], version: Version) -> RangeOutcome:
    """The answer to a request with these headers (their names in lower case) for this version of a file."""
    whole = ByteSpan(0, version.size)
    if _is_known(headers, version):
        return RangeOutcome(304, ByteSpan(0, 0))
    # RFC 9110 14.2: a range is only defined for GET.
    wanted = headers.get("range") if method == "GET" and _may_be_partial(headers, version) else None
    span = find_span(wanted, version.size) if wanted is not None else None
    if span is None:
        return RangeOutcome(200, whole)
    return RangeOutcome(206, span) if span.size else RangeOutcome(416, ByteSpan(0, 0))


def find_span(header: str, size: int) -> ByteSpan | None:
    """The bytes that a Range header asks for, empty if they lie outside; None for one that is to be ignored.

    Several ranges would need a multipart answer, which no player asks for. RFC 9110 14.2: we may ignore them,
    but not 15.5.17: when none of them can be had, the client must hear so.
    """
    ranges = _SET.fullmatch(header)
    if ranges is None:
        return None
    spans = [_find_one(each, size) for each in ranges[1].split(",") if each.strip()]
    # RFC 9110 14.1.1: one that is malformed makes the whole set invalid.
    if not spans or None in spans:
        return None
    if len(spans) == 1:
        return spans[0]
    return None if any(span is not None and span.size for span in spans) else ByteSpan(size, size)


def _find_one(text: str, size: int) -> ByteSpan | None:
    match = _RANGE.fullmatch(text)
    if match is None or match[1] == match[2] == "":
        return None
    if not match[1]:
        return ByteSpan(max(0, size - _number(match[2])), size)
    start = _number(match[1])
    if not match[2]:
        return ByteSpan(start, size)
    last = _number(match[2])
    return None if last < start else ByteSpan(start, min(last + 1, size))


def _number(digits: str) -> int:
    """A number of bytes; all that are larger than any file are the same."""
    digits = digits.lstrip("0") or "0"
    return int(digits) if len(digits) <= _MOST_DIGITS else 10**_MOST_DIGITS


def _is_known(headers: Mapping[str, str], version: Version) -> bool:
    """Whether the client has this version already (RFC 9110 13.2.2: a date only counts without a tag)."""
    tags = headers.get("if-none-match")
    if tags is not None:
        known = {tag.strip().removeprefix("W/") for tag in tags.split(",")}
        return "*" in known or version.etag in known
    since = headers.get("if-modified-since")
    return since is not None and int(version.modified) <= _seconds(since)


def _may_be_partial(headers: Mapping[str, str], version: Version) -> bool:
    """Whether the part that the client has still fits to this version (RFC 9110 13.1.5: an exact match)."""
    condition = headers.get("if-range")
    return condition is None or condition.strip() in (version.etag, version.last_modified)


def _seconds(date: str) -> float:
    """An HTTP date in Unix seconds; one that is none lies before everything."""
    try:
        return parsedate_to_datetime(date).timestamp()
    except (ValueError, OverflowError, TypeError):
        return float("-inf")
