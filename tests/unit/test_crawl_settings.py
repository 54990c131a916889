"""Settings of a running crawl apply at once; servers that ask for less get less."""

import asyncio
import base64
import socket
import ssl
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from remuda.archive.crawler.crawl import Crawl
from remuda.archive.crawler.frontier import Found, Frontier
from remuda.archive.crawler.model import CrawlSettings, EndReason
from remuda.archive.crawler.network import Network
from remuda.archive.crawler.schedule import Schedule
from sites import (
    HOSTS,
    NETWORK,
    Heard,
    Request,
    Site,
    answer,
    crawl,
    order_for,
    records_in,
    responses_in,
    serving,
)
from waiting import eventually


async def test_a_crawl_in_a_long_delay_hears_of_new_settings(tmp_path: Path) -> None:
    site = Site()
    for path in ("/a", "/b", "/skipped"):
        site.page(path)
    async with serving(site):
        site.page("/", "/a", "/b", "/skipped")
        slow = CrawlSettings(delay_min=500, delay_max=600, concurrency=1)
        heard = Heard()
        running = Crawl(order_for(site.url()), tmp_path, slow, heard, network=NETWORK)
        task = asyncio.create_task(running.run())
        await eventually(lambda: len(site.requests) == 1)

        running.apply(CrawlSettings(0, 0, 2, user_agent="Other/1.0", ignores=("/skipped",)))
        end = await asyncio.wait_for(task, 20)

    assert set(responses_in(tmp_path)) == set(map(site.url, ("/", "/a", "/b")))
    assert site.requests[0].fields["user-agent"].startswith("Mozilla")
    assert {request.fields["user-agent"] for request in site.requests[1:]} == {"Other/1.0"}
    assert [(each.url, each.source) for each in heard.ignores] == [
        (site.url("/skipped"), "handle_pre_response")
    ]
    assert heard.messages[-1].startswith("Settings updated:  2 workers, 1 ignores, delay min/max: [0, 0] ms")
    assert end.counts.finished == 4
    assert end.counts.downloaded == 3


async def test_other_jobs_have_their_turn_while_many_start_urls_are_taken_in(tmp_path: Path) -> None:
    order = order_for(*(f"http://host{number}.example/" for number in range(3000)))
    paused = CrawlSettings(is_paused=True)
    first = Crawl(order, tmp_path, paused, Heard(), network=NETWORK)
    task = asyncio.create_task(first.run())
    await asyncio.sleep(0)
    first.suspend()
    assert (await task).counts.queued < 3000

    heard = Heard()
    again = Crawl(order, tmp_path, paused, heard, network=NETWORK)
    task = asyncio.create_task(again.run())
    await asyncio.sleep(0)
    again.apply(CrawlSettings(concurrency=7, is_paused=True))
    await eventually(lambda: heard.counts and heard.counts[-1].queued == 3000)
    again.abort()
    await task

    assert any(message.startswith("Settings updated:  7 workers") for message in heard.messages)


async def test_offsite_links_can_be_turned_off_for_what_is_queued_already(tmp_path: Path) -> None:
    site = Site()
    async with serving(site):
        offsite = [site.url(f"/{number}", HOSTS[1]) for number in range(3)]
        site.page("/", "/a", *offsite)
        site.page("/a")
        slow = CrawlSettings(delay_min=500, delay_max=600, concurrency=1)
        running = Crawl(order_for(site.url()), tmp_path, slow, Heard(), network=NETWORK)
        task = asyncio.create_task(running.run())
        await eventually(
            lambda: len(site.requests) == 2
        )  # The start, and one on the host that need not wait.

        running.apply(CrawlSettings(0, 0, 2, offsite_links=False))
        await asyncio.wait_for(task, 20)

    assert set(responses_in(tmp_path)) == {site.url(), offsite[0], site.url("/a")}


async def test_a_paused_crawl_sends_nothing_until_it_is_resumed(tmp_path: Path) -> None:
    site = Site()
    site.page("/", "/a")
    site.page("/a")
    async with serving(site):
        paused = CrawlSettings(0, 0, 2, is_paused=True)
        running = Crawl(order_for(site.url()), tmp_path, paused, Heard(), network=NETWORK)
        task = asyncio.create_task(running.run())
        await asyncio.sleep(0.3)
        assert not site.requests
        assert not task.done()

        running.apply(CrawlSettings(0, 0, 2))
        end = await asyncio.wait_for(task, 20)

    assert end.reason is EndReason.FINISHED
    assert end.counts.downloaded == 2


