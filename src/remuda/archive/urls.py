"""URLs as the archive names them: normalised, with the ident and slug that follow from them.

A URL is a plain `str` in normal form from the moment it is found: lower-case scheme and host (IDNA), no
credentials, no default port, no dot segments, no fragment, escapes in one spelling (RFC 3986 6.2.2),
everything else escaped as a browser would. Most links of real pages are in that form already; one regular
expression recognises them.
"""

import ipaddress
import re
import socket
import uuid
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from urllib.parse import quote_from_bytes

from remuda.base.errors import InvalidArgument
from remuda.base.log import redact_wrong_url

IDENT_LENGTH = 25
MAX_LENGTH = 8192
"""Characters; longer URLs are not followed. Apache refuses from 8190 on."""
MAX_REFERENCE = 2 * MAX_LENGTH
"""Characters; longer references are not resolved. Their URLs may be shorter: normal, without fragments."""
_NAMESPACE = uuid.UUID("82244de1-c354-4c89-bf2b-f153ce23af43")
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_DEFAULT_PORT = {"http": 80, "https": 443, "ftp": 21}
_MAX_SLUG = 120

# In normal form, apart from dot segments, for which "/." is looked for. No escapes: those need a look each.
_CLEAN = re.compile(
    r"https?://(?!-)(?:(?:[a-z0-9-]+\.)*[a-z][a-z0-9-]*(?<!-)|[0-9]{1,3}(?:\.[0-9]{1,3}){3})"
    r"(?::(?!80/|443/)[1-9][0-9]{0,4})?/[\w/.~!$&()*+,;=:@?-]*",
    re.A,
)
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:")
_AUTHORITY = re.compile(r"([^/?]*)([^?]*)(?:\?(.*))?", re.S)
_CREDENTIALS = re.compile(r"((?:[a-zA-Z][a-zA-Z0-9+.-]*:)?[/\\]*)([^/\\?#]*)@")
_ESCAPE = re.compile(r"%([0-9a-fA-F]{2})")
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
# What a browser leaves alone in each part (WHATWG URL, "percent-encode sets"), for `quote`.
_PATH_SAFE = "/:@!$&'()*+,;=%~|[]"
_QUERY_SAFE = "/:@!$&()*+,;=%~|[]?\\^`{}"
_HOST = re.compile(r"[a-z0-9_](?:[a-z0-9_.-]{0,252}[a-z0-9_])?\.?")
_CONTROL = re.compile(r"[\t\n\r]")
_BLANK = "".join(map(chr, range(33)))
# As wpull's --strip-session-id: the same page under another session is the same page.
_SESSION = re.compile(
    r"(?i)(;jsessionid=[0-9a-z.!_-]{10,}(?=[?#]|$)"
    r"|(?<=[?&])(?:phpsessid|sid|jsessionid|aspsessionid[a-z]{8}|cfid|cftoken)=[0-9a-z]{16,}(?:&|$))"
)


def normalise(text: str) -> str:
    """The URL in normal form; InvalidArgument unless it is an absolute HTTP, HTTPS or FTP one."""
    url = _normalise(text.strip(_BLANK), "utf-8")
    if url is None:
        shown = redact_wrong_url(text)[:200]
        raise InvalidArgument(f"{shown!r} is not the URL of a web site, such as https://example.com/")
    return url


def split_credentials(text: str) -> tuple[str, str]:
    """A URL as it was typed without its user and password, and these; empty if it has none."""
    if "@" not in text:
        return text, ""
    found = _CREDENTIALS.match(_CONTROL.sub("", text.strip(_BLANK)))
    return (text, "") if found is None else (found[1] + found.string[found.end() :], found[2])


def without_credentials(text: str) -> str:
    """What may be a URL, as it was typed, in a form that others may see."""
    if "@" not in text:
        return text
    try:
        normalise(text)
    except InvalidArgument:
        return redact_wrong_url(text)
    return split_credentials(text)[0]


