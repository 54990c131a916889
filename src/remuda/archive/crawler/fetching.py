"""From a URL to its response: the request, the connection, and another connection if a kept one was dead."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote_to_bytes

from remuda.archive.crawler.cookies import Cookies
from remuda.archive.crawler.network import ConnectionPool, Network, WebOrigin
from remuda.archive.crawler.response import FetchedResponse, FetchFailed
from remuda.archive.urls import host_of, netloc_of, server_of
from remuda.base.clock import now

# Not zstd, which we could read: replay tools cannot yet.
_ACCEPT = (
    "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8\r\n"
    "Accept-Encoding: gzip, deflate, br\r\nAccept-Language: en-US,en;q=0.5\r\n"
)
MAX_SERVERS = 1000
"""Of which what was parsed is remembered."""


@dataclass(slots=True)
class FetchedExchange:
    """A request and the response to it."""

    url: str
    request: bytes
    response: FetchedResponse
    address: str
    """Of the server; empty if a proxy stood between."""
    started: float
    received: int


class Fetcher:
    """Fetches URLs of one crawl."""

    def __init__(
        self,
        network: Network,
        connections: ConnectionPool,
        cookies: Cookies,
        *,
        credentials: Mapping[str, str],
        max_body: int,
    ) -> None:
        """`credentials` are sent to their servers only: see `urls.credentials_by_server`."""
        self._network = network
        self._connections = connections
        self._cookies = cookies
        self._credentials = credentials
        self._max_body = max_body
        self._servers: dict[str, tuple[WebOrigin, str]] = {}
        self.user_agent = ""

    async def fetch(self, url: str, referrer: str | None) -> FetchedExchange:
        """The exchange; FetchFailed if there was no response."""
        origin, fields = self._server(url)
        path = url[url.index("/", 8) :]
        request = self._request(url, path, origin, fields, referrer)
        started = now()
        sent = self._as_sent(request, url, origin)
        connection = self._connections.take_idle(origin)
        response: FetchedResponse | None = None
        if connection is not None:
            try:
                response = await connection.exchange(sent, max_body=self._max_body, network=self._network)
            except FetchFailed:
                # RFC 9112 9.3.1: a server may close an idle connection just as a request is on its way.
                if connection.received:
                    raise
        if response is None or connection is None:
            connection = await self._connections.open(origin)
            response = await connection.exchange(sent, max_body=self._max_body, network=self._network)
        received = connection.received
        self._connections.keep(origin, connection)
        if "set-cookie" in response.fields:
            moment = now()
            for line in response.all_of("set-cookie"):
                self._cookies.store(line, origin.host, path.partition("?")[0], moment=moment)
        return FetchedExchange(url, request, response, connection.address, started, received)

    def _server(self, url: str) -> tuple[WebOrigin, str]:
        """Where a URL is fetched, and the fields of each request there."""
        start = server_of(url)
        known = self._servers.get(start)
        if known is not None:
            return known
        is_tls = url.startswith("https:")
        netloc = netloc_of(url)
        port = netloc.rpartition("]")[2].partition(":")[2]
        fields = f"Host: {netloc}\r\n"
        if credentials := self._credentials.get(start):
            # RFC 7617 2: there is always a colon.
            pair = unquote_to_bytes(credentials if ":" in credentials else f"{credentials}:")
            fields += f"Authorization: Basic {base64.b64encode(pair).decode()}\r\n"
        origin = WebOrigin(is_tls, host_of(url), int(port) if port else 443 if is_tls else 80)
        if len(self._servers) >= MAX_SERVERS:
            self._servers.clear()
        self._servers[start] = origin, fields
        return origin, fields

    def _request(self, url: str, path: str, origin: WebOrigin, fields: str, referrer: str | None) -> bytes:
        lines = f"GET {path} HTTP/1.1\r\n{fields}User-Agent: {self.user_agent}\r\n{_ACCEPT}"
        # As browsers do: no address of a secure page goes to an insecure server.
        if referrer and (origin.is_tls or referrer.startswith("http:")):
            lines += f"Referer: {referrer}\r\n"
        if cookies := self._cookies.header(origin.host, path, is_secure=origin.is_tls):
            lines += f"Cookie: {cookies}\r\n"
        return f"{lines}Connection: keep-alive\r\n\r\n".encode("latin-1", "replace")

    def _as_sent(self, request: bytes, url: str, origin: WebOrigin) -> bytes:
        """The request as a proxy wants it. The WARC gets the one that the server saw."""
        if origin.is_tls or not self._connections.proxies_requests:
            return request
        _, _, rest = request.partition(b"\r\n")
        return f"GET {url} HTTP/1.1\r\n".encode() + self._connections.proxy_authorization + rest


def make_spool(directory: Path) -> Path:
    """Where long bodies lie until they are written; emptied of what a killed crawl left."""
    directory.mkdir(parents=True, exist_ok=True)
    for path in directory.iterdir():
        path.unlink()
    return directory
