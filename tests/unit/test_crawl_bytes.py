"""What a crawl writes is what came over the wire, whatever servers send; hostile ones do it no harm."""

import asyncio
import gzip
import ssl
from pathlib import Path

import pytest

from remuda.archive.crawler.model import Compression, CrawlSettings, EndReason
from remuda.archive.crawler.network import Network
from remuda.archive.warc.records import digest_text, sha1
from sites import (
    HOSTS,
    Heard,
    Request,
    Site,
    answer,
    check_warcs,
    crawl,
    order_for,
    read_records,
    records_in,
    responses_in,
    serving,
    warcs_in,
)

IMPATIENT = Network(allow_private_addresses=True, head_timeout=1, idle_timeout=0.5, min_rate=1000)


def site_of_all_kinds() -> Site:
    """Every coding, charset and framing that a crawl has to find its way through."""
    site = Site()
    codings = ("gzip", "deflate", "br", "zstd")
    site.page(
        "/",
        *(f"/{coding}.html" for coding in codings),
        *(
            "/chunked.html",
            "/chunkedgz.html",
            "/latin.html",
            "/sjis.html",
            "/big.html",
            "/binary",
            "/bare.html",
        ),
        *("/empty", "/caf\u00e9.html", "/feed.xml", "/styled.html"),
    )
    for coding in codings:
        site.add(f"/{coding}.html", answer(f'<a href="/from-{coding}.html">', coding=coding))
        site.page(f"/from-{coding}.html")
    site.add("/chunked.html", answer('<a href="/from-chunked.html">' + "x" * 5000, chunk=700))
    site.page("/from-chunked.html")
    site.add(
        "/chunkedgz.html", answer('<a href="/from-chunkedgz.html">' + "y" * 5000, chunk=50, coding="gzip")
    )
    site.page("/from-chunkedgz.html")
    site.add(
        "/latin.html", answer('<a href="/q?\u00fc">'.encode("latin-1"), kind="text/html; charset=iso-8859-1")
    )
    site.page("/q?%FC")
    sjis = '<meta charset="shift_jis"><a href="/\u65e5.html?\u672c">'.encode("shift_jis")
    site.add("/sjis.html", answer(sjis, kind="text/html"))
    site.page("/%E6%97%A5.html?%96{")
    site.page("/caf%C3%A9.html")
    body = b"".join(b'<a href="/n/%d">%s</a>' % (number, b"x" * 30) for number in range(40_000))
    site.add("/big.html", answer(b'<a href="/from-big.html">' + body))
    site.page("/from-big.html")
    site.add("/binary", answer(bytes(range(256)) * 50, kind="application/octet-stream"))
    site.add("/bare.html", b"HTTP/1.0 200\nContent-Type: text/html\n\n<a href='/from-bare.html'>")
    site.page("/from-bare.html")
    site.add("/empty", b"HTTP/1.1 204 No Content\r\n\r\n")
    item = "<item><link>/from-feed.html</link></item>"
    site.add("/feed.xml", answer(f"<rss><channel>{item}</channel></rss>", kind="application/rss+xml"))
    site.page("/from-feed.html")
    site.add("/styled.html", answer('<link rel=stylesheet href="/s.css"><p style="background:url(p.png)">'))
    site.add("/s.css", answer('@import "t.css"; a { src: url("f.woff") }', kind="text/css"))
    site.add("/t.css", answer("/* end */", kind="text/css"))
    site.add("/f.woff", answer(b"font", kind="font/woff"))
    site.add("/p.png", answer(b"png", kind="image/png"))
    return site


@pytest.mark.parametrize("compression", list(Compression))
async def test_every_byte_of_every_kind_of_response_is_kept(tmp_path: Path, compression: Compression) -> None:
    site = site_of_all_kinds()

    async with serving(site):
        order = order_for(site.url(), dedupe=False, compression=compression)
        settings = CrawlSettings(0, 0, 4, ignores=("/n/",), suppress_ignore_reports=True)
        end = await crawl(order, tmp_path, settings=settings)
        found = responses_in(tmp_path)

        assert set(found) == {site.url(path) for _, path in site._pages}
        assert not [url for url, record in found.items() if record.block != site.sent(url)]
    assert end.reason is EndReason.FINISHED
    check_warcs(tmp_path)
    requests = [each for each in records_in(tmp_path) if each.kind == "request"]
    assert len(requests) == len(found)
    assert all(each.block.startswith(b"GET /") and each.block.endswith(b"\r\n\r\n") for each in requests)


