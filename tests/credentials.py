"""How a test talks to an internal port: as a process of the herd does."""

from remuda.fleet.secret import HerdSecret
from remuda.store import Store


async def herd_headers(store: Store) -> dict[str, str]:
    """The header that the internal ports of this Redis' herd ask for."""
    secret = HerdSecret(store)
    await secret.read()
    return dict([secret.header])
