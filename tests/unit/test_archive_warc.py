"""Records, files and index of the archive; the parts of HTTP that they are made of."""

import asyncio
import gzip
import re
import time
import zipfile
from pathlib import Path

import msgspec
import pytest

import disks
from remuda.archive.crawler.addresses import is_public
from remuda.archive.crawler.cookies import Cookies
from remuda.archive.crawler.http import MAX_CHUNK_LINES, HttpConnection
from remuda.archive.crawler.network import Network
from remuda.archive.crawler.response import FetchedResponse, FetchFailed
from remuda.archive.warc.cdxj import CdxEntry, cdx_line, sort_lines, surt_of
from remuda.archive.warc.records import Compression, new_id, sha1, warc_date, whole_record
from remuda.archive.warc.repair import whole_size
from remuda.archive.warc.writer import DiskFull, WarcWriter
from sites import Site, check_warcs, crawl, encode, order_for, read_records, serving


def writer_in(directory: Path, compression: Compression = Compression.GZIP) -> WarcWriter:
    def describe(name: str) -> bytes:
        return record("warcinfo", name.encode())

    return WarcWriter(directory, "x", compression=compression, split_size=1 << 20, describe=describe)


def record(kind: str, block: bytes) -> bytes:
    fields = [("WARC-Record-ID", new_id()), ("WARC-Date", warc_date(0.0)), ("Content-Type", "text/plain")]
    return whole_record(kind, fields, block)


