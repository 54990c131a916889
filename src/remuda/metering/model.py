"""What an event changes: its parameters are checked against the table of its service. Pure.

An event counts for each resource that it names, one on each level, and always for its service.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import Any, Literal

from msgspec import Struct

from remuda.base.errors import InvalidArgument
from remuda.fleet.services import Params, Service
from remuda.keyspace.metering import METER_STATE

Precision = Literal[1, 5, 15]
"""Minutes of a time slot. Each divides the next, so that old time slots can be split."""

MAX_NUMBER = 2**46 - 1
"""The greatest number of one event, 70 terabytes: a batch of 128 stays below 2^53, where Lua is exact."""
MAX_KEYS = 1000
MAX_KEY_LENGTH = 1024
DAY_MS = 86_400_000


class Level(StrEnum):
    """What usage is counted for."""

    BUCKETS = "buckets"
    ACCOUNTS = "accounts"
    USERS = "users"
    SERVICE = "service"
    LOCATION = "location"


LEVEL_OF_PARAM: Mapping[str, Level] = {
    "bucket": Level.BUCKETS,
    "accountId": Level.ACCOUNTS,
    "userId": Level.USERS,
    "location": Level.LOCATION,
}
"""Which parameter names the resource of which level. The level `service` is always counted."""

_resource = re.compile(METER_STATE.parts["resource"]).fullmatch


class Services(Mapping[str, Service]):
    """The services of a herd, by name."""

    def __init__(self, services: Iterable[Service]) -> None:
        self._services = {service.name: service for service in services}

    def __getitem__(self, name: str) -> Service:
        return self._services[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._services)

    def __len__(self) -> int:
        return len(self._services)

    def find(self, name: str) -> Service:
        """The service of this name; InvalidArgument says which there are."""
        try:
            return self._services[name]
        except KeyError:
            known = ", ".join(self._services)
            raise InvalidArgument(f"service is {name[:50]!r}; the services are {known}") from None


# The parameters


NULLABLE = frozenset({"oldByteLength"})
"""Needed parameters that may be null: there was nothing before."""


def _check_amount(params: Params, name: str, *, is_needed: bool) -> None:
    if name not in params:
        if is_needed:
            raise InvalidArgument(f"params.{name} is missing")
        return
    value = params[name]
    if value is None and (name in NULLABLE or not is_needed):
        return
    if type(value) is not int or not 0 <= value <= MAX_NUMBER:
        raise InvalidArgument(f"params.{name} is {value!r:.50}; it must be an integer from 0 to 2^46 - 1")


@lru_cache(maxsize=65536)
def is_resource(name: str) -> bool:
    """Whether a resource can have this name."""
    return _resource(name) is not None


def _check_keys(keys: Any) -> str:
    """The keys as they are published."""
    if not isinstance(keys, list | tuple) or len(keys) > MAX_KEYS:
        raise InvalidArgument(f"params.keys must be a list of at most {MAX_KEYS} keys")
    for key in keys:
        if not isinstance(key, str) or len(key) > MAX_KEY_LENGTH:
            raise InvalidArgument(f"params.keys must have texts of at most {MAX_KEY_LENGTH} characters")
    return "".join(f":{key}" for key in keys)


class Change(Struct, frozen=True, gc=False):
    """What an event changes: the same on each level."""

    targets: tuple[tuple[str, str], ...]
    """Level and resource of each."""
    counts: tuple[tuple[str, int], ...]
    """Operation or measure, and what is added to its time slot."""
    moves: tuple[tuple[str, int], ...]
    """State, and by how much it changes."""
    account: str = ""
    bucket: str = ""
    message: str = ""
    """What is published; empty for nothing."""
    gains: tuple[str, ...] = ()
    """Operations, measures and states that it adds to."""


@dataclass(frozen=True, kw_only=True)
class Counting:
    """What of all events is counted, as the config says."""

    levels: frozenset[Level] = frozenset(Level)
    operations: frozenset[str] | None = None
    """Operations that are counted, in lower case; None: all. Measures and states are always counted."""

    @cached_property
    def places(self) -> tuple[tuple[str, str | None], ...]:
        """Each parameter that names a resource, and its level if that is counted."""
        return tuple(
            (param, level.value if level in self.levels else None) for param, level in LEVEL_OF_PARAM.items()
        )

    @cached_property
    def counts_service(self) -> bool:
        return Level.SERVICE in self.levels


def find_change(service: Service, action_name: str, params: Params, counting: Counting) -> Change:
    """What the event changes; InvalidArgument names the field that is wrong."""
    action = service.by_name.get(action_name)
    if action is None:
        raise InvalidArgument(f"action is {action_name!r:.60}, which {service.name} does not have")
    targets = []
    for param, level in counting.places:
        resource = params.get(param)
        if resource is None:
            continue
        if not isinstance(resource, str) or not is_resource(resource):
            raise InvalidArgument(
                f"params.{param} is {resource!r:.60}; it must be up to 255 letters, digits, '.', '_', '-'"
            )
        if level is not None:
            targets.append((level, resource))
    if counting.counts_service:
        targets.append(("service", service.name))
    for name in action.needs:
        _check_amount(params, name, is_needed=True)
    for name in action.takes:
        _check_amount(params, name, is_needed=False)
    keys = _check_keys(params["keys"]) if params.get("keys") is not None else ""

    counts = [(measure, term(params) or 0) for measure, term in action.adds.items()]
    operation = action.operation
    if operation and (counting.operations is None or operation.lower() in counting.operations):
        counts.append((operation, 1))
    moves = [(state, by) for state, term in action.moves.items() if (by := term(params)) is not None]
    bucket = params.get("bucket") or ""
    return Change(
        targets=tuple(targets),
        counts=tuple(counts),
        moves=tuple(moves),
        account=params.get("accountId") or "",
        bucket=bucket,
        message=f"{action.name}{keys}" if action.publishes and bucket else "",
        gains=tuple([name for name, by in (*counts, *moves) if by > 0]),
    )


def slot_of(timestamp_ms: int, precision: Precision) -> int:
    """The time slot of a moment, floored in UTC. (The document floors in the local time of its examples.)"""
    return timestamp_ms - timestamp_ms % (precision * 60_000)
