"""The life of a job in Redis: each move is one step, and no illegal one is possible."""

import asyncio
from itertools import product
from typing import Any

import msgspec
import pytest

from jobs import (
    HOST,
    IDENT,
    ORIGINAL_PIPELINE,
    URL,
    claim_job,
    finish_as_original,
    job_fields,
    keys_that_hold,
    new_pipeline,
    origin_of_account,
    queue_job,
    reserve_as_original,
    run_job,
    state_of_job,
)
from remuda.archive.ending import abort_job, end_jobs
from remuda.archive.foreman import Foreman
from remuda.archive.jobs import HERD, LOST, NOBODY, Jobs, lease_of
from remuda.archive.logs import Logs
from remuda.archive.model import ENDED, MOVES, Ident, JobState, RunId
from remuda.archive.pipelines import pipeline_key
from remuda.archive.records import JobRequest, Progress
from remuda.archive.recovery import bury_pipeline, recover
from remuda.archive.settings import JobSettingsEditor
from remuda.archive.sweeps import archive_sweeps
from remuda.base.errors import AccountLimitReached, AlreadyExists, InvalidArgument, Lost
from remuda.base.ids import RoleId, new_id
from remuda.keyspace import archive
from remuda.keyspace.metering import TIMER
from remuda.store import Store
from remuda.store.census import take_census

NO_PROGRESS = Progress({}, {})


async def test_a_job_has_the_documented_fields_of_the_original(store: Store) -> None:
    await queue_job(store, note="closing")

    job = await job_fields(store)
    queued_at = float(job.pop("queued_at"))
    assert abs(queued_at - (await Jobs(store).newest(Ident(IDENT))).queued_at) < 0.01
    assert job == {
        "url": URL,
        "fetch_depth": "inf",
        "log_key": f"{IDENT}_log",
        "ignore_patterns_set_key": f"{IDENT}_ignores",
        "slug": "www.example.com-inf",
        "started_by": "default",
        "started_in": "api",
        "delay_min": "250",
        "delay_max": "375",
        "concurrency": "3",
        "user_agent": "",
        "suppress_ignore_reports": "true",
        "note": "closing",
        "settings_age": "1",
        "run": "1",
    }
    assert await store.lrange(archive.PENDING()) == [IDENT]
    assert await store.smembers(archive.JOB_IGNORES(IDENT))


@pytest.mark.parametrize(
    ("wish", "queue"),
    [
        ({}, "pending"),
        ({"depth": "3"}, "pending"),
        ({"depth": "shallow"}, "pending-ao"),
        ({"large": True}, "pending-large"),
        ({"pipeline": "ovhca1"}, "pending:ovhca1"),
    ],
)
async def test_a_job_waits_in_the_queue_of_its_kind(store: Store, wish: dict[str, Any], queue: str) -> None:
    await queue_job(store, **wish)

    assert await store.send("LRANGE", queue, 0, -1) == [IDENT]
    assert await take_census(store) == []