async def test_a_server_that_asks_for_less_is_left_alone_for_so_long(tmp_path: Path) -> None:
    site = Site()
    loop = asyncio.get_running_loop()
    times: list[float] = []

    async def busy(request: Request, writer: asyncio.StreamWriter) -> None:
        times.append(loop.time())
        if len(times) == 1:
            writer.write(answer("later", status="429 Too Many Requests", fields=["Retry-After: 1"]))
        else:
            writer.write(answer("now"))

    site.add("/busy", busy)
    site.page("/other")
    heard = Heard()
    async with serving(site):
        order = order_for(site.url("/busy"), site.url("/other"), tries=1)
        end = await crawl(order, tmp_path, settings=CrawlSettings(0, 0, 1), heard=heard)

    assert [each.response_code for each in heard.downloads] == [429, 200, 200]
    assert times[1] - times[0] >= 0.99
    assert site.requests[0].path == "/busy"
    assert len(responses_in(tmp_path)) == 2
    assert end.counts.r4xx == 1


async def test_only_error_responses_and_failures_without_one_are_errors(tmp_path: Path) -> None:
    site = Site()
    site.page("/", "/strange", "/cut", "/silent", "/gone")
    site.add("/strange", answer("no", status="999 Denied"))
    site.add("/cut", b"HTTP/1.0 200 OK\r\nContent-Length: 1000\r\n\r\nonly this")
    site.add("/silent", b"HTTP/1.0")
    heard = Heard()
    async with serving(site):
        end = await crawl(order_for(site.url(), tries=2), tmp_path, heard=heard)

    # As the foreman counts the same entries: the answer 404, and two tries without an answer.
    assert len(heard.downloads) == 7
    assert (end.counts.errors, end.counts.r4xx, end.counts.runk) == (3, 1, 3)


async def test_a_failing_page_is_tried_again_and_recorded_in_the_end(tmp_path: Path) -> None:
    site = Site()
    site.page("/", "/broken", "/gone")
    site.add("/broken", answer("sorry", status="500 Internal Server Error"))
    heard = Heard()
    async with serving(site):
        end = await crawl(order_for(site.url(), tries=3), tmp_path, heard=heard)

    assert site.asked == {site.url(): 1, site.url("/broken"): 3, site.url("/gone"): 1}
    assert len(responses_in(tmp_path)) == 3
    assert (end.counts.errors, end.counts.r5xx, end.counts.r4xx) == (4, 3, 1)
    by_path = {each.url.rpartition("/")[2]: (each.is_error, each.is_warning) for each in heard.downloads}
    assert by_path == {"": (False, False), "broken": (True, False), "gone": (False, True)}


async def test_an_idle_connection_that_the_server_closed_costs_nothing(tmp_path: Path) -> None:
    site = Site()

    async def once(request: Request, writer: asyncio.StreamWriter) -> None:
        # It says keep-alive, and closes without a word.
        writer.write(answer(f"<a href='/{len(site.requests)}'>{len(site.requests)}"))
        await writer.drain()
        writer.close()

    for path in ("/", "/1", "/2", "/3"):
        site.add(path, once)
    heard = Heard()
    async with serving(site):
        await crawl(order_for(site.url(), tries=1, depth=3), tmp_path, heard=heard)

    assert {each.wget_code for each in heard.downloads} == {"OK"}
    assert len(heard.downloads) == 4


# Politeness, without a network


def schedule_of(tmp_path: Path, settings: CrawlSettings, *hosts: str) -> Schedule:
    frontier = Frontier(tmp_path / "frontier.sqlite3")
    urls = [Found(f"http://{host}/{number}", host, 0, 0, 0, 0, 0) for host in hosts for number in range(9)]
    schedule = Schedule(frontier, settings)
    schedule.list_hosts(frontier.add(urls))
    return schedule


def test_a_delay_holds_one_host_not_the_others(tmp_path: Path) -> None:
    schedule = schedule_of(tmp_path, CrawlSettings(10, 10, 1), "a", "b")

    first = schedule.pick(100.0)
    assert first is not None
    schedule.release(first, 101.0)
    second = schedule.pick(101.0)
    assert second is not None
    assert {first.url, second.url} == {"http://a/0", "http://b/0"}
    schedule.release(second, 102.0)

    assert schedule.pick(102.0) is None
    assert schedule.next_time() == 111.0
    third = schedule.pick(111.0)
    assert third is not None
    assert third.url == first.url[:-1] + "1"


def test_each_downloader_rests_by_itself(tmp_path: Path) -> None:
    schedule = schedule_of(tmp_path, CrawlSettings(10, 10, 2), "a")

    claims = [schedule.pick(100.0), schedule.pick(100.0)]
    assert None not in claims
    for moment, claim in zip((101.0, 105.0), claims, strict=True):
        assert claim is not None
        schedule.release(claim, moment)
    assert schedule.pick(110.0) is None
    assert schedule.pick(111.0) is not None
    assert schedule.pick(111.0) is None
    assert schedule.pick(115.0) is not None


def test_a_shorter_delay_counts_for_a_rest_that_has_begun(tmp_path: Path) -> None:
    schedule = schedule_of(tmp_path, CrawlSettings(600, 600, 1), "a")
    claim = schedule.pick(100.0)
    assert claim is not None
    schedule.release(claim, 100.0)
    assert schedule.pick(103.0) is None

    schedule.apply(CrawlSettings(2, 2, 1))

    assert schedule.pick(103.0) is not None


