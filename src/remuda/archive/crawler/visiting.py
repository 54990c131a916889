"""What becomes of one URL: it is fetched, recorded and looked through for others; or put off, or given up."""

import asyncio
import re
from collections.abc import Callable
from contextlib import nullcontext
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from remuda.archive.crawler.decoding import unpack
from remuda.archive.crawler.discovery import REDIRECTS, Discovered, Discovery, may_have_links
from remuda.archive.crawler.fetching import FetchedExchange, Fetcher
from remuda.archive.crawler.frontier import ClaimedUrl, Found, Frontier, UrlState
from remuda.archive.crawler.links import MAX_ROBOTS
from remuda.archive.crawler.model import CrawlOrder
from remuda.archive.crawler.reader import DocumentReader
from remuda.archive.crawler.reading import DocumentLinks, links_in
from remuda.archive.crawler.recorder import CrawlRecorder
from remuda.archive.crawler.response import FetchedResponse, FetchFailed
from remuda.archive.crawler.schedule import Schedule
from remuda.archive.crawler.tally import CrawlTally
from remuda.archive.urls import Base, host_of
from remuda.base.clock import monotonic, now
from remuda.base.helper import HelperEnded

if TYPE_CHECKING:
    from protego import Protego

LONG_DOCUMENT = 32 << 10
"""Bytes. Longer ones are read by a helper: what is made for it takes a parser a time that grows with the
square of its length. This much takes a tenth of a second."""
MAX_THROTTLED = 10
"""Tries of a URL that is answered with 429 or 503."""
MAX_ROBOTS_RULES = 500_000
"""Rules of a robots.txt, each counted for every user agent of its group, as protego keeps them. 500 KB could
make hundreds of millions."""
LONG_ROBOTS = 16 << 10
"""Bytes. Each rule of a longer one is tried in a thread: half a second for URLs that are made for it."""
MAX_ROBOTS_REDIRECTS = 5
"""Redirects from a robots.txt that are followed (RFC 9309 2.3.1.2)."""
_THROTTLED = frozenset((429, 503))
_TRIED_AGAIN = frozenset((408, 425, 429, 500, 502, 503, 504))


class RobotRules:
    """What a server allows, by its robots.txt (RFC 9309)."""

    def __init__(self, response: FetchedResponse | None) -> None:
        """`response` is that of its robots.txt; None if there was none, and then everything is allowed: the
        pages will fail in the same way. Blocks while a long one is parsed."""
        self._rules: Protego | None = None
        self.is_long = False
        """Whether `allow` blocks."""
        # RFC 9309 2.3.1.4: a server that fails may have rules that cannot be seen.
        self._is_closed = response is not None and response.status >= 500
        if response is not None and response.status == 200:
            import protego

            text = response.read_document(limit=MAX_ROBOTS)
            self.is_long = len(text) > LONG_ROBOTS
            self._rules = protego.Protego.parse(_without_crowds(text.decode("utf-8", "replace")))

    def allow(self, url: str, user_agent: str) -> bool:
        if self._rules is not None:
            return bool(self._rules.can_fetch(url, user_agent))
        return not self._is_closed


# All that protego may take for a user agent, and what is certain to end a list of them.
_AGENT = re.compile(r"\s*user\W*agent", re.I)
_RULE = re.compile(r"\s*(?:dis)?allow\s*:", re.I)


def _without_crowds(text: str) -> str:
    """The beginning of a robots.txt that has as many rules as are looked at."""
    agents = rules = position = 0
    has_begun = True
    for line in text.splitlines(keepends=True):
        if _AGENT.match(line):
            agents = agents + 1 if has_begun else 1
            has_begun = True
        else:
            rules += agents
            if rules > MAX_ROBOTS_RULES:
                return text[:position]
            has_begun = has_begun and not _RULE.match(line)
        position += len(line)
    return text


