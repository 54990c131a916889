"""Identity, directory and index on real files: what is made once, what cannot be reached, what is rebuilt."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Barrier

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from browser_directories import nest
from remuda.base.errors import Lost, Misconfigured
from remuda.base.ids import is_uuid, new_id
from remuda.storage import index as index_module
from remuda.storage.directory import ID_FILE, DirectoryLock, LocalDirectory, keep_storage_id
from remuda.storage.index import Index, Librarian
from remuda.storage.model import Artifact, ArtifactPath, Holding, Owner

SESSION = Owner("session", new_id())


def write(directory: Path, name: str, body: bytes = b"x", *, owner: Owner = SESSION) -> ArtifactPath:
    (directory / str(owner)).mkdir(exist_ok=True)
    (directory / str(owner) / name).write_bytes(body)
    return ArtifactPath(owner, name)


def names_in(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]


# Identity


def test_an_id_is_made_once_and_kept(tmp_path: Path) -> None:
    first = keep_storage_id(tmp_path / "new" / "storage")

    assert is_uuid(first)
    assert keep_storage_id(tmp_path / "new" / "storage") == first
    assert names_in(tmp_path / "new" / "storage") == [ID_FILE]


def test_all_who_come_first_at_once_agree_on_one_id(tmp_path: Path) -> None:
    for round_number in range(20):
        directory, barrier = tmp_path / str(round_number), Barrier(8)

        def come_first(directory: Path = directory, barrier: Barrier = barrier) -> str:
            barrier.wait()
            return keep_storage_id(directory)

        with ThreadPoolExecutor(8) as threads:
            ids = {each.result() for each in [threads.submit(come_first) for _ in range(8)]}

        assert len(ids) == 1
        assert names_in(directory) == [ID_FILE]


def test_a_broken_identity_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / ID_FILE).write_text("nonsense")

    with pytest.raises(Misconfigured, match="nonsense"):
        keep_storage_id(tmp_path)


def test_a_directory_that_cannot_be_made_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(Misconfigured, match="cannot be used"):
        keep_storage_id(tmp_path / "file" / "storage")


def test_a_directory_has_one_owner_until_that_one_dies(tmp_path: Path) -> None:
    keep_storage_id(tmp_path)
    program = (
        "import sys, pathlib\n"
        "from remuda.storage.directory import DirectoryLock\n"
        "with DirectoryLock(pathlib.Path(sys.argv[1])):\n"
        "    print('mine', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"mine\n"
        with pytest.raises(Misconfigured, match="Another storage"), DirectoryLock(tmp_path):
            pass

        other.kill()

    with DirectoryLock(tmp_path) as lock:
        assert lock.is_valid()


def test_an_owner_notices_that_the_directory_is_another(tmp_path: Path) -> None:
    keep_storage_id(tmp_path)
    with DirectoryLock(tmp_path) as lock:
        (tmp_path / ID_FILE).unlink()
        assert not lock.is_valid()

        keep_storage_id(tmp_path)
        assert not lock.is_valid()


# The directory


def test_a_file_is_found_and_read(tmp_path: Path) -> None:
    path = write(tmp_path, "a.log", b"hello")
    directory = LocalDirectory(tmp_path)

    file = directory.open(path)

    found = directory.find(path)
    assert found is not None
    assert found.size == file.size == 5
    assert file.read(1, 3) == b"ell"
    file.close()


def test_what_is_no_plain_file_of_the_directory_is_not_there(tmp_path: Path) -> None:
    storage, outside = tmp_path / "storage", tmp_path / "outside"
    storage.mkdir()
    outside.mkdir()
    (outside / "secret").write_text("secret")
    write(storage, "real")
    there = storage / str(SESSION)
    (there / "leads-out").symlink_to(outside / "secret")
    (there / "leads-in").symlink_to(there / "real")
    (there / "directory").mkdir()
    os.mkfifo(there / "pipe")
    linked = Owner("session", new_id())
    (storage / str(linked)).symlink_to(outside)
    directory = LocalDirectory(storage)

    for path in (
        *(ArtifactPath(SESSION, name) for name in ("leads-out", "leads-in", "directory", "pipe", "missing")),
        ArtifactPath(linked, "secret"),
    ):
        assert directory.find(path) is None
        with pytest.raises(Lost):
            directory.open(path)
    with pytest.raises(Lost):
        directory.list_owner(linked)
    assert [each.path.name for each in directory.list_owner(SESSION)] == ["real"]
    assert directory.owners() == [SESSION]


def test_a_removed_session_takes_all_with_it_and_nothing_else(tmp_path: Path) -> None:
    storage, outside = tmp_path / "storage", tmp_path / "outside"
    storage.mkdir()
    outside.mkdir()
    (outside / "precious").touch()
    write(storage, "a")
    (storage / str(SESSION) / "deep").mkdir()
    (storage / str(SESSION) / "out").symlink_to(outside)
    other, linked = Owner("session", new_id()), Owner("session", new_id())
    write(storage, "b", owner=other)
    (storage / str(linked)).symlink_to(outside)
    directory = LocalDirectory(storage)

    for owner in (SESSION, linked, SESSION):
        directory.remove_owner(owner)

    assert names_in(storage) == [str(other)]
    assert (outside / "precious").exists()


def test_an_owner_leaves_however_deep_its_directories_are(tmp_path: Path) -> None:
    nest(tmp_path / str(SESSION))

    LocalDirectory(tmp_path).remove_owner(SESSION)

    assert names_in(tmp_path) == []


def test_a_removal_that_was_interrupted_is_finished(tmp_path: Path) -> None:
    (tmp_path / f".leaving-{SESSION}").mkdir()
    (tmp_path / f".leaving-{SESSION}" / "a").touch()

    LocalDirectory(tmp_path).finish_removals()

    assert names_in(tmp_path) == []


def test_a_file_from_the_future_is_of_now(tmp_path: Path) -> None:
    path = write(tmp_path, "a")
    os.utime(tmp_path / str(path), (1e10, 1e10))

    found = LocalDirectory(tmp_path).find(path)

    assert found is not None
    assert found.modified < 1e10


# The index


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    with closing(Index(tmp_path)) as index:
        yield index


def artifact(name: str = "a", *, owner: Owner = SESSION, size: int = 1, at: float = 5.0) -> Artifact:
    return Artifact(ArtifactPath(owner, name), size, at, at)


def test_an_empty_index_uses_nothing(index: Index) -> None:
    assert index.used() == 0
    assert index.holdings() == []


def test_readers_of_the_index_do_not_wait_for_its_writer(tmp_path: Path, index: Index) -> None:
    with closing(sqlite3.connect(tmp_path / index_module.FILE, timeout=0)) as other:
        other.execute("BEGIN IMMEDIATE")

        assert index.used() == 0


def test_an_artifact_is_recorded_and_replaced(index: Index) -> None:
    index.record([artifact(size=1, at=5.0), artifact("b", size=10)])

    index.record([artifact(size=2, at=4.0)])

    assert index.files_of(SESSION) == [
        Artifact(ArtifactPath(SESSION, "a"), 2, 4.0, 5.0),
        artifact("b", size=10),
    ]
    assert index.holdings() == [Holding(SESSION, 12, 5.0, 5.0)]
    assert index.used() == 12


def test_an_access_is_noted_and_never_goes_back(index: Index) -> None:
    index.record([artifact()])

    index.touch({ArtifactPath(SESSION, "a"): 9.0, ArtifactPath(SESSION, "unknown"): 9.0})
    index.touch({ArtifactPath(SESSION, "a"): 7.0})

    assert [each.accessed for each in index.files_of(SESSION)] == [9.0]


def test_what_is_gone_is_forgotten(index: Index) -> None:
    other = Owner("session", new_id())
    index.record([artifact("a"), artifact("b"), artifact("c"), artifact(owner=other)])

    index.record([], gone=[ArtifactPath(SESSION, "a")])
    index.replace_owner(SESSION, [artifact("c")])
    assert index.files_of(SESSION) == [artifact("c")]

    index.forget_owner(SESSION)
    assert [each.owner for each in index.holdings()] == [other]


def test_an_index_remembers_whether_it_is_complete(tmp_path: Path) -> None:
    with closing(Index(tmp_path)) as first:
        assert not first.is_complete
        first.declare_complete()

    with closing(Index(tmp_path)) as second:
        assert second.is_complete


@pytest.mark.parametrize("rubbish", [b"not a database at all" * 1000, b"SQLite format 3\0" + b"\xff" * 8000])
def test_a_corrupt_index_is_begun_anew(tmp_path: Path, rubbish: bytes) -> None:
    (tmp_path / index_module.FILE).write_bytes(rubbish)

    with closing(Index(tmp_path)) as index:
        assert not index.is_complete
        assert index.used() == 0


async def test_an_index_that_breaks_while_it_is_used_is_begun_anew(tmp_path: Path) -> None:
    librarian = Librarian(tmp_path)
    await librarian.start()
    asked = 0

    def break_once(index: Index) -> bool:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise sqlite3.DatabaseError("database disk image is malformed")
        return index.is_complete

    await librarian.ask(lambda index: index.declare_complete())

    assert not await librarian.ask(break_once)
    await librarian.stop()
    await librarian.stop()


names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40)


@given(names)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_name_that_the_index_takes_it_gives_back(tmp_path: Path, name: str) -> None:
    with closing(Index(tmp_path)) as index:
        index.replace_owner(SESSION, [artifact(name)])

        assert [each.path.name for each in index.files_of(SESSION)] == [name]