async def test_the_same_payload_becomes_a_revisit_also_of_another_job(tmp_path: Path) -> None:
    site = Site()
    same = answer("<p>always the same", fields=["X-Path: one"])
    site.page("/", "/one", "/two")
    site.add("/one", same)
    site.add("/two", answer("<p>always the same", fields=["X-Path: two"]))
    async with serving(site):
        order = order_for(site.url(), known_payloads=tmp_path / "known.sqlite3")
        await crawl(order, tmp_path / "first")
        await crawl(order, tmp_path / "second")

    first, second = responses_in(tmp_path / "first"), responses_in(tmp_path / "second")
    (original,) = (each for each in first.values() if each.kind == "response" and each.url != site.url())
    (revisit,) = (each for each in first.values() if each.kind == "revisit")
    assert revisit.fields["WARC-Refers-To-Target-URI"] == original.url
    assert revisit.fields["WARC-Refers-To-Date"] == original.fields["WARC-Date"]
    assert revisit.fields["WARC-Payload-Digest"] == original.fields["WARC-Payload-Digest"]
    assert revisit.block == site.sent(revisit.url).partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
    assert {each.kind for each in second.values()} == {"revisit"}
    check_warcs(tmp_path / "first")


async def test_revisits_of_chunked_bodies_have_the_digest_that_readers_take_of_what_is_stored(
    tmp_path: Path,
) -> None:
    site = Site()
    site.page("/", "/one", "/two", "/other", "/plain")
    for path, chunk in (("/one", 500), ("/two", 500), ("/other", 900), ("/plain", 0)):
        site.add(path, answer("<p>always the same" + "x" * 5000, chunk=chunk))
    async with serving(site):
        await crawl(order_for(site.url()), tmp_path)

    found = [each for each in responses_in(tmp_path).values() if each.url != site.url()]
    (revisit,) = (each for each in found if each.kind == "revisit")
    originals = {each.url: each for each in found if each.kind == "response"}
    for record in originals.values():
        stored = record.block.partition(b"\r\n\r\n")[2]
        assert record.fields["WARC-Payload-Digest"] == digest_text(sha1(stored))
    original = originals[revisit.fields["WARC-Refers-To-Target-URI"]]
    assert {original.url, revisit.url} == {site.url("/one"), site.url("/two")}
    assert revisit.fields["WARC-Payload-Digest"] == original.fields["WARC-Payload-Digest"]
    check_warcs(tmp_path)


async def test_files_are_split_and_begin_with_a_warcinfo(tmp_path: Path) -> None:
    site = Site()
    site.page("/", *(f"/{number}" for number in range(12)))
    for number in range(12):
        site.page(f"/{number}")
    async with serving(site):
        order = order_for(
            site.url(), split_size=4000, warcinfo={"operator": "A. Tester"}, metadata_records=True
        )
        end = await crawl(order, tmp_path)

    files = warcs_in(tmp_path)
    assert len(files) > 2
    for path in files:
        first, *others = read_records(path)
        assert first.kind == "warcinfo"
        assert b"operator: A. Tester\r\n" in first.block
        assert first.fields["WARC-Filename"] == path.name
        assert {each.fields["WARC-Warcinfo-ID"] for each in others} == {first.fields["WARC-Record-ID"]}
    assert len(responses_in(tmp_path)) == 13
    metadata = next(each for each in records_in(tmp_path) if each.kind == "metadata")
    assert f"outlink: {site.url('/3')}\r\n".encode() in metadata.block
    assert sum(file.size for file in end.files if file.kind == "warc") == end.counts.warc_bytes
    check_warcs(tmp_path)


