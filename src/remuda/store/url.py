"""Where Redis is, as a URL: TCP, TLS, unix socket or Sentinel.

redis://[user:password@]host[:6379][/db]
rediss://...                                  the same over TLS; ?ca=FILE&cert=FILE&key=FILE&verify=no
unix:///path/to/socket[?db=N]
redis+sentinel://[user:password@]host:26379,host2:26379/service[/db]     rediss+sentinel for TLS

User, password and TLS are those of the master. Sentinels have their own options:
?sentinel_username=NAME&sentinel_password=WORD and, with rediss+sentinel, sentinel_tls=yes.
?password_file=FILE and ?sentinel_password_file=FILE name files whose first line is the password.
"""

import os
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, quote, unquote, urlencode, urlsplit

from remuda.base.certificate import harden, why_tls_failed
from remuda.base.errors import Misconfigured, reason_of
from remuda.base.log import redact, redact_wrong_url
from remuda.base.reach import hold_directory, is_open_to_all

_SCHEMES = ("redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel")
_TLS_OPTIONS = frozenset({"ca", "cert", "key", "verify"})
_SENTINEL_OPTIONS = frozenset({"sentinel_username", "sentinel_password", "sentinel_password_file"})


@dataclass(frozen=True)
class StoreUrl:
    """A parsed Redis URL. Its `str()` hides the password."""

    text: str = field(repr=False)
    hosts: tuple[tuple[str, int], ...] = ()
    """One server, or the Sentinels."""
    path: str = ""
    service: str = ""
    """Of Sentinel: the name of the watched master."""
    db: int = 0
    username: str = ""
    password: str = field(default="", repr=False)
    tls: ssl.SSLContext | None = None
    sentinel_username: str = ""
    sentinel_password: str = field(default="", repr=False)
    sentinel_tls: ssl.SSLContext | None = None

    def __str__(self) -> str:
        return redact(self.text)


def parse_url(text: str) -> StoreUrl:
    """The parsed URL; Misconfigured says what is wrong with it."""
    try:
        return _parse(text)
    except ValueError as error:
        raise Misconfigured(f"{redact_wrong_url(text)!r} is not a valid Redis URL: {error}") from None


def _parse(text: str) -> StoreUrl:
    parts = urlsplit(text)
    if parts.scheme not in _SCHEMES:
        raise ValueError(f"it must start with one of {', '.join(scheme + '://' for scheme in _SCHEMES)}")
    credentials, _, hosts = parts.netloc.rpartition("@")
    username, _, password = credentials.partition(":")
    common: Any = {"text": text, "username": unquote(username)}
    if parts.scheme == "unix":
        if hosts or not parts.path.strip("/") or not parts.path.startswith("/"):
            raise ValueError("it has no absolute path, as in unix:///run/redis.sock")
        query = _options(parts.query, known=frozenset({"db", "password_file"}))
        common["password"] = _password(unquote(password), query, "password_file")
        return StoreUrl(**common, path=unquote(parts.path), db=_database([query.get("db", "0")]))
    has_tls = parts.scheme.startswith("rediss")
    has_sentinels = parts.scheme.endswith("+sentinel")
    known = frozenset({"password_file"}) | (_TLS_OPTIONS if has_tls else frozenset())
    if has_sentinels:
        known |= _SENTINEL_OPTIONS | ({"sentinel_tls"} if has_tls else set())
    query = _options(parts.query, known=known)
    common["password"] = _password(unquote(password), query, "password_file")
    common["tls"] = _tls_context(query) if has_tls else None
    segments = [segment for segment in parts.path.split("/") if segment]
    if not has_sentinels:
        return StoreUrl(**common, hosts=_hosts(hosts, 6379)[:1], db=_database(segments))
    if not segments:
        raise ValueError("it has no service name after the Sentinels, as in .../mymaster")
    if (wants_tls := query.get("sentinel_tls", "no")) not in ("yes", "no"):
        raise ValueError("its sentinel_tls must be yes or no")
    return StoreUrl(
        **common,
        hosts=_hosts(hosts, 26379),
        service=segments[0],
        db=_database(segments[1:]),
        sentinel_username=query.get("sentinel_username", ""),
        sentinel_password=_password(query.get("sentinel_password", ""), query, "sentinel_password_file"),
        sentinel_tls=common["tls"] if wants_tls == "yes" else None,
    )


