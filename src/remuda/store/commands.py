"""The Redis commands that Remuda uses, each typed once: what kind of key it takes, what it answers.

A command is sent when it is called; awaiting it gives the reply. So several can be under way at once:

    host, port = store.hget(key, "host"), store.hget(key, "port")     # one write
    address = await host, await port
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any

from remuda.keyspace.key import (
    ChannelName,
    HashName,
    ListName,
    Name,
    SetName,
    StreamName,
    StringName,
    ZSetName,
)

# Not SCAN, whose cursor another server does not know.
READS = {
    *("EXISTS", "PTTL", "TYPE", "GET", "MGET", "LLEN", "LRANGE", "XRANGE", "XREVRANGE"),
    *("HGET", "HGETALL", "HKEYS", "HLEN", "HMGET", "HSTRLEN", "HVALS"),
    *("SCARD", "SINTER", "SISMEMBER", "SMEMBERS", "SRANDMEMBER"),
    *("ZCARD", "ZCOUNT", "ZMSCORE", "ZRANGE", "ZRANK", "ZSCORE"),
}
"""Commands that change nothing and whose answer does not depend on the connection."""
Value = str | bytes | int | float
StreamEntry = tuple[str, dict[str, str]]


class Commands(ABC):
    """Commands on keys; a subclass says how they travel."""

    @abstractmethod
    def send(self, *args: Value) -> Awaitable[Any]:
        """Sends any command. Arguments that are `Name`s get the fleet's prefix."""

    # Any key

    def delete(self, *keys: Name) -> Awaitable[int]:
        return self.send("DEL", *keys)

    def exists(self, *keys: Name) -> Awaitable[int]:
        return self.send("EXISTS", *keys)

    def expire(self, key: Name, seconds: int) -> Awaitable[int]:
        return self.send("EXPIRE", key, seconds)

    def ttl_ms(self, key: Name) -> Awaitable[int]:
        return self.send("PTTL", key)

    def type_of(self, key: Name) -> Awaitable[str]:
        return self.send("TYPE", key)

    # Strings

    def get(self, key: StringName) -> Awaitable[str | None]:
        return self.send("GET", key)

    def set(self, key: StringName, value: Value, *, ex: int | None = None) -> Awaitable[str]:
        return self.send("SET", key, value, *(() if ex is None else ("EX", ex)))

    def set_if_absent(self, key: StringName, value: Value) -> Awaitable[str | None]:
        return self.send("SET", key, value, "NX")

    def incr(self, key: StringName, by: int = 1) -> Awaitable[int]:
        return self.send("INCRBY", key, by)

    # Hashes

    def hget(self, key: HashName, field: str) -> Awaitable[str | None]:
        return self.send("HGET", key, field)

    def hmget(self, key: HashName, *fields: str) -> Awaitable[list[str | None]]:
        return self.send("HMGET", key, *fields)

    def hgetall(self, key: HashName) -> Awaitable[dict[str, str]]:
        return self.send("HGETALL", key)

    def hvals(self, key: HashName) -> Awaitable[list[str]]:
        return self.send("HVALS", key)

    def hset(self, key: HashName, fields: Mapping[str, Value]) -> Awaitable[int]:
        return self.send("HSET", key, *_flatten(fields))

    def hsetnx(self, key: HashName, field: str, value: Value) -> Awaitable[int]:
        return self.send("HSETNX", key, field, value)

    def hdel(self, key: HashName, *fields: str) -> Awaitable[int]:
        return self.send("HDEL", key, *fields)

    def hincrby(self, key: HashName, field: str, by: int = 1) -> Awaitable[int]:
        return self.send("HINCRBY", key, field, by)

    # Lists

    def lpush(self, key: ListName, *values: Value) -> Awaitable[int]:
        return self.send("LPUSH", key, *values)

    def rpush(self, key: ListName, *values: Value) -> Awaitable[int]:
        return self.send("RPUSH", key, *values)

    def lrange(self, key: ListName, start: int = 0, stop: int = -1) -> Awaitable[list[str]]:
        return self.send("LRANGE", key, start, stop)

    def llen(self, key: ListName) -> Awaitable[int]:
        return self.send("LLEN", key)

    def lrem(self, key: ListName, value: Value, count: int = 1) -> Awaitable[int]:
        return self.send("LREM", key, count, value)

    def rpoplpush(self, source: ListName, target: ListName) -> Awaitable[str | None]:
        return self.send("LMOVE", source, target, "RIGHT", "LEFT")

    # Sets

    def sadd(self, key: SetName, *members: Value) -> Awaitable[int]:
        return self.send("SADD", key, *members)

    def srem(self, key: SetName, *members: Value) -> Awaitable[int]:
        return self.send("SREM", key, *members)

    def smembers(self, key: SetName) -> Awaitable[list[str]]:
        return self.send("SMEMBERS", key)

    def scard(self, key: SetName) -> Awaitable[int]:
        return self.send("SCARD", key)

    def sismember(self, key: SetName, member: Value) -> Awaitable[int]:
        return self.send("SISMEMBER", key, member)

    # Sorted sets

    def zadd(self, key: ZSetName, scores: Mapping[str, float]) -> Awaitable[int]:
        return self.send("ZADD", key, *(part for member, score in scores.items() for part in (score, member)))

    def zrem(self, key: ZSetName, *members: Value) -> Awaitable[int]:
        return self.send("ZREM", key, *members)

    def zrange(self, key: ZSetName, start: int = 0, stop: int = -1) -> Awaitable[list[str]]:
        return self.send("ZRANGE", key, start, stop)

    def zrange_by_score(self, key: ZSetName, low: Value, high: Value) -> Awaitable[list[str]]:
        return self.send("ZRANGE", key, low, high, "BYSCORE")

    def zremrange_by_score(self, key: ZSetName, low: Value, high: Value) -> Awaitable[int]:
        return self.send("ZREMRANGEBYSCORE", key, low, high)

    def zcard(self, key: ZSetName) -> Awaitable[int]:
        return self.send("ZCARD", key)

    # Streams

    def xadd(self, key: StreamName, fields: Mapping[str, Value], *, about: int) -> Awaitable[str]:
        """Appends an entry and trims the stream to about this many."""
        return self.send("XADD", key, "MAXLEN", "~", about, "*", *_flatten(fields))

    def xrange(self, key: StreamName, *, after: str = "", limit: int = 1000) -> Awaitable[list[Any]]:
        """Entries after an id, oldest first, as Redis gives them: see `stream_entries`."""
        return self.send("XRANGE", key, f"({after}" if after else "-", "+", "COUNT", limit)

    def xrevrange(self, key: StreamName, *, before: str = "", limit: int = 1000) -> Awaitable[list[Any]]:
        """Entries before an id, newest first, as Redis gives them."""
        return self.send("XREVRANGE", key, f"({before}" if before else "+", "-", "COUNT", limit)

    # Channels

    def publish(self, channel: ChannelName, message: Value = "") -> Awaitable[int]:
        return self.send("PUBLISH", channel, message)


def stream_entries(reply: Sequence[Any]) -> list[StreamEntry]:
    """The reply of XRANGE as pairs of id and fields."""
    return [(entry_id, dict(zip(flat[::2], flat[1::2], strict=True))) for entry_id, flat in reply]


def _flatten(fields: Mapping[str, Value]) -> list[Value]:
    return [part for pair in fields.items() for part in pair]
