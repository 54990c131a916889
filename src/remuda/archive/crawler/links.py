"""The links of a document: which pages it links to, and what it needs to be shown. Pure.

References are returned as they stand in the document; `urls.Base` resolves them. A reference is a *requisite*
if a browser would load it to show the page (image, style, script, frame), otherwise a link.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

import msgspec

from remuda.archive.crawler.decoding import charset_of
from remuda.archive.urls import MAX_LENGTH, MAX_REFERENCE


@dataclass
class Links:
    """What a document refers to."""

    links: set[str] = field(default_factory=set)
    requisites: set[str] = field(default_factory=set)
    sitemaps: set[str] = field(default_factory=set)
    base: str = ""
    """The base that the document names, if any."""
    encoding: str = "utf-8"
    title: str = ""
    is_html: bool = False


MAX_LINKS = 200_000
"""Of one document, after which no lists of links are read. A sitemap may have 50,000 (sitemaps.org)."""
MAX_ROBOTS = 500 << 10
"""Bytes of a robots.txt that are read (RFC 9309 2.5)."""
_HTML = frozenset(("text/html", "application/xhtml+xml", "application/vnd.wap.xhtml+xml"))
_HTML_START = re.compile(
    # Possessive: a comment that could end in several places would be tried with each of them.
    rb"\s*+(?:<!--(?:(?!-->).){0,2000}+-->\s*+)*+<(?:!doctype html|html|head|body|title)\b",
    re.I | re.S,
)
_XML_START = re.compile(rb"(?:\xef\xbb\xbf)?\s*<(?:\?xml|rss|feed|urlset|sitemapindex)\b", re.I)


def extract(document: bytes, content_type: str, *, path: str) -> Links:
    """The links of a document whose content codings are undone. `path` is that of its URL."""
    kind = content_type.partition(";")[0].strip().lower()
    if path == "/robots.txt":
        text = document[:MAX_ROBOTS].decode("utf-8", "replace")
        return Links(sitemaps=set(_ROBOTS_SITEMAP.findall(text)))
    if kind in _HTML or (not kind and _HTML_START.match(document)):
        return links_of_html(document, content_type)
    if kind == "text/css":
        encoding = charset_of(document, content_type)
        text = document.decode(encoding, "replace")
        return Links(requisites=set(urls_of_css(text)), encoding=encoding)
    is_xml = kind.endswith("/xml") or path.endswith((".xml", ".xml.gz"))
    if kind.endswith("+xml") or (is_xml and _XML_START.match(document)):
        from remuda.archive.crawler.feeds import links_of_xml

        return links_of_xml(document)
    return Links()


_ROBOTS_SITEMAP = re.compile(r"(?im)^[ \t]*sitemap[ \t]*:[ \t]*(\S+)")

# HTML: what the attributes of an element are. (attribute, whether it is a requisite)
_SOURCE = (("src", True),)
_ELEMENTS: dict[str, tuple[tuple[str, bool], ...]] = {
    "a": (("href", False),),
    "area": (("href", False),),
    "img": (("src", True), ("lowsrc", True), ("longdesc", False)),
    "script": _SOURCE,
    "iframe": (("src", True), ("longdesc", False)),
    "frame": _SOURCE,
    "embed": _SOURCE,
    "source": _SOURCE,
    "track": _SOURCE,
    "audio": _SOURCE,
    "video": (("src", True), ("poster", True)),
    "input": (("src", True), ("formaction", False)),
    "bgsound": _SOURCE,
    "object": (("data", True),),
    "body": (("background", True),),
    "table": (("background", True),),
    "tr": (("background", True),),
    "td": (("background", True),),
    "th": (("background", True),),
    "image": (("href", True), ("xlink:href", True)),
    "use": (("href", True), ("xlink:href", True)),
    "blockquote": (("cite", False),),
    "q": (("cite", False),),
    "ins": (("cite", False),),
    "del": (("cite", False),),
    "button": (("formaction", False),),
}
# The rel of a link element: what a browser loads, and what is not a document.
_LOADED = frozenset(
    (
        *("stylesheet", "icon", "apple-touch-icon", "apple-touch-icon-precomposed", "mask-icon", "manifest"),
        *("apple-touch-startup-image", "fluid-icon", "image_src", "preload", "modulepreload", "prefetch"),
    )
)
_NO_DOCUMENT = frozenset(("dns-prefetch", "preconnect", "profile", "pingback"))
_META_FILE = re.compile(
    r"og:(?:image|video|audio)|twitter:(?:image|player:stream)|msapplication-\w*logo|thumbnail"
)
_META_PAGE = frozenset(("og:url", "al:web:url"))
_REFRESH = re.compile(r"[\d.]*+\s*+[;,]?\s*+(?:url\s*+=\s*+)?", re.I)
# data-*: names that scripts load pictures by, names that they go to pages by, and values that are URLs.
_DATA_FILE = re.compile(r"src|original|background|bg|image|img|poster|thumb|large|zoom|video|lazy")
_DATA_PAGE = re.compile(r"href|ur[li]|link|file|path")
_LOOKS_LIKE_URL = re.compile(r"(?:https?:)?//\w|/\w|\.{1,2}/|[\w%./~+-]+\.[a-zA-Z0-9]{2,5}(?:\?|$)")
MAX_NESTING = 1000
"""Elements within each other. HTML's rules look through all open elements at each tag: 10 MB of nested tags
would take hours."""
MAX_TAGS = 400_000
"""Tags of a document that are looked at: a parser takes two microseconds for each, and we take more."""
MAX_CSS_TOKENS = 200_000
"""Comments, strings and URLs of a style sheet that are looked at."""
_HARMLESS = 4 << 10
"""Bytes; a shorter document cannot cost much, however it is made."""
_BLOCK = 16 << 10
_TAG = re.compile(rb"<(/?)([a-zA-Z][a-zA-Z0-9]*)")
_NOT_NESTING = frozenset(
    b"area base br col embed hr img input link meta source track wbr p li dt dd tr td th option".split()
)


# Parameters of an object that name a file, such as a Flash film.
_PARAMETERS = frozenset(("movie", "src", "url", "filename", "data"))
# A parser hides what is in a template. It is shown where a script, or the browser itself, makes use of it.
_TEMPLATE = re.compile(rb"<(/?)template(?=[\s/>])", re.I)


def links_of_html(document: bytes, content_type: str) -> Links:
    """The links of an HTML document."""
    encoding = charset_of(document, content_type)
    found = Links(encoding=encoding, is_html=True)
    if frames := _read_html(document, encoding, found):
        # All at once, and those within them not at all: a page could be made of a million of them.
        _read_html("\n".join(frames).encode("utf-8", "replace"), "utf-8", found)
    return found


def _read_html(document: bytes, encoding: str, found: Links) -> list[str]:
    """Adds the links of a document; the documents that are written into its frames."""
    from selectolax.lexbor import LexborHTMLParser

    document = _made_harmless(document, encoding)
    tree = LexborHTMLParser(document if encoding == "utf-8" else document.decode(encoding, "replace"))
    frames = list[str]()
    has_common = encoding.startswith("utf-16") or _COMMON.search(document) is not None
    root = tree.root
    if root is None:
        return frames
    for node in root.traverse():
        attributes, tag = node.attributes, node.tag or ""
        if tag == "style" and len(found.requisites) <= MAX_LINKS:
            found.requisites.update(urls_of_css(node.text()))
        elif tag == "title" and not found.title:
            found.title = " ".join(node.text().split())[:1000]
        if not attributes:
            continue
        for name, is_requisite in _ELEMENTS.get(tag, ()):
            if value := attributes.get(name):
                (found.requisites if is_requisite else found.links).add(value)
        if has_common and (tag != "a" or len(attributes) > 1):
            _read_common(attributes, found)
        if tag == "iframe" and (frame := attributes.get("srcdoc")):
            frames.append(frame)
        elif tag == "script" and (attributes.get("type") or "").lower() == "application/ld+json":
            _read_json_ld(node.text(), found)
        elif tag in _SPECIAL:
            _SPECIAL[tag](attributes, found)
    return frames


def _made_harmless(document: bytes, encoding: str) -> bytes:
    """The document as a parser may have it: without what hides links from it, or costs it too much."""
    if b"<template" in document or b"<TEMPLATE" in document:
        document = _TEMPLATE.sub(rb"<\1x-template", document)
    if len(document) > _HARMLESS:
        if encoding == "utf-8":
            document = document.replace(b"\0", b"")  # They cost the parser more than anything else.
        document = _up_to_last_tag(document)
        document = _without_deep_nesting(_without_reopening(document))
    return document


# Attributes that any element may have. Where none of them occurs, no element is asked for them.
_COMMON = re.compile(rb"style\s*=|srcset|data-", re.I)


def _read_common(attributes: Mapping[str, str | None], found: Links) -> None:
    for name, value in attributes.items():
        if not value:
            continue
        if name == "style":
            if "(" in value and len(found.requisites) <= MAX_LINKS:
                found.requisites.update(urls_of_css(value))
        elif name.endswith("srcset"):
            if len(found.requisites) <= MAX_LINKS:
                found.requisites.update(urls_of_srcset(value))
        elif name.startswith("data-") and _LOOKS_LIKE_URL.match(value):
            if _DATA_FILE.search(name):
                found.requisites.add(value)
            elif _DATA_PAGE.search(name):
                found.links.add(value)


# The folder is joined with each of the archives.
_MAX_ARCHIVES = 10
_MAX_FOLDER = 256


def _read_anchor(attributes: Mapping[str, str | None], found: Links) -> None:
    if target := attributes.get("xlink:href"):
        found.links.add(target)


def _read_applet(attributes: Mapping[str, str | None], found: Links) -> None:
    archives = (attributes.get("archive") or "").split(",", _MAX_ARCHIVES)[:_MAX_ARCHIVES]
    files = [attributes.get("code") or "", *archives]
    folder = (attributes.get("codebase") or "")[: _MAX_FOLDER + 1].rstrip("/")
    if len(folder) > _MAX_FOLDER:
        return
    found.requisites.update(
        f"{folder}/{name}" if folder else name for name in map(str.strip, files) if "." in name
    )


def _read_base(attributes: Mapping[str, str | None], found: Links) -> None:
    found.base = found.base or attributes.get("href") or ""


def _read_form(attributes: Mapping[str, str | None], found: Links) -> None:
    if (attributes.get("method") or "get").lower() == "get":
        found.links.add(attributes.get("action") or "")


def _read_link(attributes: Mapping[str, str | None], found: Links) -> None:
    rel = frozenset((attributes.get("rel") or "").lower().split())
    href = attributes.get("href")
    if not href or rel & _NO_DOCUMENT:
        return
    (found.requisites if rel & _LOADED else found.links).add(href)


def _read_meta(attributes: Mapping[str, str | None], found: Links) -> None:
    content = attributes.get("content")
    if not content:
        return
    if (attributes.get("http-equiv") or "").lower() == "refresh":
        target = refresh_target(content)
        if target:
            found.links.add(target)
        return
    name = (attributes.get("property") or attributes.get("name") or attributes.get("itemprop") or "").lower()
    if name in _META_PAGE:
        found.links.add(content)
    elif _META_FILE.match(name) and _LOOKS_LIKE_URL.match(content):
        found.requisites.add(content)


def _read_param(attributes: Mapping[str, str | None], found: Links) -> None:
    is_file = (attributes.get("name") or "").lower() in _PARAMETERS
    if (value := attributes.get("value")) and (
        is_file or (attributes.get("valuetype") or "").lower() == "ref"
    ):
        found.requisites.add(value)


# Elements whose attributes depend on each other.
_SPECIAL = {
    "a": _read_anchor,
    "applet": _read_applet,
    "base": _read_base,
    "form": _read_form,
    "link": _read_link,
    "meta": _read_meta,
    "param": _read_param,
}


def refresh_target(content: str) -> str:
    """The URL of a refresh, in a meta element or a header; empty if it is the page itself."""
    content = content.strip()[:MAX_LENGTH]
    found = _REFRESH.match(content)
    return content[found.end() :].strip("\"'") if found else ""


MAX_JSON = 1 << 20
"""Characters of JSON-LD. An empty list takes two of them, and 64 bytes of memory."""
_MAX_JSON_NAME = 200
"""Characters of what a value is named by: each is part of all the names within it."""


def _read_json_ld(text: str, found: Links) -> None:
    """URLs in the strings of JSON-LD, relative ones only by their names; pictures are requisites."""
    if len(text) > MAX_JSON or len(found.requisites) > MAX_LINKS:
        return
    try:
        document = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return
    stack: list[tuple[str, object]] = [("", document)]
    while stack:
        name, value = stack.pop()
        if isinstance(value, dict):
            name = name[-_MAX_JSON_NAME:]
            stack.extend(
                (f"{name}.{key[-_MAX_JSON_NAME:]}", each) for key, each in value.items() if key != "@context"
            )
        elif isinstance(value, list):
            stack.extend((name, each) for each in value)
        elif isinstance(value, str) and " " not in value:
            is_file = _JSON_FILE.search(name) is not None
            is_absolute = value.startswith(("http://", "https://")) and "schema.org/" not in value[:25]
            if is_absolute or (value.startswith("/") and (is_file or name.endswith((".url", "Url")))):
                (found.requisites if is_file else found.links).add(value)


_JSON_FILE = re.compile(r"image|logo|thumbnail|contenturl|photo", re.I)


def urls_of_srcset(value: str) -> Iterator[str]:
    """The URLs of a srcset (WHATWG HTML 4.8.4.2.1): commas separate them, and may be part of them."""
    position = 0
    while found := _CANDIDATE.match(value, position):
        url = found[1].rstrip(",")
        if url:
            yield url
        # A URL that ends with a comma has no descriptors.
        position = found.end(1) if found[1].endswith(",") else found.end()
        if found.end() == found.start():
            return


_CANDIDATE = re.compile(r"[\s,]*+(\S++)(?:\s++[^,(]*+(?:\([^)]{0,200}\)[^,(]*+)*+)?,?")


# WHATWG HTML 13.2.4.3, "reconstruct the active formatting elements": what was left open in one paragraph is
# opened again in each that follows.
_FORMATTING = re.compile(
    rb"<(/?)(?=(?:b(?:ig)?|code|em|font|i|nobr|s(?:mall|trike|trong)?|tt|u)[\s/>])", re.I
)
MAX_REOPENED = 300_000
"""Elements. 30 KB of HTML can make three million of them, and a gigabyte of memory."""


def _without_reopening(document: bytes) -> bytes:
    """The document; if its elements for bold text and the like would multiply, with others in their place."""
    depth = deepest = 0
    for slash in _FORMATTING.findall(document):
        if not slash:
            depth += 1
            deepest = max(deepest, depth)
        elif depth:
            depth -= 1
    if deepest * document.count(b"<") <= MAX_REOPENED:
        return document
    return _FORMATTING.sub(rb"<\1x-", document)


def _up_to_last_tag(document: bytes) -> bytes:
    """The beginning of the document that has as many tags as are looked at."""
    tags = 0
    for start in range(0, len(document), _BLOCK):
        tags += document.count(b"<", start, start + _BLOCK)
        if tags > MAX_TAGS:
            return document[:start]
    return document


def _without_deep_nesting(document: bytes) -> bytes:
    """The document up to where it nests too deep."""
    depth = 0
    for start in range(0, len(document), _BLOCK):
        opening, closing = (document.count(each, start, start + _BLOCK) for each in (b"<", b"</"))
        depth = max(0, depth + opening - 2 * closing)
        if depth > MAX_NESTING:
            break
    else:
        return document
    depth = 0
    for tag in _TAG.finditer(document):
        if tag[2].lower() in _NOT_NESTING:
            continue
        depth = max(0, depth - 1) if tag[1] else depth + 1
        if depth > MAX_NESTING:
            return document[: tag.start()]
    return document


# CSS

# One pass over the tokens that matter (CSS Syntax 4): comments and strings are recognised so that what looks
# like a URL inside of them is not taken for one. Possessive: nothing here may be tried twice, a page could be
# made to take for ever.
_CSS = re.compile(
    r"""/\*.*?(?:\*/|$)"""
    r"""|@import\s++(?:"(?P<i1>[^"\n]*)"|'(?P<i2>[^'\n]*)')"""
    r"""|(?<![\w-])url\(\s*+(?:"(?P<u1>(?:[^"\\\n]|\\.)*+)"|'(?P<u2>(?:[^'\\\n]|\\.)*+)'|(?P<u3>(?:[^\s"'()\\]|\\.)*+))\s*+\)"""
    r"""|(?<=image-set\()(?P<set>(?:[^()"']++|"[^"\n]*+"|'[^'\n]*+'|\([^()]*+\))*+)\)"""
    # A string that is not closed ends with its line: else a search would begin at each quote in it.
    r"""|"(?:[^"\\\n]|\\.)*+"?|'(?:[^'\\\n]|\\.)*+'?""",
    re.I | re.S,
)
# What is in an image-set(...): the types of its pictures are strings, too.
_CSS_SET = re.compile(
    r"""type\([^)]*\)|url\(\s*+(?:"([^")]*+)"|'([^')]*+)'|([^\s"')]*+))\s*+\)|"([^"\n]*)"|'([^'\n]*)'""", re.I
)
_CSS_ESCAPE = re.compile(r"\\(?:([0-9a-fA-F]{1,6})\s?|(.))", re.S)


