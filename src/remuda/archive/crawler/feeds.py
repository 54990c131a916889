"""The links of XML documents: sitemaps, RSS, Atom, SVG. Pure.

What a document declares can make it many times as long: entities that expand to others, and attributes that
every element has without saying so. So only an SVG may declare entities, as drawing programs do, and never
more than a budget can yield.
"""

import re
from contextlib import suppress
from xml.parsers import expat

from remuda.archive.crawler.links import MAX_LINKS, Links, links_of_html
from remuda.archive.urls import MAX_REFERENCE

MAX_DEPTH = 200
MAX_EXPANSION = 8 << 20
"""Bytes that all references to entities of a document may yield together."""
MAX_DECLARATIONS = 1000
"""Entities and attributes that are declared. Expat looks through the latter at each element."""
MAX_NAMES = 10_000
"""Different names of elements and attributes. They are kept until the end."""
MAX_ATTRIBUTES = 10_000
"""Of one element. Expat hands them out only all at once."""
MAX_QUOTED = 1 << 20
"""Characters of HTML in a feed that are kept until they are read."""
_PIECE = 256 << 10
"""Bytes that expat gets at a time."""
_QUOTED = frozenset(("description", "encoded", "content", "summary"))
"""Elements of feeds with HTML as their text."""
_ENCLOSURES = frozenset(("enclosure", "content", "thumbnail"))


class _Stop(Exception):
    """Enough was read."""


class _Reader:
    """Collects links while expat reads."""

    def __init__(self, document: bytes) -> None:
        self.found = Links()
        self._document = document
        self._path: list[str] = []
        self._local_names: dict[str, str] = {}
        """The names of elements without their prefixes, in lower case."""
        self._text: list[str] = []
        self._room = 0
        """Characters of the text that are still kept; negative when some were not."""
        self._is_index = False
        self._quoted: list[str] = []
        self._quoted_size = 0
        self._is_svg = False
        self._declarations = self._references = 0
        # XML 1.0 4.6: these are never declared, and yield less than they take.
        self._sizes = dict.fromkeys(("amp", "lt", "gt", "quot", "apos"), 0)
        """What a reference to each entity yields, in bytes."""

    def doctype(self, name: str, *_: object) -> None:
        self._is_svg = name.rpartition(":")[2] == "svg"
        self._references = self._document.count(b"&")

    def entity(self, name: str, is_parameter: bool, value: str | None, *_: object) -> None:
        self.declare()
        # Expat expands neither parameter entities nor those of other files.
        if is_parameter or value is None:
            return
        size = len(value.encode())
        for reference in _REFERENCE.finditer(value):
            # What is declared later may be of any size.
            size += self._sizes.get(reference[1], MAX_EXPANSION)
            if size > MAX_EXPANSION:
                raise _Stop
        self._sizes[name] = size
        # As if each reference were to the longest: names may be in any encoding that expat reads.
        if not self._is_svg or self._references * max(self._sizes.values()) > MAX_EXPANSION:
            raise _Stop

    def declare(self, *_: object) -> None:
        self._declarations += 1
        if self._declarations > MAX_DECLARATIONS:
            raise _Stop

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if len(self._path) >= MAX_DEPTH:
            raise _Stop
        local = self._local_names.get(name) or self._local_name(name)
        if not self._path:
            self._is_index = local == "sitemapindex"
        self._path.append(local)
        self._text = []
        self._room = MAX_QUOTED if local in _QUOTED else MAX_REFERENCE
        if not attributes and local != "guid":
            return
        href = attributes.get("href") or attributes.get("xlink:href")
        if local in ("image", "use", "script") and href:
            self.found.requisites.add(href)
        elif local == "img" and attributes.get("src"):
            self.found.requisites.add(attributes["src"])
        elif local in ("link", "a") and href:
            is_enclosure = attributes.get("rel") == "enclosure"
            (self.found.requisites if is_enclosure else self.found.links).add(href)
        elif local in _ENCLOSURES and attributes.get("url"):
            self.found.requisites.add(attributes["url"])
        elif local == "guid" and attributes.get("isPermaLink", "true").lower() == "false":
            self._path[-1] = "id"

    def _local_name(self, name: str) -> str:
        local = self._local_names[name] = name.rpartition(":")[2].lower()
        return local

    def end(self, name: str) -> None:
        local = self._path.pop()
        if not self._text:
            return
        is_cut = self._room < 0
        text = "".join(self._text).strip()
        self._text = []
        self._room = MAX_REFERENCE
        if not text:
            return
        if local in _QUOTED:
            if "<" in text:
                self._quoted.append(text)
                self._quoted_size += len(text)
                if self._quoted_size > MAX_QUOTED:
                    self.read_quoted()
        elif is_cut:
            return
        elif local == "loc" and self._path:
            if self._is_index:
                self.found.sitemaps.add(text)
            elif self._path[-1] in ("image", "video"):
                self.found.requisites.add(text)
            else:
                self.found.links.add(text)
        elif local in ("content_loc", "thumbnail_loc"):
            self.found.requisites.add(text)
        elif local in ("link", "comments", "guid", "player_loc") and text.startswith(
            ("http://", "https://", "/")
        ):
            self.found.links.add(text)
        elif local == "url" and self._path and self._path[-1] == "image":
            self.found.requisites.add(text)

    def characters(self, text: str) -> None:
        if self._room >= 0:
            self._text.append(text)
            self._room -= len(text)

    def instruction(self, target: str, content: str) -> None:
        if target == "xml-stylesheet" and (sheet := _STYLE_SHEET.search(content[:MAX_REFERENCE])):
            self.found.requisites.add(sheet[2])

    def read_quoted(self) -> None:
        """Adds the links of the HTML in the feed."""
        if self._quoted:
            html = links_of_html("\n".join(self._quoted).encode(), "text/html; charset=utf-8")
            self.found.links |= html.links
            self.found.requisites |= html.requisites
            self._quoted, self._quoted_size = [], 0


_STYLE_SHEET = re.compile(r"""\bhref\s*=\s*(["'])(.*?)\1""", re.S)
_REFERENCE = re.compile(r"&([^#;][^;]*+);")


def links_of_xml(document: bytes) -> Links:
    """The links of an XML document; of a broken one, those before the error."""
    document = document.lstrip()
    reader = _Reader(document)
    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = reader.doctype
    parser.EntityDeclHandler = reader.entity
    parser.AttlistDeclHandler = reader.declare
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.characters
    parser.ProcessingInstructionHandler = reader.instruction
    parser.buffer_text = True
    # Without those that are declared for all elements of a name.
    parser.specified_attributes = True
    with suppress(expat.ExpatError, _Stop, ValueError):
        _feed(parser, document, reader.found)
    reader.read_quoted()
    return reader.found


def _feed(parser: expat.XMLParserType, document: bytes, found: Links) -> None:
    """Has the document parsed, in pieces, between which it is seen whether that is enough."""
    view = memoryview(document)
    position = begun = 0
    while position < len(document):
        # Expat reads a tag that was cut from its beginning again: that of a picture may have megabytes.
        end = document.find(b">", position + _PIECE) + 1
        if not end or len(document) - end < _PIECE:
            end = len(document)
        is_one_tag = end - begun > 3 * _PIECE
        if is_one_tag and document.count(b"=", begun, end) > MAX_ATTRIBUTES:
            return
        parser.Parse(view[position:end], end == len(document))
        position, begun = end, parser.CurrentByteIndex
        links = len(found.links) + len(found.requisites) + len(found.sitemaps)
        if links > MAX_LINKS or len(parser.intern) > MAX_NAMES:
            return
