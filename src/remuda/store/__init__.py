"""The only room that talks to Redis: connection, typed commands, scripts, the embedded server, the census."""

from remuda.store.script import Script, any_key, load_script
from remuda.store.store import Store, Subscription
from remuda.store.transaction import ProvidedTransaction, Transaction

__all__ = ["ProvidedTransaction", "Script", "Store", "Subscription", "Transaction", "any_key", "load_script"]