def test_ids_and_dates_have_the_form_of_the_standard() -> None:
    pattern = r"<urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}>"
    ids = {new_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert all(re.fullmatch(pattern, each) for each in ids)
    assert warc_date(1700000000.1239) == "2023-11-14T22:13:20.123Z"


@pytest.mark.parametrize("compression", list(Compression))
def test_a_torn_end_is_found(tmp_path: Path, compression: Compression) -> None:
    writer = writer_in(tmp_path, compression)
    places = [writer.append(record("resource", bytes([number]) * 3000)) for number in range(5)]
    writer.close()
    whole = sum(places[3])
    data = writer.path.read_bytes()

    for cut in (whole, whole + 1, whole + 20, len(data) - 1):
        writer.path.write_bytes(data[:cut])
        assert whole_size(writer.path) == whole
    writer.path.write_bytes(data)
    assert whole_size(writer.path) == len(data)


@pytest.mark.parametrize(("coding", "suffix"), [("gzip", "gz"), ("zstd", "zst")])
def test_a_torn_end_is_found_after_records_that_are_long_only_when_unpacked(
    tmp_path: Path, coding: str, suffix: str
) -> None:
    path = tmp_path / f"x.warc.{suffix}"
    zeros = encode(bytes(4 << 20), coding)

    path.write_bytes(zeros * 3)
    assert whole_size(path) == 3 * len(zeros)
    path.write_bytes(zeros * 3 + zeros[:-1])
    assert whole_size(path) == 3 * len(zeros)


def test_a_record_that_does_not_fit_is_taken_back(tmp_path: Path) -> None:
    with disks.disk() as disk:
        writer = writer_in(disk)
        writer.append(record("resource", b"first"))
        size = writer.size
        with disks.filled(disk, free=100_000):
            noise = [bytes([number]) * 10 + zlib_noise(50_000) for number in range(8)]
            steps = writer.append_steps([record("resource", b"".join(noise))])
            with pytest.raises(DiskFull):
                list(steps)
            with pytest.raises(DiskFull):
                writer.append_all([record("resource", each) for each in noise])
        assert writer.size == size == writer.path.stat().st_size
        writer.append(record("resource", b"second"))
        writer.close()

        assert [each.block for each in read_records(writer.path)][1:] == [b"first", b"second"]


def zlib_noise(length: int) -> bytes:
    import random

    return random.Random(length).randbytes(length)


def test_a_long_record_that_is_given_up_leaves_nothing(tmp_path: Path) -> None:
    writer = writer_in(tmp_path)
    size = writer.size
    steps = writer.append_steps([b"WARC/1.1\r\n", zlib_noise(100_000), b"..."])
    next(steps)
    next(steps)
    steps.close()

    assert writer.path.stat().st_size == size
    writer.close()


@pytest.mark.parametrize(
    ("url", "surt"),
    [
        ("http://www.example.com/", "com,example)/"),
        ("https://Example.com:8443/A/B/?b=2&a=1".lower(), "com,example:8443)/a/b?a=1&b=2"),
        ("http://127.0.0.1:8080/x", "1,0,0,127:8080)/x"),
        ("http://example.com/a//b/", "com,example)/a/b"),
        ("http://example.com/a?sid=0123456789abcdef0123456789abcdef&x=1", "com,example)/a?x=1"),
        ("http://www2.example.co.uk/a?", "uk,co,example)/a"),
        ("http://example.com//a", "com,example)/a"),
        ("http://example.com/?p2=1&p=1&p-x=%26", "com,example)/?&p=1&p-x=&p2=1"),
        ("http://example.com/a%2Cb?u=http%3A%2F%2Fx.org%2F", "com,example)/a,b?u=http://x.org/"),
        ("http://example.com/100%25/%2541/%E4%20", "com,example)/100%25/a/%e4%20"),
        ("http://[2001:db8::1]:8080/a", "2001:db8::1:8080)/a"),
    ],
)
def test_surts(url: str, surt: str) -> None:
    assert surt_of(url) == surt


def test_the_index_is_sorted_with_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remuda.archive.warc.cdxj._LINES_AT_ONCE", 7)
    lines = [
        cdx_line(
            CdxEntry(f"http://x.example/{number * 37 % 100}", "a/b", "200", "sha1:A", "1", "2", "f"), number
        )
        for number in range(100)
    ]
    (tmp_path / "in").write_bytes(b"".join(lines))

    sort_lines(tmp_path / "in", tmp_path / "out")

    assert (tmp_path / "out").read_bytes() == b"".join(sorted(lines))


async def test_index_and_wacz_lead_to_the_records(tmp_path: Path) -> None:
    site = Site()
    site.page("/", "/b.html")
    site.page("/b.html")
    async with serving(site):
        end = await crawl(order_for(site.url(), wacz=True), tmp_path)

    package = next(file.path for file in end.files if file.kind == "wacz")
    with zipfile.ZipFile(package) as archive:
        assert archive.testzip() is None
        assert {each.compress_type for each in archive.infolist()} == {zipfile.ZIP_STORED}
        described = msgspec.json.decode(archive.read("datapackage.json"))
        for resource in described["resources"]:
            assert len(archive.read(resource["path"])) == resource["bytes"]
        pages = archive.read("pages/pages.jsonl").splitlines()
        assert [msgspec.json.decode(page).get("url") for page in pages] == [
            None,
            site.url(),
            site.url("/b.html"),
        ]
        assert msgspec.json.decode(pages[1])["title"] == "/"
        index = archive.read("indexes/index.cdx").splitlines()
        assert len(index) == 2
        for line in index:
            entry = msgspec.json.decode(line.split(b" ", 2)[2])
            start, length = int(entry["offset"]), int(entry["length"])
            packed = archive.read(f"archive/{entry['filename']}")[start : start + length]
            assert site.sent(entry["url"]) in gzip.decompress(packed)
    check_warcs(tmp_path)


# HTTP


class _Wire(asyncio.Transport):
    """Where a connection writes to."""

    def __init__(self) -> None:
        super().__init__()
        self.is_aborted = False

    def write(self, data: object) -> None: ...

    def abort(self) -> None:
        self.is_aborted = True


async def fed(
    pieces: list[bytes], tmp_path: Path, *, has_ended: bool = False, max_body: int = 10_000
) -> tuple[FetchedResponse, HttpConnection]:
    """The response that a connection makes of these bytes."""
    connection = HttpConnection(tmp_path)
    connection.connection_made(_Wire())
    task = asyncio.create_task(connection.exchange(b"GET", max_body=max_body, network=Network()))
    await asyncio.sleep(0)
    for piece in pieces:
        connection.data_received(piece)
    if has_ended:
        connection.connection_lost(None)
    return await asyncio.wait_for(task, 5), connection


CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"5\r\nhello\r\n006;a=b\r\n world\r\n0\r\nT: 1\r\n\r\n"
)
PLAIN = b"HTTP/1.1 200 OK\nContent-Length: 11\n\nhello world"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("data", [CHUNKED, PLAIN, b"HTTP/1.1 100 Continue\r\n\r\n" + PLAIN])
async def test_a_response_is_the_same_in_any_pieces(tmp_path: Path, data: bytes, size: int) -> None:
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    response, connection = await fed(pieces, tmp_path)

    assert response.head + response.body.whole() == data.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert response.read_payload() == b"hello world"
    assert connection.is_open
    assert not response.truncated


async def test_a_document_is_read_without_its_content_and_transfer_codings(tmp_path: Path) -> None:
    coded = gzip.compress(gzip.compress(b"hello world"))
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"
    response, _ = await fed([head, b"%x\r\n%b\r\n0\r\n\r\n" % (len(coded), coded)], tmp_path)

    assert response.read_payload() == coded
    assert response.read_document(limit=100) == b"hello world"


