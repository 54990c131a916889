"""`remuda archive` against a herd: one command gives a valid archive, whatever happens to the pipeline."""

import asyncio
import json
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import aiohttp
import msgspec
import psutil
import pytest
from warcio.archiveiterator import ArchiveIterator
from warcio.checker import Checker

from herds import Herd, new_herd
from pages_to_archive import Site, serving_site
from processes import command_of
from remuda.archive.crawler.model import CrawlCounts
from remuda.archive.jobs import Jobs
from remuda.archive.model import Ident, JobState, OrderOptions
from remuda.archive.pipeline.role import NICENESS
from remuda.keyspace import archive
from remuda.store import Store
from remuda.store.census import take_census
from waiting import eventually

pytestmark = pytest.mark.xdist_group("up archive")

DEADLINE = 60.0


@pytest.fixture(scope="module")
def herd() -> Iterator[Herd]:
    environ = {
        "REMUDA_ARCHIVE_IDLE": "3",
        "REMUDA_ARCHIVE_MIN_FREE_MEGABYTES": "1",
        "REMUDA_ARCHIVE_DEATHS": "1",
    }
    with new_herd("--allow-private-addresses", environ=environ) as herd:
        yield herd


async def remuda(herd: Herd, *args: str) -> tuple[int, str]:
    """Exit status and output of a command that asks the herd."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "remuda.cli.main", *args, "--server", herd.url),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(DEADLINE):
        output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode()


def captured(directory: Path, site: Site) -> list[str]:
    """The paths of the site's pages in the WARC files of a directory."""
    found = []
    for path in directory.glob("*.warc.gz"):
        with path.open("rb") as stream:
            for record in ArchiveIterator(stream):
                uri = record.rec_headers.get_header("WARC-Target-URI") or ""
                if record.rec_type == "response" and uri.startswith(site.url):
                    found.append("/" + uri.removeprefix(site.url))
    return [path for path in found if path in site.paths]


def check_warcs(directory: Path) -> None:
    """Fails unless warcio finds every digest of every WARC file right."""

    class Arguments:
        inputs = tuple(str(path) for path in directory.glob("*.warc.gz"))
        verbose = False

    assert Arguments.inputs
    checker = Checker(Arguments)
    checker.process_all()
    assert not checker.exit_value


def pipeline_of(herd: Herd) -> psutil.Process | None:
    found = [each for each in herd.processes() if command_of(each)[-1:] == ["pipeline"]]
    return found[0] if found else None


async def test_one_command_gives_a_valid_archive(herd: Herd, tmp_path: Path) -> None:
    async with serving_site(20) as site:
        status, output = await remuda(herd, "archive", site.url, "--delay", "0", "--out", str(tmp_path))

        assert status == 0, output
        pipeline = pipeline_of(herd)
        assert pipeline is not None
        assert pipeline.nice() == min(19, psutil.Process(herd.process.pid).nice() + NICENESS)
        assert sorted(captured(tmp_path, site)) == sorted(site.paths)

    (package,) = tmp_path.glob("*.wacz")
    async with aiohttp.ClientSession(herd.url) as client:
        ident = output.partition("job ")[2].partition(",")[0]
        async with client.post(f"/api/archive/jobs/{ident}/artifacts/{package.name}/share", json={}) as made:
            share = await made.json()
        async with client.get(share["url"]) as answer:
            assert await answer.read() == package.read_bytes()
    check_warcs(tmp_path)
    assert {path.suffix for path in tmp_path.iterdir()} == {".gz", ".cdxj", ".wacz", ".json"}
    async with Store(herd.redis_url) as store:
        assert await take_census(store) == []


async def test_a_pipeline_that_is_killed_is_replaced_and_loses_nothing(herd: Herd, tmp_path: Path) -> None:
    async with serving_site(30) as site, Store(herd.redis_url) as store:
        _, output = await remuda(herd, "archive", site.url, "--delay", "40", "--concurrency", "1", "--detach")
        ident = Ident(output.strip())
        await eventually(lambda: site.served >= 5, deadline=DEADLINE)
        pipeline = pipeline_of(herd)
        assert pipeline is not None
        pipeline.kill()
        status, output = await remuda(herd, "jobs", "follow", ident, "--out", str(tmp_path))
        record = await Jobs(store).newest(ident)

        assert status == 0, output
        assert (record.state, record.deaths) == (JobState.COMPLETED, 1)
        assert sorted(captured(tmp_path, site)) == sorted(site.paths)
        assert await store.llen(archive.WORKING()) == 0
        assert await take_census(store) == []
    check_warcs(tmp_path)
    assert "Resumed" in output


