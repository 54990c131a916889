"""The kinds of owners that a storage knows, asked together."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping

from remuda.base.errors import Broken
from remuda.fleet.ownership import OwnerKind, Retention
from remuda.storage.model import Owner


class OwnerKinds:
    """All kinds that a storage knows. What belongs to no known kind is neither served nor removed."""

    def __init__(self, kinds: Iterable[OwnerKind]) -> None:
        self._kinds: dict[str, OwnerKind] = {}
        for kind in kinds:
            if self._kinds.setdefault(kind.name, kind) is not kind:
                raise Broken(f"Two rooms say what a {kind.name} is")

    def __contains__(self, owner: Owner) -> bool:
        return owner.kind in self._kinds

    def __getitem__(self, owner: Owner) -> OwnerKind:
        return self._kinds[owner.kind]

    @property
    def retentions(self) -> Mapping[str, Retention]:
        return {kind.name: kind.retention for kind in self._kinds.values()}

    async def active(self, owners: Iterable[Owner]) -> set[Owner]:
        """Those of these that are active. All of them must be of a known kind."""
        ids = defaultdict(list)
        for owner in owners:
            ids[owner.kind].append(owner.id)
        kinds = [self._kinds[name] for name in ids]
        found = await asyncio.gather(*(kind.active(ids[kind.name]) for kind in kinds))
        return {Owner(kind.name, each) for kind, active in zip(kinds, found, strict=True) for each in active}
