"""Programs of this machine: where they are, and which version they say they have. All of this blocks."""

import os
import re
import shutil
import signal
import struct
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from remuda.base.clock import monotonic

# A browser that a cold machine has to read from its disk takes ten seconds to say its version.
PROBE_TIMEOUT = 30.0
# The names are those of elf.h.
_ELF_64_BIT = b"\x7fELF\x02\x01"
_ELF_HEADER = struct.Struct("<32sQ14xHH4x")  # e_phoff, e_phentsize, e_phnum
_PROGRAM_HEADER = struct.Struct("<I4xQ16xQ")  # p_type, p_offset, p_filesz
_PT_INTERP = 3
# As the script itself would run, except that its last step tells what it would have done. An `exec` without a
# command, which only redirects, stays harmless.
_TELL_COMMAND = """
tell() { if [ $# -gt 0 ]; then printf '%s\\0' $# "$@"; env -0; exit; fi; }
alias exec=tell
. "$0"
"""
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
        return Program(path, problem="did not answer `--version` in time")
    if process.returncode == 0 and (version := parse_version(output)):
        return Program(path, version=version)
    complaint = (complaint.strip() or output.strip()).rpartition("\n")[2]
    return Program(
        path,
        problem=f"printed no version and exited with status {process.returncode}: {complaint or 'no output'}",
    )


def parse_version(text: str) -> str | None:
    """The first dotted version number in what a program printed."""
    found = _VERSION.search(text)
    return found.group() if found else None


def launched_by(
    script: Path, environ: Mapping[str, str], *, enter: Callable[[], None] | None = None
) -> tuple[list[str], dict[str, str]] | None:
    """The command that a shell script becomes in the end if it is given no arguments, and the environment in
    which it does; None if that cannot be told. Takes as long as the script itself."""
    try:
        told = subprocess.run(
            ["/bin/sh", "-c", _TELL_COMMAND, str(script)],
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=PROBE_TIMEOUT,
            preexec_fn=enter,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    count, *words = os.fsdecode(told.stdout).split("\0")
    if told.returncode or not count or loader_of(Path(words[0])) is None:
        return None
    command, variables = words[: int(count)], words[int(count) : -1]
    return command, dict(each.split("=", 1) for each in variables)


def loader_of(program: Path) -> Path | None:
    """The program that the kernel runs to load this native one; itself, if it needs none. None for a script,
    whose interpreter runs anything."""
    try:
        with program.open("rb") as file:
            head = file.read(_ELF_HEADER.size)
            if len(head) < _ELF_HEADER.size or not head.startswith(_ELF_64_BIT):
                return None
            start, size, count = _ELF_HEADER.unpack(head)[1:]
            file.seek(start)
            table = file.read(size * count)
            for each in range(0, len(table), size):
                kind, offset, length = _PROGRAM_HEADER.unpack_from(table, each)
                if kind == _PT_INTERP:
                    file.seek(offset)
                    return Path(os.fsdecode(file.read(length).rstrip(b"\0")))
            return program
    except (OSError, struct.error):
        return None


def helpers_of(program: Path) -> Path:
    """The directory of the program, with its helpers; the program alone if that directory is on the PATH."""
    return program if str(program.parent) in os.get_exec_path() else program.parent
