"""A pipeline at work, with a real crawl of a site on loopback: the job's record is true, its settings apply
at once, and whatever happens to the pipeline, the job goes on."""

import asyncio
import base64
import fcntl
import gzip
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from fastwarc.warc import ArchiveIterator, WarcRecordType

from configs import make_config
from jobs import HOST, job_fields, keys_that_hold, queue_job
from pages_to_archive import serving_site
from remuda.archive.crawler.crawl import Crawl
from remuda.archive.crawler.model import CrawlCounts, CrawlEnd, EndReason
from remuda.archive.ending import abort_job
from remuda.archive.jobs import HERD, Jobs, lease_of
from remuda.archive.logs import Logs
from remuda.archive.model import ENDED, Ident, JobSettings, JobState, OrderOptions
from remuda.archive.pipeline import running
from remuda.archive.pipeline.role import DISK_FULL, Pipeline
from remuda.archive.records import Record
from remuda.archive.settings import IgnoresChange, JobSettingsEditor, SettingsChange
from remuda.archive.view import JobsView
from remuda.base import clock
from remuda.base.config import Config
from remuda.cli.backup import DATABASE
from remuda.fleet.role import Life
from remuda.keyspace import archive
from remuda.keyspace.key import HashName
from remuda.keyspace.metering import TIMER
from remuda.store import Store
from remuda.store.census import take_census
from servers import PATIENCE, Server
from waiting import eventually

FAST = JobSettings(delay_min=0, delay_max=0, concurrency=2)
SLOW = JobSettings(delay_min=60_000, delay_max=60_000, concurrency=1)
LOGIN = "Basic " + base64.b64encode(b"me:h:ush").decode()
SECRETS = ("h:ush", "h%3Aush", LOGIN.partition(" ")[2])


def config_of(directory: Path, **options: Any) -> Config:
    room = {"archive_min_free_megabytes": 1, "archive_min_memory_megabytes": 1}
    return make_config(**{"data": directory, "allow_private_addresses": True, **room, **options})


@asynccontextmanager
async def working(store: Store, directory: Path, **options: Any) -> AsyncIterator[Pipeline]:
    """A pipeline at work. At the end it leaves in good order."""
    pipeline = Pipeline(store, config_of(directory, **options))
    life = Life(store, [pipeline])
    living = asyncio.create_task(life.run(), name="pipeline")
    try:
        await eventually(lambda: pipeline.is_alone and store.exists(_record_of(pipeline)))
        yield pipeline
    finally:
        life.stop_asked.set()
        await living


def _record_of(pipeline: Pipeline) -> HashName:
    return archive.PIPELINE(pipeline.key.partition(":")[2])


async def has_ended(store: Store, ident: str) -> Record | None:
    record = await Jobs(store).newest(Ident(ident))
    return record if record.state in ENDED else None


async def has_run(store: Store, ident: str) -> Record | None:
    """The same for a job that has no record until a pipeline takes it."""
    return None if await Jobs(store).current_run(Ident(ident)) is None else await has_ended(store, ident)


async def until_ended(store: Store, record: Record) -> Record:
    ended = await eventually(lambda: has_ended(store, record.ident), deadline=60)
    assert ended is not None
    return ended


def captured(directory: Path) -> list[str]:
    """The paths of all responses in the WARC files of a storage."""
    found = []
    for path in sorted(directory.glob("storage/job_*/*.warc.gz")):
        with path.open("rb") as stream:
            for record in ArchiveIterator(stream, record_types=WarcRecordType.response, parse_http=False):
                assert record.verify_block_digest()
                found.append("/" + str(record.headers["WARC-Target-URI"]).split("/", 3)[3])
    return [path for path in found if "." not in path]


