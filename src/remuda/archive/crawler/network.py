"""How a crawl reaches servers: which addresses it may, through which proxy, over which kept connections."""

import asyncio
import base64
import socket
import ssl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from remuda.archive.crawler.addresses import is_public
from remuda.archive.crawler.http import HttpConnection
from remuda.archive.crawler.response import FetchFailed
from remuda.base.clock import monotonic
from remuda.base.errors import Misconfigured
from remuda.base.log import redact_wrong_url

DNS_TTL = 300.0
MAX_NAMES = 10_000
MAX_LOOK_UPS = 128
"""Names of one crawl that are looked up at a time: more than it has downloaders, because one that gives up
leaves its look-up behind. Each takes a thread, half a minute if no server answers, and the loop's own threads
are few and do other work: a page with links to dead sites would keep all other names waiting."""
MAX_ADDRESSES = 4
"""Addresses of a host that are tried."""
MAX_IDLE = 15.0
"""Seconds that an unused connection is kept: many servers close theirs soon after."""


@dataclass(frozen=True)
class Network:
    """The machine's rules for all crawls. Fixed at start."""

    allow_private_addresses: bool = False
    """Whether private, loopback, link-local and other special addresses may be reached."""
    proxy: str = ""
    """`http://[user:password@]host:port` or `socks5://...`: all connections go through it, and it resolves
    the names. The check of addresses then covers only literal ones."""
    verify_tls: bool = False
    """Whether certificates must be valid. An archive keeps sites with expired ones, too: by default they are
    recorded, not judged."""
    connect_timeout: float = 20.0
    head_timeout: float = 60.0
    idle_timeout: float = 30.0
    """Seconds without a byte of the body."""
    total_timeout: float = 6 * 3600.0
    min_rate: int = 100
    """Bytes per second that a body must reach on average, after twice the idle time-out."""


def check_proxy(text: str) -> str:
    """The URL of a proxy; Misconfigured if it cannot be used."""
    try:
        parts = urlsplit(text)
        is_usable = parts.scheme in ("http", "socks5", "socks5h") and parts.hostname and parts.port != 0
    except ValueError:
        is_usable = False
    if text and not is_usable:
        shown = redact_wrong_url(text)
        raise Misconfigured(f"archive_proxy is {shown!r}: http://host:port or socks5://host:port is expected")
    return text


class WebOrigin(NamedTuple):
    """A server: what connections are kept for."""

    is_tls: bool
    host: str
    port: int


class Resolution(NamedTuple):
    """What a name stands for, and until when that is believed."""

    addresses: tuple[str, ...]
    until: float


@dataclass(frozen=True)
class ServerCertificate:
    """What a server showed on a TLS connection."""

    origin: WebOrigin
    der: bytes
    protocol: str
    cipher: str


