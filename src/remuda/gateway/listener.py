"""The public port, apart from the gateway: `remuda up` takes the port, and needs no more of it than that."""

import os
import socket

from remuda.base.config import Config
from remuda.base.errors import Misconfigured
from remuda.base.hosts import is_loopback

BACKLOG = 4096


def listen(config: Config) -> socket.socket:
    """A socket on the public port; Misconfigured when it cannot be had, or would be open to strangers."""
    if not (is_loopback(config.host) or config.insecure):
        raise Misconfigured(
            f"Anybody who reaches {config.host} could use the herd, since it asks for no token. "
            "Listen on 127.0.0.1, or say --insecure if that is what you want"
        )
    try:
        family = socket.getaddrinfo(config.host, config.port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((config.host, config.port), family=family, backlog=BACKLOG)
    except (OSError, OverflowError) as error:
        # Not the error's own text, which repeats the address.
        code = getattr(error, "errno", None) or 0
        reason = os.strerror(code) if code > 0 else str(error)
        raise Misconfigured(f"Cannot listen on {config.host}:{config.port}: {reason}") from error
