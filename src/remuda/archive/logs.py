"""The log of a job: a sorted set of numbered entries, which are analysed, broadcasted and trimmed."""

from collections.abc import Sequence
from typing import Any

import msgspec

from remuda.archive.model import Ident, RunId, ident_of_run
from remuda.keyspace import archive
from remuda.store import Store, load_script
from remuda.store.commands import Value

_APPEND = load_script(
    __file__,
    "append.lua",
    keys=[archive.JOB, archive.JOB_LOG, archive.RUN],
    args=["ident", "run", "first", "updates", "entries"],
    shared="job.lua",
)
_DIGEST = load_script(
    __file__,
    "digest.lua",
    keys=[archive.JOB, archive.JOB_LOG, archive.METRICS_ARCHIVE],
    args=["most", "keep", "step", "lines"],
    shared="job.lua",
)

DIGEST_BATCH = 500
"""Entries that one step reads: Redis does nothing else meanwhile."""
KEEP = 1000
"""Entries that stay in the log when it is trimmed, for those that look at it later."""
TRIM_STEP = 500
"""As in the original: not one entry for each new one."""


class Logs:
    """The logs of all jobs."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def append(self, run: RunId, entries: Sequence[bytes], *, first: int = 0) -> bool:
        """Appends entries, which are JSON objects; False if the job has expired or is in another run.

        With `first`, the number that the run's pipeline has given to the first of them, entries that were
        appended already are left out: Redis can go away between doing it and saying so.
        """
        ident = ident_of_run(run)
        number = run.rpartition("-")[2]
        keys = [archive.JOB(ident), archive.JOB_LOG(ident), archive.RUN(run)]
        args: list[Value] = [ident, number, first, archive.UPDATES(), *entries]
        return int(await self._store.run(_APPEND, keys=keys, args=args)) >= 0

    async def digest(self, ident: Ident) -> int:
        """Analyses, broadcasts and trims all new entries; how many these were."""
        keys = [archive.JOB(ident), archive.JOB_LOG(ident), archive.METRICS_ARCHIVE()]
        args: list[Value] = [DIGEST_BATCH, KEEP, TRIM_STEP, archive.JOB_LINES(ident)]
        total = 0
        while count := int(await self._store.run(_DIGEST, keys=keys, args=args)):
            total += count
            if count < DIGEST_BATCH:
                break
        return total

    async def read(self, ident: Ident, *, after: int = 0, limit: int = KEEP) -> list[dict[str, Any]]:
        """Entries after an index, oldest first; with an index below zero the newest."""
        log = archive.JOB_LOG(ident)
        if after < 0:
            found = await self._store.send("ZRANGE", log, -limit, -1)
        else:
            found = await self._store.send("ZRANGE", log, f"({after}", "+inf", "BYSCORE", "LIMIT", 0, limit)
        return [entry for text in found if (entry := _decode(text)) is not None]


def _decode(text: str) -> dict[str, Any] | None:
    """The entry; None if other software has written something else."""
    try:
        entry = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None
    return entry if isinstance(entry, dict) else None
