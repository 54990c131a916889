"""Directories that others can write to: what is removed with them and written there, and what is not."""

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from browser_directories import nest
from remuda.base.directories import make_closed, open_log, remove_tree

ORDINARY = 57190
"""A user without rights and without an account."""


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory of an ordinary user's, who this process is meanwhile."""
    is_root = os.geteuid() == 0
    with tempfile.TemporaryDirectory(prefix="remuda-test-") as directory:
        if is_root:
            os.chown(directory, ORDINARY, ORDINARY)
            os.seteuid(ORDINARY)
        try:
            yield Path(directory)
        finally:
            if is_root:
                os.seteuid(0)


@pytest.fixture
def tree(place: Path) -> Path:
    """A directory with files and directories in it, which nothing can be written to."""
    tree = place / "tree"
    (tree / "closed" / "inner" / "innermost").mkdir(parents=True)
    (tree / "closed" / "file").touch()
    for path in ("closed/inner/innermost", "closed/inner", "closed", ""):
        (tree / path).chmod(0o500)
    return tree


def test_a_directory_is_removed_with_all_that_is_closed_in_it(tree: Path) -> None:
    remove_tree(tree, owners=[os.geteuid()])

    assert not tree.exists()


def test_a_directory_is_removed_however_deep_it_is(place: Path) -> None:
    nest(place / "tree")

    remove_tree(place / "tree", owners=[os.geteuid()])

    assert list(place.iterdir()) == []


def test_what_links_lead_to_is_neither_removed_nor_opened(place: Path) -> None:
    outside, tree = place / "outside", place / "tree"
    outside.mkdir(mode=0o750)
    (outside / "secret").touch(mode=0o640)
    tree.mkdir()
    (tree / "file").symlink_to(outside / "secret")
    (tree / "directory").symlink_to(outside)

    remove_tree(tree, owners=[os.geteuid()])

    assert not tree.exists()
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (outside, outside / "secret")]
    assert modes == [0o750, 0o640]


def test_a_link_in_place_of_a_directory_is_left_alone(tree: Path, place: Path) -> None:
    (place / "link").symlink_to(tree)

    with pytest.raises(NotADirectoryError):
        remove_tree(place / "link", owners=[os.geteuid()])

    assert (tree / "closed" / "file").exists()
    assert stat.S_IMODE(tree.stat().st_mode) == 0o500


def test_a_directory_that_none_of_the_owners_owns_is_left_alone(tree: Path) -> None:
    with pytest.raises(PermissionError, match="another user"):
        remove_tree(tree, owners=[os.geteuid() + 1])

    assert (tree / "closed" / "file").exists()


def test_a_log_is_not_written_through_a_link_or_to_a_pipe(place: Path) -> None:
    (place / "outside").write_text("kept")
    (place / "link").symlink_to(place / "outside")
    os.mkfifo(place / "pipe")

    for name in ("link", "pipe"):
        with pytest.raises(OSError, match=name):
            open_log(place / name)

    assert (place / "outside").read_text() == "kept"


def test_no_directory_outside_is_closed_by_a_link(place: Path) -> None:
    outside, profile = place / "outside", place / "profile"
    outside.mkdir(mode=0o750)
    profile.mkdir()
    (profile / "there").mkdir()
    (profile / "link").symlink_to(outside)

    make_closed(profile, ["there", "new"])
    with pytest.raises(NotADirectoryError):
        make_closed(profile, ["link"])

    closed = [stat.S_IMODE((profile / name).stat().st_mode) for name in ("there", "new")]
    assert (closed, stat.S_IMODE(outside.stat().st_mode)) == ([0o500, 0o500], 0o750)