async def test_of_a_job_that_fails_what_it_captured_is_brought(herd: Herd, tmp_path: Path) -> None:
    async with serving_site(30) as site:
        slow = ("--delay", "60000", "--concurrency", "1")
        _, output = await remuda(herd, "archive", site.url, *slow, "--detach")
        for deaths in (0, 1):
            is_at_work = partial(has_fetched, herd, Ident(output.strip()), deaths)
            await eventually(is_at_work, deadline=DEADLINE)
            pipeline = pipeline_of(herd)
            assert pipeline is not None
            pipeline.kill()
        status, said = await remuda(herd, "jobs", "follow", output.strip(), "--out", str(tmp_path))

        assert status == 1, said
        assert "this was death 2, and 1 are allowed" in said
        assert captured(tmp_path, site).count("/") == 1
    check_warcs(tmp_path)


async def has_fetched(herd: Herd, ident: Ident, deaths: int) -> bool:
    """Whether a job runs, after so many deaths, and has something in its WARC file."""
    async with Store(herd.redis_url) as store:
        record = await Jobs(store).newest(ident)
    counts = msgspec.json.decode(record.counts, type=CrawlCounts)
    return record.state is JobState.RUNNING and record.deaths == deaths and counts.finished > 0


async def test_an_idle_pipeline_leaves_and_comes_back_for_the_next_job(herd: Herd) -> None:
    await eventually(lambda: pipeline_of(herd) is None, deadline=DEADLINE)
    async with serving_site(2) as site:
        status, output = await remuda(herd, "archive", site.url, "--shallow", "--delay", "0")

        assert status == 0, output
        assert site.hits["/"] == 1
        assert not site.hits["/p/1"]


async def test_what_fails_or_is_aborted_ends_with_status_1(herd: Herd) -> None:
    status, output = await remuda(herd, "archive", "http://127.0.0.1:1/", "--shallow", "--delay", "0")
    assert status == 1
    assert "failed" in output

    async with serving_site(3) as site:
        site.is_open.clear()
        _, ident = await remuda(herd, "archive", site.url, "--detach")
        await eventually(lambda: site.served >= 1, deadline=DEADLINE)
        following = asyncio.create_task(remuda(herd, "jobs", "follow", ident.strip()))
        assert (await remuda(herd, "jobs", "abort", ident.strip()))[0] == 0
        status, output = await following

    assert status == 1
    assert "aborted" in output


async def test_a_list_of_urls_is_one_job_with_the_options_that_were_named(herd: Herd, tmp_path: Path) -> None:
    listed = tmp_path / "list.txt"
    async with serving_site(3) as site, Store(herd.redis_url) as store:
        site.is_open.clear()
        listed.write_text(f"\n{site.url}p/1\r\n{site.url}p/2\n")
        options = (
            "--outlinks",
            "--dedupe-jobs",
            "--no-wacz",
            "--warc-max-size",
            "100",
            "--follow-duplicates",
        )
        _, output = await remuda(herd, "archive", "-i", str(listed), "--shallow", "--detach", *options)
        record = await Jobs(store).newest(Ident(output.strip()))
        await remuda(herd, "jobs", "abort", record.ident)

        assert record.start_urls == [f"{site.url}p/1", f"{site.url}p/2"]
    assert record.options == OrderOptions(
        metadata_records=True,
        dedupe_jobs=True,
        wacz=False,
        split_size=100_000_000,
        skip_duplicate_pages=False,
    )


async def test_jobs_are_shown_and_their_settings_changed(herd: Herd) -> None:
    async with serving_site(3) as site:
        site.is_open.clear()
        slow = "(?=h)((.|.)+)+!"
        options = ("--detach", "--note", "closing", "--ignore", slow)
        _, output = await remuda(herd, "archive", site.url, *options)
        ident = output.strip()
        short = ident[:8]
        assert ident in (await remuda(herd, "jobs"))[1]
        _, changed = await remuda(herd, "jobs", "set", short, "--concurrency", "7", "--delay", "1-2")
        assert "7 downloads at a time, delay 1-2 ms" in changed
        assert "paused" in (await remuda(herd, "jobs", "pause", short))[1]
        assert "paused" not in (await remuda(herd, "jobs", "resume", short))[1]
        assert "1 added" in (await remuda(herd, "jobs", "ignores", short, "--add", "/calendar/"))[1]
        assert "/calendar/" in (await remuda(herd, "jobs", "ignores", short))[1]
        status, refused = await remuda(herd, "jobs", "ignores", short, "--add", "(")
        assert status == 1
        assert "(" in refused
        status, shown = await remuda(herd, "jobs", "show", short, "--json")
        assert json.loads(shown)["ident"] == ident
        assert "closing" in (await remuda(herd, "jobs", "show", short))[1]

        async def says_what_was_dropped() -> bool:
            lines = (await remuda(herd, "jobs", "show", short))[1].splitlines()
            return any(line.split() == ["too", "slow", slow] for line in lines)

        await eventually(says_what_was_dropped, deadline=60)
        assert (await remuda(herd, "archive", site.url))[0] == 1
        assert "is not the ident of a job" in (await remuda(herd, "jobs", "show", site.url))[1]
        await remuda(herd, "jobs", "abort", ident)
    assert (await remuda(herd, "jobs", "show", "nosuchjob"))[0] == 1