def _options(query: str, *, known: frozenset[str]) -> dict[str, str]:
    options = {name: values[-1] for name, values in parse_qs(query, keep_blank_values=True).items()}
    if not options.keys() <= known:
        raise ValueError(f"this kind of URL accepts these options: {', '.join(sorted(known))}")
    return options


def _password(given: str, query: dict[str, str], option: str) -> str:
    """The password, from its file if this option names one."""
    if option not in query:
        return given
    if given:
        raise ValueError(f"it has a password and a {option}")
    try:
        password = Path(query[option]).read_text().partition("\n")[0]
    except (OSError, UnicodeDecodeError) as error:
        reason = reason_of(error) if isinstance(error, OSError) else "it is not text"
        raise ValueError(f"its {option}, {query[option]}, cannot be read: {reason}") from None
    if not password:
        raise ValueError(f"its {option}, {query[option]}, is empty")
    return password


def _database(segments: list[str]) -> int:
    number = "/".join(segments) or "0"
    if not number.isdecimal():
        raise ValueError("its database is not a number")
    return int(number)


def _hosts(text: str, default_port: int) -> tuple[tuple[str, int], ...]:
    pairs = []
    for item in text.split(","):
        host = urlsplit(f"//{item}")
        try:
            pairs.append((host.hostname or "127.0.0.1", host.port or default_port))
        except ValueError:  # Says the port, which in a URL that is wrong can be half of a password.
            raise ValueError("its port is not a number up to 65535") from None
    return tuple(pairs)


def _tls_context(query: dict[str, str]) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=query.get("ca"))
    except OSError as error:
        raise ValueError(f"its ca, {query.get('ca')}, cannot be used: {why_tls_failed(error)}") from None
    harden(context)
    if "cert" in query:
        try:
            context.load_cert_chain(query["cert"], query.get("key"))
        except OSError as error:
            files = f"{query['cert']} and {query.get('key', query['cert'])}"
            raise ValueError(f"its cert and key, {files}, cannot be used: {why_tls_failed(error)}") from None
    if query.get("verify") == "no":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def reach_by_group(text: str, group: int) -> str | None:
    """A URL by which this process reaches the same Redis when it is not root's any more but in this group;
    None when it cannot.

    It then finds a unix socket through the socket's directory, which it holds: the group may not know what
    lies above, and the socket is a new one whenever Redis restarts. Passwords from files become a part of it.
    """
    text = _with_passwords(text)
    parts = urlsplit(text)
    if parts.scheme != "unix":
        files = [value for name, value in parse_qsl(parts.query) if name in ("ca", "cert", "key")]
        return text if all(is_open_to_all(Path(file)) for file in files) else None
    socket = Path(unquote(parts.path))
    try:
        may_enter = _is_granted(socket.parent.stat(), group, 0o1)
        may_connect = _is_granted(socket.stat(), group, 0o2)
    except OSError:
        return None
    if not (may_enter and may_connect):
        return None
    return parts._replace(path=quote(str(hold_directory(socket.parent) / socket.name))).geturl()


def _with_passwords(text: str) -> str:
    """The URL with the passwords themselves, where it names files with them."""
    parsed, parts = parse_url(text), urlsplit(text)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    if query.pop("password_file", None):
        username, password = (quote(each, safe="") for each in (parsed.username, parsed.password))
        parts = parts._replace(netloc=f"{username}:{password}@{parts.netloc.rpartition('@')[2]}")
    if query.pop("sentinel_password_file", None):
        query["sentinel_password"] = parsed.sentinel_password
    return parts._replace(query=urlencode(query)).geturl()


def _is_granted(status: os.stat_result, group: int, right: int) -> bool:
    return bool(status.st_mode & (right << 3 if status.st_gid == group else right))