class Visits:
    """Visits URLs for a crawl. What it notes in the frontier counts once the crawl has committed it."""

    def __init__(
        self,
        order: CrawlOrder,
        frontier: Frontier,
        recorder: CrawlRecorder,
        tally: CrawlTally,
        *,
        fetcher: Fetcher,
        discovery: Discovery,
        schedule: Schedule,
        on_found: Callable[[], None],
    ) -> None:
        """`on_found` is called when there are new URLs to fetch."""
        self._order = order
        self._frontier = frontier
        self._recorder = recorder
        self._tally = tally
        self._fetcher = fetcher
        self._discovery = discovery
        self._schedule = schedule
        self._on_found = on_found
        self._out_of_turn: dict[int, asyncio.Future[RobotRules]] = {}
        """URLs that rules were fetched from, or are, by the tasks that do so."""
        self._reading = asyncio.Lock()
        self.reader = DocumentReader()
        self.robots: dict[str, asyncio.Future[RobotRules]] = {}
        """The rules of each server, or the tasks that fetch them."""
        self.is_dirty = False
        """Whether there is something to commit."""

    async def visit(self, claim: ClaimedUrl) -> bool:
        """Fetches a URL and records what came of it; whether a request was sent."""
        url = claim.url
        if (early := self._out_of_turn.get(claim.id)) is not None:
            await asyncio.wait([early])
        if claim.id in self._out_of_turn:
            return False
        ignores = self._discovery.ignores
        pattern = ignores.find(url)
        if pattern is None and ignores.has_more:
            pattern = await ignores.find_more(url)
        if pattern is not None:
            self._tally.ignored(url, pattern, source="handle_pre_response")
            self._close_url(claim, UrlState.SKIPPED)
            return False
        if not self._discovery.still_wants(claim):
            self._close_url(claim, UrlState.SKIPPED)
            return False
        if self._order.obey_robots and not await self._is_allowed(claim):
            self._tally.say(f"robots.txt forbids {url}")
            self._close_url(claim, UrlState.SKIPPED)
            return False
        if claim.id in self._out_of_turn:  # The rules were fetched from it.
            return False
        try:
            exchange = await self._fetcher.fetch(url, claim.referrer)
        except FetchFailed as error:
            self.give_up(claim, error.reason, is_final=error.is_final)
            return True
        try:
            await self._take_in(claim, exchange)
        finally:
            exchange.response.body.close()
        return True

    async def _take_in(self, claim: ClaimedUrl, exchange: FetchedExchange) -> None:
        response = exchange.response
        self._tally.add("bytes", exchange.received)
        if (fault := _fault_of(response)) and claim.tries + 1 < self._order.tries:
            self.give_up(claim, fault, status=response.status)
            return
        self._tally.download(claim.url, response.status, "OK")
        if response.status in _TRIED_AGAIN and self._try_again(claim, exchange):
            return
        if claim.tries + 1 < self._order.tries and _wants_cookie(claim.url, response):
            self._put_off(claim, claim.tries + 1, 0.0)
            return
        if response.status not in _THROTTLED:
            self._schedule.praise(claim)
        links, is_long = _links_if_short(claim.url, response)
        # One long document at a time, until it is recorded: what it leads to may take much memory.
        async with self._reading if is_long else nullcontext():
            if is_long:
                links = await self._read_long(claim, response)
            found = await self._discovery.look_through(claim, response, links)
            await self._record(claim, exchange, found)

    async def _record(self, claim: ClaimedUrl, exchange: FetchedExchange, found: Discovered) -> None:
        response = exchange.response
        original = self._find_original(exchange)

        def mark(file: int, position: int) -> None:
            # From here to the end nothing awaits: the record, its mark and its links are one step.
            state = UrlState.FAILED if response.status in _TRIED_AGAIN else UrlState.DONE
            self._frontier.finish(
                claim, state, status=response.status, fetched=exchange.started, file=file, position=position
            )
            if original is None and response.body.size and not response.truncated:
                self._frontier.add_payload(response.body.payload_digest, claim)
            self._close_url(claim, None)
            self._tally.add("downloaded", 200 <= response.status < 400)
            if found.title is not None and response.status == 200:
                self._recorder.add_page(claim.url, found.title, exchange.started)
            if found.twin is not None:
                self._tally.say(
                    f"DUPE {claim.url} is the same page as {found.twin}; its links are not followed."
                )
            if found.urls:
                self._schedule.list_hosts(self._frontier.add(found.urls))
                self._on_found()

        await self._recorder.record(exchange, original=original, outlinks=found.outlinks, mark=mark)

    async def _read_long(self, claim: ClaimedUrl, response: FetchedResponse) -> DocumentLinks | None:
        """What a long document leads to; None if it cannot be read."""
        try:
            return await self.reader.read(claim.url, response)
        except HelperEnded as error:
            self._tally.unread(claim.url, str(error))
        return None

    def _find_original(self, exchange: FetchedExchange) -> tuple[str, float] | None:
        """Where the same payload is already, if that is looked for."""
        response = exchange.response
        if not self._order.dedupe or not response.body.size or response.truncated:
            return None
        digest = response.body.payload_digest
        return self._frontier.same_payload(digest) or self._recorder.same_payload_elsewhere(digest)

    def _try_again(self, claim: ClaimedUrl, exchange: FetchedExchange) -> bool:
        """Puts a URL off whose server has a bad moment; whether there is another try."""
        is_throttled = exchange.response.status in _THROTTLED
        wait = 0.0
        if is_throttled:
            retry_after = _retry_after(exchange.response.fields.get("retry-after", ""))
            wait = self._schedule.back_off(claim, monotonic(), retry_after)
        tries = claim.tries + 1
        if tries >= (max(MAX_THROTTLED, self._order.tries) if is_throttled else self._order.tries):
            return False
        self._put_off(claim, tries, wait if is_throttled else self._order.retry_wait * 2**claim.tries)
        return True

    def _put_off(self, claim: ClaimedUrl, tries: int, wait: float) -> None:
        self._frontier.retry(claim, tries=tries, due=now() + wait)
        self.is_dirty = True

    def give_up(self, claim: ClaimedUrl, reason: str, *, status: int = 0, is_final: bool = False) -> None:
        """A URL got no whole response: it is put off, or counted as failed."""
        self._tally.download(claim.url, status, reason)
        tries = claim.tries + 1
        if is_final or tries >= self._order.tries:
            self._close_url(claim, UrlState.FAILED)
        else:
            self._put_off(claim, tries, self._order.retry_wait * 2**claim.tries)

    def _close_url(self, claim: ClaimedUrl, state: UrlState | None) -> None:
        if state is not None:
            self._frontier.finish(claim, state)
        self._tally.add("finished")
        self.is_dirty = True

    async def _is_allowed(self, claim: ClaimedUrl) -> bool:
        root = claim.url[: claim.url.index("/", 8)]
        asked = self.robots.get(root)
        if asked is None:
            asked = self.robots[root] = asyncio.ensure_future(self._fetch_robots(root, claim))
        rules = await asyncio.shield(asked)
        agent = self._discovery.settings.user_agent
        if claim.url == root + "/robots.txt":  # RFC 9309 2.2.2: it is always allowed.
            return True
        if not rules.is_long:
            return rules.allow(claim.url, agent)
        async with self._reading:
            return await asyncio.to_thread(rules.allow, claim.url, agent)

    async def _fetch_robots(self, root: str, reason: ClaimedUrl) -> RobotRules:
        """The rules of a server, wherever it redirects to for them. All responses are archived like pages,
        unless they have been before."""
        url = root + "/robots.txt"
        asked: set[str] = set()
        rules = RobotRules(None)
        claim = self._claim_out_of_turn(url, reason, redirects=0)
        while url and url not in asked and len(asked) <= MAX_ROBOTS_REDIRECTS:
            asked.add(url)
            try:
                exchange = await self._fetcher.fetch(url, None)
            except FetchFailed:
                rules = RobotRules(None)
                break
            try:
                rules = await asyncio.to_thread(RobotRules, exchange.response)
                url = _target_of(exchange)
                # Before the redirect is taken in, by which its target would get a turn of its own.
                following = self._claim_out_of_turn(url, reason, redirects=len(asked)) if url else None
                if claim is not None:
                    await self._take_in(claim._replace(tries=MAX_THROTTLED), exchange)
            finally:
                exchange.response.body.close()
            claim = following
        if claim is not None:  # It was not fetched: its turn comes.
            del self._out_of_turn[claim.id]
        return rules

    def _claim_out_of_turn(self, url: str, reason: ClaimedUrl, *, redirects: int) -> ClaimedUrl | None:
        """A URL that rules are fetched from; None if it has been archived."""
        number = reason.root or reason.id
        found = Found(url, host_of(url), reason.id, number, reason.depth, 1, redirects)
        self._schedule.list_hosts(self._frontier.add([found]))
        claim = self._frontier.claim_of(url)
        if claim is None or claim.id in self._out_of_turn:
            return None
        task = asyncio.current_task()
        assert task is not None
        self._out_of_turn[claim.id] = task
        return claim


