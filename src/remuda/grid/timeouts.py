"""The grid's live settings: how long each step of a session may take, in seconds."""

from remuda.fleet.settings import Settings
from remuda.keyspace.grid import TIMEOUTS
from remuda.store import Store

# WebGrid's own later values: "Real-world usage has shown" its first ones to be too low.
DEFAULTS = {
    "queue": 600.0,
    "scheduling": 60.0,
    "nodeStartup": 120.0,
    "driverStartup": 30.0,
    "sessionTermination": 900.0,
    "slotReclaimInterval": 300.0,
}


def timeouts(store: Store) -> Settings:
    """The hash `timeouts`."""
    return Settings(store, TIMEOUTS(), defaults=DEFAULTS)
