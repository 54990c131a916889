"""The grid's live settings: how long each step of a session may take, in seconds."""

from msgspec import Struct

from remuda.fleet.settings import Seconds, Settings
from remuda.keyspace.grid import TIMEOUTS
from remuda.store import Store


class Timeouts(Struct, frozen=True, rename="camel"):
    """The fields of the hash `timeouts`."""

    # WebGrid's own later values: "Real-world usage has shown" its first ones to be too low.
    queue: Seconds = 600.0
    scheduling: Seconds = 60.0
    node_startup: Seconds = 120.0
    driver_startup: Seconds = 30.0
    session_termination: Seconds = 900.0
    slot_reclaim_interval: Seconds = 300.0


def timeouts(store: Store) -> Settings[Timeouts]:
    """The hash `timeouts`."""
    return Settings(store, TIMEOUTS(), Timeouts)
