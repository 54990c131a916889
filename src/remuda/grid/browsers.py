"""The browsers of this machine that WebDriver can drive: a Chromium or Chrome with a ChromeDriver of the
same major version. What is there but cannot be offered becomes a Finding, which says why.

Everything here blocks, though not for long: on an event loop, call it in a thread.
"""

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
CHROME_COMMANDS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
DRIVER_COMMANDS = ("chromedriver", "chromium.chromedriver")
# Searched after the PATH, which is short in services and cron jobs.
USUAL_PLACES = (
    "/usr/local/bin",
    "/usr/bin",
    "/usr/lib/chromium",
    "/usr/lib/chromium-browser",
    "/opt/google/chrome",
    "/snap/bin",
)
_VERSION = re.compile(r"\d+(?:\.\d+)+")


@dataclass(frozen=True)
class Browser:
    """A browser and the driver that fits it."""

    name: str
    """What its driver calls it: the `browserName` of its sessions."""
    version: str
    binary: Path
    driver: Path
    driver_version: str
    names: tuple[str, ...]
    """What clients may ask for. ChromeDriver refuses "chromium", so it must be handed `name` instead."""


@dataclass(frozen=True)
class Finding:
    """Something that keeps a browser from being offered."""

    subject: str
    problem: str
    advice: str


@dataclass(frozen=True)
class Survey:
    """What this machine has to offer, the preferred browser first, and what it has not."""

    browsers: tuple[Browser, ...]
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class Program:
    """A program and what it says of itself: either a version or a problem."""

    path: Path
    version: str = ""
    problem: str = ""

    @property
    def major(self) -> str:
        return self.version.partition(".")[0]


def find_browsers(*, chromium: Path | None = None, chromedriver: Path | None = None) -> list[Browser]:
    """The browsers that sessions can have."""
    return list(survey_browsers(chromium=chromium, chromedriver=chromedriver).browsers)


def survey_browsers(
    *, chromium: Path | None = None, chromedriver: Path | None = None, places: Sequence[str] | None = None
) -> Survey:
    """All browsers and all obstacles; a path that is given is used instead of a search."""
    if places is None:
        places = [*os.environ.get("PATH", os.defpath).split(os.pathsep), *USUAL_PLACES]
    binaries = [_locate(chromium)] if chromium else search(CHROME_COMMANDS, places)
    drivers = [_locate(chromedriver)] if chromedriver else search(DRIVER_COMMANDS, places)
    programs = probe([*binaries, *drivers])
    return match(programs[: len(binaries)], programs[len(binaries) :])


def match(binaries: Sequence[Program], drivers: Sequence[Program]) -> Survey:
    """Give every binary the first driver of its major version."""
    browsers, findings = [], [_broken(program) for program in (*binaries, *drivers) if program.problem]
    working = [driver for driver in drivers if driver.version]
    for binary in _one_per_version(binaries):
        driver = next((driver for driver in working if driver.major == binary.major), None)
        if driver is None:
            findings.append(_driverless(binary, working))
        else:
            browsers.append(_chrome(binary, driver))
    if not binaries:
        findings.append(
            Finding(
                subject="chrome",
                problem="no Chromium or Chrome on this machine",
                advice="apt-get install chromium chromium-driver, or set REMUDA_CHROMIUM to its path",
            )
        )
    return Survey(tuple(browsers), tuple(findings))


def _one_per_version(programs: Iterable[Program]) -> Iterable[Program]:
    # Debian's chromium is a script around a binary that is found too: the same version is the same browser.
    chosen: dict[str, Program] = {}
    for program in programs:
        if program.version:
            chosen.setdefault(program.version, program)
    return chosen.values()


def _chrome(binary: Program, driver: Program) -> Browser:
    return Browser(
        name="chrome",
        version=binary.version,
        binary=binary.path,
        driver=driver.path,
        driver_version=driver.version,
        names=("chrome", "chromium"),
    )


def _broken(program: Program) -> Finding:
    return Finding(
        subject=str(program.path),
        problem=program.problem,
        advice=f"try {program.path} --version, then reinstall it or name another one",
    )


def _driverless(binary: Program, drivers: Sequence[Program]) -> Finding:
    others = ", ".join(f"{driver.path} is {driver.version}" for driver in drivers) or "there is none"
    return Finding(
        subject=str(binary.path),
        problem=f"version {binary.version} needs a ChromeDriver {binary.major}, but {others}",
        advice="apt-get install chromium-driver, or set REMUDA_CHROMEDRIVER to the path of one that fits",
    )


def _locate(path: Path) -> Path:
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
    deadline = monotonic() + timeout
    started = [_start(path, flag) for path in paths]
    return [_finish(path, process, deadline) for path, process in zip(paths, started, strict=True)]


def _start(path: Path, flag: str) -> subprocess.Popen[str] | OSError:
    try:
        return subprocess.Popen(
            [path, flag],
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
