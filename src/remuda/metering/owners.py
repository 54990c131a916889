"""Buckets and users belong to the account that used them first: no other account adds to their usage."""

from collections.abc import Sequence

from remuda.base.errors import StoreUnavailable
from remuda.keyspace.metering import OWNERS
from remuda.metering.model import LEVEL_OF_PARAM, Level
from remuda.metering.push import Event
from remuda.store import Store

_OWNED = [(param, level) for param, level in LEVEL_OF_PARAM.items() if level in (Level.BUCKETS, Level.USERS)]


async def find_foreign(store: Store, events: Sequence[Event]) -> dict[bytes, str]:
    """Digests of events about what belongs to another account than the one that has pushed them, and what
    that is; StoreUnavailable, at once, while Redis is away. Events of operators may be about everything."""
    named = {
        (event.service, level, event.params[param]): event.scope
        for event in reversed(events)
        if event.scope
        for param, level in _OWNED
        if event.params.get(param) is not None
    }
    if not named:
        return {}
    if not store.is_connected:
        raise StoreUnavailable
    replies = {each: store.hget(OWNERS(*each[:2]), each[2]) for each in named}
    # Of two accounts that name what is nobody's yet, the first gets it.
    owners = {each: await reply or named[each] for each, reply in replies.items()}
    return {
        event.digest: f"{event.params[param]!r} of the level {level} belongs to another account"
        for event in events
        if event.scope
        for param, level in _OWNED
        if owners.get((event.service, level, event.params.get(param)), event.scope) != event.scope
    }