async def test_a_job_becomes_files_and_a_record(store: Store, tmp_path: Path) -> None:
    async with serving_site(20) as site, working(store, tmp_path) as pipeline:
        record = await queue_job(store, site.url, settings=FAST, note="closing")
        ended = await until_ended(store, record)

        job = await job_fields(store, record.ident)
        assert ended.state is JobState.COMPLETED
        assert job["pipeline_id"] == pipeline.key
        assert (job["items_downloaded"], job["r2xx"]) == ("20", "20")
        assert int(job["items_queued"]) >= 20
        assert int(job["bytes_downloaded"]) > 0
        assert job["last_analyzed_log_entry"] == job["log_score"]
        assert set(site.hits) >= site.paths

    assert sorted(captured(tmp_path)) == sorted(site.paths)
    files = msgspec.json.decode(ended.files)
    assert {each["kind"] for each in files} == {"warc", "meta", "cdxj", "wacz", "log", "json"}
    folder = tmp_path / "storage" / f"job_{ended.run}"
    assert {path.name for path in folder.iterdir() if path.name[0] != "."} == {each["name"] for each in files}
    (name,) = [each["name"] for each in files if each["kind"] == "json"]
    described = msgspec.json.decode((folder / name).read_bytes())
    assert (described["url"], described["aborted"], described["note"]) == (site.url, False, "closing")
    (name,) = [each["name"] for each in files if each["kind"] == "log"]
    assert gzip.decompress((folder / name).read_bytes()).count(b'"download"') >= 20
    assert not (tmp_path / "archive" / ended.run).exists()
    assert await take_census(store) == []
    assert await store.llen(archive.PIPELINES()) == 0


async def test_every_database_has_the_name_by_which_a_backup_knows_it(store: Store, tmp_path: Path) -> None:
    options = OrderOptions(dedupe_jobs=True)
    async with serving_site(2) as site, working(store, tmp_path):
        await until_ended(store, await queue_job(store, site.url, settings=FAST, options=options))

    data = [path for path in tmp_path.rglob("*") if path.is_file()]
    databases = [path for path in data if path.read_bytes().startswith(b"SQLite format 3\0")]
    assert databases
    assert {path.suffix for path in databases} == {DATABASE}


def with_login(url: str) -> str:
    return url.replace("//", "//me:h:ush@")


def files_that_hold(directory: Path, *texts: str) -> set[str]:
    """The kinds of a run's files, as they are when unpacked, that have one of these texts in them."""
    found = set()
    for path in directory.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            data = gzip.decompress(data) if path.suffix == ".gz" else data
            found |= {
                path.suffixes[-2] if path.suffix == ".gz" else path.suffix
                for text in texts
                if text.encode() in data
            }
    return found


async def test_the_password_of_a_url_is_kept_apart_and_gone_after_the_end(
    store: Store, tmp_path: Path
) -> None:
    async with serving_site(3) as site:
        site.is_open.clear()
        async with working(store, tmp_path):
            record = await queue_job(store, with_login(site.url), settings=FAST)
            held = await keys_that_hold(store, *SECRETS)
            await eventually(lambda: site.served >= 1)
            held |= await keys_that_hold(store, *SECRETS)
        # Its pipeline left; the next one asks the site with it, too.
        site.is_open.set()
        async with working(store, tmp_path):
            ended = await until_ended(store, record)

    assert held == {archive.CREDENTIALS(record.ident)}
    assert ended.state is JobState.COMPLETED
    assert ended.credentials_for == [site.url.removesuffix("/")]
    assert set(site.logins) == {LOGIN}
    assert await keys_that_hold(store, *SECRETS) == set()
    assert files_that_hold(tmp_path, *SECRETS[:2], "@127") == set()
    assert files_that_hold(tmp_path, SECRETS[2]) == {".warc"}
    assert await take_census(store) == []