async def endless(request: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n")
    while not writer.is_closing():
        writer.write(b"x" * 65536)
        await writer.drain()


async def radio(request: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.0 200 OK\r\nicy-name: Endless\r\nContent-Type: audio/mpeg\r\n\r\n")
    while not writer.is_closing():
        writer.write(b"la" * 1000)
        await writer.drain()


async def endless_head(request: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while not writer.is_closing():
        writer.write(b"X-More: " + b"x" * 8000 + b"\r\n")
        await writer.drain()


async def test_what_a_hostile_server_sends_is_bounded(tmp_path: Path) -> None:
    site = Site()
    bomb = gzip.compress(bytes(40 << 20))
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
    )
    site.add("/endless", endless)
    site.add("/head", endless_head)
    site.add("/cut", b"HTTP/1.0 200 OK\r\nContent-Length: 1000\r\n\r\nonly this")
    site.add("/nonsense", b"HTTP/1.0x SSH-2.0-OpenSSH_9.2\r\n\r\n")
    site.add("/bomb", head % len(bomb) + bomb)
    site.add("/nested", answer("<div>" * 300_000 + '<a href="/deep">'))
    site.add("/chunks", b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n")
    site.add("/radio", radio)
    site.page("/good")
    paths = ("/radio", "/endless", "/head", "/cut", "/nonsense", "/bomb", "/nested", "/chunks", "/good")
    site.page("/", *paths)
    heard = Heard()
    async with serving(site):
        end = await crawl(order_for(site.url(), max_body=2_000_000, tries=1), tmp_path, heard=heard)

    found = responses_in(tmp_path)
    failed = {"/head", "/nonsense"}
    assert set(found) == {site.url(path) for path in ("/", *paths) if path not in failed}
    assert {each.url for each in heard.downloads if each.response_code == 0} == set(map(site.url, failed))
    assert end.counts.errors == end.counts.runk == 2
    assert end.reason is EndReason.FINISHED
    assert found[site.url("/endless")].fields["WARC-Truncated"] == "length"
    assert found[site.url("/radio")].fields["WARC-Truncated"] == "unspecified"
    assert found[site.url("/cut")].fields["WARC-Truncated"] == "disconnect"
    assert found[site.url("/chunks")].fields["WARC-Truncated"] == "unspecified"
    assert len(found[site.url("/endless")].block) < 2_001_000
    check_warcs(tmp_path)


HEAD_OF_CHUNKS = b"HTTP/1.0 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n"
LINK = b'<a href="/found">'


@pytest.mark.parametrize(
    "body",
    [
        LINK,
        b"11\r\n" + LINK + b"\r\nno size\r\nmore",
        b"11\r\n" + LINK + b"too long\r\n0\r\n\r\n",
        b"11\r\n" + LINK + b"\r\n" + b"0" * 5000,
    ],
    ids=["no chunks", "no size", "chunk too long", "line too long"],
)
async def test_malformed_chunks_are_tried_again_and_then_kept_as_they_came(
    tmp_path: Path, body: bytes
) -> None:
    site = Site()
    site.add("/", HEAD_OF_CHUNKS + body)
    site.page("/found")
    heard = Heard()
    async with serving(site):
        end = await crawl(order_for(site.url(), tries=2), tmp_path, heard=heard)

        found = responses_in(tmp_path)
        assert found[site.url()].block == site.sent(site.url())
    assert set(found) == {site.url(), site.url("/found")}
    assert found[site.url()].fields["WARC-Truncated"] == "unspecified"
    assert [each.wget_code for each in heard.downloads] == [
        "The chunks of the response are malformed",
        "OK",
        "OK",
    ]
    assert end.reason is EndReason.FINISHED
    check_warcs(tmp_path)


async def test_a_body_without_the_chunks_that_its_head_promises_is_read_to_its_end(tmp_path: Path) -> None:
    site = Site()
    body = LINK + b"x" * 10_000

    async def in_pieces(request: Request, writer: asyncio.StreamWriter) -> None:
        for piece in (HEAD_OF_CHUNKS, body[:9], body[9:5000], body[5000:]):
            writer.write(piece)
            await asyncio.sleep(0)
        writer.close()

    site.add("/", in_pieces)
    site.page("/found")
    async with serving(site):
        await crawl(order_for(site.url(), tries=1), tmp_path)

    found = responses_in(tmp_path)
    assert found[site.url()].block == HEAD_OF_CHUNKS + body
    assert site.url("/found") in found
    check_warcs(tmp_path)


async def test_servers_that_are_silent_or_drip_are_given_up(tmp_path: Path) -> None:
    site = Site()
    over = asyncio.Event()

    async def silent(request: Request, writer: asyncio.StreamWriter) -> None:
        await over.wait()

    async def stuck(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nbegin")
        await over.wait()

    async def drip(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while not writer.is_closing():
            writer.write(b".")
            await asyncio.sleep(0.02)

    for path, handler in (("/silent", silent), ("/stuck", stuck), ("/drip", drip)):
        site.add(path, handler)
    heard = Heard()
    async with serving(site):
        urls = tuple(map(site.url, ("/silent", "/stuck", "/drip")))
        await crawl(order_for(*urls, tries=1), tmp_path, network=IMPATIENT, heard=heard)
        over.set()

    assert [each.url for each in heard.downloads if each.response_code == 0] == [site.url("/silent")]
    found = responses_in(tmp_path)
    assert {each.fields["WARC-Truncated"] for each in found.values()} == {"time"}
    assert set(found) == set(urls[1:])


async def test_a_long_body_goes_through_a_file_unchanged(tmp_path: Path) -> None:
    site = Site()
    video = bytes(range(256)) * 20_000
    site.add("/", answer(video, kind="video/mp4"))
    site.add("/chunked", answer(video, kind="video/mp4", chunk=100_000))
    async with serving(site):
        await crawl(order_for(site.url(), site.url("/chunked"), dedupe=False), tmp_path)
        found = responses_in(tmp_path)

        assert {url: each.block == site.sent(url) for url, each in found.items()} == {
            site.url(): True,
            site.url("/chunked"): True,
        }
    check_warcs(tmp_path)
    assert not list((tmp_path / "state" / "spool").iterdir())


async def test_tls_is_spoken_and_the_certificate_recorded(tmp_path: Path, certificates: Path) -> None:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificates / "cert.pem", certificates / "key.pem")
    site = Site()
    site.add("/", answer("<a href='/two'>", fields=["Set-Cookie: a=b; Secure"]), "localhost")
    site.page("/two", host="localhost")
    async with serving(site, tls):
        start = f"https://localhost:{site.port}/"
        await crawl(order_for(start), tmp_path / "lenient")
        strict = Network(allow_private_addresses=True, verify_tls=True)
        heard = Heard()
        await crawl(order_for(start, tries=1), tmp_path / "strict", network=strict, heard=heard)

    records = {each.url: each for each in records_in(tmp_path / "lenient")}
    assert set(responses_in(tmp_path / "lenient")) == {start, start + "two"}
    certificate = records[f"urn:X-remuda:certificate:localhost:{site.port}"]
    assert ssl.PEM_cert_to_DER_cert(certificate.block.decode()) == ssl.PEM_cert_to_DER_cert(
        (certificates / "cert.pem").read_text()
    )
    assert b"localhost. IN A 127.0.0.1" in records["dns:localhost"].block
    assert site.requests[1].fields["cookie"] == "a=b"
    assert site.requests[1].fields["referer"] == start
    assert "certificate" in heard.downloads[0].wget_code.lower()


async def test_private_addresses_are_refused(tmp_path: Path) -> None:
    site = Site()
    site.page("/")
    heard = Heard()
    async with serving(site):
        urls = (site.url(), f"http://localhost:{site.port}/", f"http://[::ffff:127.0.0.1]:{site.port}/")
        network = Network(allow_private_addresses=False)
        end = await crawl(order_for(*urls), tmp_path, network=network, heard=heard)

    assert not site.requests
    assert end.counts.errors == 3
    assert all("must not be reached" in each.wget_code for each in heard.downloads)


async def test_a_redirect_does_not_lead_to_a_private_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remuda.archive.crawler.network.is_public", lambda address: address == HOSTS[0])
    site = Site()
    heard = Heard()
    async with serving(site):
        secret = site.url("/latest/meta-data/", HOSTS[1])
        site.add("/", answer(status="302 Found", fields=[f"Location: {secret}"]))
        site.page("/latest/meta-data/", host=HOSTS[1])
        await crawl(order_for(site.url()), tmp_path, network=Network(), heard=heard)

    assert [request.host for request in site.requests] == [HOSTS[0]]
    assert [each.url for each in heard.downloads if each.is_error] == [secret]
