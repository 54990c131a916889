"""Meters what a storage holds for each account: bytes and artifacts, when they come and when they go.

Redis says of each owner what is counted of it. What the index holds is compared with that, so nothing is lost
with a killed process or a rebuilt index. Before a change is pushed, it is written down with the id of its
events: after a crash the very same events are pushed again, and count once.
"""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from remuda.base.errors import InvalidArgument
from remuda.base.ids import new_id
from remuda.base.log import get_logger
from remuda.fleet.sweep import Scan
from remuda.keyspace import storage as keys
from remuda.metering.push import Event, Metering
from remuda.storage.index import Librarian
from remuda.storage.model import Owner, StorageId
from remuda.storage.owners import OwnerKinds
from remuda.storage.usage import ARTIFACTS
from remuda.store import Store

log = get_logger(__name__)

SETTLE_EVERY = 1.0
BATCH = 100

Total = tuple[int, int]
"""Bytes and artifacts of an owner."""
NOTHING: Total = (0, 0)


class MeteredArtifacts(Struct, frozen=True):
    """What is counted of an owner."""

    account: str | None = None
    total: Total = NOTHING
    next: Total | None = None
    """What is being pushed now."""
    event: str = ""
    """The id of the events for that."""


class ArtifactMeter:
    """Meters one storage."""

    def __init__(
        self,
        store: Store,
        storage: StorageId,
        metering: Metering,
        *,
        kinds: OwnerKinds,
        librarian: Librarian,
    ) -> None:
        self._store = store
        self._metering = metering
        self._kinds = kinds
        self._librarian = librarian
        self._key = keys.STORAGE_METERED(storage)
        self._is_compared = False

    async def settle(self) -> None:
        """Counts what has changed since the last time; the first time, all that is there."""
        # An index that is being built does not know yet what there is.
        if not await self._librarian.ask(lambda index: index.is_complete):
            self._is_compared = False
            return
        if not self._is_compared:
            await self._compare()
        changed = await self._librarian.ask(lambda index: index.take_changes())
        try:
            await self._count(changed)
        except BaseException:
            self._is_compared = False
            raise

    async def _compare(self) -> None:
        """Finds every owner of which something else is counted than there is."""
        totals = await self._librarian.ask(lambda index: index.totals())
        unseen = set(totals)
        wrong: dict[str, Total] = {}
        scan = Scan(self._store, self._key)
        async for batch in scan.batches(limit=1 << 62):
            for owner, text in zip(batch[::2], batch[1::2], strict=True):
                unseen.discard(owner)
                metered, total = _decode(text), totals.get(owner, NOTHING)
                if metered.next is not None or metered.total != total:
                    wrong[owner] = total
        await self._count(wrong | {owner: totals[owner] for owner in unseen})
        self._is_compared = True

    async def forget(self) -> None:
        """Takes off all that is counted: the storage is gone for good."""
        async for batch in Scan(self._store, self._key).batches(limit=1 << 62):
            await self._count(dict.fromkeys(batch[::2], NOTHING))

    async def _count(self, totals: Mapping[str, Total]) -> None:
        owners = sorted(totals)
        for start in range(0, len(owners), BATCH):
            batch = owners[start : start + BATCH]
            # What a killed process has begun comes first, then what has changed since.
            while unsettled := await self._begin({owner: totals[owner] for owner in batch}):
                await self._push(unsettled)

    async def _begin(self, totals: Mapping[str, Total]) -> dict[str, MeteredArtifacts]:
        """Writes down what will be counted of those of which something else is."""
        stored = await self._store.hmget(self._key, *totals)
        begun: dict[str, MeteredArtifacts] = {}
        for (owner, total), text in zip(totals.items(), stored, strict=True):
            metered = MeteredArtifacts(await self._account_of(owner)) if text is None else _decode(text)
            if metered.next is not None:
                begun[owner] = metered
            elif metered.total != total:
                begun[owner] = replace(metered, next=total, event=new_id())
        if begun:
            await self._store.hset(self._key, {owner: _encode(metered) for owner, metered in begun.items()})
        return begun

    async def _push(self, begun: Mapping[str, MeteredArtifacts]) -> None:
        await self._metering.push_all([event for each in begun.values() for event in self._events(each)])
        async with self._store.transaction() as transaction:
            for owner, metered in begun.items():
                if metered.next == NOTHING:
                    transaction.hdel(self._key, owner)
                else:
                    settled = MeteredArtifacts(metered.account, metered.next or NOTHING)
                    transaction.hset(self._key, {owner: _encode(settled)})

    def _events(self, metered: MeteredArtifacts) -> Sequence[Event]:
        whose = {} if metered.account is None else {"accountId": metered.account}
        growth = [new - old for new, old in zip(metered.next or NOTHING, metered.total, strict=True)]
        events = []
        for action, sign in (("addArtifacts", 1), ("removeArtifacts", -1)):
            bytes_, objects = (max(0, sign * by) for by in growth)
            if bytes_ or objects:
                params = {**whose, "byteLength": bytes_, "numberOfObjects": objects}
                event_id = f"{metered.event}/{action}"
                events.append(self._metering.check(action, params, service=ARTIFACTS.name, event_id=event_id))
        return events

    async def _account_of(self, name: str) -> str | None:
        try:
            owner = Owner.parse(name)
        except InvalidArgument:
            return None
        return await self._kinds[owner].account_of(owner.id) if owner in self._kinds else None


def _encode(metered: MeteredArtifacts) -> bytes:
    return msgspec.json.encode(metered)


def _decode(text: str) -> MeteredArtifacts:
    return msgspec.json.decode(text, type=MeteredArtifacts)
