"""From the payload of a response to its text: content codings, with limits, and the charset."""

import codecs
import re
import zlib

MAX_CODINGS = 3
# Possessive: blanks that could belong to either side of a quote would be tried with both.
_META = re.compile(rb"""<meta[^>]{0,200}?charset\s*+=\s*+["']?+\s*+([\w:.-]{2,40})""", re.I)
_XML = re.compile(rb"""^\s*+<\?xml[^>]{0,200}?encoding\s*+=\s*+["']([\w:.-]{2,40})""", re.I)
_CHARSET = re.compile(r"""charset\s*+=\s*+["']?+\s*+([\w:.-]{2,40})""", re.I)
_BOMS = [(codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be")]
# Python has codecs that are not charsets of documents, such as `rot13`, `idna` and `utf-7`.
_CHARSETS = (
    *(
        "utf-8",
        "utf-16",
        "ascii",
        "iso8859",
        "cp",
        "windows",
        "koi8",
        "gb",
        "big5",
        "euc",
        "shift",
        "iso2022",
    ),
    *("hz", "mac", "tis", "johab"),
)
# WHATWG Encoding, "names and labels": these labels mean their Windows supersets.
_SUPERSETS = {
    "ascii": "windows-1252",
    "us-ascii": "windows-1252",
    "iso8859-1": "windows-1252",
    "iso8859-9": "windows-1254",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "tis-620": "cp874",
}


def decode_content(payload: bytes, codings: str, *, limit: int) -> bytes:
    """The document, or its beginning: at most `limit` bytes of it, and what precedes an error."""
    names = [name.strip().lower() for name in codings.split(",") if name.strip()]
    for name in reversed(names[-MAX_CODINGS:]):
        try:
            payload = _decode(payload, name, limit)
        except Exception as error:  # Each decoder has errors of its own; none of them may end a crawl.
            if isinstance(error, MemoryError):
                raise
            return b""
    return payload[:limit]


def unpack(payload: bytes, codings: str, *, limit: int) -> tuple[bytes, bool]:
    """The document as it is read for links, up to `limit` bytes, and whether there is more of it."""
    document = decode_content(payload, codings, limit=limit + 1)
    is_longer = len(document) > limit
    if document.startswith(b"\x1f\x8b"):  # A sitemap.xml.gz, sent as the file that it is.
        document = decode_content(document, "gzip", limit=limit + 1)
        is_longer = is_longer or len(document) > limit
    return document[:limit], is_longer


def _decode(payload: bytes, name: str, limit: int) -> bytes:
    if name in ("gzip", "x-gzip", "deflate"):
        # Window bits 47: the head of gzip or zlib, whichever comes. Some servers send deflate without a head.
        has_head = payload[:2] == b"\x1f\x8b" or (len(payload) > 1 and payload[0] & 0x0F == 8)
        decoder = zlib.decompressobj(47 if has_head else -15)
        return decoder.decompress(payload, limit)
    if name == "br":
        import brotli

        return brotli.Decompressor().process(payload, output_buffer_limit=limit)  # type: ignore[no-any-return]
    if name == "zstd":
        import zstandard

        # RFC 8878 3.1.1.1.2: a decoder should support 8 MB, and may refuse more.
        reader = zstandard.ZstdDecompressor(max_window_size=8 << 20).stream_reader(payload)
        return reader.read(limit)
    return payload


def charset_of(document: bytes, content_type: str) -> str:
    """The Python codec for this document (WHATWG HTML 13.2.3.2, without the guesses by language)."""
    for mark, name in _BOMS:
        if document.startswith(mark):
            return name
    declared = _CHARSET.search(content_type)
    if declared is not None and (name := _codec(declared[1])):
        return name
    for pattern in (_META, _XML):
        found = pattern.search(document, 0, 4096)
        if found is not None and (name := _codec(found[1].decode("ascii", "replace"))):
            # A declaration that could be read as ASCII cannot be in UTF-16.
            return "utf-8" if name.startswith("utf-16") else name
    try:
        document[:65536].decode("utf-8")
    except UnicodeDecodeError as error:
        return "utf-8" if error.start > 65530 else "windows-1252"
    return "utf-8"


def _codec(label: str) -> str:
    try:
        found = codecs.lookup(label)
    except (LookupError, ValueError):
        return ""
    return _SUPERSETS.get(found.name, found.name) if found.name.startswith(_CHARSETS) else ""