def credentials_by_server(urls: Iterable[str]) -> dict[str, str]:
    """The credentials in these URLs, escaped, by the server that they are for: scheme, host and port, as a
    URL in normal form begins. Of several for one server the first count."""
    found: dict[str, str] = {}
    for each in urls:
        bare, credentials = split_credentials(each)
        if credentials not in ("", ":"):
            with suppress(InvalidArgument):
                escaped = quote_from_bytes(credentials.encode("utf-8", "replace"), safe="!$&'()*+,;=%:~")
                found.setdefault(server_of(normalise(bare)), escaped)
    return found


def ident_of(url: str, *, salt: str = "") -> str:
    """The ident of a job for this URL: base 36, left-padded to the documented length. With another salt it
    is another ident."""
    namespace = uuid.uuid5(_NAMESPACE, salt) if salt else _NAMESPACE
    number = uuid.uuid5(namespace, normalise(url)).int
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
    return digits.rjust(IDENT_LENGTH, "0")


def slug_of(url: str, depth: str, *, is_url_file: bool = False) -> str:
    """The first part of a job's file names: `HOST-DEPTH`, for a file of URLs `urls-HOST-FILE-DEPTH`."""
    host, path = host_of(url), url.partition("?")[0]
    name = f"urls-{host}-{path.rpartition('/')[2]}" if is_url_file else host
    return f"{re.sub(r'[^A-Za-z0-9._@%-]', '_', name)[:_MAX_SLUG]}-{depth}"


def host_of(url: str) -> str:
    """The host of a normalised URL, without port; of IPv6 without brackets."""
    netloc = netloc_of(url)
    if netloc.startswith("["):
        return netloc[1:].partition("]")[0]
    return netloc.partition(":")[0]


def netloc_of(url: str) -> str:
    """Host and port of a normalised URL, as they stand in it."""
    start = url.index("//") + 2
    return url[start : url.index("/", start)]


def path_of(url: str) -> str:
    """The path of a normalised URL."""
    return url[url.index("/", 8) :].partition("?")[0]


def server_of(url: str) -> str:
    """Scheme, host and port of a normalised URL, as they stand in it."""
    return url[: url.index("/", url.index("//") + 2)]


def directory_of(url: str) -> str:
    """A normalised URL up to the last slash of its path."""
    path = url.partition("?")[0]
    return path[: path.rindex("/") + 1]


def without_session(url: str) -> str:
    """The URL without the id of a session in it."""
    return _SESSION.sub("", url).rstrip("?&") if _SESSION.search(url) else url


class Base:
    """What the references of one document are relative to."""

    def __init__(self, url: str, encoding: str = "utf-8") -> None:
        self.url = url
        self._scheme = url[: url.index(":") + 1]
        self.root = url[: url.index("/", len(self._scheme) + 2)]
        self._directory = directory_of(url)
        self._path = url.partition("?")[0]
        # WHATWG URL, "query state": only queries depend on the document's encoding; UTF-16 counts as UTF-8.
        self._encoding = "utf-8" if encoding.startswith("utf") else encoding

    def resolve(self, reference: str) -> str | None:
        """The normalised URL that is meant, without its fragment; None if it is not an HTTP or HTTPS URL."""
        if len(reference) > MAX_REFERENCE:
            return None
        reference = reference.strip(_BLANK).partition("#")[0]
        if "\\" in reference:
            before, question, query = reference.partition("?")
            reference = before.replace("\\", "/") + question + query
        first = reference[:1]
        if first == "/":
            url = (self._scheme if reference[1:2] == "/" else self.root) + reference
        elif first == "?":
            url = self._path + reference
        elif not first:
            return None
        elif (scheme := _SCHEME.match(reference)) is None:
            url = self._directory + reference
        else:
            # RFC 3986 5.2.2 calls `http:page` a loophole of old; browsers use it, so do we.
            name = scheme[0].lower()
            if name not in ("http:", "https:"):
                return None
            rest = reference[len(name) :]
            if rest.startswith("//"):
                url = name + rest
            elif name != self._scheme:
                url = name + "//" + rest.lstrip("/")
            else:
                return self.resolve(rest)
        if _CLEAN.fullmatch(url) and "/." not in url:
            return url if len(url) <= MAX_LENGTH else None
        found = _normalise(url, self._encoding)
        return None if found is None or found.startswith("ftp:") else found


