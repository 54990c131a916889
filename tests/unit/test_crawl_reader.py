"""Long documents of a crawl are read by a process that is killed when one of them takes too much."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from processes import helpers
from remuda.archive.crawler import reader, reading
from remuda.archive.crawler.reader import DocumentReader
from remuda.archive.crawler.reading import MOST_FOUND, links_in
from remuda.archive.crawler.response import MAX_PARSED, FetchedResponse
from remuda.archive.crawler.visiting import LONG_DOCUMENT
from remuda.base.helper import Helper, HelperEnded
from remuda.base.processes import running_since
from sites import Heard, Request, Site, answer, crawl, order_for, responses_in, serving
from waiting import eventually

URL = "http://a.example/"
NAMES = b"<p " + b"".join(b"a%d " % number for number in range(2_000_000)) + b">"
"""A parser compares each name of an attribute with all before it: this takes it hours."""
CROWD = b"<p " + b"".join(b"a%d " % number for number in range(4900)) + b">"
CROWDS = CROWD * (MAX_PARSED // len(CROWD))
"""Takes a quarter of a minute, and 700 MB."""
QUOTED = b"<p " + b"".join(b"a%d='>' " % number for number in range(600_000)) + b">"
"""Each tag looks as if it were short."""
LONG = b"<title>Long</title><a href=/next>" + b"x" * LONG_DOCUMENT


def response_with(document: bytes, directory: Path, *, coding: str = "") -> FetchedResponse:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Encoding: {coding}\r\n\r\n"
    response = FetchedResponse(head.encode(), directory)
    response.body.add(document)
    return response


def is_busy(process: psutil.Process) -> bool:
    """Whether it has been reading for longer than a document that is not hostile takes."""
    return process.cpu_times().user > 0.3


@asynccontextmanager
async def reading_documents() -> AsyncIterator[DocumentReader]:
    documents = DocumentReader()
    try:
        yield documents
    finally:
        await documents.close()


async def test_documents_that_take_too_long_are_recorded_and_the_crawl_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "READING", 0.3)
    site, heard = Site(), Heard()
    hostile = {"/names": NAMES, "/crowds": CROWDS, "/quoted": QUOTED}
    for path, document in hostile.items():
        site.add(path, answer(document, coding="gzip"))
    site.add("/long", answer(LONG))
    site.page("/next")
    site.page("/", *hostile, "/long")

    async with serving(site):
        await crawl(order_for(site.url()), tmp_path, heard=heard)

    assert set(responses_in(tmp_path)) == set(map(site.url, ("/", *hostile, "/long", "/next")))
    assert {message for message in heard.messages if message.startswith("HEAVY")} == {
        f"HEAVY {site.url(path)} is not read for links: the process that does so was killed by SIGPROF."
        for path in hostile
    }
    assert helpers(reading) == []


async def test_others_are_served_while_a_document_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "READING", 60.0)
    async with reading_documents() as documents:
        task = asyncio.create_task(documents.read(URL, response_with(NAMES, tmp_path)))
        await eventually(lambda: any(map(is_busy, helpers(reading))))

        assert not task.done()

        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert helpers(reading) == []


@pytest.mark.parametrize(
    ("document", "coding", "count"),
    [
        pytest.param(LONG[:LONG_DOCUMENT], "", 0, id="short"),
        pytest.param(LONG, "", 1, id="long"),
        pytest.param(LONG, "gzip", 1, id="long when unpacked"),
    ],
)
async def test_there_is_a_process_from_the_first_long_document_on(
    document: bytes, coding: str, count: int, tmp_path: Path
) -> None:
    site = Site()
    counts = []

    async def count_helpers(request: Request, writer: asyncio.StreamWriter) -> None:
        counts.append(len(helpers(reading)))
        writer.write(answer())

    site.add("/", answer(document, coding=coding))
    site.add("/next", count_helpers)

    async with serving(site):
        await crawl(order_for(site.url()), tmp_path)

    assert counts == [count]
    assert helpers(reading) == []


async def test_the_process_is_limited_and_kept_for_the_next_document(tmp_path: Path) -> None:
    async with reading_documents() as documents:
        assert (await documents.read(URL, response_with(LONG, tmp_path))).links == ["/next"]
        (process,) = helpers(reading)

        assert process.nice() == 19
        assert process.rlimit(psutil.RLIMIT_AS) == (reading.MOST_MEMORY, reading.MOST_MEMORY)

        assert (await documents.read(URL, response_with(LONG, tmp_path))).title == "Long"
        assert helpers(reading) == [process]


async def test_a_process_that_is_killed_gives_no_links_and_the_next_document_gets_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "READING", 60.0)
    async with reading_documents() as documents:
        task = asyncio.create_task(documents.read(URL, response_with(NAMES, tmp_path)))
        (process,) = await eventually(lambda: helpers(reading))
        process.kill()
        with pytest.raises(HelperEnded, match="was killed by SIGKILL"):
            await task

        assert (await documents.read(URL, response_with(LONG, tmp_path))).links == ["/next"]


async def test_what_is_sent_to_all_processes_of_a_service_does_not_end_the_reading(tmp_path: Path) -> None:
    async with reading_documents() as documents:
        await documents.read(URL, response_with(LONG, tmp_path))
        (process,) = helpers(reading)
        process.terminate()
        process.send_signal(signal.SIGINT)

        assert (await documents.read(URL, response_with(LONG, tmp_path))).links == ["/next"]
        assert helpers(reading) == [process]


_OWNER = """
import sys
sys.path[:0] = [".", ".."]
import asyncio, tempfile
from pathlib import Path
from test_crawl_reader import NAMES, URL, response_with
from remuda.archive.crawler import reader

reader.READING = 60.0
asyncio.run(reader.DocumentReader().read(URL, response_with(NAMES, Path(tempfile.gettempdir()))))
"""


async def test_the_process_dies_with_its_owner_whatever_it_is_doing() -> None:
    with subprocess.Popen([sys.executable, "-c", _OWNER], cwd=Path(__file__).parent) as owner:
        await eventually(lambda: [each for each in helpers(reading, of=owner.pid) if is_busy(each)])
        (process,) = helpers(reading, of=owner.pid)

        owner.kill()

        await eventually(lambda: running_since(process.pid) is None)


async def test_what_cannot_be_unpacked_is_no_page(tmp_path: Path) -> None:
    packed = response_with(LONG, tmp_path, coding="br")

    async with reading_documents() as documents:
        assert not (await documents.read(URL, packed)).is_html


def test_what_a_document_leads_to_is_bounded() -> None:
    # In UTF-8 each of these bytes becomes three.
    document = b"".join(b"<img src='%d%s'>" % (number, b"\x80" * 10_000) for number in range(1500))

    found = links_in(document, URL, "text/html; charset=windows-1252")

    assert MOST_FOUND * 0.99 < sum(len(each.encode()) for each in found.requisites) < MOST_FOUND


async def test_a_process_that_has_died_gives_no_answer() -> None:
    helper = await Helper.start(reading.__name__, longest=10)
    (process,) = helpers(reading)
    process.kill()
    await eventually(lambda: not helper.is_alive)

    with pytest.raises(HelperEnded, match="was killed by SIGKILL"):
        await helper.ask(b"")


async def test_an_answer_that_is_too_long_ends_the_process(tmp_path: Path) -> None:
    helper = await Helper.start(reading.__name__, longest=10)

    with pytest.raises(HelperEnded):
        await helper.ask(reader._request(URL, response_with(LONG, tmp_path)))

    assert not helper.is_alive
