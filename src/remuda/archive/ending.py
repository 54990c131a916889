"""The abort of a job: of one that waits, at once; of one that runs, by its pipeline."""

from remuda.archive.jobs import HERD, Jobs
from remuda.archive.model import ENDED, Ident, JobState
from remuda.archive.records import Record
from remuda.archive.settings import JobSettingsEditor
from remuda.base.errors import InUse
from remuda.keyspace import archive
from remuda.store import Store


async def abort_job(store: Store, record: Record, *, reason: str = "") -> bool:
    """Aborts a run; False if it has ended already."""
    jobs, ident = Jobs(store), Ident(record.ident)
    queued = frozenset({JobState.QUEUED})
    if await jobs.finish(record.run, JobState.ABORTED, asker=HERD, reason=reason, within=queued):
        return True
    # It runs, or a pipeline has claimed it just now.
    try:
        await JobSettingsEditor(store).request_abort(ident)
    except InUse:
        return False
    return True


async def end_jobs(store: Store, account: str, token: str | None) -> int:
    """Aborts the jobs that were asked for with this token, or with any of the account; how many."""
    jobs, ended = Jobs(store), 0
    cause = f"The account {account} was deleted" if token is None else f"The token {token} was revoked"
    for ident in await store.smembers(archive.OPEN_JOBS(account)):
        record = await jobs.newest(Ident(ident))
        if record.state not in ENDED and token in (None, record.token):
            ended += await abort_job(store, record, reason=cause)
    return ended