@pytest.mark.parametrize(
    "wish",
    [
        {"url": "file:///etc/passwd"},
        {"url": "not a url"},
        {"url": "ftp://ftp.example.com/pub/"},
        {"urls": ["ftp://ftp.example.com/pub/"]},
        {"urls": ["http://b.example/"], "url_file": True},
        {"depth": "deep"},
        {"large": True, "depth": "shallow"},
        {"pipeline": "../x"},
        {"ignores": ["("]},
        {"ignore_sets": ["no such set"]},
    ],
)
async def test_a_wrong_wish_leaves_nothing_behind(store: Store, wish: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        await queue_job(store, **{"url": URL, **wish})

    assert await store.send("DBSIZE") == 0


async def test_a_job_that_waits_or_runs_is_not_queued_again(store: Store) -> None:
    await queue_job(store)
    with pytest.raises(AlreadyExists, match="queued"):
        await queue_job(store)
    await claim_job(store)

    with pytest.raises(AlreadyExists, match="running"):
        await queue_job(store)

    assert await store.llen(archive.PENDING()) == 0


async def test_a_second_run_has_a_record_of_its_own(store: Store) -> None:
    pipeline = new_pipeline()
    first = await run_job(store, pipeline, note="before")
    await Jobs(store).finish(first.run, JobState.COMPLETED, asker=pipeline)

    second = await queue_job(store, note="after")

    assert second.number == 2
    assert (await Jobs(store).record(first.run)).note == "before"
    assert await Jobs(store).runs_of(Ident(IDENT)) == [f"{IDENT}-2", f"{IDENT}-1"]
    assert await store.ttl_ms(archive.JOB(IDENT)) == -1
    assert "finished_at" not in await job_fields(store)
    assert await take_census(store) == []


async def test_the_first_of_two_logins_counts_until_the_job_has_ended(store: Store) -> None:
    record = await queue_job(store, "http://me:hush@www.example.com/", urls=["http://b:x@www.example.com"])
    with pytest.raises(
        AlreadyExists, match="is queued already; the user and password of this request are not used"
    ):
        await queue_job(store, "http://you:quiet@www.example.com/")
    first = await Jobs(store).credentials(Ident(IDENT))
    await abort_job(store, record)

    await queue_job(store, "http://you:quiet@www.example.com/")

    assert first == ["http://me:hush@www.example.com/"]
    assert await Jobs(store).credentials(Ident(IDENT)) == ["http://you:quiet@www.example.com/"]
    assert await keys_that_hold(store, "hush") == set()


@pytest.mark.parametrize("end", ["aborted", "failed", "ended elsewhere", "deleted"])
async def test_no_end_of_a_job_leaves_its_password_in_redis(store: Store, end: str) -> None:
    record = await queue_job(store, "http://me:hush@www.example.com/")
    assert await store.exists(archive.CREDENTIALS(record.ident))

    if end == "aborted":
        await abort_job(store, record)
    elif end == "failed":
        claim = await claim_job(store)
        assert claim is not None
        await recover(store, claim.run, asker=HERD, max_deaths=0, cause="death")
    elif end == "ended elsewhere":
        await reserve_as_original(store)
        await finish_as_original(store)
    else:
        await store.delete(archive.JOB(IDENT))
    await Jobs(store).follow(Ident(IDENT))

    assert await keys_that_hold(store, "hush") == set()
    assert await take_census(store) == []


async def test_the_end_of_a_run_leaves_the_password_of_the_next(store: Store) -> None:
    record = await queue_job(store, "http://me:hush@www.example.com/")
    await store.delete(archive.JOB(IDENT))
    await queue_job(store, "http://you:quiet@www.example.com/")

    # As a sweep that has looked for the newest run just before.
    await store.send("ZREM", archive.RUNS(IDENT), 2)
    assert await Jobs(store).follow(Ident(IDENT))

    assert (await Jobs(store).record(record.run)).state is JobState.FAILED
    assert await Jobs(store).credentials(Ident(IDENT)) == ["http://you:quiet@www.example.com/"]


async def test_two_accounts_archive_one_url_without_knowing_of_each_other(store: Store) -> None:
    ours = await queue_job(store, account="ours")
    theirs = await queue_job(store, account="theirs")

    assert ours.ident != theirs.ident
    with pytest.raises(Lost) as hidden:
        await Jobs(store).newest(Ident(ours.ident), limited_to="theirs")
    with pytest.raises(Lost) as missing:
        await Jobs(store).newest(Ident("0" * 25), limited_to="theirs")
    assert str(hidden.value).replace(ours.ident, "") == str(missing.value).replace("0" * 25, "")


async def test_an_account_has_a_limited_number_of_jobs(store: Store) -> None:
    jobs = Jobs(store)
    for number in range(2):
        await jobs.submit(JobRequest(url=f"{URL}{number}"), origin_of_account("small"), most=2)

    with pytest.raises(AccountLimitReached):
        await jobs.submit(JobRequest(url=URL), origin_of_account("small"), most=2)

    await jobs.submit(JobRequest(url=URL), origin_of_account("other"), most=2)
    await abort_job(store, await jobs.record((await runs_of_account(store, "small"))[0]))
    await jobs.submit(JobRequest(url=URL), origin_of_account("small"), most=2)


async def runs_of_account(store: Store, account: str) -> list[RunId]:
    return [RunId(run) for run in await store.zrange(archive.ACCOUNT_RUNS(account))]


# Claims


async def test_a_claim_is_one_step(store: Store) -> None:
    pipeline = new_pipeline()
    await queue_job(store)

    claim = await claim_job(store, pipeline)

    assert claim is not None
    assert (claim.ident, claim.number) == (IDENT, 1)
    job = await job_fields(store)
    assert job["pipeline_id"] == pipeline
    assert float(job["started_at"]) >= float(job["queued_at"])
    assert await store.lrange(archive.WORKING()) == [IDENT]
    assert await store.get(lease_of(claim.ident)) == pipeline
    assert await state_of_job(store) is JobState.RUNNING
    assert await take_census(store) == []


async def test_of_many_pipelines_one_gets_the_job(store: Store) -> None:
    await asyncio.gather(*(queue_job(store, f"{URL}{number}") for number in range(10)))

    claims = await asyncio.gather(*(claim_job(store) for _ in range(40)))

    taken = [claim.ident for claim in claims if claim is not None]
    assert len(taken) == len(set(taken)) == 10


async def test_jobs_are_claimed_in_the_order_of_their_requests_and_shallow_ones_first(store: Store) -> None:
    urls = [f"{URL}{number}" for number in range(3)]
    idents = [(await queue_job(store, url)).ident for url in urls]
    shallow = (await queue_job(store, f"{URL}page", depth="shallow")).ident

    claims = [await claim_job(store) for _ in range(5)]

    assert [claim and claim.ident for claim in claims] == [shallow, *idents, None]


async def test_a_job_for_certain_pipelines_waits_for_one_of_them(store: Store) -> None:
    await queue_job(store, pipeline="reddit")

    assert await claim_job(store, host="ovhca1-47") is None
    assert await claim_job(store, host="ovhca1-reddit-55") is not None


async def test_a_job_of_other_software_gets_a_record(store: Store) -> None:
    await store.hset(archive.JOB(IDENT), {"url": URL, "fetch_depth": "inf", "queued_at": 1700000000})
    await store.lpush(archive.PENDING(), IDENT, "nonsense", "0" * 25)

    claims = [await claim_job(store) for _ in range(2)]

    assert [claim and claim.ident for claim in claims] == [IDENT, None]
    record = await Jobs(store).newest(Ident(IDENT))
    assert (record.url, record.queued_at, record.state) == (URL, 1700000000, JobState.RUNNING)
    assert await store.llen(archive.PENDING()) == 0


async def test_a_short_ident_of_the_original_is_left_to_its_pipelines(store: Store) -> None:
    ident = "t96vs2vxkvxyg5tj483a47i9"
    await store.send("HSET", ident, "url", URL, "fetch_depth", "inf", "queued_at", 1700000000)
    await store.lpush(archive.PENDING(), IDENT, ident, ident.replace("t", "u"))
    await store.hset(archive.JOB(IDENT), {"url": URL})

    before = await Jobs(store).waiting([archive.PENDING_AO(), archive.PENDING()])
    claims = [await claim_job(store) for _ in range(2)]

    assert before == [IDENT]
    assert [claim and claim.ident for claim in claims] == [IDENT, None]
    assert await store.lrange(archive.PENDING()) == [ident]
    assert await Jobs(store).waiting([archive.PENDING_AO(), archive.PENDING()]) == []


@pytest.mark.parametrize("prefix", ["", "fleet:"])
async def test_a_job_of_the_original_goes_back_to_the_queue_that_it_came_from(
    redis_url: str, prefix: str
) -> None:
    async with Store(redis_url, prefix=prefix) as store:
        await store.hset(archive.JOB(IDENT), {"url": URL, "fetch_depth": "inf", "queued_at": "1700000000"})
        await store.lpush(archive.PENDING_TAG("fast"), IDENT)
        await store.sadd(archive.JOB_TAGS(), "fast")
        claim = await claim_job(store, host="a-fast-one")
        assert claim is not None

        assert await Jobs(store).requeue(claim.run, asker=HERD)

        assert await store.lrange(archive.PENDING_TAG("fast")) == [IDENT]
        assert await store.llen(archive.PENDING()) == 0


async def test_the_end_of_a_job_of_the_original_is_told_to_the_user_there(store: Store) -> None:
    asked = {"url": URL, "queued_at": "1700000000", "started_by": "foo", "started_in": "#bot"}
    await store.hset(archive.JOB(IDENT), asked)
    await store.lpush(archive.PENDING(), IDENT)
    pipeline = new_pipeline()
    claim = await claim_job(store, pipeline)
    assert claim is not None
    await Jobs(store).finish(claim.run, JobState.COMPLETED, asker=pipeline)

    (told,) = await store.lrange(archive.FINISH_NOTIFICATIONS())
    assert msgspec.json.decode(told) == {
        "ident": IDENT,
        "url": URL,
        "started_by": "foo",
        "started_in": "#bot",
        "aborted": False,
    }


async def test_a_job_that_runs_has_every_documented_count(store: Store) -> None:
    await run_job(store, new_pipeline())

    job = await job_fields(store)
    assert {job[field] for field in ("r1xx", "r2xx", "r3xx", "r4xx", "r5xx", "runk", "error_count")} == {"0"}
    assert {job[f"last_{each}_log_entry"] for each in ("analyzed", "broadcasted", "trimmed")} == {"0"}
    assert {job[f"items_{each}"] for each in ("queued", "downloaded")} == {"0"}


async def test_a_file_of_urls_is_a_job_as_in_the_original(store: Store) -> None:
    record = await queue_job(store, "http://www.example.com/all.txt", url_file=True)

    job = await job_fields(store, record.ident)
    assert job["url_file"] == job["url"] == "http://www.example.com/all.txt"
    assert job["slug"] == "urls-www.example.com-all.txt-inf"


# Beats, deaths


async def test_a_beat_prolongs_the_lease_and_tells_the_age_of_the_settings(store: Store) -> None:
    pipeline = new_pipeline()
    claim = await run_job(store, pipeline)
    await store.expire(lease_of(claim.ident), 1)
    progress = Progress({"items_queued": "7"}, {"current": '["a"]'})

    assert await Jobs(store).beat(claim, pipeline, progress) == 1
    await JobSettingsEditor(store).request_abort(claim.ident)
    assert await Jobs(store).beat(claim, pipeline, progress) == 2

    job = await job_fields(store)
    assert (job["heartbeat"], job["items_queued"]) == ("2", "7")
    assert float(job["ts"]) >= float(job["started_at"])
    assert await store.ttl_ms(lease_of(claim.ident)) > 10_000


async def test_a_pipeline_that_was_believed_dead_cannot_go_on(store: Store) -> None:
    frozen, other = new_pipeline(), new_pipeline()
    claim = await run_job(store, frozen)
    await store.delete(lease_of(claim.ident))
    assert await recover(store, claim.run, asker=NOBODY, max_deaths=3, cause="It died")
    assert await claim_job(store, other) is not None

    assert await Jobs(store).beat(claim, frozen, NO_PROGRESS) is None
    assert not await Jobs(store).requeue(claim.run, asker=frozen)
    assert not await Jobs(store).finish(claim.run, JobState.COMPLETED, asker=frozen)
    assert (await job_fields(store))["pipeline_id"] == other


async def test_a_job_with_a_lease_is_not_taken_from_its_pipeline(store: Store) -> None:
    claim = await run_job(store, new_pipeline())

    assert not await recover(store, claim.run, asker=NOBODY, max_deaths=3, cause="It died")

    assert await state_of_job(store) is JobState.RUNNING


async def test_the_job_of_a_dead_pipeline_is_the_next_and_first_its_own_machines(store: Store) -> None:
    pipeline = new_pipeline()
    claim = await run_job(store, pipeline)
    await queue_job(store, f"{URL}other")
    await Jobs(store).beat(claim, pipeline, Progress({}, {"host": HOST}))
    await store.delete(lease_of(claim.ident))

    await recover(store, claim.run, asker=NOBODY, max_deaths=3, cause="It died")

    elsewhere = await claim_job(store, host="elsewhere")
    assert elsewhere is not None
    assert elsewhere.ident != IDENT
    again = await claim_job(store, host=HOST)
    assert again == claim
    record = await Jobs(store).record(claim.run)
    assert record.deaths == 1
    log = await store.zrange(archive.JOB_LOG(IDENT))
    assert "death 1 of 3" in log[0]


async def test_another_machine_takes_the_job_when_its_own_does_not_come_back(store: Store) -> None:
    pipeline = new_pipeline()
    claim = await run_job(store, pipeline)
    await Jobs(store).beat(claim, pipeline, Progress({}, {"host": HOST}))
    await Jobs(store).requeue(claim.run, asker=pipeline, grace=0)

    assert await claim_job(store, host="elsewhere") == claim


async def test_after_too_many_deaths_a_job_has_failed_with_the_reason(store: Store) -> None:
    for _ in range(2):
        claim = await run_job(store, new_pipeline()) if await no_job(store) else await claim_job(store)
        assert claim is not None
        await store.delete(lease_of(claim.ident))
        await recover(store, claim.run, asker=NOBODY, max_deaths=1, cause="Its pipeline has died")

    record = await Jobs(store).newest(Ident(IDENT))
    assert record.state is JobState.FAILED
    assert "Its pipeline has died" in record.reason
    assert await store.get(archive.JOBS_FAILED()) == "1"
    assert (await job_fields(store))["failed"] == "true"
    assert await store.llen(archive.WORKING()) == 0


async def no_job(store: Store) -> bool:
    return not await store.exists(archive.JOB(IDENT))


async def test_the_foreman_acknowledges_beats_and_recovers_dead_jobs(store: Store) -> None:
    pipeline, foreman = new_pipeline(), Foreman(store, max_deaths=3, patience=0)
    claim = await run_job(store, pipeline)
    await Jobs(store).beat(claim, pipeline, NO_PROGRESS)

    assert await foreman.check() == 0
    job = await job_fields(store)
    assert (job["last_acknowledged_heartbeat"], job["death_timer"]) == ("1", "0")
    await foreman.check()
    assert (await job_fields(store))["death_timer"] == "1"
    await Jobs(store).beat(claim, pipeline, NO_PROGRESS)
    await foreman.check()
    assert (await job_fields(store))["death_timer"] == "0"

    await store.delete(lease_of(claim.ident))
    assert await foreman.check() == 1
    assert await state_of_job(store) is JobState.QUEUED


async def test_the_foreman_waits_before_it_takes_a_job_away(store: Store) -> None:
    pipeline, foreman = new_pipeline(), Foreman(store, max_deaths=3, patience=60)
    claim = await run_job(store, pipeline)
    await store.delete(lease_of(claim.ident))  # As after an outage of Redis.

    assert [await foreman.check() for _ in range(3)] == [0, 0, 0]

    assert await Jobs(store).beat(claim, pipeline, NO_PROGRESS) is not None
    assert await store.exists(lease_of(claim.ident))


async def test_the_foreman_leaves_jobs_of_other_software_alone(store: Store) -> None:
    await store.hset(archive.JOB(IDENT), {"url": URL, "started_at": 1, "heartbeat": 5})
    await store.lpush(archive.WORKING(), IDENT, "0" * 25)

    assert await Foreman(store, max_deaths=3, patience=0).check() == 0

    assert await store.lrange(archive.WORKING()) == [IDENT]


async def test_the_foreman_leaves_our_job_to_the_pipeline_of_other_software_that_runs_it(
    store: Store,
) -> None:
    await queue_job(store)
    await reserve_as_original(store)

    assert await Foreman(store, max_deaths=3, patience=0).check() == 0

    assert await store.lrange(archive.WORKING()) == [IDENT]
    assert (await job_fields(store))["pipeline_id"] == ORIGINAL_PIPELINE


async def test_a_beat_or_an_entry_of_a_pipeline_of_other_software_is_an_update_of_its_job(
    store: Store,
) -> None:
    foreman = Foreman(store, max_deaths=3, patience=0)
    await queue_job(store)
    await reserve_as_original(store)

    await foreman.check()
    beaten = float((await job_fields(store))["ts"])
    # As the original's script logs.
    await store.hincrby(archive.JOB(IDENT), "log_score", 1)
    await store.zadd(archive.JOB_LOG(IDENT), {'{"type":"stdout","ts":1,"message":"x"}': 1})
    await foreman.check()

    assert float((await job_fields(store))["ts"]) > beaten


async def test_the_end_of_a_job_changes_no_settings(store: Store) -> None:
    pipeline = new_pipeline()
    claim = await run_job(store, pipeline)
    age = (await job_fields(store))["settings_age"]

    with store.subscribe(archive.JOB_SETTINGS(IDENT)) as messages:
        await Jobs(store).finish(claim.run, JobState.COMPLETED, asker=pipeline)
        assert await messages.wait(5) == [age]

    assert (await job_fields(store))["settings_age"] == age


async def test_our_job_that_a_pipeline_of_other_software_runs_is_seen_to_run_and_to_end(store: Store) -> None:
    foreman = Foreman(store, max_deaths=3, patience=0)
    await queue_job(store)

    await reserve_as_original(store)
    await foreman.check()
    running = await Jobs(store).newest(Ident(IDENT))
    await finish_as_original(store)
    await foreman.check()
    ended = await Jobs(store).newest(Ident(IDENT))

    assert running.state is JobState.RUNNING
    assert running.started_at is not None
    assert ended.state is JobState.COMPLETED
    assert ended.finished_at is not None
    assert not await store.exists(archive.OPEN_JOBS("default"))
    assert await store.get(archive.JOBS_COMPLETED()) == "1"


async def test_a_job_that_an_operator_of_other_software_deletes_has_failed(store: Store) -> None:
    claim = await run_job(store, new_pipeline())
    await store.delete(archive.JOB(IDENT), archive.JOB_LOG(IDENT), archive.JOB_IGNORES(IDENT))

    assert (await archive_sweeps(store)["open jobs"]())["jobs_followed"] == 1

    record = await Jobs(store).record(claim.run)
    assert (record.state, record.reason) == (JobState.FAILED, LOST)
    assert not await store.exists(archive.OPEN_JOBS("default"))
    assert "ended" in await store.hgetall(TIMER(claim.run))


async def test_the_jobs_of_a_killed_pipeline_are_taken_from_it_at_once(store: Store) -> None:
    role = RoleId(new_id())
    await run_job(store, pipeline_key(role))
    await run_job(store, new_pipeline(), f"{URL}other")

    await bury_pipeline(store, pipeline_key(role), max_deaths=3)

    assert await state_of_job(store) is JobState.QUEUED
    assert await store.llen(archive.WORKING()) == 1


# Ends


@pytest.mark.parametrize(("state", "key"), [("completed", "jobs_completed"), ("failed", "jobs_failed")])
async def test_the_end_of_a_job_is_counted_and_told_and_its_record_stays(
    store: Store, state: str, key: str
) -> None:
    pipeline = new_pipeline()
    claim = await run_job(store, pipeline)

    with store.subscribe(archive.UPDATES()) as updates:
        assert await Jobs(store).finish(claim.run, JobState(state), asker=pipeline, fields={"counts": "{}"})
        assert await updates.wait(5) == [IDENT]

    assert await store.send("GET", key) == "1"
    assert await state_of_job(store) is JobState(state)
    assert await store.llen(archive.WORKING()) == 0
    for each in (archive.JOB(IDENT), archive.JOB_IGNORES(IDENT)):
        assert 172_000_000 < await store.ttl_ms(each) <= 172_800_000
    assert await store.ttl_ms(archive.RUN(claim.run)) == -1
    assert IDENT in (await store.lrange(archive.FINISH_NOTIFICATIONS()))[0]
    assert await take_census(store) == []


async def test_a_queued_job_is_aborted_at_once(store: Store) -> None:
    record = await queue_job(store)

    assert await abort_job(store, record)

    assert await state_of_job(store) is JobState.ABORTED
    assert await store.get(archive.JOBS_ABORTED()) == "1"
    assert await claim_job(store) is None
    assert not await abort_job(store, record)


async def test_a_running_job_is_asked_to_abort(store: Store) -> None:
    claim = await run_job(store, new_pipeline())

    with store.subscribe(archive.JOB_SETTINGS(IDENT)) as messages:
        assert await abort_job(store, await Jobs(store).record(claim.run))
        assert await messages.wait(5) == ["2"]

    assert (await JobSettingsEditor(store).read(claim.ident)).is_aborted
    assert await state_of_job(store) is JobState.RUNNING


async def test_the_jobs_of_a_revoked_token_are_aborted(store: Store) -> None:
    await queue_job(store, account="ours", token="ci")
    other = await queue_job(store, f"{URL}other", account="ours", token="laptop")

    assert await end_jobs(store, "ours", "ci") == 1
    assert (await Jobs(store).record(other.run)).state is JobState.QUEUED
    assert await end_jobs(store, "ours", None) == 1


@pytest.mark.parametrize(("origin", "target"), list(product(JobState, sorted(ENDED))))
async def test_only_legal_moves_end_a_job(store: Store, origin: JobState, target: JobState) -> None:
    record = await queue_job(store)
    if origin is not JobState.QUEUED:
        await claim_job(store)
    if origin in ENDED:
        await Jobs(store).finish(record.run, origin, asker=HERD)

    is_done = await Jobs(store).finish(record.run, target, asker=HERD)

    assert is_done == (target in MOVES[origin])
    assert await state_of_job(store) is (target if is_done else origin)


async def test_a_fleet_with_a_prefix_has_its_jobs_to_itself(redis_url: str) -> None:
    async with Store(redis_url, prefix="fleet:") as store:
        pipeline = new_pipeline()
        claim = await run_job(store, pipeline)
        await Jobs(store).beat(claim, pipeline, NO_PROGRESS)
        await Logs(store).append(claim.run, [b'{"type":"stdout"}'])
        await Logs(store).digest(claim.ident)
        await Jobs(store).requeue(claim.run, asker=pipeline)
        assert await claim_job(store, pipeline) == claim
        await Foreman(store, max_deaths=3).check()
        await Jobs(store).finish(claim.run, JobState.COMPLETED, asker=pipeline)

        assert await take_census(store) == []
        assert (await job_fields(store))["log_key"] == f"fleet:{IDENT}_log"
        names = await store.send("KEYS", "*")
        assert [name for name in names if not name.startswith("fleet:")] == []


async def test_a_short_ident_that_the_original_runs_keeps_no_dead_job_from_being_found(store: Store) -> None:
    claim = await run_job(store, new_pipeline())
    await store.delete(lease_of(claim.ident))
    ident = "t96vs2vxkvxyg5tj483a47i9"
    await store.send("HSET", ident, "url", URL, "started_at", 1700000000, "heartbeat", 1)
    await store.lpush(archive.WORKING(), ident)

    assert await Foreman(store, max_deaths=3, patience=0).check() == 1

    assert await store.lrange(archive.WORKING()) == [ident]


async def test_a_short_ident_that_the_original_runs_keeps_no_pipeline_from_being_buried(store: Store) -> None:
    role = RoleId(new_id())
    await run_job(store, pipeline_key(role))
    await store.lpush(archive.WORKING(), "t96vs2vxkvxyg5tj483a47i9")

    await bury_pipeline(store, pipeline_key(role), max_deaths=3)

    assert await state_of_job(store) is JobState.QUEUED
