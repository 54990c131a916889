"""Keys whose owner is in no set: what a foreign writer wrote after a purge, and whoever left without a trace.

The keys themselves are searched, a few thousand a run, so it does not matter who forgot to note what. An
index would have to be kept by every writer, and those who write too late are exactly those who do not.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from remuda.fleet.scan import Scan
from remuda.grid.sweeps.sessions import SessionSweeps
from remuda.keyspace import grid
from remuda.keyspace.key import Key
from remuda.store import Store

# A million keys in eight hours, for a thousandth of a core. Nobody waits for a stray.
PER_RUN = 2_000


class Finder(Protocol):
    """A sweep that wants to hear of the owners of certain keys."""

    @property
    def keys(self) -> Sequence[Key[Any]]: ...

    def find(self, ids: Iterable[str]) -> None: ...


class StraySweep:
    """Walks through all keys, and tells the other sweeps whom they belong to."""

    def __init__(
        self,
        store: Store,
        sessions: SessionSweeps,
        *,
        found_elsewhere: Sequence[Finder],
        per_run: int = PER_RUN,
    ) -> None:
        self._store = store
        self._sessions = sessions
        self._finders = found_elsewhere
        self._per_run = per_run
        self._keys = Scan(store)

    async def sweep(self) -> Counter[str]:
        """Puts the sessions among the next keys right, and has the others looked at."""
        counts = Counter[str]()
        prefix = self._store.prefix
        async for batch in self._keys.batches(limit=self._per_run):
            names = [name.removeprefix(prefix) for name in batch if name.startswith(prefix)]
            counts += (await self._sessions.mend(owners(names, grid.SESSION_KEYS)))[1]
            for finder in self._finders:
                finder.find(owners(names, finder.keys))
        return counts


def owners(names: Iterable[str], keys: Sequence[Key[Any]]) -> list[str]:
    """Whom those of the names belong to that are names of these keys; each has one placeholder."""
    found: dict[str, None] = {}
    patterns: list[re.Pattern[str]] = [key.regex for key in keys]
    for name in names:
        match = next((match for pattern in patterns if (match := pattern.fullmatch(name))), None)
        if match is not None:
            found[match[1]] = None
    return list(found)