def test_the_back_off_doubles_until_the_host_answers_well(tmp_path: Path) -> None:
    schedule = schedule_of(tmp_path, CrawlSettings(0, 0, 1), "a")
    claim = schedule.pick(0.0)
    assert claim is not None

    assert [schedule.back_off(claim, 0.0, None) for _ in range(3)] == [2.0, 4.0, 8.0]
    schedule.praise(claim)
    assert schedule.back_off(claim, 0.0, None) == 2.0
    assert schedule.back_off(claim, 0.0, 1e9) == 3600.0


# Names


async def test_names_that_no_server_answers_for_do_not_keep_others_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_over, look_up = threading.Event(), socket.getaddrinfo

    def getaddrinfo(host: str, *more: Any, **options: Any) -> Any:
        if host.endswith(".dead.example"):
            is_over.wait(60)
            raise socket.gaierror(socket.EAI_AGAIN, "no server has answered")
        return look_up("127.0.0.1" if host == "live.example" else host, *more, **options)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    site = Site()
    dead = [f"http://{number}.dead.example/" for number in range(40)]
    site.page("/here")
    try:
        async with serving(site):
            live = f"http://live.example:{site.port}/"
            site.page("/", host="live.example")
            site.page("/", *dead, live, "/here")
            order = order_for(site.url(), tries=1)
            network = replace(NETWORK, connect_timeout=3)
            end = await crawl(order, tmp_path, settings=CrawlSettings(0, 0, 50), network=network)

            assert set(responses_in(tmp_path)) == {site.url(), site.url("/here"), live}
    finally:
        is_over.set()
    assert end.counts.finished == 43


# Proxies


@pytest.mark.parametrize("kind", ["http", "socks5"])
async def test_a_crawl_goes_through_a_proxy(tmp_path: Path, kind: str) -> None:
    site = Site()
    location = "Location: http://www.far.example/"
    site.add("/", answer(status="301 Moved", fields=[location]), "far.example")
    site.page("/", "/a", host="www.far.example")
    site.page("/a", "/b", host="www.far.example")
    site.page("/b", host="www.far.example")
    seen: list[bytes] = []

    async def http_proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Plain requests come in absolute form: this proxy is the site itself.
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                seen.append(head)
                host, _, path = head.split(b" ")[1].decode().removeprefix("http://").partition("/")
                writer.write(site.sent(f"http://{host}:{site.port}/{path}"))
        except asyncio.IncompleteReadError:
            writer.close()

    async def socks_proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        greeting = await reader.readexactly(4)
        writer.write(b"\x05\x02")
        length = (await reader.readexactly(2))[1]
        user = await reader.readexactly(length)
        password = await reader.readexactly((await reader.readexactly(1))[0])
        writer.write(b"\x01\x00")
        head = await reader.readexactly(5)
        name = await reader.readexactly(head[4])
        seen.append(greeting + user + password + name + await reader.readexactly(2))
        writer.write(b"\x05\x00\x00\x01" + bytes(6))
        await site.answer(reader, writer)

    proxy = await asyncio.start_server(http_proxy if kind == "http" else socks_proxy, "127.0.0.1", 0)
    port = proxy.sockets[0].getsockname()[1]
    network = Network(proxy=f"{kind}://me:secret@127.0.0.1:{port}")
    async with proxy:
        end = await crawl(order_for("http://far.example/"), tmp_path, network=network)

    # The site is where its start URL was redirected to.
    there = {f"http://www.far.example/{path}" for path in ("", "a", "b")}
    assert set(responses_in(tmp_path)) == {"http://far.example/", *there}
    assert end.counts.downloaded == 4
    # Only the proxy knows the server's address; its own belongs into no record.
    assert not [each for each in records_in(tmp_path) if "WARC-IP-Address" in each.fields]
    if kind == "http":
        assert seen[0].startswith(b"GET http://far.example/ HTTP/1.1\r\n")
        assert base64.b64encode(b"me:secret") in seen[0]
    else:
        assert seen[0].endswith(b"mesecretfar.example" + (80).to_bytes(2, "big"))
    assert b"secret" not in b"".join(path.read_bytes() for path in tmp_path.glob("*.warc.gz"))


async def test_tls_goes_through_a_tunnel_of_a_proxy(tmp_path: Path, certificates: Path) -> None:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificates / "cert.pem", certificates / "key.pem")
    site = Site()
    site.page("/", "/a", host="far.example")
    site.page("/a", host="far.example")
    asked: list[bytes] = []

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        there, to_there = await asyncio.open_connection("127.0.0.1", site.port)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(pump(reader, to_there), pump(there, writer), return_exceptions=True)

    server = await asyncio.start_server(proxy, "127.0.0.1", 0)
    network = Network(proxy=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    async with serving(site, tls), server:
        end = await crawl(order_for("https://far.example/"), tmp_path, network=network)

    assert end.counts.downloaded == 2
    assert [each.partition(b"\r\n")[0] for each in asked] == [b"CONNECT far.example:443 HTTP/1.1"]
