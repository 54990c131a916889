"""Where a request comes from. The front door makes one `Origin` of each request that is about more than one
session's commands. It goes along to the process that serves the request, and is stored with what it creates.

Between the herd's own processes it travels in headers. Those are set by the front door, whatever the client
sent under these names, and internal ports take requests from the herd only.
"""

import re
from collections.abc import Callable
from enum import StrEnum

from msgspec import Struct

DEFAULT_ACCOUNT = "default"
"""Whose everything is as long as no token is asked for."""


class Scope(StrEnum):
    """What a token lets its bearer do."""

    USE = "use"
    """Sessions and connections, and what they leave behind."""
    ARCHIVE = "archive"
    """Jobs, and what they leave behind."""
    USAGE = "usage"
    """What the account has used."""
    ADMIN = "admin"
    """Everything, of all accounts."""


EVERY_SCOPE = frozenset(Scope)

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(:\d{1,5})?").fullmatch
_FALLBACK = "127.0.0.1"


class Origin(Struct, frozen=True, kw_only=True):
    """Who asks, what it may do, and how it sees the herd."""

    account: str = DEFAULT_ACCOUNT
    """Empty for a client that shows no token where one is needed."""
    address: str
    """The client's address."""
    scheme: str = "http"
    """`http` or `https`, as the client sees it: a proxy before the front door may speak TLS for it."""
    host: str = _FALLBACK
    """Host, and port where it is not the scheme's own, as the client sees them."""
    token: str = ""
    """The name of the token that was shown; empty when none is needed."""
    token_id: str = ""
    """Which token of this name."""
    scopes: frozenset[Scope] = frozenset()
    login: str = ""
    """SHA-256 of the cookie of a browser that is logged in to the dashboard; empty for all others."""
    until: int = 0
    """Unix seconds until which a ticket is good, if one was shown."""

    @property
    def url(self) -> str:
        """Where the client sees the herd."""
        return f"{self.scheme}://{self.host}"

    @property
    def websocket_scheme(self) -> str:
        return "wss" if self.scheme == "https" else "ws"

    @property
    def websocket_url(self) -> str:
        """Where the client sees the herd, for WebSockets."""
        return f"{self.websocket_scheme}://{self.host}"

    def may(self, scope: Scope) -> bool:
        """Whether it may do what this scope is for."""
        return scope in self.scopes or Scope.ADMIN in self.scopes

    @property
    def limited_to(self) -> str | None:
        """The account that all it sees belongs to; None where it sees those of all accounts."""
        return None if Scope.ADMIN in self.scopes else self.account

    @property
    def shares_as(self) -> str:
        """The account that takes its part of what all share; empty where no token is needed, and all clients
        are one account."""
        return self.account if self.token else ""

    def sees(self, account: str) -> bool:
        """Whether it may see what belongs to this account."""
        return account == self.account or Scope.ADMIN in self.scopes

    def headers(self) -> tuple[tuple[str, str], ...]:
        """What `read` reads."""
        return (
            ("X-Forwarded-For", self.address),
            ("X-Forwarded-Proto", self.scheme),
            ("X-Forwarded-Host", self.host),
            ("X-Remuda-Account", self.account),
            ("X-Remuda-Token", self.token),
            ("X-Remuda-Token-Id", self.token_id),
            ("X-Remuda-Scopes", " ".join(sorted(self.scopes))),
            ("X-Remuda-Login", self.login),
            ("X-Remuda-Until", str(self.until)),
        )

    def fields(self) -> dict[str, str]:
        """What is written down of it: whose and whence, not what it may do."""
        return {
            "account": self.account,
            "address": self.address,
            "scheme": self.scheme,
            "host": self.host,
            "token": self.token,
        }

    @classmethod
    def of_client(
        cls,
        header: Callable[[str], str | None],
        *,
        address: str,
        scheme: str = "http",
        is_proxy: bool = False,
        account: str = DEFAULT_ACCOUNT,
        token: str = "",
        token_id: str = "",
        scopes: frozenset[Scope] = frozenset(),
        login: str = "",
        until: int = 0,
    ) -> "Origin":
        """The origin of a request at the front door, which was asked for under this scheme.

        Only a proxy that the operator trusts is believed what it says of its client: the scheme, the host and
        the address.
        """
        hosts = [header("host") or ""]
        if is_proxy:
            told = (header("x-forwarded-proto") or "").partition(",")[0].strip().lower()
            scheme = told if told in ("http", "https") else scheme
            hosts.insert(0, (header("x-forwarded-host") or "").partition(",")[0].strip())
            address = (header("x-forwarded-for") or "").rpartition(",")[2].strip() or address
        return cls(
            account=account,
            address=address,
            scheme=scheme,
            host=next((host for host in hosts if _HOST(host)), _FALLBACK),
            token=token,
            token_id=token_id,
            scopes=scopes,
            login=login,
            until=until,
        )

    @classmethod
    def read(cls, header: Callable[[str], str | None], *, address: str) -> "Origin":
        """The origin of a request that another process of the herd has passed on."""
        return cls.of_client(
            header,
            address=address,
            is_proxy=True,
            account=header("x-remuda-account") or "",
            token=header("x-remuda-token") or "",
            token_id=header("x-remuda-token-id") or "",
            scopes=frozenset(Scope(each) for each in (header("x-remuda-scopes") or "").split()),
            login=header("x-remuda-login") or "",
            until=int(header("x-remuda-until") or 0),
        )


UNKNOWN = Origin(address="")
"""Of what is not asked for through a front door."""