def _normalise(text: str, encoding: str) -> str | None:
    text = _CONTROL.sub("", text).partition("#")[0]
    scheme, colon, rest = text.partition(":")
    scheme = scheme.lower()
    if not colon or scheme not in _DEFAULT_PORT or len(text) > MAX_LENGTH:
        return None
    before, question, query = rest.partition("?")
    before = before.replace("\\", "/")
    if not before.startswith("//"):
        return None
    found = _AUTHORITY.match(before.lstrip("/"))
    assert found is not None
    netloc = _normal_netloc(found[1].rpartition("@")[2], _DEFAULT_PORT[scheme])
    if netloc is None:
        return None
    path = _normal_path(found[2]) if found[2] else "/"
    url = f"{scheme}://{netloc}{path}"
    if question:
        url += "?" + _escape(query, _QUERY_SAFE, encoding)
    return url if len(url) <= MAX_LENGTH else None


def _normal_path(path: str) -> str:
    path = _escape(path, _PATH_SAFE, "utf-8")
    if "/." not in path:
        return path
    kept: list[str] = []
    segments = path.split("/")[1:]
    for segment in segments:
        if segment == "..":
            del kept[-1:]
        elif segment != ".":
            kept.append(segment)
    if segments[-1] in (".", ".."):
        kept.append("")
    return "/" + "/".join(kept)


def _escape(text: str, safe: str, encoding: str) -> str:
    try:
        raw = text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        raw = text.encode("utf-8", "surrogatepass")
    quoted = quote_from_bytes(raw, safe=safe)
    return _ESCAPE.sub(_one_spelling, quoted) if "%" in quoted else quoted


def _one_spelling(escape: re.Match[str]) -> str:
    character = chr(int(escape[1], 16))
    return character if character in _UNRESERVED else escape[0].upper()


@lru_cache(4096)
def _normal_netloc(netloc: str, default_port: int) -> str | None:
    if netloc.startswith("["):
        host, bracket, port = netloc[1:].partition("]")
        try:
            host = f"[{ipaddress.IPv6Address(host).compressed}]"
        except ValueError:
            return None
        if not bracket or (port and not port.startswith(":")):
            return None
        port = port[1:]
    else:
        raw, _, port = netloc.partition(":")
        named = _normal_host(raw)
        if named is None:
            return None
        host = named
    if port and (not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536):
        return None
    port = "" if not port or int(port) == default_port else f":{int(port)}"
    return f"{host}{port}"


def _normal_host(host: str) -> str | None:
    if "%" in host:
        host = _ESCAPE.sub(lambda escape: chr(int(escape[1], 16)), host)
        host = host.encode("latin-1", "replace").decode("utf-8", "replace")
    if not host.isascii():
        import idna  # Few sites need it.

        try:
            host = idna.encode(host, uts46=True, transitional=False).decode()
        except idna.IDNAError:
            return None
    host = host.lower()
    if not _HOST.fullmatch(host) or ".." in host:
        return None
    if host.rstrip(".").rpartition(".")[2].isdigit() or host.rpartition(".")[2].startswith("0x"):
        # WHATWG URL, "IPv4 parser": 2130706433, 0x7f.1 and 127.0.0.1 are one host.
        try:
            return socket.inet_ntoa(socket.inet_aton(host.rstrip(".")))
        except OSError:
            return None
    return host
