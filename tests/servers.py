"""Redis servers that a test owns, so that it may pause, kill and restart them."""

import os
import secrets
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

import pytest

from remuda.base.processes import die_with_parent
from remuda.store.embedded import find_server
from remuda.store.url import parse_url

# Debian's redis-tools ships the server under this name: it looks at argv[0] to know what it is.
_DEBIAN = Path("/usr/bin/redis-check-rdb")
START_TIMEOUT = 20.0
LOWEST_PORT = 10_000
PATIENCE = 1.0
"""How long a store waits for a Redis that its test takes away: longer than for one that is slow because the
machine is busy. A fifth of that was too little."""

EMBEDDED, DEBIAN = "embedded", "debian"
ENGINES = (EMBEDDED, DEBIAN)


def binary_of(engine: str) -> Path:
    """The server's program; skips the test where it is not installed."""
    binary = find_server() if engine == EMBEDDED else _DEBIAN
    if binary is None or not binary.exists():
        pytest.skip(f"no {engine} Redis server here: run make setup")
    return binary


class Server:
    """One Redis server on a unix socket, and on a TCP port if told to; with a config, a Sentinel."""

    def __init__(
        self,
        directory: Path,
        *options: str,
        engine: str = EMBEDDED,
        password: str = "",
        sentinel_config: str = "",
    ) -> None:
        self.directory = directory
        self.socket = directory / "redis.sock"
        self.url = f"unix://:{password}@{self.socket}" if password else f"unix://{self.socket}"
        self._binary = binary_of(engine)
        self._options = (*options, "--requirepass", password) if password else options
        self._config: tuple[str, ...] = ()
        if sentinel_config:
            (directory / "sentinel.conf").write_text(sentinel_config)
            self._config = (str(directory / "sentinel.conf"), "--sentinel")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> Self:
        """Starts it and waits until it listens."""
        own = ("--port", "0", "--unixsocket", str(self.socket), "--dir", str(self.directory), "--save", "")
        with (self.directory / "redis.log").open("ab") as log:
            self._process = subprocess.Popen(
                ["redis-server", *self._config, *own, *self._options],
                executable=self._binary,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent(signal.SIGKILL),
            )
        deadline = time.monotonic() + START_TIMEOUT
        while not self._listens():
            assert self._process.poll() is None, (self.directory / "redis.log").read_text()
            assert time.monotonic() < deadline, "the Redis server does not start"
            time.sleep(0.005)
        return self

    def _listens(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(self.socket)) == 0

    def kill(self) -> None:
        """Ends it the hard way; nothing happens if it has ended."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        self.socket.unlink(missing_ok=True)

    def pause(self) -> None:
        """Stops it in the middle of whatever it does: connections stay open, nothing is answered."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)


@contextmanager
def server(
    *options: str, engine: str = EMBEDDED, password: str = "", sentinel_config: str = ""
) -> Iterator[Server]:
    """A running server of its own for one test."""
    # Not pytest's tmp_path: a socket's path has to be short.
    with tempfile.TemporaryDirectory(prefix="remuda-test-") as directory:
        place = Path(directory)
        running = Server(place, *options, engine=engine, password=password, sentinel_config=sentinel_config)
        try:
            yield running.start()
        finally:
            running.kill()


def empty(url: str) -> None:
    """Has the server at this socket forget everything."""
    parsed = parse_url(url)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(parsed.path)
        if parsed.password:
            connection.sendall(f"AUTH {parsed.password}\r\n".encode())
            assert connection.recv(100) == b"+OK\r\n"
        connection.sendall(b"FLUSHALL\r\n")
        assert connection.recv(100) == b"+OK\r\n"


def free_port() -> int:
    """A TCP port that nobody listens at, and that the system gives to no process that asks for any."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        # Not by `random`: Hypothesis sets the same seed in all test processes.
        wanted = LOWEST_PORT + secrets.randbelow(first - LOWEST_PORT) if first > 2 * LOWEST_PORT else 0
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", wanted))
            port: int = probe.getsockname()[1]
            return port
