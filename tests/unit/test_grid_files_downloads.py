"""What a client may fetch of its browser's downloads, and that nothing else can be read."""

import base64
import io
import os
import zipfile
from collections.abc import AsyncIterator, Awaitable, Mapping
from email.utils import parsedate_to_datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import psutil
import pytest
from yarl import URL

from relaying import Kit, relaying
from remuda.base.errors import InvalidArgument
from remuda.fleet.relay import CLIENT_LEFT, Plan, Request
from remuda.grid.node.downloads import MAX_ZIPPED, Downloads, FileMissing, FileTooLarge
from remuda.grid.node.files import Files, with_downloads
from waiting import eventually

MODIFIED = 1_700_000_000


@pytest.fixture
def downloads(tmp_path: Path) -> Downloads:
    """An empty directory, beside a file that is nobody's business."""
    (tmp_path / "secret").write_text("secret")
    directory = tmp_path / "downloads"
    directory.mkdir()
    return Downloads(directory)


def put(downloads: Downloads, name: str, content: bytes = b"x", *, modified: int = MODIFIED) -> None:
    path = downloads.directory / name
    path.write_bytes(content)
    os.utime(path, (modified, modified))


def names(downloads: Downloads) -> list[str]:
    found: list[str] = downloads.listing()["names"]
    return found


def test_complete_files_are_listed_newest_first(downloads: Downloads) -> None:
    put(downloads, "old.bin", b"12345")
    put(downloads, "new.bin", modified=MODIFIED + 1)

    listing = downloads.listing()

    assert listing.keys() == {"names", "files"}
    assert listing["names"] == ["new.bin", "old.bin"]
    old = listing["files"][1]
    assert old.keys() == {"name", "size", "creationTime", "lastModifiedTime"}
    assert (old["name"], old["size"], old["lastModifiedTime"]) == ("old.bin", 5, MODIFIED * 1000)


def test_what_is_not_a_complete_file_is_not_listed(downloads: Downloads) -> None:
    put(downloads, "Unconfirmed 1.crdownload")
    put(downloads, ".org.chromium.Chromium.x")
    put(downloads, "big.iso", b"")
    put(downloads, "big.iso.part")
    put(downloads, "done.txt")
    (downloads.directory / "folder").mkdir()
    (downloads.directory / "link").symlink_to(downloads.directory.parent / "secret")
    os.mkfifo(downloads.directory / "pipe")

    assert names(downloads) == ["done.txt"]


def test_a_file_comes_as_a_zip_in_base64(downloads: Downloads) -> None:
    put(downloads, "é.txt", b"hello")

    value = downloads.zipped('{"name": "é.txt"}'.encode())

    assert value.keys() == {"filename", "contents", "file"}
    assert value["filename"] == "é.txt"
    assert value["file"] == downloads.listing()["files"][0]
    with zipfile.ZipFile(io.BytesIO(base64.b64decode(value["contents"]))) as archive:
        assert archive.namelist() == ["é.txt"]
        assert archive.read("é.txt") == b"hello"


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"name": 1}'])
def test_a_request_that_names_no_file_is_refused(downloads: Downloads, body: bytes) -> None:
    with pytest.raises(InvalidArgument):
        downloads.zipped(body)


@pytest.mark.parametrize(
    "name",
    ["../secret", "secret", "link", "folder", "", ".", "..", "/etc/passwd", "x\x00", "x/../done", "\ud800"],
)
def test_nothing_else_can_be_read(downloads: Downloads, name: str) -> None:
    (downloads.directory / "folder").mkdir()
    (downloads.directory / "link").symlink_to(downloads.directory.parent / "secret")
    put(downloads, "done")

    with pytest.raises(FileMissing):
        downloads.open(name)


def test_a_missing_file_is_answered_as_selenium_grid_does() -> None:
    assert FileMissing.status == 500
    assert FileMissing().webdriver_face()["value"]["error"] == "unknown error"


def test_what_is_too_large_for_json_is_refused_with_the_way_to_get_it(downloads: Downloads) -> None:
    with (downloads.directory / "huge").open("wb") as file:
        file.truncate(MAX_ZIPPED + 1)

    with pytest.raises(FileTooLarge, match="use GET"):
        downloads.zipped(b'{"name": "huge"}')


def test_deleting_leaves_what_is_still_coming(downloads: Downloads) -> None:
    put(downloads, "done")
    put(downloads, "coming.crdownload")

    downloads.delete()

    assert names(downloads) == []
    assert (downloads.directory / "coming.crdownload").exists()


def test_a_link_in_place_of_the_directory_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "secret").write_text("secret")
    downloads = Downloads(tmp_path / "downloads")
    # The browser can do so, and its node has other rights.
    downloads.directory.symlink_to(tmp_path / "elsewhere")

    for step in (downloads.listing, downloads.delete, partial(downloads.open, "secret")):
        with pytest.raises(NotADirectoryError):
            step()

    assert (tmp_path / "elsewhere" / "secret").exists()


