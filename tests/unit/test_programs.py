"""What a script that starts a program would start in the end."""

import os
from pathlib import Path

import pytest

from remuda.base.programs import launched_by


def script(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "script"
    path.write_text(f"#!/bin/sh\n{text}")
    return path


def told(path: Path, **environ: str) -> tuple[list[str], dict[str, str]] | None:
    return launched_by(path, {"PATH": os.defpath, **environ})


def test_the_last_step_of_a_script_is_told_and_not_done(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    path = script(
        tmp_path,
        f"""
        exec 2>/dev/null
        FLAGS="--one --two=2"
        export FLAVOUR="two
        lines"
        exec /bin/touch $FLAGS "with blanks" "" {marker} "$@"
        """,
    )

    answer = told(path, GIVEN="x=y")

    assert answer is not None
    command, environ = answer
    assert command == ["/bin/touch", "--one", "--two=2", "with blanks", "", str(marker)]
    assert environ["GIVEN"] == "x=y"
    assert environ["FLAVOUR"].split() == ["two", "lines"]
    assert not marker.exists()


@pytest.mark.parametrize(
    "text",
    [
        "/bin/true",
        "exec /nowhere/browser",
        "exec > >(cat)",
        "exec ./other.sh",
        "exit 1",
        "",
    ],
    ids=["stays itself", "names no program", "is no POSIX shell", "names a script", "fails", "empty"],
)
def test_of_any_other_script_nothing_is_told(tmp_path: Path, text: str) -> None:
    assert told(script(tmp_path, text)) is None
