"""The cookies of a job (RFC 6265), as far as a crawler needs them: set, sent, kept over a resume.

Expiry is honoured only for deletion: a crawl is one long visit.
"""

import re
from email.utils import parsedate_to_datetime

import msgspec

MAX_PER_HOST = 50
MAX_DOMAINS = 5000
MAX_LENGTH = 4096
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\x20-\x3a\x3c-\x7e\x80-\xff]*")


class Cookie(msgspec.Struct, frozen=True):
    value: str
    path: str
    is_secure: bool
    is_host_only: bool


class Cookies:
    """By domain, then by name and path."""

    def __init__(self, stored: bytes | None = None) -> None:
        self._domains: dict[str, dict[str, Cookie]] = (
            msgspec.json.decode(stored, type=dict[str, dict[str, Cookie]]) if stored else {}
        )
        self.has_changed = False

    def dump(self) -> bytes:
        """All of them, for the constructor of another time."""
        self.has_changed = False
        return msgspec.json.encode(self._domains)

    def give(self, host: str, name: str, value: str) -> None:
        """A cookie that the order brings along."""
        self._store(host, name, Cookie(value, "/", is_secure=False, is_host_only=False))

    def store(self, line: str, host: str, path: str, *, moment: float) -> None:
        """Takes a Set-Cookie line of a response; lines that are not valid are dropped."""
        pair, *attributes = line[:MAX_LENGTH].split(";")
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not equals or not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            return
        fields = {}
        for attribute in attributes:
            key, _, text = attribute.partition("=")
            fields[key.strip().lower()] = text.strip()
        domain = fields.get("domain", "").lstrip(".").lower()
        # RFC 6265 5.3, step 5, with "contains a dot" for the list of public suffixes: at worst a site that
        # asks for it has its cookie sent to neighbours under the same suffix.
        if domain and domain != host and not (host.endswith("." + domain) and "." in domain):
            return
        cookie_path = fields.get("path", "")
        if not cookie_path.startswith("/"):
            cookie_path = path[: path.rfind("/")] or "/"
        if _is_over(fields, moment):
            if self._domains.get(domain or host, {}).pop(f"{name};{cookie_path}", None):
                self.has_changed = True
            return
        cookie = Cookie(value, cookie_path, is_secure="secure" in fields, is_host_only=not domain)
        self._store(domain or host, f"{name};{cookie_path}", cookie)

    def _store(self, domain: str, key: str, cookie: Cookie) -> None:
        if ";" not in key:
            key = f"{key};{cookie.path}"
        held = self._domains.get(domain)
        if held is None:
            if len(self._domains) >= MAX_DOMAINS:
                return
            held = self._domains[domain] = {}
        if held.get(key) == cookie or (key not in held and len(held) >= MAX_PER_HOST):
            return
        held[key] = cookie
        self.has_changed = True

    def header(self, host: str, path: str, *, is_secure: bool) -> str:
        """The value of the Cookie field of a request; empty if there is nothing to send."""
        if not self._domains:
            return ""
        found = []
        domain = host
        while domain:
            for key, cookie in self._domains.get(domain, {}).items():
                if (
                    (domain == host or not cookie.is_host_only)
                    and (is_secure or not cookie.is_secure)
                    and path.startswith(cookie.path)
                    and (cookie.path.endswith("/") or path[len(cookie.path) :][:1] in ("", "/", "?"))
                ):
                    found.append((len(cookie.path), f"{key.partition(';')[0]}={cookie.value}"))
            domain = domain.partition(".")[2]
        # RFC 6265 5.4, step 2: longer paths first.
        found.sort(key=lambda each: -each[0])
        return "; ".join([text for _, text in found])


def _is_over(fields: dict[str, str], moment: float) -> bool:
    if "max-age" in fields:
        text = fields["max-age"]
        return text.startswith("-") or text.strip("0") == ""
    if "expires" in fields:
        try:
            return parsedate_to_datetime(fields["expires"]).timestamp() <= moment
        except (ValueError, TypeError, OverflowError):
            return False
    return False
