"""The links of XML documents: sitemaps, RSS, Atom, SVG. Pure."""

import re
from contextlib import suppress
from xml.parsers import expat

from remuda.archive.crawler.links import Links, links_of_html

MAX_DEPTH = 200
_QUOTED = frozenset(("description", "encoded", "content", "summary"))
"""Elements of feeds with HTML as their text."""
_ENCLOSURES = frozenset(("enclosure", "content", "thumbnail"))


class _Stop(Exception):
    """Enough was read."""


class _Reader:
    """Collects links while expat reads. Expat itself limits what entities may expand to."""

    def __init__(self) -> None:
        self.found = Links()
        self._path: list[str] = []
        self._text: list[str] = []
        self._is_index = False
        self._quoted: list[str] = []

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if len(self._path) >= MAX_DEPTH:
            raise _Stop
        local = name.rpartition(":")[2].lower()
        if not self._path:
            self._is_index = local == "sitemapindex"
        self._path.append(local)
        self._text = []
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

    def end(self, name: str) -> None:
        local = self._path.pop()
        text = "".join(self._text).strip()
        self._text = []
        if not text:
            return
        if local == "loc" and self._path:
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
        elif local in _QUOTED and "<" in text:
            self._quoted.append(text)

    def characters(self, text: str) -> None:
        self._text.append(text)

    def instruction(self, target: str, content: str) -> None:
        if target == "xml-stylesheet" and (sheet := _STYLE_SHEET.search(content)):
            self.found.requisites.add(sheet[2])

    def read_quoted(self) -> None:
        """Adds the links of the HTML in the feed."""
        if self._quoted:
            html = links_of_html("\n".join(self._quoted).encode(), "text/html; charset=utf-8")
            self.found.links |= html.links
            self.found.requisites |= html.requisites


_STYLE_SHEET = re.compile(r"""\bhref\s*=\s*(["'])(.*?)\1""", re.S)


def links_of_xml(document: bytes) -> Links:
    """The links of an XML document; of a broken one, those before the error."""
    reader = _Reader()
    parser = expat.ParserCreate()
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.characters
    parser.ProcessingInstructionHandler = reader.instruction
    parser.buffer_text = True
    with suppress(expat.ExpatError, _Stop, ValueError):
        parser.Parse(document.lstrip(), True)
    reader.read_quoted()
    return reader.found