class ConnectionPool:
    """Connections of one crawl: makes them, keeps them, hands them out again."""

    def __init__(
        self,
        network: Network,
        spool: Path,
        *,
        on_resolved: Callable[[str, tuple[str, ...]], None],
        on_certificate: Callable[[ServerCertificate], None],
    ) -> None:
        """`on_resolved` hears of each host's addresses, `on_certificate` of each server's certificate."""
        self._network = network
        self._spool = spool
        self._on_resolved = on_resolved
        self._on_certificate = on_certificate
        self._idle: dict[WebOrigin, list[tuple[float, HttpConnection]]] = {}
        self._names: dict[str, Resolution] = {}
        self._resolving: dict[str, asyncio.Future[tuple[str, ...]]] = {}
        self._resolvers = ThreadPoolExecutor(MAX_LOOK_UPS, thread_name_prefix="resolver")
        self._shown: set[WebOrigin] = set()
        self._proxy = urlsplit(network.proxy) if network.proxy else None
        self._tls = _tls_context(network.verify_tls)

    @property
    def proxies_requests(self) -> bool:
        """Whether requests for plain HTTP go to a proxy, in absolute form (RFC 9112 3.2.2)."""
        return self._proxy is not None and self._proxy.scheme == "http"

    @property
    def proxy_authorization(self) -> bytes:
        """The field that the proxy asks for; it must not get into a WARC."""
        if self._proxy is None or not self._proxy.username:
            return b""
        pair = f"{unquote(self._proxy.username)}:{unquote(self._proxy.password or '')}"
        return b"Proxy-Authorization: Basic " + base64.b64encode(pair.encode()) + b"\r\n"

    def take_idle(self, origin: WebOrigin) -> HttpConnection | None:
        """A kept connection, if there is one that is still open."""
        kept = self._idle.get(origin)
        moment = monotonic()
        while kept:
            since, connection = kept.pop()
            if connection.is_open and moment - since < MAX_IDLE:
                return connection
            connection.close()
        return None

    def keep(self, origin: WebOrigin, connection: HttpConnection) -> None:
        """This connection is free again."""
        if connection.is_open:
            self._idle.setdefault(origin, []).append((monotonic(), connection))

    def close(self, *, unused_only: bool = False) -> None:
        """Closes kept connections; those that were not used for a while, or all."""
        moment = monotonic()
        for origin, kept in list(self._idle.items()):
            for since, connection in kept:
                if not unused_only or moment - since >= MAX_IDLE or not connection.is_open:
                    connection.close()
            self._idle[origin] = [each for each in kept if each[1].is_open]
            if not self._idle[origin]:
                del self._idle[origin]

    def stop(self) -> None:
        """Closes everything, and asks for no more addresses."""
        self.close()
        for asked in self._resolving.values():
            asked.cancel()
        self._resolvers.shutdown(wait=False, cancel_futures=True)

    async def open(self, origin: WebOrigin) -> HttpConnection:
        """A new connection to a checked address; FetchFailed if there is none."""
        try:
            async with asyncio.timeout(self._network.connect_timeout):
                return await self._open(origin)
        except TimeoutError:
            raise FetchFailed("The connection could not be made in time") from None

    async def _open(self, origin: WebOrigin) -> HttpConnection:
        if self._proxy is not None:
            return await self._open_by_proxy(origin)
        addresses = (await self._resolve(origin.host))[:MAX_ADDRESSES]
        failure = ""
        for address in addresses:
            try:
                # Each has its share of the time: one that does not answer must not use up that of the next.
                async with asyncio.timeout(self._network.connect_timeout / len(addresses)):
                    return await self._dial(
                        origin, address, origin.port, self._tls if origin.is_tls else None
                    )
            except TimeoutError:
                failure = "The connection could not be made in time"
            except (OSError, ssl.SSLError) as error:
                failure = _reason(error)
        raise FetchFailed(failure)

    async def _dial(
        self, origin: WebOrigin, address: str, port: int, tls: ssl.SSLContext | None
    ) -> HttpConnection:
        loop = asyncio.get_running_loop()
        # The host is an address by now: nothing is looked up again.
        transport, connection = await loop.create_connection(
            lambda: HttpConnection(self._spool),
            address,
            port,
            ssl=tls,
            server_hostname=_server_name(origin.host) if tls else None,
        )
        connection.address = address
        self._note_certificate(origin, transport)
        return connection

    def _note_certificate(self, origin: WebOrigin, transport: asyncio.BaseTransport) -> None:
        tls = transport.get_extra_info("ssl_object")
        if tls is None or origin in self._shown:
            return
        self._shown.add(origin)
        if der := tls.getpeercert(binary_form=True):
            self._on_certificate(
                ServerCertificate(origin, der, tls.version() or "", (tls.cipher() or ("",))[0])
            )

    # Names

    async def _resolve(self, host: str) -> tuple[str, ...]:
        """The addresses of a host that may be reached; FetchFailed if there are none."""
        known = self._names.get(host)
        if known is not None and known.until > monotonic():
            return known.addresses
        # Several downloaders want a new host at once: one of them asks, all get its answer.
        asked = self._resolving.get(host)
        if asked is None:
            asked = self._resolving[host] = asyncio.ensure_future(self._look_up(host))
            asked.add_done_callback(lambda _: self._resolving.pop(host, None))
        return await asyncio.shield(asked)

    async def _look_up(self, host: str) -> tuple[str, ...]:
        loop = asyncio.get_running_loop()
        try:
            look_up = partial(socket.getaddrinfo, host, 0, type=socket.SOCK_STREAM)
            found = await loop.run_in_executor(self._resolvers, look_up)
        except (OSError, UnicodeError) as error:
            is_final = getattr(error, "errno", None) != socket.EAI_AGAIN
            raise FetchFailed("The host name could not be resolved", is_final=is_final) from error
        addresses = tuple(dict.fromkeys(str(each[4][0]) for each in found))
        self._check(host, addresses)
        allowed = addresses if self._network.allow_private_addresses else tuple(filter(is_public, addresses))
        if len(self._names) >= MAX_NAMES:
            self._names.clear()
        self._names[host] = Resolution(allowed, monotonic() + DNS_TTL)
        if not _is_literal(host):
            self._on_resolved(host, addresses)
        return allowed

    def _check(self, host: str, addresses: tuple[str, ...]) -> None:
        if not self._network.allow_private_addresses and not any(map(is_public, addresses)):
            raise FetchFailed(
                f"{host} has only addresses that must not be reached: see the option allow_private_addresses",
                is_final=True,
            )

    # Proxies

    async def _open_by_proxy(self, origin: WebOrigin) -> HttpConnection:
        assert self._proxy is not None
        if _is_literal(origin.host):
            self._check(origin.host, (origin.host,))
        host, port = (
            self._proxy.hostname or "",
            self._proxy.port or (1080 if "socks" in self._proxy.scheme else 3128),
        )
        try:
            if self._proxy.scheme == "http" and not origin.is_tls:
                connection = await self._dial(origin, host, port, None)
                connection.address = ""  # Only the proxy knows that of the server.
                return connection
            reader, writer = await asyncio.open_connection(host, port)
        except OSError as error:
            raise FetchFailed(f"The proxy cannot be reached: {_reason(error)}") from error
        try:
            if self._proxy.scheme == "http":
                await _connect(reader, writer, origin, self.proxy_authorization)
            else:
                credentials = unquote(self._proxy.username or ""), unquote(self._proxy.password or "")
                await _socks5(reader, writer, origin, credentials)
            return await self._take_over(writer, origin)
        except (OSError, ssl.SSLError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            writer.transport.abort()
            raise FetchFailed(f"The proxy gave no connection: {_reason(error)}") from error
        except BaseException:
            writer.transport.abort()
            raise

    async def _take_over(self, writer: asyncio.StreamWriter, origin: WebOrigin) -> HttpConnection:
        """Puts our protocol on the connection through a proxy, inside TLS if the server wants that."""
        loop = asyncio.get_running_loop()
        connection = HttpConnection(self._spool)
        # A StreamWriter closes its transport when it is collected.
        connection.tunnel = writer
        transport: asyncio.BaseTransport | None = writer.transport
        if origin.is_tls:
            transport = await loop.start_tls(
                writer.transport, connection, self._tls, server_hostname=_server_name(origin.host)
            )
            if transport is None:
                raise OSError("TLS failed")
        else:
            writer.transport.set_protocol(connection)
        connection.connection_made(transport)  # type: ignore[arg-type]
        self._note_certificate(origin, transport)  # type: ignore[arg-type]
        return connection


async def _connect(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, origin: WebOrigin, authorization: bytes
) -> None:
    """RFC 9110 9.3.6."""
    target = f"[{origin.host}]:{origin.port}" if ":" in origin.host else f"{origin.host}:{origin.port}"
    writer.write(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n".encode() + authorization + b"\r\n")
    head = await reader.readuntil(b"\r\n\r\n")
    status = head.partition(b"\r\n")[0].split(b" ")[1:2]
    if status != [b"200"]:
        raise OSError(f"it answered {head.partition(chr(13).encode())[0].decode('latin-1')[:100]}")


async def _socks5(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    origin: WebOrigin,
    credentials: tuple[str, str],
) -> None:
    """RFC 1928 and 1929; the proxy resolves the name."""
    user, password = (each.encode()[:255] for each in credentials)
    writer.write(b"\x05\x02\x00\x02" if user else b"\x05\x01\x00")
    _, method = await reader.readexactly(2)
    if method == 2 and user:
        writer.write(bytes((1, len(user))) + user + bytes((len(password),)) + password)
        _, refused = await reader.readexactly(2)
        if refused:
            raise OSError("it refused the password")
    elif method != 0:
        raise OSError("it wants another kind of authentication")
    if _is_literal(origin.host):
        packed = ip_address(origin.host).packed
        target = (b"\x01" if len(packed) == 4 else b"\x04") + packed
    else:
        name = origin.host.encode()[:255]
        target = b"\x03" + bytes((len(name),)) + name
    writer.write(b"\x05\x01\x00" + target + origin.port.to_bytes(2, "big"))
    _, code, _, kind = await reader.readexactly(4)
    if code:
        raise OSError(f"it answered with code {code}")
    length = {1: 4, 4: 16}.get(kind) or (await reader.readexactly(1))[0]
    await reader.readexactly(length + 2)


def _tls_context(verify: bool) -> ssl.SSLContext:
    if verify:
        context = ssl.create_default_context()
    else:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        # Old servers are what an archive is for.
        context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
        context.set_ciphers("ALL:@SECLEVEL=0")
    context.set_alpn_protocols(["http/1.1"])
    return context


def _server_name(host: str) -> str:
    # RFC 6066 3 allows no literal address; asyncio wants one all the same, and OpenSSL leaves it out.
    return host.rstrip(".")


def _is_literal(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _reason(error: BaseException) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "The connection was refused"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or error}"
    if isinstance(error, OSError):
        return error.strerror or str(error) or type(error).__name__
    return str(error) or type(error).__name__