async def test_passwords_in_a_file_of_urls_are_used_and_not_shown(store: Store, tmp_path: Path) -> None:
    async with serving_site(5) as site, serving_site(2) as other, working(store, tmp_path):
        lines = [f"{other.url}p/1", with_login(other.url), f"see {with_login(other.url)}"]
        site.files["/list.txt"] = web.Response(text="\n".join(lines))
        other.is_open.clear()
        url = with_login(f"{site.url}list.txt").replace("me:", "you:")
        record = await queue_job(store, url, url_file=True, depth="shallow", settings=FAST)
        await eventually(lambda: other.served >= 1)
        (kept,) = tmp_path.glob("archive/*/urls.txt")
        assert kept.stat().st_mode & 0o077 == 0
        other.is_open.set()
        ended = await until_ended(store, record)

    assert ended.state is JobState.COMPLETED
    assert set(site.logins) == {"Basic " + base64.b64encode(b"you:h:ush").decode()}
    assert set(other.logins) == {LOGIN}
    assert sorted(ended.credentials_for) == sorted(each.url.removesuffix("/") for each in (site, other))
    assert await keys_that_hold(store, *SECRETS) == set()
    (listed,) = tmp_path.glob("storage/job_*/*-urls.txt")
    bare = other.url.removeprefix("http://")
    assert listed.read_text() == f"{other.url}p/1\n{other.url}\n***@{bare}\n"
    assert files_that_hold(tmp_path, *SECRETS[:2]) == set()


async def test_the_password_in_a_job_of_other_software_is_taken_out_of_its_fields(
    store: Store, tmp_path: Path
) -> None:
    ident = "x" * 25
    async with serving_site(3) as site, working(store, tmp_path):
        url = with_login(f"{site.url}list.txt")
        site.files["/list.txt"] = web.Response(text=site.url)
        fields = {"url": url, "url_file": url, "fetch_depth": "inf", "slug": "site-inf", **FAST.fields()}
        await store.hset(archive.JOB(ident), {**fields, "queued_at": 1700000000})
        await store.lpush(archive.PENDING(), ident)
        ended = await eventually(lambda: has_run(store, ident), deadline=60)

    assert ended is not None
    assert (ended.state, ended.url) == (JobState.COMPLETED, f"{site.url}list.txt")
    assert set(site.logins) == {LOGIN}
    assert site.served == 3
    assert await keys_that_hold(store, *SECRETS, "@127") == set()
    assert files_that_hold(tmp_path, *SECRETS[:2]) == set()


async def test_a_site_that_does_not_answer_is_a_failed_job_with_the_reason(
    store: Store, tmp_path: Path
) -> None:
    async with working(store, tmp_path):
        record = await queue_job(store, "http://127.0.0.1:1/", settings=FAST, depth="shallow")

        ended = await until_ended(store, record)

    assert ended.state is JobState.FAILED
    assert ended.reason
    assert await store.get(archive.JOBS_FAILED()) == "1"


async def test_private_addresses_are_refused_by_default(store: Store, tmp_path: Path) -> None:
    async with serving_site() as site, working(store, tmp_path, allow_private_addresses=False):
        record = await queue_job(store, site.url, settings=FAST, depth="shallow")

        ended = await until_ended(store, record)

    assert ended.state is JobState.FAILED
    assert not site.hits


async def test_several_urls_are_one_job(store: Store, tmp_path: Path) -> None:
    async with serving_site(3) as site, working(store, tmp_path):
        urls = [f"{site.url}p/{number}" for number in (1, 2, 2)]
        record = await queue_job(store, urls[0], urls=urls[1:], depth="shallow", settings=FAST)
        ended = await until_ended(store, record)

        assert ended.state is JobState.COMPLETED
        assert (await job_fields(store, ended.ident))["slug"] == "urls-127.0.0.1-shallow"
    assert sorted(captured(tmp_path)) == ["/p/1", "/p/2"]


