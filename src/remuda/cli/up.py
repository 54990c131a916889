"""`remuda up`: the whole herd on one machine, in as few processes as keep the gateway fast.

This process only watches over the others: Redis, the gateway, one for manager, orchestrator, API, gc and
storage, and Playwright's workers. It holds the public port, so that a gateway that has to be restarted
refuses nobody, and a tether to each child, so that nothing outlives it, whatever happens to it.
"""

import asyncio
import fcntl
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import uvloop

from remuda.base.config import Config
from remuda.base.confinement import protection_of
from remuda.base.errors import Misconfigured
from remuda.base.hosts import host_port
from remuda.base.ids import new_id
from remuda.base.log import configure_logs, get_logger, redact
from remuda.cli.child import Child, StartFailed
from remuda.cli.run import LISTENER
from remuda.cli.workers import Workers
from remuda.gateway.listener import listen
from remuda.store.embedded import embedded_redis

log = get_logger(__name__)

HERD = "REMUDA_HERD"
"""Carried in the environment of everything that the herd starts, so that nothing of it can get lost."""
CONTROL_ROLES = ("manager", "orchestrator", "api", "gc", "storage")
LAST_GRACE = 10.0


def run_herd(config: Config) -> None:
    """Runs the herd until SIGTERM or Ctrl-C; a second one ends it at once."""
    configure_logs(level=config.log_level, form=config.log_format, role="up", pid=os.getpid())
    os.environ[HERD] = new_id()
    with _own_data(config.data), listen(config) as listener:
        has_started = True
        try:
            uvloop.run(_live(config, listener))
        except* StartFailed:
            # Not left from in here: what is raised in an `except*` comes out as a group, traceback and all.
            has_started = False
        finally:
            _kill_strays()
    if not has_started:
        sys.exit(1)


@contextmanager
def _own_data(directory: Path) -> Iterator[None]:
    """Keeps the data directory to this herd; Misconfigured when it is in use or cannot be written."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        # Sessions' logs and files, and everything that clients have sent, is in there.
        directory.chmod(0o700)
        lock = (directory / "lock").open("a+")
    except OSError as error:
        raise Misconfigured(f"The data directory {directory} cannot be used: {error.strerror}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.seek(0)
            raise Misconfigured(f"Another herd (pid {lock.read() or '?'}) uses {directory} already") from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


async def _live(config: Config, listener: socket.socket) -> None:
    stop_asked, hurry = asyncio.Event(), asyncio.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(
            signum, lambda: (hurry if stop_asked.is_set() else stop_asked).set()
        )
    _say("protection", str(protection_of(config)))
    async with _redis(config) as redis_url:
        config = replace(config, redis=redis_url)
        children = _children(config, listener)
        ready = asyncio.Event()
        workers = await asyncio.to_thread(Workers, config)
        announcing = asyncio.create_task(_announce(children, workers, listener, ready), name="announce")
        try:
            await _watch_over(children, workers, ready, stop_asked)
        finally:
            announcing.cancel()
            workers.ask_to_leave()
            await asyncio.gather(*(child.stop(hurry) for child in children))
            # Now nobody is connected to a worker any more who came through the front door.
            await _release([*children, *workers.children])


@asynccontextmanager
async def _redis(config: Config) -> AsyncIterator[str]:
    if config.redis:
        _say("redis", redact(config.redis))
        yield config.redis
        return
    group = protection_of(config).group
    async with embedded_redis(config.data / "redis", group=group, megabytes=config.redis_megabytes) as url:
        _say("redis", f"embedded, keeps its data in {config.data / 'redis'}")
        yield url


def _children(config: Config, listener: socket.socket) -> list[Child]:
    descriptor = listener.fileno()
    gateway_environ = {**config.environ(), LISTENER: str(descriptor)}
    return [
        Child(CONTROL_ROLES, config.environ()),
        Child(["gateway"], gateway_environ, inherit=[descriptor]),
    ]


async def _announce(
    children: Sequence[Child], workers: Workers, listener: socket.socket, ready: asyncio.Event
) -> None:
    """Says what is started and, once a session can be created, so."""
    for child in children:
        await child.ready.wait()
        _say(str(child), f"pid {child.pid}")
    await workers.announced.wait()
    _say("url", f"http://{host_port(*listener.getsockname()[:2])}")
    print("ready", flush=True)
    ready.set()


async def _watch_over(
    children: Sequence[Child], workers: Workers, ready: asyncio.Event, stop_asked: asyncio.Event
) -> None:
    """Keeps the children running until a stop is asked for, and the workers once all else is ready."""
    async with asyncio.TaskGroup() as group:
        keepers = [group.create_task(child.keep_running(), name=f"keep {child}") for child in children]
        keepers.append(group.create_task(workers.keep_running(after=ready), name="keep workers"))
        await stop_asked.wait()
        for keeper in keepers:
            keeper.cancel()


async def _release(children: Sequence[Child]) -> None:
    try:
        async with asyncio.timeout(LAST_GRACE):
            await asyncio.gather(*(child.release() for child in children))
    except TimeoutError:
        log.warning("some processes do not leave by themselves")


def _kill_strays() -> None:
    """Kills whatever carries the herd's mark: there should be nothing left."""
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(HERD) == os.environ[HERD]:
                log.warning("stray killed", pid=process.pid, name=process.name())
                process.kill()
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue


def _say(what: str, detail: str) -> None:
    print(f"{what:<46} {detail}", flush=True)
