"""Where Redis is, as a URL: TCP, TLS, unix socket or Sentinel.

redis://[user:password@]host[:6379][/db]
rediss://...                                  the same over TLS; ?ca=FILE&cert=FILE&key=FILE&verify=no
unix:///path/to/socket[?db=N]
redis+sentinel://[user:password@]host:26379,host2:26379/service[/db]     rediss+sentinel for TLS
"""

import ssl
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from remuda.base.errors import Misconfigured
from remuda.base.log import redact

_SCHEMES = ("redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel")


@dataclass(frozen=True)
class StoreUrl:
    """A parsed Redis URL. Its `str()` hides the password."""

    text: str
    hosts: tuple[tuple[str, int], ...] = ()
    """One server, or the Sentinels."""
    path: str = ""
    service: str = ""
    """Of Sentinel: the name of the watched master."""
    db: int = 0
    username: str = ""
    password: str = field(default="", repr=False)
    tls: ssl.SSLContext | None = None

    def __str__(self) -> str:
        return redact(self.text)


def parse_url(text: str) -> StoreUrl:
    """The parsed URL; Misconfigured says what is wrong with it."""
    try:
        parts = urlsplit(text)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        if parts.scheme not in _SCHEMES:
            raise ValueError(f"it starts with none of {', '.join(s + '://' for s in _SCHEMES)}")
        credentials, _, hosts = parts.netloc.rpartition("@")
        username, _, password = credentials.partition(":")
        common: Any = {"text": text, "username": unquote(username), "password": unquote(password)}
        if parts.scheme == "unix":
            return StoreUrl(**common, path=unquote(parts.path), db=int(query.get("db", "0")))
        tls = _tls_context(query) if parts.scheme.startswith("rediss") else None
        segments = [segment for segment in parts.path.split("/") if segment]
        if parts.scheme.endswith("+sentinel"):
            service, *rest = segments or [""]
            if not service:
                raise ValueError("it names no service after the Sentinels, as in .../mymaster")
            return StoreUrl(
                **common, hosts=_hosts(hosts, 26379), service=service, db=int((rest or ["0"])[0]), tls=tls
            )
        return StoreUrl(**common, hosts=_hosts(hosts, 6379)[:1], db=int((segments or ["0"])[0]), tls=tls)
    except (ValueError, OSError) as error:
        raise Misconfigured(f"{redact(text)!r} is no Redis URL: {error}") from error


def _hosts(text: str, default_port: int) -> tuple[tuple[str, int], ...]:
    pairs = []
    for item in text.split(","):
        host = urlsplit(f"//{item}")
        pairs.append((host.hostname or "127.0.0.1", host.port or default_port))
    return tuple(pairs)


def _tls_context(query: dict[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=query.get("ca"))
    if "cert" in query:
        context.load_cert_chain(query["cert"], query.get("key"))
    if query.get("verify") == "no":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
