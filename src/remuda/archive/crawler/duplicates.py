"""Traps: pages that are the same under ever new URLs, and paths that repeat themselves. Pure."""

import re
from collections import Counter
from hashlib import blake2b

from remuda.archive.urls import netloc_of

MAX_PAGE = 1 << 20
# What differs between two visits of the same page: comments with times, hidden fields, tokens and long ids.
# They are bounded in what they look through for each start, for a page may consist of starts.
_COMMENT = re.compile(rb"<!--.*?(?:-->|\Z)", re.S)
_HIDDEN = re.compile(rb"<input[^<>]{0,500}hidden[^<>]{0,500}>")
_TOKEN = re.compile(rb"[0-9a-fA-F]{10,256}")
# Most pages have no token. This finds out twenty times faster than the expression above.
_DIGITS_AS_ZERO = bytes(ord("0") if chr(code) in "0123456789abcdefABCDEF" else code for code in range(256))
_ANY_TOKEN = b"0" * 10
_LOOP = re.compile(r"((?:/[^/?]++){1,3})\1{3}(?=[/?]|$)")
_MOST_SEGMENTS = 60
_REPEATED_PARAMETER = 4


def fingerprint(document: bytes, url: str) -> int | None:
    """A number that is the same for pages that differ only in their own URL and in what changes with each
    visit; None for pages that are too long or too short to compare."""
    if not 64 <= len(document) <= MAX_PAGE:
        return None
    target = url.partition(netloc_of(url))[2].encode()
    if len(target) > 1:
        document = document.replace(target, b"").replace(target.replace(b"&", b"&amp;"), b"")
    if b"<!--" in document:
        document = _COMMENT.sub(b"", document)
    if b"hidden" in document:
        document = _HIDDEN.sub(b"", document)
    if _ANY_TOKEN in document.translate(_DIGITS_AS_ZERO):
        document = _TOKEN.sub(b"", document)
    return int.from_bytes(blake2b(document, digest_size=8).digest(), "big", signed=True)


def is_loop(url: str) -> bool:
    """Whether the path or the query of a URL repeats itself, as that of a link relative to itself does."""
    slashes = url.count("/")
    if slashes >= 6 and (slashes > _MOST_SEGMENTS or _LOOP.search(url)):
        return True
    if url.count("&") < 3:
        return False
    parameters = url.partition("?")[2].split("&")
    return max(Counter(parameters).values()) >= _REPEATED_PARAMETER
