"""A crawl that is killed, suspended or out of disk goes on where it was, and has each page once."""

import asyncio
import os
import random
import shutil
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

import disks
from remuda.archive.crawler.crawl import Crawl
from remuda.archive.crawler.model import CrawlSettings, EndReason
from sites import (
    FAST,
    NETWORK,
    Heard,
    Request,
    Site,
    answer,
    check_warcs,
    crawl,
    order_for,
    read_records,
    responses_in,
    serving,
    warcs_in,
)
from waiting import eventually

PAGES = 150


def site_of_pages(count: int = PAGES, *, delay: float = 0.0) -> Site:
    """Pages that link to the next few; half of them with the same picture under another name."""
    site = Site()

    def make(number: int) -> bytes:
        links = "".join(f'<a href="/p{(number * 3 + step) % count}">x</a>' for step in range(1, 5))
        return answer(f'<title>{number}</title><p>{number}<img src="/i{number}.png">{links}' + "text " * 100)

    def handler(response: bytes) -> object:
        async def send(request: Request, writer: asyncio.StreamWriter) -> None:
            await asyncio.sleep(delay)
            writer.write(response)

        return send if delay else response

    for number in range(count):
        site.add(f"/p{number}", handler(make(number)))  # type: ignore[arg-type]
        picture = answer(b"picture" * 50 if number % 2 else b"%d" % number * 90, kind="image/png")
        site.add(f"/i{number}.png", handler(picture))  # type: ignore[arg-type]
    site.page("/", "/p0")
    return site


@asynccontextmanager
async def starter(url: str, directory: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """The program that starts crawls as processes."""
    program = Path(__file__).parent.parent / "crawl_starter.py"
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        program,
        url,
        directory,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(program.parent)},
    )
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


