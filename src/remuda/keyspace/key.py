"""What a key declaration is: a pattern with a type, fields, a lifetime, a writer and a meaning.

A declaration is called with the values of its placeholders and gives the key's name, as a `str` whose
class is the key's Redis type. The store's commands ask for that class, so a `LPUSH` on a hash is a type
error before it is a Redis error. A placeholder only takes what its rule in `PARTS` admits: nothing that
a client sends becomes part of a key unchecked.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic, TypeVar

from remuda.base.errors import InvalidArgument
from remuda.base.ids import UUID_PATTERN


class Name(str):
    """The name of a live key or channel."""

    __slots__ = ()
    redis_type = "none"


class StringName(Name):
    """The name of a string, counters included."""

    __slots__ = ()
    redis_type = "string"


class HashName(Name):
    """The name of a hash."""

    __slots__ = ()
    redis_type = "hash"


class ListName(Name):
    """The name of a list."""

    __slots__ = ()
    redis_type = "list"


class SetName(Name):
    """The name of a set."""

    __slots__ = ()
    redis_type = "set"


class ZSetName(Name):
    """The name of a sorted set."""

    __slots__ = ()
    redis_type = "zset"


class StreamName(Name):
    """The name of a stream."""

    __slots__ = ()
    redis_type = "stream"


class ChannelName(Name):
    """The name of a pub/sub channel: no key, so the census never meets one."""

    __slots__ = ()
    redis_type = "channel"


N = TypeVar("N", bound=Name)

PARTS: Mapping[str, str] = {
    "session": UUID_PATTERN,
    "orchestrator": r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}",
    "manager": r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}",
}
"""Placeholder -> regex of what it may hold. Rooms add theirs by passing `parts` to a declaration."""

_PLACEHOLDER = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Lifetime:
    """How long a key stays: `expires` seconds at most after its last refresh, or until `ends` happens."""

    ends: str
    expires: float | None = None
    lingers: float | None = None
    """Seconds for which a key without expiry stays after that event; it has a TTL then. Infinite if the
    config says how long."""


def until(event: str, *, lingers: float | None = None) -> Lifetime:
    """A lifetime without expiry: the key stays until the event, and has no TTL in Redis before it. It goes
    then, or after the seconds for which it `lingers`."""
    return Lifetime(ends=event, lingers=lingers)


def expires(seconds: float, *, ends: str = "refreshed by its writer while it lives") -> Lifetime:
    """A lifetime with expiry: the key always has a TTL of at most this many seconds."""
    return Lifetime(ends=ends, expires=seconds)


@dataclass(frozen=True)
class Key(Generic[N]):
    """One declared key; calling it with the placeholders' values, in order, gives the key's name."""

    pattern: str
    kind: type[N]
    meaning: str
    writer: str
    lifetime: Lifetime
    fields: Mapping[str, str] = field(default_factory=dict)
    """Of a hash or stream: field (or `<placeholder>`) -> what it holds. Of others: `value` or `member`."""
    source: str = "remuda"
    """Where it is specified: the number of the seed document(s), or `remuda` for our own."""
    parts: Mapping[str, str] = field(default_factory=dict)
    """Rules of placeholders that are not in `PARTS`."""

    def __call__(self, *values: str) -> N:
        placeholders = self.placeholders
        if len(values) != len(placeholders):
            raise TypeError(f"{self.pattern} takes {len(placeholders)} value(s), got {len(values)}")
        name = self.pattern
        for placeholder, rule, value in zip(placeholders, self._rules, values, strict=True):
            name = name.replace("{" + placeholder + "}", _admitted(value, rule, placeholder, self.pattern), 1)
        return self.kind(name)

    @cached_property
    def placeholders(self) -> tuple[str, ...]:
        """The names between braces, in the order in which values are given."""
        return tuple(_PLACEHOLDER.findall(self.pattern))

    @cached_property
    def _rules(self) -> tuple[re.Pattern[str], ...]:
        return tuple(re.compile(self._rule(placeholder)) for placeholder in self.placeholders)

    def _rule(self, placeholder: str) -> str:
        return self.parts.get(placeholder) or PARTS[placeholder]

    @cached_property
    def regex(self) -> re.Pattern[str]:
        """What every name of this key matches, and no name of another key does."""
        pieces = _PLACEHOLDER.split(self.pattern)
        return re.compile(
            "".join(
                f"(?P<{piece}>{self._rule(piece)})" if index % 2 else re.escape(piece)
                for index, piece in enumerate(pieces)
            )
        )

    def template(self, *values: str) -> str:
        """The pattern with its first placeholders filled in and `%s` for each of the others: for Lua scripts
        that derive names from ids."""
        if len(self.placeholders) <= len(values):
            raise TypeError(
                f"{self.pattern} takes fewer than {len(self.placeholders)} value(s) for a template"
            )
        pattern = self.pattern.replace("%", "%%")
        for placeholder, rule, value in zip(self.placeholders, self._rules, values, strict=False):
            pattern = pattern.replace(
                "{" + placeholder + "}", _admitted(value, rule, placeholder, self.pattern), 1
            )
        return _PLACEHOLDER.sub("%s", pattern)


def _admitted(value: str, rule: re.Pattern[str], placeholder: str, pattern: str) -> str:
    if not rule.fullmatch(value):
        raise InvalidArgument(f"{value!r} is not a valid {placeholder} in the key {pattern}")
    return value
