"""The census: every key in a live Redis must match exactly one declaration, with its type and lifetime."""

from dataclasses import dataclass

from remuda.keyspace.catalog import find
from remuda.keyspace.key import Name
from remuda.store.store import Store

BATCH = 500


@dataclass(frozen=True)
class Stranger:
    """A key that is not what the keyspace says."""

    name: str
    problem: str


async def take_census(store: Store) -> list[Stranger]:
    """Every key that is undeclared, of the wrong type, or with the wrong lifetime; empty when all is well."""
    strangers = []
    cursor = "0"
    while True:
        pattern = _literal(store.prefix) + "*"
        cursor, names = await store.send("SCAN", cursor, "MATCH", pattern, "COUNT", BATCH)
        strangers += await _examine(store, [name.removeprefix(store.prefix) for name in names])
        if cursor == "0":
            return sorted(set(strangers), key=lambda stranger: stranger.name)


async def _examine(store: Store, names: list[str]) -> list[Stranger]:
    types = [store.type_of(Name(name)) for name in names]
    lifetimes = [store.ttl_ms(Name(name)) for name in names]
    strangers = []
    for name, type_, ttl_ms in zip(names, types, lifetimes, strict=True):
        problem = _judge(name, await type_, await ttl_ms)
        if problem:
            strangers.append(Stranger(name, problem))
    return strangers


def _judge(name: str, type_: str, ttl_ms: int) -> str | None:
    if type_ == "none" or ttl_ms == -2:  # It went away while we were counting.
        return None
    key = find(name)
    if key is None:
        return "no declaration matches it"
    if type_ != key.kind.redis_type:
        return f"it is a {type_}, declared as {key.kind.redis_type}"
    limit = key.lifetime.expires
    if limit is None and ttl_ms != -1 and key.lifetime.lingers is not None:
        limit = key.lifetime.lingers
    if limit is None and ttl_ms != -1:
        return f"it expires in {ttl_ms} ms, declared to stay until {key.lifetime.ends}"
    if limit is not None and ttl_ms == -1:
        return f"it never expires, declared to within {limit:g} s"
    if limit is not None and ttl_ms > limit * 1000:
        return f"it expires in {ttl_ms} ms, declared to within {limit:g} s"
    return None


def _literal(prefix: str) -> str:
    """The prefix with what a glob would interpret escaped."""
    return "".join("\\" + letter if letter in "*?[]\\^" else letter for letter in prefix)
