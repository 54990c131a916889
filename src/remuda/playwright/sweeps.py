"""What the dead leave behind in this room. Gateways end the connections of one that died themselves; the gc
does it too, for the case that none of them is left."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping

from remuda.playwright.leases import Leases
from remuda.playwright.model import Browser, Limits
from remuda.playwright.reaper import Reaper
from remuda.store import Store


def playwright_sweeps(store: Store, limits: Limits) -> Mapping[str, Callable[[], Awaitable[Counter[str]]]]:
    """This room's sweeps by name; each says what it did."""
    leases = Leases(store, limits)

    async def end_connections() -> Counter[str]:
        return +Counter({"connections_ended": sum([await leases.sweep(browser) for browser in Browser])})

    return {"workers": Reaper(store, limits).sweep, "connections": end_connections}