async def test_a_file_of_urls_that_the_originals_bot_queued_is_fetched_and_run(
    store: Store, tmp_path: Path
) -> None:
    ident = "x" * 25
    async with serving_site(5) as site, working(store, tmp_path):
        site.files["/moved.txt"] = web.HTTPFound("/list.txt")
        site.files["/list.txt"] = web.Response(text=f"{site.url}p/1\r\nno URL\n\n{site.url}p/2\n")
        url = f"{site.url}moved.txt"
        fields = {"url": url, "url_file": url, "fetch_depth": "shallow", "slug": "urls-site-list-shallow"}
        await store.hset(archive.JOB(ident), {**fields, "queued_at": 1700000000})
        await store.lpush(archive.PENDING_AO(), ident)
        ended = await eventually(lambda: has_run(store, ident), deadline=60)

    assert ended is not None
    assert ended.state is JobState.COMPLETED
    assert sorted(captured(tmp_path)) == ["/p/1", "/p/2"]
    (path,) = (tmp_path / "storage" / f"job_{ended.run}").glob("*-urls.txt")
    assert b"no URL" in path.read_bytes()


async def test_a_file_of_urls_that_cannot_be_fetched_fails_the_job(store: Store, tmp_path: Path) -> None:
    async with serving_site() as site, working(store, tmp_path):
        ended = await until_ended(store, await queue_job(store, f"{site.url}none.txt", url_file=True))

    assert ended.state is JobState.FAILED
    assert ended.reason == "The file of URLs could not be fetched: it is answered with status 404"


async def test_settings_reach_a_running_crawl_within_a_second(store: Store, tmp_path: Path) -> None:
    settings = JobSettingsEditor(store)
    async with serving_site(12) as site, working(store, tmp_path):
        record = await queue_job(store, site.url, settings=SLOW)
        ident = Ident(record.ident)
        await eventually(lambda: site.served >= 1)

        change = SettingsChange(delay_min=0, delay_max=0, concurrency=4, user_agent="changed")
        await settings.change_ignores(ident, IgnoresChange(add=["/p/3$"]))
        await settings.change(ident, change)
        await until_ended(store, record)

    assert site.agents["changed"] > 0
    assert not site.hits["/p/3"]
    assert site.hits["/p/4"] == 1


async def test_a_change_whose_message_was_missed_is_noticed_as_well(store: Store, tmp_path: Path) -> None:
    async with serving_site(12) as site, working(store, tmp_path):
        record = await queue_job(store, site.url, settings=SLOW)
        await eventually(lambda: site.served >= 1)

        # As if the message had been lost: other software writes both fields and tells no one.
        job = archive.JOB(record.ident)
        await store.hset(job, {"delay_min": 0, "delay_max": 0})
        await store.hincrby(job, "settings_age")

        assert (await until_ended(store, record)).state is JobState.COMPLETED


async def test_a_job_is_paused_and_resumed(store: Store, tmp_path: Path) -> None:
    settings = JobSettingsEditor(store)
    async with serving_site(40) as site, working(store, tmp_path):
        record = await queue_job(
            store, site.url, settings=JobSettings(delay_min=50, delay_max=50, concurrency=1)
        )
        ident = Ident(record.ident)
        await eventually(lambda: site.served >= 2)

        await settings.change(ident, SettingsChange(paused=True))

        async def says_paused() -> bool:
            return any("paused" in entry.get("message", "") for entry in await Logs(store).read(ident))

        async def stands_still() -> bool:
            served = site.served
            await asyncio.sleep(0.5)  # In which it would fetch several.
            return site.served == served

        await eventually(says_paused)
        await eventually(stands_still)
        assert site.served < 40

        await settings.change(ident, SettingsChange(paused=False, delay_min=0, delay_max=0))
        assert (await until_ended(store, record)).state is JobState.COMPLETED
    assert site.served == 40


async def test_an_aborted_job_ends_at_once_and_keeps_what_it_has(store: Store, tmp_path: Path) -> None:
    async with serving_site(12) as site, working(store, tmp_path):
        record = await queue_job(store, site.url, settings=SLOW)
        await eventually(lambda: site.served >= 1)

        await abort_job(store, record)
        ended = await until_ended(store, record)

    assert ended.state is JobState.ABORTED
    assert await store.get(archive.JOBS_ABORTED()) == "1"
    assert captured(tmp_path) == ["/"]
    assert any("-aborted" in each["name"] for each in msgspec.json.decode(ended.files))


