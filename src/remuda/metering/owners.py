"""Buckets and users belong to the account that used them first, or to the one that an operator has assigned
them to: no other account adds to their usage."""

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from remuda.accounts.model import check_account
from remuda.base.errors import InvalidArgument, StoreUnavailable
from remuda.keyspace.key import HashName
from remuda.keyspace.metering import ASSIGNED, OWNERS
from remuda.metering.model import LEVEL_OF_PARAM, Level, Services, is_resource
from remuda.metering.push import Event
from remuda.store import Store

OwnedLevel = Literal["buckets", "users"]
_LEVELS = (Level.BUCKETS, Level.USERS)
_OWNED = [(param, level) for param, level in LEVEL_OF_PARAM.items() if level in _LEVELS]


class Owned(Struct):
    """A bucket or a user, and the account that it belongs to: null if none has used it yet. What an operator
    has `assigned` stays so, also when its usage is forgotten."""

    service: str
    level: str
    resource: str
    account: str | None
    assigned: bool


class Reassigned(Owned, kw_only=True):
    """The same after a change, and the account that it belonged to before."""

    before: str | None


class Owners:
    """Whose buckets and users are, for operators to see and change."""

    def __init__(self, store: Store, services: Services) -> None:
        self._store = store
        self._services = services

    async def assigned(self) -> list[Owned]:
        """All that operators have assigned."""
        asked = {
            (service, level): self._store.hgetall(ASSIGNED(service, level))
            for service in self._services
            for level in _LEVELS
        }
        return [
            Owned(*place, resource, account, assigned=True)
            for place, reply in asked.items()
            for resource, account in sorted((await reply).items())
        ]

    async def find(self, service: str, level: OwnedLevel, resource: str) -> Owned:
        """Whose this one is."""
        keys = self._keys(service, level, resource)
        assigned, used = [self._store.hget(key, resource) for key in keys]
        account = await assigned
        return Owned(service, level, resource, account or await used, assigned=account is not None)

    async def assign(self, service: str, level: OwnedLevel, resource: str, account: str) -> Reassigned:
        """Gives it to this account, whether it was used before or not."""
        check_account(account)
        async with self._store.transaction() as transaction:
            replies = []
            for key in self._keys(service, level, resource):
                replies.append(transaction.hget(key, resource))
                transaction.hset(key, {resource: account})
        before = await replies[0] or await replies[1]
        return Reassigned(service, level, resource, account, assigned=True, before=before)

    async def release(self, service: str, level: OwnedLevel, resource: str) -> Reassigned:
        """Has it belong to nobody, until an account uses it."""
        async with self._store.transaction() as transaction:
            replies = []
            for key in self._keys(service, level, resource):
                replies.append(transaction.hget(key, resource))
                transaction.hdel(key, resource)
        before = await replies[0] or await replies[1]
        return Reassigned(service, level, resource, None, assigned=False, before=before)

    def _keys(self, service: str, level: OwnedLevel, resource: str) -> tuple[HashName, HashName]:
        """Where it is written down; InvalidArgument if there can be no such thing."""
        self._services.find(service)
        if not is_resource(resource):
            raise InvalidArgument(
                f"resource is {resource[:100]!r}; it must be up to 255 letters, digits, '.', '_', '-'"
            )
        return ASSIGNED(service, level), OWNERS(service, level)


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
    assigned = {each: store.hget(ASSIGNED(*each[:2]), each[2]) for each in named}
    used = {each: store.hget(OWNERS(*each[:2]), each[2]) for each in named}
    # Of two accounts that name what is nobody's yet, the first gets it.
    owners = {each: await assigned[each] or await used[each] or named[each] for each in named}
    return {
        event.digest: f"{name!r} of the level {level} belongs to the account {owner!r}; an operator can "
        "assign it to another"
        for event in events
        if event.scope
        for param, level in _OWNED
        if (name := event.params.get(param)) is not None
        and (owner := owners[event.service, level, name]) != event.scope
    }
