"""Asks a running herd through its front door, for commands that look at one or change it."""

import asyncio
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

import msgspec

from remuda.accounts.first import FILE, read_token
from remuda.accounts.model import may_be_token
from remuda.base.certificate import why_tls_failed
from remuda.base.config import Config, HerdConfig
from remuda.base.errors import (
    InvalidArgument,
    Lost,
    Refused,
    Unauthorized,
    Unavailable,
    UnknownCommand,
    reason_of,
)
from remuda.base.hosts import host_port, is_loopback, reachable
from remuda.base.log import redact_wrong_url
from remuda.fleet.http_client import ask
from remuda.fleet.relay import Address
from remuda.gateway.room import GatewayConfig

TIMEOUT = 5.0
_PORTS = {"http": 80, "https": 443}
# OpenSSL's codes 18 to 21: a certificate that signs itself, or whose signer is not known.
_UNKNOWN_AUTHORITY = range(18, 22)


@dataclass(frozen=True)
class HerdAddress:
    """Where a herd is, and how a command is let in."""

    url: str
    """Without the token that it may have had in it: this is printed."""
    token: str = field(default="", repr=False)
    cacert: Path | None = None
    """A certificate to trust, beside those that the machine trusts."""

    @classmethod
    def parse(cls, url: str, *, token: str = "", cacert: Path | None = None) -> "HerdAddress":
        """The address that a URL stands for; a token in it, as in http://user:TOKEN@host:4444, counts if no
        other is given."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            parts, port = SplitResult("", "", "", "", ""), None
        if not parts.hostname or parts.scheme not in _PORTS:
            shown = redact_wrong_url(url)
            raise InvalidArgument(f"{shown!r} is not the URL of a front door, such as http://127.0.0.1:4444")
        if not token and parts.username is not None:
            token = unquote(parts.password or parts.username)
        if token and not may_be_token(token):
            raise InvalidArgument("The token that was given is not one: a token is rmd_ and 43 characters")
        host = host_port(parts.hostname, port or _PORTS[parts.scheme])
        return cls(f"{parts.scheme}://{host}", token, cacert)

    @classmethod
    def find(
        cls,
        config: Config,
        *,
        server: str = "",
        token: str = "",
        cacert: Path | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> "HerdAddress":
        """The herd that a command is meant for: the named one, that of REMUDA_SERVER, or the config's own; of
        one on this machine, the admin token is in the data directory."""
        herd = config[HerdConfig]
        url = server or environ.get("REMUDA_SERVER", "") or _own_url(config)
        named = cls.parse(url, token=token, cacert=cacert)
        if not named.token:
            # Not before a token in the URL, which is the closer word.
            named = cls.parse(url, token=environ.get("REMUDA_TOKEN", ""), cacert=cacert)
        if named.token or not _is_this_machine(named.url, herd.host):
            return named
        return cls(named.url, read_token(herd.data / FILE), cacert)

    @property
    def address(self) -> Address:
        parts = urlsplit(self.url)
        return Address(parts.hostname or "", parts.port or 0)

    def tls(self) -> ssl.SSLContext | None:
        """How the herd's certificate is checked; None if it speaks plain HTTP."""
        if not self.url.startswith("https:"):
            return None
        context = ssl.create_default_context()
        if self.cacert is not None:
            # The file may hold the herd's own certificate instead of that of its authority.
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            try:
                context.load_verify_locations(self.cacert)
            except OSError as error:  # What is in it may be wrong, too: that is an SSLError.
                reason = why_tls_failed(error)
                raise InvalidArgument(f"{self.cacert} is not a certificate in PEM: {reason}") from error
        return context


def _own_url(config: Config) -> str:
    herd = config[HerdConfig]
    scheme = "https" if config[GatewayConfig].tls_cert else "http"
    try:
        host = reachable(herd.host)
    except ValueError:  # A name.
        host = herd.host
    return f"{scheme}://{host_port(host, herd.port)}"


def _is_this_machine(url: str, own_host: str) -> bool:
    host = urlsplit(url).hostname or ""
    return is_loopback(host) or host == own_host


def ask_herd(
    herd: HerdAddress, path: str, *, method: str = "GET", body: Any = None, timeout: float = TIMEOUT
) -> Any:
    """What the herd's API answers; Unavailable says what to do when there is none, Lost what is not there."""
    headers = {"Authorization": f"Bearer {herd.token}"} if herd.token else {}
    content = b""
    if body is not None:
        headers["Content-Type"] = "application/json"
        content = msgspec.json.encode(body)
    tls = herd.tls()
    try:
        asking = ask(herd.address, method, path, content, timeout=timeout, headers=headers, tls=tls)
        status, text = asyncio.run(asking)
        answer = msgspec.json.decode(text)
    except (Unavailable, msgspec.DecodeError) as error:
        cause = error.__cause__
        if isinstance(cause, ssl.SSLCertVerificationError):
            if cause.verify_code in _UNKNOWN_AUTHORITY:
                advice = "name its certificate with --cacert FILE"
            else:
                advice = "use a name that it is for, or replace it"
        elif isinstance(cause, ssl.SSLError):
            advice = "it may not speak TLS: try http://"
        else:
            advice = "start one with `remuda up`, or name another with --server URL"
        reason = str(error).rstrip(".")
        if isinstance(cause, OSError) and not isinstance(cause, (ssl.SSLError, TimeoutError)):
            reason = reason_of(cause)
        raise Unavailable(f"No herd answers at {herd.url} ({reason}); {advice}") from error
    if status == 200:
        return answer
    message = answer.get("error", {}).get("message", f"status {status}")
    if status == Unauthorized.status:
        raise Unauthorized(_explain_refusal(herd, message))
    if status in (Lost.status, UnknownCommand.status):
        raise Lost(message)
    if 400 <= status < 500:
        raise Refused(message)
    raise Unavailable(f"The herd at {herd.url} answered: {message}")


def _explain_refusal(herd: HerdAddress, message: str) -> str:
    if herd.token:
        return f"The herd at {herd.url} refused the token: {message}"
    return (
        f"The herd at {herd.url} asks for a token: give one with --token or REMUDA_TOKEN, or name the data "
        "directory of a herd on this machine with --data DIR"
    )
