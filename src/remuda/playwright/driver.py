"""The driver that comes in the `playwright` package: a node and Playwright's own program for it.

Python's Playwright cannot serve a browser to others, but the driver that it brings along can, by a command
that its help leaves out.
"""

import os
import shutil
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path

import msgspec
from playwright._impl._driver import compute_driver_executable, get_driver_env

from remuda.base.confinement import OPENERS, browser_environ
from remuda.fleet.permits.chromium import LIBRARIES, PROGRAMS

BROWSERS_PATH = "PLAYWRIGHT_BROWSERS_PATH"
"""Where Playwright keeps its own builds of the browsers, if not in the user's cache."""
FFMPEG = "ffmpeg"
_FFMPEG_BUILD = "ffmpeg-mac" if sys.platform == "darwin" else "ffmpeg-linux"
_FFMPEG = Path(__file__).with_name("ffmpeg.sh")
# Loaded into the driver, in this order.
_PRELOADED = tuple(Path(__file__).with_name(name) for name in ("neighbours.cjs", "refusals.cjs"))


def playwright_version() -> str:
    """The version of Playwright here; a client's must have the same first two numbers."""
    return version("playwright")


def served_version() -> str:
    """The version of clients that a worker here serves."""
    return ".".join(playwright_version().split(".")[:2])


Reach = Callable[[Path], Path]
"""Where the driver's user finds a program or a directory of programs."""


def serve_command(browser: str, config: Path, reach: Reach = Path) -> list[str]:
    """The command that launches a browser, serves it, and writes its URL to standard output."""
    return [*_command(reach), "launch-server", "--browser", browser, "--config", str(config)]


def host_command(path: str, reach: Reach = Path) -> list[str]:
    """The command that launches a browser for one client, when that connects to this path and says how."""
    # Arguments and the like it takes only from clients that it is told to trust: these come from the worker.
    options = ["--host", "127.0.0.1", "--path", path, "--max-clients", "1", "--unsafe"]
    return [*_command(reach), "run-server", *options]


def _command(reach: Reach) -> list[str]:
    # Not `python -m playwright`: a signal to that would not reach the driver.
    node, program = map(Path, compute_driver_executable())
    home = reach(node.parent)
    preloaded = [word for each in _PRELOADED for word in ("--require", str(reach(each)))]
    return [str(home / node.name), *preloaded, str(home / program.relative_to(node.parent))]


def driver_programs() -> list[Path]:
    """What a driver reads and runs besides its browser."""
    return [Path(compute_driver_executable()[0]).parent, *_PRELOADED, _FFMPEG, builds_directory()]


def serve_environ(home: Path, reach: Reach = Path, *, shares_display: bool = False) -> dict[str, str]:
    """The environment of that command, with this directory for all files that it makes."""
    given: Mapping[str, str] = get_driver_env()
    ours = {name: value for name, value in given.items() if name.startswith("PW_")}
    return {
        **browser_environ(home, reach(OPENERS), shares_display=shares_display),
        **ours,
        BROWSERS_PATH: str(_link_builds(home, reach)),
        # For refusals.cjs.
        "CLOSED_DIRECTORIES": " ".join((PROGRAMS, *LIBRARIES)),
    }


def _link_builds(home: Path, reach: Reach) -> Path:
    """A directory with links to all builds that Playwright has here, and to the machine's ffmpeg if it has
    none of its own: it makes videos only with the one that it finds there."""
    builds = home / "builds"
    builds.mkdir()
    if builds_directory().is_dir():
        for build in builds_directory().iterdir():
            (builds / build.name).symlink_to(reach(build))
    if shutil.which(FFMPEG) and not has_build(FFMPEG):
        for directory in _directories_of(FFMPEG):
            place = builds / directory
            # What an interrupted installation has left.
            place.unlink(missing_ok=True)
            place.mkdir(mode=0o755)
            (place / _FFMPEG_BUILD).symlink_to(reach(_FFMPEG))
    return builds


def builds_directory() -> Path:
    """Where Playwright's own builds of the browsers are, if there are any."""
    given = os.environ.get(BROWSERS_PATH)
    if given == "0":  # Playwright's word for its own package.
        return _package() / ".local-browsers"
    if given:
        return Path(given).absolute()
    if sys.platform == "darwin":
        return Path.home() / "Library/Caches/ms-playwright"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ms-playwright"


class _Build(msgspec.Struct, rename="camel"):
    name: str
    revision: str
    revision_overrides: dict[str, str] = {}


class _Builds(msgspec.Struct):
    browsers: list[_Build]


def has_build(name: str) -> bool:
    """Whether Playwright's own build of a browser is installed, in the revision that this version wants."""
    return any(
        (builds_directory() / each / "INSTALLATION_COMPLETE").exists() for each in _directories_of(name)
    )


def _directories_of(name: str) -> list[str]:
    builds = msgspec.json.decode((_package() / "browsers.json").read_bytes(), type=_Builds)
    (build,) = [each for each in builds.browsers if each.name == name]
    stem = name.replace("-", "_")
    return [
        f"{stem}-{build.revision}",
        *(f"{stem}_{system}_special-{revision}" for system, revision in build.revision_overrides.items()),
    ]


def _package() -> Path:
    return Path(compute_driver_executable()[1]).parent
