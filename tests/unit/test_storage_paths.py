"""Hostile paths: whatever is asked for, only artifacts are read."""

from urllib.parse import quote

import psutil
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from remuda.base.errors import Lost
from remuda.base.ids import SessionId
from remuda.storage.directory import LocalDirectory, keep_storage_id
from remuda.storage.index import Index
from remuda.storage.model import ArtifactPath, Owner, StorageId
from remuda.storage.serving import SAVED, ArtifactTarget, content_type, parse_target

STORAGE = StorageId("9d3f0f36-52c8-4d3e-9a55-6e6fa9e3a001")
SESSION = SessionId("2f1c5a34-7d5e-4c41-9b53-0d8f3a1e6c77")
LINKED = SessionId("00000000-7d5e-4c41-9b53-0d8f3a1e6c77")
ARTIFACT = b"an artifact"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (f"/storage/{STORAGE}/{SESSION}/a.log", "a.log"),
        (f"/storage/{STORAGE}/{SESSION}/a%20b.log", "a b.log"),
        (f"/storage/{STORAGE}/{SESSION}/%C3%9C.log", "Ü.log"),
        (f"/storage/{STORAGE}/{SESSION}/100%25.log", "100%.log"),
        (f"/storage/{STORAGE}/{SESSION}/", ""),
        (f"/storage/{STORAGE}/{SESSION}", ""),
    ],
)
def test_a_path_names_an_artifact_or_a_session(path: str, name: str) -> None:
    assert parse_target(path.encode()) == ArtifactTarget(STORAGE, Owner("session", SESSION), name)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "*",
        "/storage",
        f"/storage/{STORAGE}",
        f"/storage/{STORAGE}/",
        f"/storage/{STORAGE}/.remuda-storage",
        f"/storage/{STORAGE}/.remuda-index.sqlite3",
        f"/storage/{STORAGE}/{SESSION}/.",
        f"/storage/{STORAGE}/{SESSION}/..",
        f"/storage/{STORAGE}/{SESSION}/.hidden",
        f"/storage/{STORAGE}/{SESSION}/../.remuda-storage",
        f"/storage/{STORAGE}/{SESSION}/%2e%2e/.remuda-storage",
        f"/storage/{STORAGE}/{SESSION}/..%2f.remuda-storage",
        f"/storage/{STORAGE}/{SESSION}/%2e%2e%2fsecret",
        f"/storage/{STORAGE}/{SESSION}/%2fetc%2fpasswd",
        f"/storage/{STORAGE}/{SESSION}//etc/passwd",
        f"/storage/{STORAGE}/{SESSION}/a/b",
        f"/storage/{STORAGE}/{SESSION}/a%00.log",
        f"/storage/{STORAGE}/{SESSION}/a%0a",
        f"/storage/{STORAGE}/{SESSION}/%ff",
        f"/storage/{STORAGE}/%2e%2e/{SESSION}/a.log",
        f"/storage/{STORAGE}/../{SESSION}",
        f"//storage/{STORAGE}/{SESSION}/a.log",
        f"/Storage/{STORAGE}/{SESSION}/a.log",
    ],
)
def test_a_path_that_names_nothing_is_lost(path: str) -> None:
    with pytest.raises(Lost):
        parse_target(path.encode())


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> LocalDirectory:
    """A directory with one artifact, and with ways out of it."""
    around = tmp_path_factory.mktemp("around")
    storage = around / "storage"
    keep_storage_id(storage)
    Index(storage).close()
    (around / "secret").write_bytes(b"secret")
    (storage / "loose").write_bytes(b"beside the sessions")
    there = storage / SESSION
    (there / "deep").mkdir(parents=True)
    (there / "deep" / "a.log").write_bytes(b"too deep")
    (there / ".hidden").write_bytes(b"hidden")
    (there / "a.log").write_bytes(ARTIFACT)
    (there / "link").symlink_to(around / "secret")
    (there / "up").symlink_to("..")
    (storage / LINKED).symlink_to(around)
    return LocalDirectory(storage)


pieces = st.one_of(
    st.sampled_from(
        [
            *("", ".", "..", "...", "%2e", "%2e%2e", "%2E.", "%2f", "%5c", "\\", "%00", "%252e%252e%252f"),
            *("secret", "link", "up", "deep", "loose", ".hidden", "a.log", "a.log%2f", "a.log/", "etc"),
            *(".remuda-storage", ".remuda-index.sqlite3", "storage", STORAGE, SESSION, LINKED),
        ]
    ),
    st.text(max_size=5).map(lambda text: quote(text, errors="surrogatepass")),
)
paths = st.one_of(
    st.lists(pieces, max_size=7).map(lambda found: "/".join(["", "storage", STORAGE, *found])),
    st.lists(pieces, max_size=4).map(lambda found: "/".join(["", "storage", STORAGE, SESSION, *found])),
    st.lists(pieces, max_size=4).map(lambda found: f"/storage/{STORAGE}/{SESSION}/" + "".join(found)),
)


@given(paths)
@example(f"/storage/{STORAGE}/{SESSION}/a.log")
@example(f"/storage/{STORAGE}/{SESSION}/.hidden")
@example(f"/storage/{STORAGE}/{SESSION}/link")
@example(f"/storage/{STORAGE}/{LINKED}/secret")
def test_nothing_but_artifacts_can_be_read(directory: LocalDirectory, path: str) -> None:
    try:
        target = parse_target(path.encode())
        file = directory.open(ArtifactPath(target.owner, target.name))
    except Lost:
        return

    assert file.read(0, 100) == ARTIFACT
    file.close()


def test_opening_leaves_no_descriptor_behind(directory: LocalDirectory) -> None:
    before = open_descriptors()

    for name in ("a.log", "missing", "link", "deep"):
        for _ in range(20):
            try:
                directory.open(ArtifactPath(Owner("session", SESSION), name)).close()
            except Lost:
                continue

    assert open_descriptors() == before


def open_descriptors() -> int:
    return psutil.Process().num_fds()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("video.m3u8", "application/vnd.apple.mpegurl"),
        ("video.m4s", "video/mp4"),
        ("VIDEO.MP4", "video/mp4"),
        ("video.vtt", "text/vtt; charset=utf-8"),
        ("driver.log", "text/plain; charset=utf-8"),
        ("site.warc.gz", "application/warc"),
        ("page.html", SAVED),
        ("image.svg", SAVED),
        ("archive.gz", SAVED),
        ("log", SAVED),
    ],
)
def test_a_file_is_sent_as_what_it_is_or_as_bytes_to_save(name: str, kind: str) -> None:
    assert content_type(name) == kind
