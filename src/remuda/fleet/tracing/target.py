"""Where spans are sent to and what goes with them, from the config. OpenTelemetry's own environment variables
mean the same here as everywhere."""

import os
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import SplitResult, unquote, urlsplit

from remuda import __version__
from remuda.base.errors import Misconfigured
from remuda.base.hosts import host_port
from remuda.base.log import redact_wrong_url
from remuda.fleet.tracing import TracingConfig

PORTS = {"http": 80, "https": 443}
# OTLP 1.x, "OTLP/HTTP Request": the path of traces below a common endpoint.
TRACES_PATH = "/v1/traces"


@dataclass(frozen=True)
class Target:
    """A collector that speaks OTLP over HTTP."""

    host: str
    port: int
    path: str
    is_secure: bool
    headers: Mapping[str, str]
    resource: Mapping[str, str]
    """Resource attributes of this process, sent with every span."""

    @property
    def tls(self) -> ssl.SSLContext | None:
        return ssl.create_default_context() if self.is_secure else None

    def __str__(self) -> str:
        return f"{'https' if self.is_secure else 'http'}://{host_port(self.host, self.port)}{self.path}"


def target_of(config: TracingConfig) -> Target:
    """The configured collector; Misconfigured if an option cannot be used."""
    url = config.otlp_traces_endpoint or config.otlp_endpoint.rstrip("/") + TRACES_PATH
    try:
        parts = urlsplit(url)
        port = parts.port or PORTS.get(parts.scheme, 0)
    except ValueError:  # Says the port, which in a URL that is wrong can be half of a password.
        parts, port = SplitResult("", "", "", "", ""), 0
    if not parts.hostname or not port:
        shown = redact_wrong_url(url)
        raise Misconfigured(f"otlp_endpoint is {shown!r}: a URL is expected, such as http://localhost:4318")
    headers = _pairs(config.otlp_headers, "otlp_headers")
    if any(not each.isprintable() or not each.isascii() for pair in headers.items() for each in pair):
        raise Misconfigured("otlp_headers has characters that are not allowed in a header")
    return Target(
        host=parts.hostname,
        port=port,
        path=(parts.path or "/") + (f"?{parts.query}" if parts.query else ""),
        is_secure=parts.scheme == "https",
        headers=headers,
        resource={
            "service.namespace": "remuda",
            "service.version": __version__,
            "host.name": socket.gethostname(),
            "process.pid": str(os.getpid()),
            **_pairs(config.otlp_attributes, "otlp_attributes"),
        },
    )


def _pairs(text: str, option: str) -> dict[str, str]:
    """`name=value,name=value`, with what is special in a value percent-encoded."""
    pairs = [each.partition("=") for each in text.split(",") if each.strip()]
    if any(not name.strip() or not separator for name, separator, _ in pairs):
        raise Misconfigured(f"{option} must be name=value,name=value")
    return {name.strip(): unquote(value.strip()) for name, _, value in pairs}