async def start(process: asyncio.subprocess.Process) -> int:
    """The process id of another crawl."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"\n")
    return int(await process.stdout.readline())


async def test_ten_kills_in_one_crawl_leave_every_page_once(tmp_path: Path) -> None:
    site = site_of_pages(delay=0.01)
    chance = random.Random(4)
    async with serving(site), starter(site.url(), tmp_path / "job") as process:
        assert process.stdout is not None
        for _ in range(10):
            before = len(site.requests)
            pid = await start(process)
            wanted = before + chance.randint(1, 20)
            await eventually(lambda wanted=wanted: len(site.requests) >= wanted, 60)  # type: ignore[misc]
            await asyncio.sleep(chance.random() / 50)
            os.kill(pid, signal.SIGKILL)
            assert int(await process.stdout.readline()) == signal.SIGKILL

        await start(process)
        assert int(await process.stdout.readline()) == 0

    found = responses_in(tmp_path / "job")
    pages = {site.url(path) for _, path in site._pages} | {site.url("/robots.txt"), site.url("/sitemap.xml")}
    assert set(found) == pages
    check_warcs(tmp_path / "job")
    (index,) = (tmp_path / "job").glob("*.cdxj")
    lines = [msgspec.json.decode(line.split(b" ", 2)[2]) for line in index.read_bytes().splitlines()]
    assert Counter(line["url"] for line in lines) == Counter(pages)
    assert len(warcs_in(tmp_path / "job")) > 1
    revisits = [each for each in found.values() if each.kind == "revisit"]
    for path in warcs_in(tmp_path / "job"):
        first, *others = read_records(path)
        assert {each.fields["WARC-Warcinfo-ID"] for each in others} == {first.fields["WARC-Record-ID"]}
    assert len(revisits) == PAGES // 2, "all but one of the same pictures, and one of the missing files"


async def test_a_suspended_crawl_goes_on_with_its_counts_and_cookies(tmp_path: Path) -> None:
    site = site_of_pages(40, delay=0.005)
    site.add("/", answer("<a href='/p0'>", fields=["Set-Cookie: visit=1; Path=/"]))
    async with serving(site):
        first = Crawl(order_for(site.url()), tmp_path, FAST, Heard(), network=NETWORK)
        running = asyncio.create_task(first.run())
        await eventually(lambda: len(site.requests) > 15)
        first.suspend()
        suspended = await asyncio.wait_for(running, 5)
        asked = len(site.requests)
        assert suspended.reason is EndReason.SUSPENDED
        assert 0 < suspended.counts.finished < suspended.counts.queued

        end = await crawl(order_for(site.url()), tmp_path)

    assert end.reason is EndReason.FINISHED
    assert end.counts.finished == end.counts.queued == 81
    assert len(responses_in(tmp_path)) == 81
    assert all(request.fields.get("cookie") == "visit=1" for request in site.requests[asked:])


async def test_a_full_disk_costs_only_the_record_being_written(tmp_path: Path) -> None:
    site = Site()
    site.page("/", *(f"/{number}" for number in range(40)))
    for number in range(40):
        site.add(f"/{number}", answer(random.Random(number).randbytes(600_000), kind="application/zip"))
    with disks.disk() as disk:
        job = disk / "job"
        async with serving(site):
            order = order_for(site.url())
            with disks.filled(disk, free=1 << 20):
                assert (await crawl(order, job)).reason is EndReason.DISK_FULL
            with disks.filled(disk, free=12 << 20):
                heard = Heard()
                end = await crawl(order, job, heard=heard)

                assert end.reason is EndReason.DISK_FULL
                assert any("disk is full" in message for message in heard.messages)
                kept = responses_in(job)
                assert 2 <= len(kept) < 41
                assert not [url for url, each in kept.items() if each.block != site.sent(url)]

            end = await crawl(order, job)
        assert end.reason is EndReason.FINISHED
        found = responses_in(job)
        assert len(found) == 41
        assert set(kept) <= set(found)
        assert max(site.asked.values()) <= 2
        check_warcs(job)


async def test_a_disk_without_room_for_the_frontier_is_a_full_one(tmp_path: Path) -> None:
    site = site_of_pages(1)
    with disks.disk() as disk:
        async with serving(site):
            for pages in range(16):
                with disks.filled(disk, free=(4 << 20) + pages * 4096):
                    end = await crawl(order_for(site.url()), disk / "job")
                shutil.rmtree(disk / "job")

                assert end.reason is EndReason.DISK_FULL


@pytest.mark.parametrize("lost", [700, 1 << 30])
async def test_records_that_a_power_cut_took_are_fetched_again(tmp_path: Path, lost: int) -> None:
    site = site_of_pages(20, delay=0.005)
    async with serving(site):
        await crawl(order_for(site.url()), tmp_path / "whole")
        job = tmp_path / "job"
        first = Crawl(order_for(site.url()), job, FAST, Heard(), network=NETWORK)
        running = asyncio.create_task(first.run())
        await eventually(lambda: len(site.requests) > 41 + 20)
        first.suspend()
        await running
        (warc,) = warcs_in(job)
        if lost < warc.stat().st_size:
            os.truncate(warc, warc.stat().st_size - lost)
        else:
            warc.unlink()

        await crawl(order_for(site.url()), job)

    assert set(responses_in(job)) == set(responses_in(tmp_path / "whole"))
    assert len(next(job.glob("*.cdxj")).read_bytes().splitlines()) == 41
    check_warcs(job)


async def test_an_abort_ends_within_a_second_with_valid_files(tmp_path: Path) -> None:
    site = Site()
    over = asyncio.Event()

    async def hang(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
        await over.wait()

    site.page("/", "/hang", "/other")
    site.page("/other")
    site.add("/hang", hang)
    async with serving(site):
        settings = CrawlSettings(delay_min=600, delay_max=600, concurrency=2)
        running = Crawl(order_for(site.url(), wacz=True), tmp_path, settings, Heard(), network=NETWORK)
        task = asyncio.create_task(running.run())
        await eventually(lambda: site.url("/hang") in site.asked)
        loop = asyncio.get_running_loop()
        began = loop.time()
        running.abort()
        end = await task
        took = loop.time() - began
        over.set()

    assert end.reason is EndReason.ABORTED
    assert took < 3, "a second on a machine with nothing else to do"
    assert set(responses_in(tmp_path)) == {site.url()}
    assert all("-aborted" in file.path.name for file in end.files)
    assert {file.kind for file in end.files} == {"warc", "meta", "cdxj", "wacz"}
    assert end.files[0].path.name.encode() in next(tmp_path.glob("*.cdxj")).read_bytes()
    check_warcs(tmp_path)


async def test_a_kill_while_an_aborted_crawl_names_its_files_loses_none(tmp_path: Path) -> None:
    site = site_of_pages(10)
    async with serving(site):
        end = await crawl(order_for(site.url()), tmp_path)
        warc = end.files[0].path
        for file in end.files[1:]:
            file.path.unlink()
        warc.rename(warc.with_name(warc.name.replace("-00000", "-aborted-00000")))

        again = await crawl(order_for(site.url()), tmp_path)

    assert len(responses_in(tmp_path)) == 21
    assert again.counts == end.counts
    assert max(site.asked.values()) == 1


def test_the_names_are_those_that_viewers_know(tmp_path: Path) -> None:
    import re

    from remuda.archive.crawler.recorder import CrawlRecorder

    (tmp_path / "state").mkdir()
    recorder = CrawlRecorder(
        order_for("http://example.com/"), tmp_path, name="example.com-inf-20260102-030405-01234", sizes={}
    )
    files = recorder.finish(is_aborted=True, payloads=[])

    pattern = (
        r"^([\w._@% -]+)-(inf|shallow)-(\d{8})-(\d{6})-?(\w{5})?-?(aborted)?-?(\d+|meta)?.(json|warc\.gz)$"
    )
    names = [file.path.name for file in files if file.kind in ("warc", "meta")]
    assert all(re.match(pattern, name) for name in names)
    assert read_records(files[1].path)[1].url == "urn:X-remuda:log"