def _links_if_short(url: str, response: FetchedResponse) -> tuple[DocumentLinks | None, bool]:
    """What the document of a response leads to, if it has one; or that it is too long to be read here."""
    if not may_have_links(url, response):
        return None, False
    if response.body.size > LONG_DOCUMENT:
        return None, True
    document, is_longer = unpack(response.read_payload(), response.codings, limit=LONG_DOCUMENT)
    if is_longer:
        return None, True
    return links_in(document, url, response.fields.get("content-type", "")), False


def _target_of(exchange: FetchedExchange) -> str:
    """Where a response redirects to; empty if it does not."""
    response = exchange.response
    if response.status not in REDIRECTS:
        return ""
    # Servers send it in UTF-8, though headers are Latin-1.
    location = response.fields.get("location", "").encode("latin-1").decode("utf-8", "replace")
    return Base(exchange.url).resolve(location) or "" if location else ""


def _fault_of(response: FetchedResponse) -> str:
    """What is wrong with a response that may be whole at the next try; empty if nothing is."""
    if response.is_malformed:
        return "The chunks of the response are malformed"
    return "The server closed the connection early" if response.truncated == "disconnect" else ""


def _wants_cookie(url: str, response: FetchedResponse) -> bool:
    """Whether a page redirects to itself with a cookie: now that the cookie is there, it may answer."""
    target = response.fields.get("location")
    return bool(
        target
        and response.status in REDIRECTS
        and "set-cookie" in response.fields
        and Base(url).resolve(target) == url
    )


def _retry_after(value: str) -> float | None:
    """The seconds that a Retry-After field asks for (RFC 9110 10.2.3)."""
    value = value.strip()
    if value.isascii() and value.isdigit() and len(value) < 10:
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - now())
    except (ValueError, TypeError, OverflowError):
        return None
