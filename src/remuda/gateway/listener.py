"""The public port, apart from the gateway: `remuda up` takes the port, and needs no more of it than that."""

import socket

from remuda.base.certificate import Certificate
from remuda.base.config import Config, HerdConfig
from remuda.base.errors import Misconfigured
from remuda.base.hosts import is_loopback, open_listener
from remuda.base.systemd import inherited_socket
from remuda.gateway.proxies import TrustedProxies
from remuda.gateway.room import GatewayConfig

BACKLOG = 4096


def check_options(config: Config) -> None:
    """Misconfigured if the front door could not start with these options."""
    options = config[GatewayConfig]
    TrustedProxies(options.trusted_proxy)
    Certificate.of(options.tls_cert, options.tls_key)


def listen(config: Config) -> socket.socket:
    """A socket on the public port: the one that a service manager has opened, else a new one. Misconfigured
    when that cannot be had."""
    herd, shared = config[HerdConfig], config[GatewayConfig].share_port
    inherited = inherited_socket()
    if inherited is None:
        return open_listener(herd.host, herd.port, backlog=BACKLOG, shared=shared)
    host = str(inherited.getsockname()[0])
    if is_loopback(herd.host) and not is_loopback(host):
        # By the host, the gateway decides whether clients need a token.
        raise Misconfigured(
            f"The socket that was handed over listens on {host}: set host (REMUDA_HOST) to it"
        )
    return inherited
