"""What a client may send to its browser's machine, and what an archive cannot do there."""

import base64
import io
import json
import stat
import zipfile
from pathlib import Path

import pytest

from remuda.base.errors import InvalidArgument
from remuda.grid.node.uploads import Uploads, safe_name


def zip_of(*entries: tuple[str | zipfile.ZipInfo, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries:
            # An entry of a name tells no time: parameters of tests are made in each test process.
            entry = zipfile.ZipInfo(name) if isinstance(name, str) else name
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def request_with(archive: bytes) -> bytes:
    # As Selenium's Python client does: with line breaks.
    return json.dumps({"file": base64.encodebytes(archive).decode()}).encode()


def entry_of(name: str, mode: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    return info


def files_below(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if not path.is_dir()]


def test_a_file_arrives_under_its_own_name(tmp_path: Path) -> None:
    path = Uploads(tmp_path / "uploads").take(request_with(zip_of(("hello.txt", b"hi" * 1000))))

    assert path.is_absolute()
    assert path.name == "hello.txt"
    assert path.read_bytes() == b"hi" * 1000


def test_base64_needs_no_line_breaks(tmp_path: Path) -> None:
    body = {"file": base64.b64encode(zip_of(("a", b"x" * 999))).decode()}

    assert Uploads(tmp_path).take(json.dumps(body).encode()).read_bytes() == b"x" * 999


def test_two_files_of_one_name_do_not_meet(tmp_path: Path) -> None:
    uploads = Uploads(tmp_path)

    first = uploads.take(request_with(zip_of(("a", b"1"))))
    second = uploads.take(request_with(zip_of(("a", b"2"))))

    assert (first.read_bytes(), second.read_bytes()) == (b"1", b"2")


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "/etc/passwd", "..\\..\\passwd", "C:\\passwd", "a/b/../passwd"]
)
def test_a_name_that_leads_elsewhere_loses_its_way(tmp_path: Path, name: str) -> None:
    path = Uploads(tmp_path / "uploads").take(request_with(zip_of((entry_of(name, stat.S_IFREG), b"x"))))

    assert path.name == "passwd"
    assert files_below(tmp_path) == [path]
    assert tmp_path / "uploads" in path.parents


@pytest.mark.parametrize("name", ["", ".", "..", "a/..", "line\nbreak", "\x00", "\ud800", "é" * 128])
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match="is not a valid file name"):
        safe_name(name)


@pytest.mark.parametrize("name", ["a b.txt", ".hidden", "é" * 127, "Screenshot at 1.00\u202fPM.png"])
def test_names_that_people_use_are_kept(name: str) -> None:
    assert safe_name(name) == name


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "not valid JSON"),
        (b"[]", "has no 'file'"),
        (b"{}", "has no 'file'"),
        (b'{"file": 1}', "has no 'file'"),
        (b'{"file": "?"}', "not the base64 text of a zip"),
        (b'{"file": "\xc3\xa9"}', "not the base64 text of a zip"),
        (b'{"file": "aGVsbG8="}', "not the base64 text of a zip"),
        (request_with(zip_of()), "must hold one file, not 0"),
        (request_with(zip_of(("a", b""), ("b", b""))), "must hold one file, not 2"),
        (request_with(zip_of(("a/", b""))), "must hold a plain file"),
        (request_with(zip_of((entry_of("a", stat.S_IFLNK), b"/etc/passwd"))), "must hold a plain file"),
        (request_with(zip_of((entry_of("a", stat.S_IFIFO), b""))), "must hold a plain file"),
    ],
)
def test_what_is_no_file_in_a_zip_is_refused(tmp_path: Path, body: bytes, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        Uploads(tmp_path).take(body)

    assert files_below(tmp_path) == []


def change(archive: bytes, at: int, to: int) -> bytes:
    """The archive with one byte of its entry's header changed, there and in the directory."""
    changed = bytearray(archive)
    changed[at] = to
    changed[archive.index(b"PK\x01\x02") + at + 2] = to
    return bytes(changed)


def spoil(archive: bytes) -> bytes:
    """The archive with its data overwritten."""
    begin = 30 + len("a")
    return archive[:begin] + b"\xff" * 8 + archive[begin + 8 :]


FLAGS, METHOD = 6, 8


@pytest.mark.parametrize(
    ("archive", "words"),
    [
        (change(zip_of(("a", b"x")), FLAGS, 1), "encrypted"),
        (change(zip_of(("a", b"x" * 99)), METHOD, 99), "is not compressed by deflate"),
        (spoil(zip_of(("a", bytes(range(256))))), "cannot be unpacked"),
    ],
    ids=["encrypted", "unknown method", "spoilt"],
)
def test_an_archive_that_cannot_be_read_is_refused(tmp_path: Path, archive: bytes, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        Uploads(tmp_path).take(request_with(archive))

    assert files_below(tmp_path) == []


def test_a_zip_bomb_fills_nothing(tmp_path: Path) -> None:
    bomb = zip_of(("zeros", bytes(8 << 20)))
    assert len(bomb) < 10_000

    with pytest.raises(InvalidArgument, match="too large: this session has 4194304 bytes left"):
        Uploads(tmp_path, room=4 << 20).take(request_with(bomb))

    assert files_below(tmp_path) == []


def test_all_files_of_a_session_share_its_room(tmp_path: Path) -> None:
    uploads = Uploads(tmp_path, room=10)
    uploads.take(request_with(zip_of(("a", b"123456"))))

    with pytest.raises(InvalidArgument, match="4 bytes left"):
        uploads.take(request_with(zip_of(("b", b"12345"))))

    assert uploads.take(request_with(zip_of(("c", b"1234")))).read_bytes() == b"1234"


@pytest.mark.parametrize("compression", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_small_archive_cannot_fill_the_memory(tmp_path: Path, compression: int) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", compression) as archive:
        archive.writestr("zeros", bytes(1000))

    with pytest.raises(InvalidArgument, match="'zeros' is not compressed by deflate"):
        Uploads(tmp_path).take(request_with(packed.getvalue()))
    assert files_below(tmp_path) == []


@pytest.mark.parametrize("replaced", ["uploads", "uploads/1"])
def test_a_link_in_place_of_a_directory_leads_nowhere(tmp_path: Path, replaced: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    # The browser can do so, and its node has other rights.
    link = tmp_path / replaced
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(tmp_path / "elsewhere")

    with pytest.raises(OSError, match=r"uploads|'1'"):
        Uploads(tmp_path / "uploads").take(request_with(zip_of(("a", b"1"))))

    assert list((tmp_path / "elsewhere").iterdir()) == []
