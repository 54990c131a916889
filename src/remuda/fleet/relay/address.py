"""Where a request can be sent."""

from typing import NamedTuple


class Address(NamedTuple):
    """A TCP end point; a tuple, because it is hashed for every request."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
