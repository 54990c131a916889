"""What a token is and what it grants, and how people write names, durations and rates. Pure."""

import hashlib
import re
import secrets
from collections.abc import Iterable

from msgspec import Struct

from remuda.base.errors import InvalidArgument
from remuda.base.ids import SessionId
from remuda.fleet.origin import DEFAULT_ACCOUNT, EVERY_SCOPE, Scope
from remuda.keyspace.rules import ACCOUNT

TOKEN_PREFIX = "rmd_"
"""Readable, so that a token is recognised where it should not be, such as in a repository."""
COOKIE_PREFIX = "rmdc_"
"""Of the value of the dashboard's cookie."""
BITS = 256
ADMIN_TOKEN = "admin"
"""The name of the token that the first start makes."""

MOST_TOKENS = 1000
"""Tokens in one body, or what looks like the beginning of one."""

_token = re.compile(rf"({TOKEN_PREFIX}|{COOKIE_PREFIX})[A-Za-z0-9_-]{{43}}").fullmatch
_any_token = re.compile(rb"(rmdc?_)[A-Za-z0-9_-]{43}")
_account = re.compile(ACCOUNT).fullmatch
_name = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,99}").fullmatch
_duration = re.compile(r"(\d{1,6})([smhdw])").fullmatch
_rate = re.compile(r"(\d{1,7})(?:/(s|m|h|min|sec|minute|hour))?").fullmatch
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


class Grant(Struct, frozen=True, gc=False):
    """What a request with a token may do, and for which account."""

    account: str = DEFAULT_ACCOUNT
    token: str = ""
    """The name of the token."""
    token_id: str = ""
    """Which token of this name: a later one is another."""
    scopes: frozenset[Scope] = frozenset()
    session: SessionId | None = None
    """The one session that it is for, if it is a ticket."""
    until: int = 0
    """Unix seconds until which it is good, if it is a ticket."""
    login: str = ""
    """SHA-256 of the cookie that was shown, if it was one: what a logout ends."""

    def may(self, scope: Scope) -> bool:
        """Whether it is good for what this scope is for."""
        return scope in self.scopes or Scope.ADMIN in self.scopes

    def sees(self, account: str) -> bool:
        """Whether it shows what belongs to this account."""
        return account == self.account or Scope.ADMIN in self.scopes


EVERYTHING = Grant(scopes=EVERY_SCOPE)
"""What every client may do where no token is needed."""
NOTHING = Grant(account="")
"""What a client without a token may do where one is needed."""


def new_token(prefix: str = TOKEN_PREFIX) -> str:
    """256 random bits behind a readable prefix."""
    return prefix + secrets.token_urlsafe(BITS // 8)


def may_be_token(text: str) -> bool:
    """Whether it has the form of a token or of a cookie's value."""
    return _token(text) is not None


def hide_tokens(body: bytes) -> bytes:
    """The body without the tokens in it. Selenium's clients send the URL of the front door in their
    capabilities, with the password in it. InvalidArgument if there is no end of what looks like tokens."""
    # Most bodies have none. If each fourth byte may begin one, 64 MB take 4 s in which no other thread runs.
    marks = body.count(b"rmd_") + body.count(b"rmdc_")
    if marks > MOST_TOKENS:
        raise InvalidArgument(f"The body names more than {MOST_TOKENS} tokens")
    return _any_token.sub(rb"\1***", body) if marks else body


def digest_of(token: str) -> str:
    """What is stored of a token. It has 256 random bits, so nothing slower than SHA-256 is needed."""
    return hashlib.sha256(token.encode()).hexdigest()


def token_id_of(digest: str) -> str:
    """What tells a token from others that have its name sooner or later: enough of its SHA-256."""
    return digest[:16]


def check_account(name: str) -> str:
    """The name of an account; InvalidArgument if it cannot be one."""
    if not _account(name):
        raise InvalidArgument(
            f"{name[:100]!r} cannot be the name of an account: "
            "up to 63 lower-case letters, digits, '.', '_' and '-'"
        )
    return name


def check_token_name(name: str) -> str:
    """The name of a token; InvalidArgument if it cannot be one."""
    if not _name(name):
        raise InvalidArgument(
            f"{name[:100]!r} cannot be the name of a token: up to 100 letters, digits, '.', '_', '@' and '-'"
        )
    return name


def read_scopes(texts: Iterable[str]) -> frozenset[Scope]:
    """The scopes of these names, which may also be separated by commas; `use` if there are none."""
    names = [name for text in texts for name in text.replace(",", " ").split()]
    try:
        return frozenset(Scope(name) for name in names) or frozenset({Scope.USE})
    except ValueError as error:
        raise InvalidArgument(f"{error}; the scopes are {', '.join(Scope)}") from None


def read_duration(text: str) -> float:
    """Seconds of a duration such as `90d`, `12h` or `30m`."""
    match = _duration(text.strip())
    if match is None or not int(match[1]):
        raise InvalidArgument(f"{text[:50]!r} is not a duration; write it as 90d, 12h, 30m or 45s")
    return float(int(match[1]) * _SECONDS[match[2]])


def read_rate(text: str) -> int:
    """Starts in a minute of a rate such as `60/m`, `1/s` or `3600/h`."""
    match = _rate(text.strip())
    if match is None:
        raise InvalidArgument(f"{text[:50]!r} is not a rate; write it as 60/m")
    count, unit = int(match[1]), (match[2] or "m")[0]
    per_minute = count * 60 // _SECONDS[unit]
    if count and not per_minute:
        raise InvalidArgument(f"{text[:50]!r} is less than one a minute; write it as 60/m")
    return per_minute
