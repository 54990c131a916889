"""`remuda up`: the whole herd on one machine, in as few processes as keep the gateway fast.

This process only watches over the others: Redis, the front door, one for all roles that can share a process,
and the crews that are started when they are wanted. It holds the public port, so that a gateway that has to
be restarted refuses no connection, and a tether to each child, so that nothing outlives it, whatever
happens to it.
"""

import asyncio
import fcntl
import os
import signal
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import msgspec
import psutil
import uvloop

from remuda.accounts.room import is_auth_on, refuse_shared_display
from remuda.base.config import Config, HerdConfig
from remuda.base.confinement import protection_of
from remuda.base.errors import Misconfigured, RemudaError
from remuda.base.hosts import host_port, is_loopback, reachable
from remuda.base.ids import new_id
from remuda.base.log import configure_logs, get_logger, redact
from remuda.base.systemd import keep_watchdog, notify
from remuda.cli.child import Child, StartFailed
from remuda.cli.crews import Crews
from remuda.cli.rooms import ROOMS
from remuda.fleet.http_client import ask
from remuda.fleet.leftovers import check_temporary_directory
from remuda.fleet.relay import Address
from remuda.fleet.room import role_kinds
from remuda.gateway.listener import check_options, listen
from remuda.gateway.room import LISTENER, GatewayConfig
from remuda.ops.doctor import LOCK
from remuda.store import Store
from remuda.store.embedded import embedded_redis
from remuda.store.strangers import check_strangers

log = get_logger(__name__)

HERD = "REMUDA_HERD"
"""Carried in the environment of everything that the herd starts, so that nothing of it can get lost."""
LAST_GRACE = 10.0
LOOK_EVERY = 0.5
# The gateway waits this long for an api that restarts.
READY_TIMEOUT = 20.0


def run_herd(config: Config) -> None:
    """Runs the herd until SIGTERM or Ctrl-C; a second one ends it at once."""
    herd = config[HerdConfig]
    configure_logs(level=herd.log_level, form=herd.log_format, role="up", pid=os.getpid())
    os.environ[HERD] = new_id()
    check_options(config)
    refuse_shared_display(config)
    check_temporary_directory()
    with _own_data(herd.data), listen(config) as listener:
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
        lock = (directory / LOCK).open("a+")
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
    children: list[Child] = []
    loop, has_terminal = asyncio.get_running_loop(), os.isatty(0)
    # The end of its terminal is a SIGHUP; without one, that asks to read again what can be read again.
    for signum in (signal.SIGTERM, signal.SIGINT, *([signal.SIGHUP] if has_terminal else [])):
        loop.add_signal_handler(signum, lambda: (hurry if stop_asked.is_set() else stop_asked).set())
    if not has_terminal:
        loop.add_signal_handler(signal.SIGHUP, _ask_to_reload, children)
    _say("protection", str(protection_of(config)))
    if warning := warn_of_open_door(config):
        _say("warning", warning)
    async with _redis(config) as redis_url:
        config = config.replace(redis=redis_url)
        children += _children(config, listener)
        ready = asyncio.Event()
        crews = await asyncio.to_thread(Crews, config, ROOMS)
        announcing = asyncio.create_task(_announce(config, children, crews, listener, ready), name="announce")
        watchdog = asyncio.create_task(keep_watchdog(), name="watchdog")
        try:
            await _watch_over(children, crews, ready, stop_asked)
        finally:
            notify("STOPPING=1")
            announcing.cancel()
            watchdog.cancel()
            crews.ask_to_leave()
            await asyncio.gather(*(child.stop(hurry) for child in children))
            # Now no client of the front door is connected to a worker any more.
            await _release([*children, *crews.children])


def warn_of_open_door(config: Config) -> str:
    """What the operator should know of a herd that others reach and that asks for no token; else empty."""
    host = config[HerdConfig].host
    if is_auth_on(config) or is_loopback(host):
        return ""
    return f"no token is needed: every client that reaches {host} can use this herd"