async def test_a_pipeline_that_leaves_puts_its_job_back_and_the_next_resumes_it(
    store: Store, tmp_path: Path
) -> None:
    async with serving_site(30) as site:
        async with working(store, tmp_path):
            slow = JobSettings(delay_min=50, delay_max=50, concurrency=1)
            record = await queue_job(store, site.url, settings=slow)
            await eventually(lambda: site.served >= 5)
        assert (await Jobs(store).record(record.run)).state is JobState.QUEUED
        assert await store.lrange(archive.PENDING()) == [record.ident]
        await JobSettingsEditor(store).change(Ident(record.ident), SettingsChange(delay_min=0, delay_max=0))

        async with working(store, tmp_path):
            ended = await until_ended(store, record)

    assert (ended.state, ended.deaths) == (JobState.COMPLETED, 0)
    assert sorted(captured(tmp_path)) == sorted(site.paths)
    messages = [entry.get("message", "") for entry in await Logs(store).read(Ident(record.ident))]
    assert [line.split()[0] for line in messages if line.startswith(("Started", "Resumed", "Begins"))] == [
        "Started",
        "Resumed",
    ]


async def test_an_ignore_pattern_that_takes_too_long_stays_dropped_and_is_shown(
    store: Store, tmp_path: Path
) -> None:
    slow = "(?=q)q{0,1000}[^B-Z0-9_@!%&()*]*!!"
    async with serving_site(2) as site:
        long = [f"{site.url}{letter}{'q' * 7000}" for letter in "ab"]
        async with working(store, tmp_path):
            record = await queue_job(store, long[0], urls=long[1:], settings=SLOW, ignores=[slow, "(?=no)"])
            ident = Ident(record.ident)
            await eventually(lambda: was_dropped(store, ident), deadline=60)
        await JobSettingsEditor(store).change(ident, SettingsChange(delay_min=0, delay_max=0))

        async with working(store, tmp_path):
            ended = await until_ended(store, record)

    assert msgspec.json.decode(ended.counts, type=CrawlCounts).finished >= 2
    assert slow in (await JobSettingsEditor(store).read(ident)).ignores
    assert (await JobsView(store).job(ident, limited_to=None)).dropped_ignores == [slow]
    messages = [entry.get("message", "") for entry in await Logs(store).read(ident)]
    assert len([line for line in messages if "takes too long" in line]) == 1


async def was_dropped(store: Store, ident: Ident) -> bool:
    return bool((await JobsView(store).job(ident, limited_to=None)).dropped_ignores)


async def test_what_was_fetched_before_a_resume_is_counted_and_metered_once(
    store: Store, tmp_path: Path
) -> None:
    async with serving_site(100) as site:
        async with working(store, tmp_path):
            slow = JobSettings(delay_min=100, delay_max=100, concurrency=1)
            record = await queue_job(store, site.url, settings=slow)
            await eventually(lambda: has_downloaded(store, record, 3))
        await JobSettingsEditor(store).change(Ident(record.ident), SettingsChange(paused=True))
        async with working(store, tmp_path):
            await eventually(lambda: store.hget(archive.JOB(record.ident), "pipeline_id"))
            resumed = int(await store.hget(archive.JOB(record.ident), "items_downloaded") or 0)
            change = SettingsChange(paused=False, delay_min=0, delay_max=0)
            await JobSettingsEditor(store).change(Ident(record.ident), change)
            await until_ended(store, record)

    downloaded = await store.hget(archive.JOB(record.ident), "items_downloaded")
    assert resumed >= 3
    assert await store.hget(TIMER(record.run), "fetch:pages") == downloaded


