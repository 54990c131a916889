"""What a response leads to: the URLs in it that belong to the job. No I/O."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from remuda.archive.crawler.duplicates import is_loop
from remuda.archive.crawler.frontier import ClaimedUrl, Found, Frontier
from remuda.archive.crawler.links import links_of_headers
from remuda.archive.crawler.model import CrawlOrder, CrawlSettings
from remuda.archive.crawler.reading import DocumentLinks
from remuda.archive.crawler.response import FetchedResponse
from remuda.archive.crawler.scope import LinkKind, Root, ScopeRules, are_kin
from remuda.archive.ignores import Ignores
from remuda.archive.urls import Base, host_of, path_of, without_session

SCRAPED = frozenset((200, 203, 204, 206, 304))
REDIRECTS = frozenset((300, 301, 302, 303, 307, 308))
_MAX_REPORTED = 50_000
"""Ignored URLs and loops that are remembered, so that each is reported once."""
MAX_RESOLVED = 64 << 20
"""Bytes that the URLs of one response may take: each reference with the base that it is joined with, and with
what is noted about it. 3 MB of short links, on a page with a long base, would become 1.4 GB."""
_NOTES = 200
_TURN = 256 << 10
"""Bytes of URLs after which other tasks have their turn."""


@dataclass
class Discovered:
    """What was found in one response."""

    urls: list[Found] = field(default_factory=list)
    outlinks: list[str] | None = None
    """Every link, whether it belongs to the job or not; only if metadata records are wanted."""
    title: str | None = None
    """Of a page in HTML."""
    twin: str | None = None
    """The URL of the page that this one is a duplicate of."""
    room: int = MAX_RESOLVED
    """Bytes that further URLs may take."""


class Discovery:
    """Applies the rules of one job."""

    def __init__(
        self,
        order: CrawlOrder,
        frontier: Frontier,
        scope: ScopeRules,
        ignores: Ignores,
        *,
        on_ignored: Callable[[str, str], None],
        on_loop: Callable[[str], None],
    ) -> None:
        self._order = order
        self._frontier = frontier
        self._scope = scope
        self._on_ignored = on_ignored
        self._on_loop = on_loop
        self._reported: set[int] = set()
        """The hashes of URLs: those may be long."""
        self._root_of = lru_cache(1024)(lambda number: Root.of(frontier.url_of(number)))
        self.ignores = ignores
        self.settings = CrawlSettings()

    def apply(self, settings: CrawlSettings) -> None:
        self.settings = settings
        self._reported.clear()

    async def look_through(
        self, claim: ClaimedUrl, response: FetchedResponse, links: DocumentLinks | None
    ) -> Discovered:
        """What this response to this URL leads to: its head, and the links of its document if it has one."""
        found = Discovered(outlinks=[] if self._order.metadata_records else None)
        if response.status in REDIRECTS and (location := response.fields.get("location")):
            if claim.redirects < self._order.max_redirects:
                # Servers send it in UTF-8, though headers are Latin-1.
                target = location.encode("latin-1").decode("utf-8", "replace")
                await self._accept(claim, Base(claim.url), (target,), LinkKind.REDIRECT, found)
            return found
        if response.status not in SCRAPED:
            return found
        if "link" in response.fields or "refresh" in response.fields:
            headers = links_of_headers(response.all_of("link"), response.fields.get("refresh", ""))
            await self._accept_all(claim, Base(claim.url), DocumentLinks.of(headers), found)
        if links is None:
            return found
        if links.is_html and claim.inline == 0:
            found.title = links.title
            if self.settings.skip_duplicate_pages and links.fingerprint is not None:
                found.twin = self._frontier.same_page(links.fingerprint, claim)
        if found.twin is None:
            base = Base(claim.url, links.encoding)
            if links.base and (named := base.resolve(links.base)):
                base = Base(named, links.encoding)
            await self._accept_all(claim, base, links, found)
        return found

    async def _accept_all(
        self, claim: ClaimedUrl, base: Base, links: DocumentLinks, found: Discovered
    ) -> None:
        for references, kind in (
            (links.requisites, LinkKind.REQUISITE),
            (links.links, LinkKind.PAGE),
            (links.sitemaps, LinkKind.SITEMAP),
        ):
            await self._accept(claim, base, references, kind, found)

    async def _accept(
        self, claim: ClaimedUrl, base: Base, references: Iterable[str], kind: LinkKind, found: Discovered
    ) -> None:
        is_known = self._frontier.is_known
        parent_host = host_of(claim.url)
        root_number = claim.root or claim.id
        root: Root | None = None
        is_requisite, is_redirect = kind is LinkKind.REQUISITE, kind is LinkKind.REDIRECT
        depth = claim.depth + (kind is LinkKind.PAGE)
        inline = claim.inline + 1 if is_requisite else claim.inline if is_redirect else 0
        redirects = claim.redirects + 1 if is_redirect else 0
        # A start URL that is redirected within its site: the site is there.
        may_move = is_redirect and claim.depth == 0 and claim.inline == 0
        outlinks = found.outlinks
        taken, turn = len(base.url) + _NOTES, _TURN
        for reference in references:
            size = len(reference) + taken
            turn -= size
            if turn < 0:
                turn = _TURN
                await asyncio.sleep(0)
            # Most links are to known pages of the same site. Such a path is in normal form as it stands.
            is_path = reference[:1] == "/" and reference[1:2] != "/"
            if is_path and outlinks is None and is_known(base.root + reference):
                continue
            found.room -= size
            if found.room < 0:
                return
            url = base.resolve(reference)
            if url is None:
                continue
            if outlinks is not None:
                outlinks.append(url)
            url = without_session(url)
            if is_known(url):
                continue
            host = host_of(url)
            root = root or self._root_of(root_number)
            if self._scope.accepts(
                url,
                host,
                kind,
                parent=claim,
                parent_host=parent_host,
                root=root,
                offsite=self.settings.offsite_links,
            ) and self.admits(url):
                if may_move and are_kin(host, parent_host):
                    self._scope.extend(url)
                    root_number = 0
                    if self._order.sitemaps:
                        found.urls += self.sitemaps_of(url, claim.id)
                found.urls.append(Found(url, host, claim.id, root_number, depth, inline, redirects))

    def still_wants(self, claim: ClaimedUrl) -> bool:
        """Whether a URL that was found earlier is fetched by the settings of now: offsite links may have been
        turned off since."""
        is_offsite_link = claim.depth > 0 and claim.inline == 0 and claim.redirects == 0
        if self.settings.offsite_links or not is_offsite_link:
            return True
        return self._scope.covers(claim.url, host_of(claim.url))

    def sitemaps_of(self, start: str, number: int) -> list[Found]:
        """Where a site may tell of its pages: robots.txt and sitemap.xml, if they are in the scope of this
        start URL. `number` is that of the URL that led to them."""
        host, server = host_of(start), start[: start.index("/", 8)]
        seed = ClaimedUrl(number, start, None, 0, 0, 0, 0, 0, 0)
        return [
            Found(server + path, host, number, number, 0, 1, 0)
            for path in ("/robots.txt", "/sitemap.xml")
            if self._scope.accepts(
                server + path,
                host,
                LinkKind.SITEMAP,
                parent=seed,
                parent_host=host,
                root=Root.of(start),
                offsite=False,
            )
        ]

    def admits(self, url: str) -> bool:
        """Whether a URL is neither ignored nor a loop; reports it otherwise. Patterns that take a process of
        their own are tried when the URL's turn comes."""
        if hash(url) in self._reported:
            return False
        if (pattern := self.ignores.find(url)) is not None:
            self._on_ignored(url, pattern)
        elif self.settings.skip_duplicate_pages and is_loop(url):
            self._on_loop(url)
        else:
            return True
        if len(self._reported) >= _MAX_REPORTED:
            self._reported.clear()
        self._reported.add(hash(url))
        return False


def may_have_links(url: str, response: FetchedResponse) -> bool:
    """Whether a response has a document to look through for links."""
    if response.status not in SCRAPED or not response.body.size:
        return False
    kind = response.fields.get("content-type", "").partition(";")[0].strip().lower()
    path = path_of(url)
    return (
        kind in ("", "text/html", "text/css")
        or kind.endswith("xml")
        or path == "/robots.txt"
        or path.endswith((".xml", ".xml.gz"))
    )
