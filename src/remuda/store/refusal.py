"""Whether Redis takes writes. A replica, a master that misses its replicas, and a server whose disk is full
answer all the same what is read, and mostly a PING."""

import hiredis

from remuda.keyspace.fleet import LEASE
from remuda.store.script import any_key, load_script
from remuda.store.store import Store
from remuda.store.wire import translate

REFUSAL = load_script(__file__, "refusal.lua", keys=[any_key("absent")], args=[])


async def check_writes(store: Store) -> None:
    """StoreUnavailable with the reason if Redis writes nothing now. The answer comes at once: a command that
    writes would wait for another master (store.py)."""
    if refusal := await store.run(REFUSAL, keys=[LEASE("writes")]):
        raise translate(hiredis.ReplyError(refusal))