async def has_downloaded(store: Store, record: Record, number: int) -> bool:
    return int(await store.hget(archive.JOB(record.ident), "items_downloaded") or 0) >= number


async def test_elsewhere_a_job_begins_anew_and_says_so(store: Store, tmp_path: Path) -> None:
    async with serving_site(12) as site:
        async with working(store, tmp_path / "here"):
            record = await queue_job(store, site.url, settings=SLOW)
            await eventually(lambda: site.served >= 1)
        await store.hset(archive.RUN(record.run), {"host": HOST, "hostUntil": 0})
        await JobSettingsEditor(store).change(Ident(record.ident), SettingsChange(delay_min=0, delay_max=0))

        async with working(store, tmp_path / "there"):
            ended = await until_ended(store, record)

    assert ended.state is JobState.COMPLETED
    assert sorted(captured(tmp_path / "there")) == sorted(site.paths)
    messages = [entry.get("message", "") for entry in await Logs(store).read(Ident(record.ident))]
    assert any(line.startswith("Begins anew") and HOST in line for line in messages)


async def test_what_was_captured_before_a_job_began_anew_is_delivered_beside_the_rest(
    store: Store, tmp_path: Path
) -> None:
    storage = str(tmp_path / "storage")
    async with serving_site(12) as site:
        async with working(store, tmp_path / "a", storage=storage):
            record = await queue_job(store, site.url, settings=SLOW)
            await eventually(lambda: has_downloaded(store, record, 1))
        second = int(clock.now())
        await eventually(lambda: int(clock.now()) > second)  # The names of files have no fractions.
        await store.hset(archive.RUN(record.run), {"host": HOST, "hostUntil": 0})
        await JobSettingsEditor(store).change(Ident(record.ident), SettingsChange(delay_min=0, delay_max=0))
        async with working(store, tmp_path / "b", storage=storage):
            first = await until_ended(store, record)

        async with working(store, tmp_path / "a", storage=storage):
            await eventually(lambda: not (tmp_path / "a" / "archive" / record.run).exists(), deadline=60)

    ended = await Jobs(store).record(record.run)
    files = msgspec.json.decode(ended.files)
    assert ended.files.startswith(first.files[:-1])
    assert (ended.state, ended.counts) == (JobState.COMPLETED, first.counts)
    folder = tmp_path / "storage" / f"job_{ended.run}"
    assert {path.name for path in folder.iterdir() if path.name[0] != "."} == {each["name"] for each in files}
    assert len([each for each in files if each["kind"] == "warc"]) == 2
    assert Counter(captured(tmp_path)) >= Counter(site.paths) + Counter(["/"])
    assert await take_census(store) == []


async def test_a_pipeline_that_lost_its_job_stops_at_once(store: Store, tmp_path: Path) -> None:
    async with serving_site(12) as site, working(store, tmp_path, archive_concurrent=1) as pipeline:
        record = await queue_job(store, site.url, settings=SLOW)
        await eventually(lambda: site.served >= 1)

        # Another pipeline has it now.
        await store.hset(archive.JOB(record.ident), {"pipeline_id": "pipeline:0a"})

        await eventually(lambda: not pipeline._running)
        assert (await job_fields(store, record.ident))["pipeline_id"] == "pipeline:0a"
        assert (await Jobs(store).record(record.run)).state is JobState.RUNNING


async def test_a_pipeline_without_room_takes_no_job_and_says_why(store: Store, tmp_path: Path) -> None:
    async with working(store, tmp_path, archive_min_free_megabytes=10**9) as pipeline:
        await queue_job(store)

        record = await store.hgetall(_record_of(pipeline))

        assert "low disk space" in record["obstacle"]
        assert await store.llen(archive.PENDING()) == 1


