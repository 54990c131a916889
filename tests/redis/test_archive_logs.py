"""The log of a job: no line lost, none collapsed, none counted twice, no job brought back."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from jobs import IDENT, URL, job_fields, new_pipeline, queue_job, run_job
from remuda.archive.crawler.model import CrawlCounts, DownloadEntry, StdoutEntry
from remuda.archive.jobs import Jobs
from remuda.archive.logs import DIGEST_BATCH, KEEP, Logs
from remuda.archive.model import Ident, JobState
from remuda.archive.pipeline.journal import JobJournal
from remuda.archive.records import Claim
from remuda.keyspace import archive
from remuda.store import Store
from remuda.store.census import take_census
from servers import PATIENCE, Server
from waiting import eventually

JOB = Ident(IDENT)


def line(message: str = "same") -> bytes:
    return msgspec.json.encode(StdoutEntry(1, message))


def download(status: int, *, is_error: bool = False, url: str = URL) -> DownloadEntry:
    return DownloadEntry(1.5, url, status, "OK", is_error, 400 <= status < 500)


async def running(store: Store) -> Claim:
    return await run_job(store, new_pipeline())


async def test_entries_that_say_the_same_stay_apart(store: Store) -> None:
    claim = await running(store)

    await Logs(store).append(claim.run, [line()] * 5)

    assert await store.zcard(archive.JOB_LOG(IDENT)) == 5
    assert (await job_fields(store))["log_score"] == "5"
    entries = await Logs(store).read(JOB)
    assert [entry["seq"] for entry in entries] == [1, 2, 3, 4, 5]
    assert entries[0] == {"seq": 1, "type": "stdout", "ts": 1, "message": "same"}


async def test_a_batch_that_is_sent_twice_is_appended_once(store: Store) -> None:
    claim = await running(store)
    logs = Logs(store)
    await logs.append(claim.run, [line("a"), line("b")], first=1)

    # Redis had done it, but the answer was lost; meanwhile there is more to send.
    await logs.append(claim.run, [line("a"), line("b"), line("c")], first=1)
    await logs.append(claim.run, [line("from the herd")])
    await logs.append(claim.run, [line("d")], first=4)

    assert [entry["message"] for entry in await logs.read(JOB)] == ["a", "b", "c", "from the herd", "d"]


async def test_a_line_that_comes_too_late_brings_no_job_back(store: Store) -> None:
    claim = await running(store)
    await store.delete(archive.JOB(IDENT), archive.JOB_LOG(IDENT), archive.JOB_IGNORES(IDENT))

    assert not await Logs(store).append(claim.run, [line()])
    assert await Logs(store).digest(JOB) == 0

    assert not await store.exists(archive.JOB(IDENT), archive.JOB_LOG(IDENT))


async def test_a_line_of_an_earlier_run_is_not_written_into_the_log_of_the_next(store: Store) -> None:
    pipeline = new_pipeline()
    first = await run_job(store, pipeline)
    await Jobs(store).finish(first.run, JobState.COMPLETED, asker=pipeline)
    await queue_job(store)

    assert not await Logs(store).append(first.run, [line()])


async def test_a_line_after_the_end_expires_with_the_job(store: Store) -> None:
    pipeline = new_pipeline()
    claim = await run_job(store, pipeline)
    await Jobs(store).finish(claim.run, JobState.COMPLETED, asker=pipeline)

    assert await Logs(store).append(claim.run, [line()])

    limit = await store.ttl_ms(archive.JOB(IDENT))
    assert 0 < await store.ttl_ms(archive.JOB_LOG(IDENT)) <= limit
    assert await take_census(store) == []


@pytest.mark.parametrize(
    ("status", "is_error", "field", "errors"),
    [
        (100, False, "r1xx", 0),
        (199, False, "r1xx", 0),
        (200, False, "r2xx", 0),
        (399, False, "r3xx", 0),
        (404, False, "r4xx", 1),
        (599, True, "r5xx", 1),
        (600, False, "runk", 0),
        (99, False, "runk", 0),
        (0, True, "runk", 1),
    ],
)
async def test_responses_are_counted_by_their_status(
    store: Store, status: int, is_error: bool, field: str, errors: int
) -> None:
    claim = await running(store)
    entry = msgspec.json.encode(download(status, is_error=is_error))
    await Logs(store).append(claim.run, [entry, line()])

    await Logs(store).digest(JOB)

    job = await job_fields(store)
    counted = {name: job[name] for name in job if name.startswith("r") and name != "run" and job[name] != "0"}
    assert counted == {field: "1"}
    assert job.get("error_count", "0") == str(errors)
    assert await store.hget(archive.METRICS_ARCHIVE(), "responses") == "1"


async def test_what_two_digest_at_the_same_time_is_counted_once(store: Store) -> None:
    claim = await running(store)
    entry = msgspec.json.encode(download(200))
    for _ in range(4):
        await Logs(store).append(claim.run, [entry] * DIGEST_BATCH)

    await asyncio.gather(*(Logs(store).digest(JOB) for _ in range(4)))

    assert (await job_fields(store))["r2xx"] == str(4 * DIGEST_BATCH)


async def test_the_log_is_trimmed_behind_those_that_read_it(store: Store) -> None:
    claim = await running(store)
    logs = Logs(store)
    for _ in range(5):
        await logs.append(claim.run, [line()] * 400)
        job = await job_fields(store)
        marks = [int(job.get(f"last_{mark}_log_entry", 0)) for mark in ("trimmed", "broadcasted", "analyzed")]
        assert marks == sorted(marks)
        assert await store.zcard(archive.JOB_LOG(IDENT)) == int(job["log_score"]) - marks[0]
        await logs.digest(JOB)

    job = await job_fields(store)
    assert job["last_analyzed_log_entry"] == job["last_broadcasted_log_entry"] == job["log_score"] == "2000"
    assert KEEP <= await store.zcard(archive.JOB_LOG(IDENT)) < 2000
    newest = await logs.read(JOB, after=-1, limit=3)
    assert [entry["seq"] for entry in newest] == [1998, 1999, 2000]


async def test_new_entries_are_broadcasted(store: Store) -> None:
    claim = await running(store)
    with store.subscribe(archive.JOB_LINES(IDENT)) as lines:
        await Logs(store).append(claim.run, [line("a"), line("b")])
        await Logs(store).digest(JOB)

        (told,) = await lines.wait(5)

    assert [entry["message"] for entry in msgspec.json.decode(told)] == ["a", "b"]


# The journal


async def test_a_journal_sends_its_lines_in_batches(store: Store, tmp_path: Path) -> None:
    claim = await running(store)
    with JobJournal(tmp_path / "log", Logs(store), claim.run) as journal:
        journal.resume(0)
        with store.subscribe(archive.UPDATES()) as updates:
            shipping = asyncio.create_task(journal.ship())
            for number in range(3000):
                journal.downloaded(download(200, url=f"{URL}{number}"))
            await eventually(lambda: has_lines(store, 3000))
            assert len(await updates.wait(1)) <= 10
        shipping.cancel()

    entries = await Logs(store).read(JOB, after=2990)
    assert [entry["url"] for entry in entries] == [f"{URL}{number}" for number in range(2990, 3000)]


async def has_lines(store: Store, count: int) -> bool:
    return await store.zcard(archive.JOB_LOG(IDENT)) == count


async def test_a_killed_pipelines_journal_is_sent_by_the_next(store: Store, tmp_path: Path) -> None:
    claim = await running(store)
    logs = Logs(store)
    with JobJournal(tmp_path / "log", logs, claim.run) as journal:
        journal.resume(0)
        journal.say("a")
        await journal.finish()
        journal.say("b")
        journal.counted(CrawlCounts(queued=3), ("x",))
    with (tmp_path / "log").open("ab") as file:
        file.write(b'{"type":"stdout","ts":1,"mess')  # It was killed in the middle of a line.

    with JobJournal(tmp_path / "log", logs, claim.run) as journal:
        journal.resume((await Jobs(store).record(claim.run)).shipped)
        journal.say("c")
        await journal.finish()

    assert [entry["message"] for entry in await logs.read(JOB)] == ["a", "b", "c"]
    assert (tmp_path / "log").read_bytes().count(b"\n") == 3


async def test_lines_are_kept_while_redis_is_away(server: Server, tmp_path: Path) -> None:
    async with Store(server.url, timeout=PATIENCE) as store:
        claim = await running(store)
        with JobJournal(tmp_path / "log", Logs(store), claim.run) as journal:
            journal.resume(0)
            shipping = asyncio.create_task(journal.ship())
            server.pause()
            for number in range(100):
                journal.say(str(number))
            await asyncio.sleep(2 * PATIENCE)
            server.resume()

            await eventually(lambda: has_lines(store, 100), deadline=30)
            shipping.cancel()

        entries = await Logs(store).read(JOB)
        assert [entry["message"] for entry in entries] == list(map(str, range(100)))
