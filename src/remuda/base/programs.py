"""Programs of this machine: where they are, and which version they say they have. All of this blocks."""

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from remuda.base.clock import monotonic

PROBE_TIMEOUT = 5.0
_VERSION = re.compile(r"\d+(?:\.\d+)+")


@dataclass(frozen=True)
class Program:
    """A program and what it says of itself: either a version or a problem."""

    path: Path
    version: str = ""
    problem: str = ""

    @property
    def major(self) -> str:
        return self.version.partition(".")[0]


def locate(path: Path) -> Path:
    """The program's full path, which its users need, also where only a command's name was given."""
    found = shutil.which(path.expanduser())
    return Path(found).absolute() if found else path


def search(commands: Iterable[str], places: Iterable[str]) -> list[Path]:
    """Every executable of these names in these directories, each file once, in order of preference."""
    # Not only the first: a stale driver early on the PATH must not hide the one that fits.
    found: dict[Path, Path] = {}
    places = list(places)
    for command in commands:
        for place in places:
            # Snaps all resolve to one launcher that goes by the name it was called.
            if path := shutil.which(command, path=place):
                identity = Path(path) if place == "/snap/bin" else Path(path).resolve()
                found.setdefault(identity, Path(path))
    return list(found.values())


def probe(paths: Sequence[Path], *, flag: str = "--version", timeout: float = PROBE_TIMEOUT) -> list[Program]:
    """Ask all these programs at once for their versions; the timeout is for all together."""
    return probe_all([(path, ("{path}", flag)) for path in paths], timeout=timeout)


def probe_all(
    questions: Sequence[tuple[Path, Sequence[str]]], *, timeout: float = PROBE_TIMEOUT
) -> list[Program]:
    """As `probe`, each program in its own way: by a command in which `{path}` stands for it."""
    deadline = monotonic() + timeout
    started = [
        _start([str(path) if word == "{path}" else word for word in command]) for path, command in questions
    ]
    return [_finish(path, process, deadline) for (path, _), process in zip(questions, started, strict=True)]


def _start(command: Sequence[str]) -> subprocess.Popen[str] | OSError:
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            # A group of its own: many a browser is a shell script, whose children must go with it.
            start_new_session=True,
        )
    except OSError as error:
        return error


def _finish(path: Path, process: subprocess.Popen[str] | OSError, deadline: float) -> Program:
    if isinstance(process, OSError):
        return Program(path, problem=f"cannot be run: {process.strerror}")
    try:
        output, complaint = process.communicate(timeout=max(deadline - monotonic(), 0))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return Program(path, problem="does not answer when asked for its version")
    if process.returncode == 0 and (version := parse_version(output)):
        return Program(path, version=version)
    complaint = (complaint.strip() or output.strip()).rpartition("\n")[2]
    return Program(
        path, problem=f"gives no version but status {process.returncode}: {complaint or 'no output'}"
    )


def parse_version(text: str) -> str | None:
    """The first dotted version number in what a program printed."""
    found = _VERSION.search(text)
    return found.group() if found else None
