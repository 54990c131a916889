"""Whether a Redis answers without a password.

A browser can be made to connect to whatever its user may connect to, with bytes that its client chose, and
Redis executes every line that it understands. So a Redis of a machine with browsers must ask everybody for a
password. So must its Sentinels: `SENTINEL MONITOR` moves a herd to another master.
"""

import asyncio
import os
import ssl
from collections.abc import Sequence

from remuda.base.errors import Misconfigured, StoreUnavailable
from remuda.base.hosts import host_port
from remuda.base.seccomp import is_kept_from_browsers
from remuda.store.sentinel import Host, find_master
from remuda.store.url import StoreUrl

ANSWER_TIMEOUT = 2.0
# The first words of a server that does not let a stranger in, at least not now.
_CLOSED = (b"-NOAUTH", b"-DENIED", b"-ERR max number of clients")
_OVERRIDE = "or start Remuda with --insecure-redis if you trust every client and every page"


async def check_strangers(url: StoreUrl) -> None:
    """Misconfigured if this Redis, or a Sentinel of it, answers without a password, or if its socket is one
    that browsers cannot be kept from. A server that does not answer now is not judged."""
    if url.path:
        if not is_kept_from_browsers(url.path):
            size = len(os.fsencode(url.path))
            raise Misconfigured(
                f"The path of the socket {url.path} has {size} bytes. Browsers are kept from sockets by "
                "the length of their addresses, and this one is as long as that of an IP address. Choose a "
                f"path that is longer by a few letters, {_OVERRIDE}"
            )
        servers: Sequence[tuple[str, Host | str, bool]] = [("Redis", url.path, False)]
    else:
        try:
            master = await find_master(url) if url.service else url.hosts[0]
        except OSError as error:
            raise StoreUnavailable(f"Redis at {url} cannot be used: {error}") from error
        sentinels = url.hosts if url.service else ()
        servers = [
            ("Redis", master, url.tls is not None),
            *(("The Sentinel", each, url.sentinel_tls is not None) for each in sentinels),
        ]
    answers = await asyncio.gather(*(_answers(place, has_tls=has_tls) for _, place, has_tls in servers))
    for (kind, place, _), has_answered in zip(servers, answers, strict=True):
        if has_answered:
            name = place if isinstance(place, str) else host_port(*place)
            raise Misconfigured(
                f"{kind} at {name} answers without a password: a client could have a browser of this machine "
                f"change what is in there. Set a password (requirepass), {_OVERRIDE}"
            )


async def _answers(place: Host | str, *, has_tls: bool) -> bool:
    """Whether the server executes the command of a client without password and certificate."""
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT):
            if isinstance(place, str):
                reader, writer = await asyncio.open_unix_connection(place)
            else:
                reader, writer = await asyncio.open_connection(*place, ssl=_tls() if has_tls else None)
            try:
                writer.write(b"PING\r\n")
                line = await reader.readline()
            finally:
                writer.transport.abort()
    except OSError:  # A time-out is one, too; and so is what a server says that asks for a certificate.
        return False
    return line != b"" and not line.startswith(_CLOSED)


def _tls() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
