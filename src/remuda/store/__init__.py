"""The only room that talks to Redis: connection, typed commands, scripts, the embedded server, the census."""

from remuda.store.script import Script, load_script
from remuda.store.store import Store, Subscription, Transaction

__all__ = ["Script", "Store", "Subscription", "Transaction", "load_script"]
