"""Where a request can be sent."""

from typing import NamedTuple

from remuda.base.hosts import host_port


class Address(NamedTuple):
    """A TCP end point; a tuple, because it is hashed for every request."""

    host: str
    port: int
    is_tls: bool = False
    """Whether TLS is spoken there."""

    def __str__(self) -> str:
        return host_port(self.host, self.port)