async def test_a_body_of_single_bytes_is_cut_off(tmp_path: Path) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    tiny, sound = b"1\r\na\r\n" * MAX_CHUNK_LINES, b"20\r\n" + b"b" * 32 + b"\r\n"
    cut, connection = await fed([head, tiny], tmp_path, max_body=1 << 30)
    whole, _ = await fed([head, sound * MAX_CHUNK_LINES, b"0\r\n\r\n"], tmp_path, max_body=1 << 30)

    assert cut.truncated == "unspecified"
    assert not connection.is_open
    assert not whole.truncated


async def test_a_body_without_a_length_ends_with_the_connection(tmp_path: Path) -> None:
    response, connection = await fed([b"HTTP/1.1 200 OK\r\n\r\nall", b" of it"], tmp_path, has_ended=True)

    assert response.read_payload() == b"all of it"
    assert not response.truncated
    assert not connection.is_open


async def test_what_follows_a_response_closes_the_connection(tmp_path: Path) -> None:
    response, connection = await fed([PLAIN + b"HTTP/1.1 200 OK\r\n"], tmp_path)

    assert response.body.whole() == b"hello world"
    assert not connection.is_open


async def test_what_is_not_http_fails(tmp_path: Path) -> None:
    with pytest.raises(FetchFailed):
        await fed([b"nonsense\r\n\r\n"], tmp_path)


@pytest.mark.parametrize(
    ("body", "payload"),
    [(b"<p>no chunks\r\n", b"<p>no chunks\r\n"), (b"2\r\nok\r\nzz\r\nmore\r\n", b"ok")],
)
async def test_malformed_chunks_are_kept_however_they_come(
    tmp_path: Path, body: bytes, payload: bytes
) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    for length in range(1, len(body) + 1):
        pieces = [body[start : start + length] for start in range(0, len(body), length)]
        response, connection = await fed([head, *pieces], tmp_path, has_ended=True)

        assert response.body.whole() == body
        assert response.read_payload() == payload
        assert response.body.payload_digest == sha1(body)
        assert (response.is_malformed, response.truncated) == (True, "unspecified")
        assert not connection.is_open


async def test_a_size_of_blanks_takes_no_time(tmp_path: Path) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    began = time.thread_time()

    pieces = [head, b" " * 20_000 + b"x"]
    response, _ = await fed(pieces, tmp_path, has_ended=True, max_body=1 << 20)

    assert response.is_malformed
    assert time.thread_time() - began < 2.0


# Addresses


@pytest.mark.parametrize(
    "address",
    [
        *(
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.100.100.200",
            "0.0.0.0",
        ),
        *(
            "224.0.0.1",
            "255.255.255.255",
            "192.0.2.1",
            "198.18.0.1",
            "168.63.129.16",
            "240.0.0.1",
            "192.0.0.192",
        ),
        *(
            "::1",
            "::",
            "fe80::1",
            "fe80::1%eth0",
            "fc00::1",
            "fd00:ec2::254",
            "ff02::1",
            "2001:db8::1",
            "3fff::1",
            "fec0::1",
        ),
        *("::ffff:127.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::1", "2002:7f00:1::", "2001::1"),
        *("2002:a9fe:a9fe::", "64:ff9b::169.254.169.254", "::ffff:0:127.0.0.1", "100::1", "2002:c0a8:101::5"),
    ],
)
def test_addresses_that_are_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "93.184.216.34", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]
)
def test_addresses_that_are_public(address: str) -> None:
    assert is_public(address)


# Cookies


def test_cookies_go_back_where_they_came_from() -> None:
    jar = Cookies()
    for line in (
        "a=1; Path=/x",
        "b=2; Domain=example.com",
        "c=3; Secure",
        "d=4; Domain=evil.test",
        "=5",
        "e",
    ):
        jar.store(line, "www.example.com", "/x/y", moment=0.0)
    jar.store("f=6; Domain=com", "www.example.com", "/", moment=0.0)

    assert jar.header("www.example.com", "/x/z", is_secure=False) == "a=1; b=2"
    assert jar.header("www.example.com", "/x/z", is_secure=True) == "a=1; c=3; b=2"
    assert jar.header("www.example.com", "/xyz", is_secure=False) == ""
    assert jar.header("other.example.com", "/x/", is_secure=True) == "b=2"
    again = Cookies(jar.dump())
    again.store("a=; Path=/x; Max-Age=0", "www.example.com", "/x", moment=0.0)
    again.store(
        "b=; Domain=example.com; Path=/x; Expires=Thu, 01 Jan 1970 00:00:00 GMT",
        "www.example.com",
        "/x/",
        moment=9.0,
    )
    assert again.header("www.example.com", "/x/z", is_secure=False) == ""
