"""Which URLs belong to a job: the rules of its scope. Pure.

With the scope `original` they are ArchiveBot's (wpull's URL filters, all of which must agree), but for one
thing: a start URL that is redirected within its site (`example.com` to `www.example.com`) starts there. With
wpull such a job ends after two pages.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto

from remuda.archive.crawler.frontier import ClaimedUrl
from remuda.archive.crawler.model import CrawlOrder, CrawlScope
from remuda.archive.urls import directory_of, host_of

MAX_INLINE = 5
"""How many requisites deep: a frame in a frame, the font of a style that a style imports."""
INLINE_BEYOND_DEPTH = 2


class LinkKind(Enum):
    """How a URL was found."""

    PAGE = auto()
    REQUISITE = auto()
    REDIRECT = auto()
    SITEMAP = auto()


@dataclass(frozen=True)
class Root:
    """The start URL that a URL was reached from."""

    host: str
    scheme: str
    server: str
    """Host and port."""
    directory: str
    """The path up to its last slash."""

    @classmethod
    def of(cls, url: str) -> "Root":
        return cls(host_of(url), *_parts(directory_of(url)))

    def excludes(self, url: str, host: str) -> bool:
        """Whether a URL is on the server of the start URL, but not below its directory. As in wpull, http and
        https are one server, whatever their ports; another port is another server."""
        if host != self.host:
            return False
        scheme, server, path = _parts(url)
        return (scheme != self.scheme or server == self.server) and not path.startswith(self.directory)


def _parts(url: str) -> tuple[str, str, str]:
    """Scheme, host with port, and the rest of a normalised URL."""
    scheme, _, rest = url.partition("://")
    netloc, slash, path = rest.partition("/")
    return scheme, netloc, slash + path


def are_kin(host: str, other: str) -> bool:
    """Whether a start URL on one host that is redirected to the other still means the same site: with and
    without `www.`, and subdomains."""
    host, other = host.removeprefix("www."), other.removeprefix("www.")
    return host == other or host.endswith("." + other) or other.endswith("." + host)


class ScopeRules:
    """The rules of one job."""

    def __init__(self, order: CrawlOrder, starts: Iterable[str] = ()) -> None:
        self._order = order
        self._keeps_below = order.no_parent and order.scope is CrawlScope.ORIGINAL
        self._hosts: set[str] = set()
        self._domains: set[str] = set()
        self._prefixes: set[str] = set()
        for url in starts:
            self.extend(url)

    def extend(self, url: str) -> None:
        """This is a start URL, too."""
        host = host_of(url)
        self._hosts.add(host)
        self._domains.add(host.removeprefix("www."))
        self._prefixes.add(directory_of(url).partition(":")[2])

    def covers(self, url: str, host: str) -> bool:
        """Whether a URL is part of the site itself."""
        if self._order.scope is CrawlScope.DOMAIN:
            parts = host.split(".")
            return any(".".join(parts[start:]) in self._domains for start in range(len(parts)))
        if self._order.scope is CrawlScope.PREFIX:
            # A job may have many start URLs, but a URL has few directories.
            path = url.partition(":")[2]
            ends = (number for number, letter in enumerate(path, 1) if letter == "/")
            return any(path[:end] in self._prefixes for end in ends)
        return host in self._hosts

    def accepts(
        self,
        url: str,
        host: str,
        kind: LinkKind,
        *,
        parent: ClaimedUrl,
        parent_host: str,
        root: Root,
        offsite: bool,
    ) -> bool:
        """Whether a URL that was found in `parent` is fetched."""
        order = self._order
        is_inline = kind is LinkKind.REQUISITE or (kind is LinkKind.REDIRECT and parent.inline > 0)
        if is_inline:
            inline = parent.inline + (kind is LinkKind.REQUISITE)
            return (
                order.page_requisites
                and inline <= MAX_INLINE
                and parent.depth <= order.depth + INLINE_BEYOND_DEPTH
            )
        if kind is not LinkKind.REDIRECT and (order.depth == 0 or parent.depth >= order.depth):
            return False
        if self._keeps_below and root.excludes(url, host):
            return False
        if kind is LinkKind.REDIRECT:
            return True
        return self.covers(url, host) or (offsite and self.covers(parent.url, parent_host))
