"""How a test talks to an internal port: as a process of the herd does."""

from remuda.fleet.origin import EVERY_SCOPE, Origin
from remuda.fleet.secret import HerdSecret
from remuda.store import Store

OPERATOR = Origin(address="10.0.0.1", scopes=EVERY_SCOPE)
"""What a front door says of every client where no token is needed."""


async def herd_headers(store: Store, origin: Origin = OPERATOR) -> dict[str, str]:
    """The headers with which a front door of this Redis' herd passes on what a client of this origin asks."""
    secret = HerdSecret(store)
    await secret.read()
    return dict([secret.header]) | origin_headers(origin)


def origin_headers(origin: Origin) -> dict[str, str]:
    """The headers that say who asks; what the client sees of the herd is up to the test."""
    return {name: value for name, value in origin.headers() if name.startswith("X-Remuda-")}