# Raw files


@pytest.fixture
def files(downloads: Downloads) -> Files:
    return Files(downloads.directory.parent, downloads=True)


@pytest.fixture
async def kit(files: Files) -> AsyncIterator[Kit]:
    """A relay that serves the files as a node does."""

    def route(request: Request) -> Awaitable[Plan]:
        return files.fetch(request, request.target.removeprefix("/"))

    async with relaying(lambda _: route) as kit:
        yield kit


async def fetch(kit: Kit, target: str, **headers: str) -> tuple[int, Mapping[str, str], bytes]:
    url = URL(f"http://127.0.0.1:{kit.port}{target}", encoded=True)
    async with aiohttp.ClientSession() as http, http.get(url, headers=headers) as response:
        return response.status, response.headers, await response.read()


async def test_a_file_of_any_size_flows_out_as_it_is(downloads: Downloads, kit: Kit) -> None:
    content = os.urandom(3 << 20)
    put(downloads, "50% é?.bin", content)

    status, headers, body = await fetch(kit, "/" + quote("50% é?.bin"))

    assert (status, body) == (200, content)
    assert headers["Content-Type"] == "application/octet-stream"
    assert headers["Content-Disposition"] == "attachment"
    assert parsedate_to_datetime(headers["Last-Modified"]).timestamp() == MODIFIED


async def test_a_part_of_a_file_flows_out_by_itself(downloads: Downloads, kit: Kit) -> None:
    put(downloads, "a", b"0123456789")

    status, headers, body = await fetch(kit, "/a", Range="bytes=2-4")
    assert (status, body, headers["Content-Range"]) == (206, b"234", "bytes 2-4/10")
    tag = headers["ETag"]

    status, headers, body = await fetch(kit, "/a", Range="bytes=10-")
    assert (status, body, headers["Content-Range"]) == (416, b"", "bytes */10")

    status, headers, body = await fetch(kit, "/a", **{"If-None-Match": tag})
    assert (status, body, headers["ETag"]) == (304, b"", tag)


async def test_a_file_is_closed_whatever_becomes_of_its_client(downloads: Downloads, kit: Kit) -> None:
    put(downloads, "a", b"x" * (32 << 20))
    path = str(downloads.directory / "a")
    client = await kit.send(b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n")
    await client.receive(b"\r\n\r\n")
    assert any(each.path == path for each in psutil.Process().open_files())

    client.leave()

    await eventually(lambda: not any(each.path == path for each in psutil.Process().open_files()))
    assert [status for _, status, _, _ in kit.witness.finished] == [CLIENT_LEFT]


@pytest.mark.parametrize("target", ["/none", "/%2E%2E%2Fsecret", "/", "/a/b"])
async def test_nothing_but_a_download_flows_out(downloads: Downloads, kit: Kit, target: str) -> None:
    put(downloads, "a")

    status, _, body = await fetch(kit, target)

    assert (status, body) == (FileMissing.status, b"FileMissing")


# What the browser is asked for


@pytest.mark.parametrize(
    ("browser", "capability", "pref"),
    [
        ("chrome", "goog:chromeOptions", "download.default_directory"),
        ("chrome-headless-shell", "goog:chromeOptions", "download.default_directory"),
        ("firefox", "moz:firefoxOptions", "browser.download.dir"),
    ],
)
def test_a_browser_downloads_to_where_it_can_be_fetched_from(
    browser: str, capability: str, pref: str
) -> None:
    wanted: dict[str, Any] = {capability: {"args": ["-x"], "prefs": {"mine": 1, pref: "/etc"}}}

    wishes = with_downloads(wanted, Path("/here"), browser=browser)

    assert wishes.keys() == {capability}
    assert wishes[capability]["args"] == ["-x"]
    assert wishes[capability]["prefs"].items() >= {"mine": 1, pref: "/here"}.items()
    assert wanted[capability]["prefs"] == {"mine": 1, pref: "/etc"}


@pytest.mark.parametrize("options", ["x", {"prefs": []}])
def test_preferences_that_are_none_are_refused(options: Any) -> None:
    with pytest.raises(InvalidArgument, match="'goog:chromeOptions' must be an object"):
        with_downloads({"goog:chromeOptions": options}, Path("/here"), browser="chrome")


def test_a_session_without_downloads_stays_as_it_is(tmp_path: Path) -> None:
    files = Files(tmp_path, downloads=False)

    assert files.wishes({"browserName": "chrome"}, browser="chrome") == {"browserName": "chrome"}
    assert files.grants({"browserName": "chrome"}) == {"browserName": "chrome"}
    assert files.devtools_command() is None
    assert list(tmp_path.iterdir()) == []