_CSS_HINT = re.compile(r"url\(|@import|image-set\(", re.I)


def urls_of_css(text: str) -> Iterable[str]:
    """What a style sheet loads: url(...), @import and the strings of image-set(...)."""
    if not _CSS_HINT.search(text):
        return ()
    found: list[str] = []
    for match in islice(_CSS.finditer(text), MAX_CSS_TOKENS):
        if match["set"]:
            urls = [each[each.lastindex] for each in _CSS_SET.finditer(match["set"]) if each.lastindex]
        else:
            urls = [match["u3"] or match["u1"] or match["u2"] or match["i1"] or match["i2"]]
        found += [
            _CSS_ESCAPE.sub(_unescape, url) if "\\" in url else url
            for url in urls
            if url and len(url) <= MAX_REFERENCE and not url.startswith(("data:", "#"))
        ]
    return found


def _unescape(escape: re.Match[str]) -> str:
    if escape[1]:
        number = int(escape[1], 16)
        return chr(number) if 0 < number < 0x110000 and not 0xD800 <= number < 0xE000 else "\ufffd"
    return escape[2]


# Headers

_LINK = re.compile(r"<([^<>]*)>((?:\s*;\s*[\w*!#$&+.^`|~-]+(?:\s*=\s*(?:\"[^\"]*\"|[^\s;,\"]*))?)*)")
_REL = re.compile(r";\s*rel\s*=\s*(?:\"([^\"]*)\"|([^\s;,\"]+))", re.I)


def links_of_headers(link_fields: Iterable[str], refresh: str) -> Links:
    """What the fields Link (RFC 8288) and Refresh refer to."""
    found = Links()
    for value in link_fields:
        for link in _LINK.finditer(value[:65536]):
            rel = _REL.search(link[2])
            names = (rel[1] or rel[2] or "") if rel else ""
            _read_link({"href": link[1], "rel": names}, found)
    if refresh and (target := refresh_target(refresh)):
        found.links.add(target)
    return found
