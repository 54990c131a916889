"""What jobs use lands on the meter of their account, once, however they end; and quotas refuse new ones."""

from collections.abc import Awaitable, Callable

import pytest

from jobs import claim_job, job_fields, new_pipeline, queue_job
from remuda.archive.jobs import HERD, Jobs
from remuda.archive.model import JobState
from remuda.archive.records import Progress, Record
from remuda.archive.usage import ARCHIVE
from remuda.base import clock
from remuda.keyspace import archive
from remuda.keyspace.metering import TIMER, TIMERS
from remuda.metering.model import Level, Services
from remuda.metering.push import Metering
from remuda.metering.quotas import QuotaChange, Quotas
from remuda.metering.timers import Timers
from remuda.metering.usage import TimeRange, UsageReader
from remuda.store import Store
from waiting import eventually
from web_states import visiting

SERVICES = Services([ARCHIVE])
SLOT = 15 * 60_000


async def used(store: Store, account: str) -> dict[str, int]:
    """What the meter says of the account in this hour, after all that is due was counted."""
    metering = Metering(store, services=SERVICES)
    timers = Timers(store, metering)

    async def is_all_counted() -> bool:
        # What has ended in this very millisecond is due in the next.
        await timers.count_timers()
        return not await store.zcard(TIMERS())

    await eventually(is_all_counted)
    await metering.finish()
    return await counts(store, account)


async def counts(store: Store, account: str) -> dict[str, int]:
    """What is counted already."""
    asked = TimeRange(clock.now_ms() - 4 * 3_600_000, clock.now_ms())
    (usage,) = await UsageReader(store, ARCHIVE, precision=15).read(Level.ACCOUNTS, [account], asked)
    return {name: count for name, count in usage.counts.items() if count}


async def start(store: Store, record: Record, *, ago: float = 0.0) -> Callable[[int, int], Awaitable[None]]:
    """Has a pipeline run this job, for so long already; a function that says how far it has come."""
    pipeline = new_pipeline()
    claim = await claim_job(store, pipeline)
    assert claim is not None
    await store.hset(TIMER(record.run), {"began": clock.now_ms() - int(ago * 1000)})

    async def beat(pages: int, size: int) -> None:
        fetched = Progress({"items_downloaded": str(pages), "bytes_downloaded": str(size)}, {})
        assert await Jobs(store).beat(claim, pipeline, fetched) is not None

    return beat


async def run_for(store: Store, record: Record, seconds: float) -> None:
    """Has a pipeline fetch something for this job, for so long."""
    beat = await start(store, record, ago=seconds)
    await beat(10, 23456)
    await beat(40, 123456)


@pytest.mark.parametrize("state", [JobState.COMPLETED, JobState.ABORTED, JobState.FAILED])
async def test_a_run_is_metered_for_its_account_however_it_ends(store: Store, state: JobState) -> None:
    record = await queue_job(store, account="web")
    await run_for(store, record, 90.0)

    assert await Jobs(store).finish(record.run, state, asker=HERD)

    counted = await used(store, "web")
    assert counted.pop("jobSeconds") in range(90, 200)
    assert counted == {"Crawl": 1, "pages": 40, "incomingBytes": 123456}
    assert (await used(store, "web"))["pages"] == 40


async def test_a_run_is_metered_as_it_goes(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each amount once, although each time the process that counts dies before it has noted that it did."""
    record = await queue_job(store, account="web")
    beat = await start(store, record, ago=1800)
    timers, really_now = Timers(store, Metering(store, services=SERVICES)), clock.now_ms
    counted = []

    for place, pages in enumerate((30, 70, 70), start=1):
        await beat(pages, pages * 1000)
        # As if this time slot were over.
        monkeypatch.setattr(clock, "now_ms", lambda place=place: really_now() + place * SLOT + 10_000)
        await store.zadd(TIMERS(), {record.run: 0})
        fields = await store.hgetall(TIMER(record.run))
        await timers.count_timers()
        await store.delete(TIMER(record.run))
        await store.hset(TIMER(record.run), fields)
        await store.zadd(TIMERS(), {record.run: 0})
        await timers.count_timers()
        counted.append(await counts(store, "web"))
    await beat(71, 71_500)
    assert await Jobs(store).finish(record.run, JobState.COMPLETED, asker=HERD)

    assert [(each["Crawl"], each["pages"], each["incomingBytes"]) for each in counted] == [
        (1, 30, 30_000),
        (1, 70, 70_000),
        (1, 70, 70_000),
    ]
    assert all(each["jobSeconds"] >= 900 for each in counted)
    whole = await used(store, "web")
    assert (whole["Crawl"], whole["pages"], whole["incomingBytes"]) == (1, 71, 71_500)
    assert not await store.exists(TIMER(record.run))


async def test_a_job_that_never_ran_is_not_metered(store: Store) -> None:
    record = await queue_job(store, account="web")

    assert await Jobs(store).finish(record.run, JobState.ABORTED, asker=HERD)

    assert (await job_fields(store, record.ident))["aborted"] == "true"
    assert await used(store, "web") == {}


async def test_a_used_up_quota_refuses_new_jobs(store: Store) -> None:
    quotas = Quotas(store, SERVICES, precision=15)
    await quotas.change("default", {"archive.pages": QuotaChange(hard=40, period="day")})
    record = await queue_job(store)
    await run_for(store, record, 1.0)
    await Jobs(store).finish(record.run, JobState.COMPLETED, asker=HERD)
    await used(store, "default")

    async with (
        visiting(store) as client,
        client.post("/api/archive/jobs", json={"url": "http://other.example.com/"}) as refused,
    ):
        answer = await refused.text()

    assert refused.status == 429
    assert "archive.pages" in answer
    assert await store.llen(archive.PENDING()) == 0