@asynccontextmanager
async def _redis(config: Config) -> AsyncIterator[str]:
    herd = config[HerdConfig]
    if herd.redis:
        # Once, here: else each of its processes would say that it cannot be used.
        async with Store(herd.redis, prefix=herd.prefix, name="up") as store:
            await store.check_rights()
            _say("redis", redact(herd.redis))
            try:
                await check_strangers(store.url)
            except Misconfigured as error:
                if not herd.insecure_redis:
                    raise
                _say("warning", error.message)
        yield herd.redis
        return
    group, directory = protection_of(config).group, herd.data / "redis"
    async with embedded_redis(directory, group=group, megabytes=herd.redis_megabytes) as url:
        _say("redis", f"embedded, keeps its data in {directory}")
        yield url


def _children(config: Config, listener: socket.socket) -> list[Child]:
    descriptor = listener.fileno()
    gateway_environ = {**config.environ(), LISTENER: str(descriptor)}
    kinds = role_kinds(ROOMS).values()
    shared = [kind.name for kind in kinds if not (kind.is_front_door or kind.needs_own_process)]
    doors = [kind.name for kind in kinds if kind.is_front_door]
    return [Child(shared, config.environ()), Child(doors, gateway_environ, inherit=[descriptor])]


async def _announce(
    config: Config,
    children: Sequence[Child],
    crews: Crews,
    listener: socket.socket,
    ready: asyncio.Event,
) -> None:
    """Says what is started and, once a session can be created, so."""
    for child in children:
        await child.ready.wait()
        _say("process", f"{child.pid}: {child}")
    await crews.announced.wait()
    host, port = listener.getsockname()[:2]
    tls = _own_tls(config)
    _say("url", f"{'http' if tls is None else 'https'}://{host_port(host, port)}")
    await _until_usable(Address(reachable(host), port), tls)
    print("ready", flush=True)
    notify("READY=1")
    ready.set()


def _own_tls(config: Config) -> ssl.SSLContext | None:
    """How this machine asks its own front door; None if that speaks plain HTTP."""
    if not config[GatewayConfig].tls_cert:
        return None
    context = ssl.create_default_context()
    # The certificate is for the name that clients use, not for loopback, and this process holds the port.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def _until_usable(gateway: Address, tls: ssl.SSLContext | None) -> None:
    """Waits until a session can be created, and says what is in the way. All roles run, but the disk or Redis
    may be full."""
    before = said = ""
    while reason := await _why_unusable(gateway, tls):
        # What is over at the next look is not worth telling: a busy machine makes Redis slow.
        if reason == before != said:
            _say("not ready", reason)
            said = reason
        before = reason
        await asyncio.sleep(LOOK_EVERY)


async def _why_unusable(gateway: Address, tls: ssl.SSLContext | None) -> str:
    try:
        status, body = await ask(gateway, "GET", "/readyz", timeout=READY_TIMEOUT, tls=tls)
        return "" if status == 200 else str(msgspec.json.decode(body)["error"]["message"])
    except RemudaError as error:
        return error.message


async def _watch_over(
    children: Sequence[Child], crews: Crews, ready: asyncio.Event, stop_asked: asyncio.Event
) -> None:
    """Keeps the children running until a stop is asked for, and the crews once all else is ready."""
    async with asyncio.TaskGroup() as group:
        keepers = [group.create_task(child.keep_running(), name=f"keep {child}") for child in children]
        keepers.append(group.create_task(crews.keep_running(after=ready), name="keep crews"))
        await stop_asked.wait()
        for keeper in keepers:
            keeper.cancel()


def _ask_to_reload(children: Sequence[Child]) -> None:
    for child in children:
        child.ask_to_reload()


async def _release(children: Sequence[Child]) -> None:
    try:
        async with asyncio.timeout(LAST_GRACE):
            await asyncio.gather(*(child.release() for child in children))
    except TimeoutError:
        log.warning("some processes did not stop by themselves")


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
    print(f"{what:<11} {detail}", flush=True)