async def test_a_pipeline_whose_disk_a_job_has_filled_takes_none_for_a_while(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crawls = []

    async def fill_disk(crawl: Crawl) -> CrawlEnd:
        crawls.append(crawl)
        return CrawlEnd(EndReason.DISK_FULL, CrawlCounts(), (), "The disk is full.")

    monkeypatch.setattr(Crawl, "run", fill_disk)
    async with working(store, tmp_path) as pipeline:
        record = await queue_job(store)
        obstacle = await eventually(lambda: store.hget(_record_of(pipeline), "obstacle"))

        assert obstacle == DISK_FULL
        assert await pipeline._take_one() is None
        assert (await Jobs(store).record(record.run)).state is JobState.QUEUED
        assert len(crawls) == 1


async def test_a_pipeline_describes_itself_as_documented(store: Store, tmp_path: Path) -> None:
    async with working(store, tmp_path, archive_nickname="ovhca1") as pipeline:
        with store.subscribe(archive.PIPELINE_UPDATES()) as updates:
            assert pipeline.key in await updates.wait(5)
        record = await store.hgetall(_record_of(pipeline))

        assert set(record) == set(archive.PIPELINE.fields)
        assert (record["id"], record["nickname"], record["status"]) == (pipeline.key, "ovhca1", "Running")
        assert 0 < await store.ttl_ms(_record_of(pipeline)) <= 30_000
        assert await store.lrange(archive.PIPELINES()) == [pipeline.key]
        assert await take_census(store) == []


async def test_a_pipeline_that_is_drained_leaves_after_its_job(store: Store, tmp_path: Path) -> None:
    async with serving_site(3) as site, working(store, tmp_path) as pipeline:
        site.is_open.clear()
        record = await queue_job(store, site.url, settings=FAST)
        await eventually(lambda: site.served >= 1)

        await store.sadd(archive.DRAINING_PIPELINES(), pipeline.key)
        await eventually(lambda: is_stopping(store, pipeline))
        later = await queue_job(store, f"{site.url}later")
        site.is_open.set()

        assert (await until_ended(store, record)).state is JobState.COMPLETED
        await eventually(pipeline.wants_to_leave.is_set)
        assert (await Jobs(store).record(later.run)).state is JobState.QUEUED


async def is_stopping(store: Store, pipeline: Pipeline) -> bool:
    return await store.hget(_record_of(pipeline), "status") == "Stopping"


async def test_an_outage_of_redis_does_not_end_a_job(server: Server, tmp_path: Path) -> None:
    async with (
        Store(server.url, timeout=PATIENCE) as store,
        serving_site(60) as site,
        working(store, tmp_path),
    ):
        steady = JobSettings(delay_min=20, delay_max=20, concurrency=1)
        record = await queue_job(store, site.url, settings=steady)
        await eventually(lambda: site.served >= 3)

        server.pause()
        await eventually(lambda: site.served >= 60, deadline=30)
        server.resume()

        ended = await until_ended(store, record)
        assert ended.state is JobState.COMPLETED
        assert not await store.exists(lease_of(Ident(record.ident)))
        entries = await Logs(store).read(Ident(record.ident))
        urls = [entry["url"] for entry in entries if entry["type"] == "download"]
        assert len([url for url in urls if "/p/" in url]) == 59


async def test_starts_are_announced_once_if_the_operator_wants_it(store: Store, tmp_path: Path) -> None:
    async with serving_site(1) as site, working(store, tmp_path, archive_announce=True):
        for _ in range(2):
            record = await queue_job(store, site.url, settings=FAST, depth="shallow")
            await until_ended(store, record)

        assert await store.zrange(archive.TWEETS_QUEUE()) == [f"Archiving {site.url}"]


async def test_what_a_pipeline_that_was_killed_after_the_end_has_left_is_removed(
    store: Store, tmp_path: Path
) -> None:
    async with serving_site(1) as site:
        async with working(store, tmp_path):
            done = await until_ended(store, await queue_job(store, site.url, settings=FAST))
        leftovers = [tmp_path / "archive" / name for name in (done.run, "not-a-run")]
        for path in leftovers:
            path.mkdir()

        async with working(store, tmp_path):
            await eventually(lambda: not leftovers[0].exists())

    assert [path.exists() for path in leftovers] == [False, True]


@pytest.mark.parametrize("state", [JobState.FAILED, JobState.ABORTED])
async def test_what_a_run_has_captured_is_delivered_also_if_it_ends_without_its_pipeline(
    store: Store, tmp_path: Path, state: JobState
) -> None:
    async with serving_site(20) as site:
        async with working(store, tmp_path):
            record = await queue_job(store, site.url, settings=JobSettings(delay_min=50, delay_max=50))
            await eventually(lambda: site.served >= 3)
        await Jobs(store).finish(record.run, state, asker=HERD, reason="test")
        async with working(store, tmp_path):
            await eventually(lambda: is_delivered(store, record), deadline=60)
            await eventually(lambda: not (tmp_path / "archive" / record.run).exists())

        ended = await Jobs(store).record(record.run)
        files = msgspec.json.decode(ended.files)
        assert "/" in captured(tmp_path)
        assert set(captured(tmp_path)) <= site.paths
        assert {each["kind"] for each in files} == {"warc", "meta", "cdxj", "wacz", "log", "json"}
        assert all(("-aborted" in each["name"]) is (state is JobState.ABORTED) for each in files)
        assert (ended.state, ended.reason) == (state, "test")
        assert await store.ttl_ms(archive.JOB(record.ident)) > 0
        assert await take_census(store) == []


async def test_of_a_crawl_that_cannot_be_finished_the_warc_files_are_delivered(
    store: Store, tmp_path: Path
) -> None:
    async with serving_site(20) as site:
        async with working(store, tmp_path):
            record = await queue_job(store, site.url, settings=JobSettings(delay_min=50, delay_max=50))
            await eventually(lambda: site.served >= 3)
        await Jobs(store).finish(record.run, JobState.FAILED, asker=HERD)
        crawl = tmp_path / "archive" / record.run / "crawl"
        (crawl / "state" / "frontier.sqlite3").write_bytes(b"broken" * 1000)
        (warc,) = crawl.glob("*.warc.gz")
        with warc.open("ab") as torn:
            torn.write(b"\x1f\x8b half a record")
        async with working(store, tmp_path):
            await eventually(lambda: is_delivered(store, record), deadline=60)

    files = msgspec.json.decode((await Jobs(store).record(record.run)).files)
    assert {each["kind"] for each in files} == {"warc", "log", "json"}
    assert captured(tmp_path)


async def is_delivered(store: Store, record: Record) -> bool:
    return (await Jobs(store).record(record.run)).files != "[]"


async def test_two_pipelines_never_run_one_job(store: Store, tmp_path: Path) -> None:
    async with (
        serving_site(9) as site,
        working(store, tmp_path / "one"),
        working(store, tmp_path / "two"),
    ):
        pages = [f"{site.url}p/{number}" for number in range(1, 9)]
        records = [await queue_job(store, page, settings=FAST, depth="shallow") for page in pages]
        ended = [await until_ended(store, record) for record in records]

    assert {record.state for record in ended} == {JobState.COMPLETED}
    assert await store.get(archive.JOBS_COMPLETED()) == "8"
    assert [site.hits[f"/p/{number}"] for number in range(1, 9)] == [1] * 8


async def test_a_directory_that_a_frozen_pipeline_still_uses_is_left_to_it(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "LOCK_PATIENCE", 0.1)
    async with serving_site(2) as site:
        record = await queue_job(store, site.url, settings=FAST)
        directory = tmp_path / "archive" / record.run
        directory.mkdir(parents=True)
        with (directory / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            async with working(store, tmp_path):
                ended = await until_ended(store, record)

        assert ended.state is JobState.COMPLETED
        assert [path.name for path in directory.iterdir()] == ["lock"]
