"""Users and passwords go to the server that they are for, and stand in no file but where they were sent."""

import base64
import gzip
import ssl
import zipfile
from pathlib import Path

import pytest

from remuda.archive.crawler.model import Compression
from sites import HOSTS, Heard, Site, answer, check_warcs, crawl, order_for, read_records, records_in, serving

HOME, OTHER, _ = HOSTS
LOGIN = "Basic " + base64.b64encode(b"me:hush h\xc3\xbcsh").decode()
CREDENTIALS = "me:hush%20h%C3%BCsh"


async def crawl_with_a_login(directory: Path, **options: object) -> tuple[list[tuple[str, str]], Heard]:
    """What each server was told of a login by a crawl of pages that lead elsewhere with one."""
    home, port, heard = Site(), Site(), Heard()
    home.page("/one")
    home.page("/two")
    for site, host in ((home, OTHER), (port, HOME)):
        site.page("/near", host=host)
        site.page("/moved", host=host)
        site.add("/near.png", answer(b"png", kind="image/png"), host)
    async with serving(home), serving(port):
        moved = {"/away": home.url("/moved", OTHER), "/further": port.url("/moved")}
        links = [home.url("/one"), home.url("/near", OTHER), port.url("/near"), "/two", *moved]
        pictures = [home.url("/near.png", OTHER), port.url("/near.png")]
        page = "".join(f'<a href="{each}">' for each in links) + "".join(
            f'<img src="{each}">' for each in pictures
        )
        home.add("/", answer(page.replace("//", "//eve:stolen@")))
        for path, target in moved.items():
            fields = [f"Location: {target.replace('//', '//me:hush@')}"]
            home.add(path, answer(status="302 Found", fields=fields))
        order = order_for(home.url(), credentials={home.url(""): CREDENTIALS}, wacz=True, **options)
        await crawl(order, directory, heard=heard)
    told = [
        (f"{prefix}{each.host}{each.path}", each.fields.get("authorization", ""))
        for site, prefix in ((home, ""), (port, "port "))
        for each in site.requests
    ]
    return sorted(told), heard


def readings(directory: Path) -> dict[str, bytes]:
    """What is in all files of a crawl, unpacked."""
    found = {}
    for path in directory.glob("*"):
        if path.suffix == ".wacz":
            with zipfile.ZipFile(path) as package:
                for name in package.namelist():
                    data = package.read(name)
                    found[f"{path.name}/{name}"] = gzip.decompress(data) if name.endswith(".gz") else data
        elif path.is_file():
            data = path.read_bytes()
            found[path.name] = gzip.decompress(data) if path.suffix == ".gz" else data
    return found


async def test_a_login_goes_to_its_server_only_and_stands_only_in_requests(tmp_path: Path) -> None:
    told, heard = await crawl_with_a_login(tmp_path, metadata_records=True)

    assert told == [
        *((f"{HOME}/{path}", LOGIN) for path in ("", "away", "further", "one", "two")),
        *((f"{OTHER}/{path}", "") for path in ("moved", "near", "near.png")),
        *((f"port {HOME}/{path}", "") for path in ("moved", "near", "near.png")),
    ]
    check_warcs(tmp_path)
    records = records_in(tmp_path)
    requests = [each for each in records if each.kind == "request"]
    assert sum(f"Authorization: {LOGIN}\r\n".encode() in each.block for each in requests) == 5
    # What a server sent is recorded as it came.
    others = [each for each in records if each.kind in ("warcinfo", "metadata")]
    assert len(others) > 5
    for each in records:
        assert "@" not in str(each.fields)
    for each in others:
        assert b"@" not in each.block
    names = [name for name in readings(tmp_path) if not name.endswith(".warc.gz") or "-meta" in name]
    assert {name.rpartition(".")[2] for name in names} == {"gz", "cdxj", "cdx", "jsonl", "json"}
    for name in names:
        assert not [word for word in (b"hush", b"stolen", b"@127") if word in readings(tmp_path)[name]]
    assert "@" not in repr(heard)


@pytest.mark.parametrize("compression", list(Compression))
async def test_files_for_others_can_be_made_without_the_login(
    tmp_path: Path, compression: Compression
) -> None:
    told, _ = await crawl_with_a_login(tmp_path, omit_authorization=True, compression=compression)

    assert (f"{HOME}/one", LOGIN) in told
    check_warcs(tmp_path)
    records = [record for path in tmp_path.glob("*.warc.*") for record in read_records(path)]
    requests = [each.block for each in records if each.kind == "request"]
    assert len(requests) == len(told)
    for each in requests:
        assert each.startswith(b"GET /")
        assert each.endswith(b"\r\nConnection: keep-alive\r\n\r\n")
        assert b"uthorization" not in each
    (described, _) = [each.block for each in records if each.kind == "warcinfo"]
    assert b"omitted-request-fields: Authorization\r\n" in described
    if compression is Compression.GZIP:
        secret = LOGIN.partition(" ")[2].encode()
        assert not [name for name, data in readings(tmp_path).items() if secret in data]


async def test_a_user_without_a_password_is_sent_as_browsers_do(tmp_path: Path) -> None:
    site = Site()
    site.page("/")
    async with serving(site):
        await crawl(order_for(site.url(), credentials={site.url(""): "me"}), tmp_path)

    (request,) = site.requests
    assert request.fields["authorization"] == f"Basic {base64.b64encode(b'me:').decode()}"


async def test_a_login_is_for_one_scheme(tmp_path: Path, certificates: Path) -> None:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificates / "cert.pem", certificates / "key.pem")
    site = Site()
    site.page("/")
    async with serving(site, tls):
        https = site.url().replace("http:", "https:")
        await crawl(order_for(https, credentials={site.url(""): "me:hush"}), tmp_path)

    (request,) = site.requests
    assert "authorization" not in request.fields
