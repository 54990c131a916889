"""A gateway that is replaced: with a socket that a service manager holds, or a port that both share."""

import http.client
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from herds import DEADLINE, REMUDA
from remuda.base.hosts import open_listener
from remuda.base.processes import die_with_parent
from remuda.base.systemd import FIRST_SOCKET
from servers import free_port


class Gateway:
    """`remuda run gateway` as a process."""

    def __init__(self, log: Path, redis_url: str, *args: str, shell: str = "", **options: Any) -> None:
        self._log = log
        words = [*REMUDA, "run", "gateway", "--redis", redis_url, "-v", *args]
        command = ["sh", "-c", f'{shell} exec "$@"', "sh", *words] if shell else words
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                **{"preexec_fn": die_with_parent(signal.SIGKILL), **options},
            )

    def wait_until_started(self) -> None:
        deadline = time.monotonic() + DEADLINE
        while '"event": "started"' not in self._log.read_text():
            assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def leave(self) -> int:
        self._process.terminate()
        return self._process.wait(DEADLINE)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def gateway(log: Path, redis_url: str, *args: str, **options: Any) -> Iterator[Gateway]:
    running = Gateway(log, redis_url, *args, **options)
    try:
        yield running
    finally:
        running.kill()


def health(port: int) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status
    finally:
        connection.close()


def test_a_socket_of_the_service_manager_outlives_its_gateway(redis_url: str, tmp_path: Path) -> None:
    with open_listener("127.0.0.1") as held:
        port = held.getsockname()[1]
        # As systemd does it: the socket has the first free number, and the variables name the process.
        options = {
            "shell": "LISTEN_PID=$$ LISTEN_FDS=1",
            "pass_fds": [FIRST_SOCKET],
            "preexec_fn": lambda: os.dup2(held.fileno(), FIRST_SOCKET),
        }
        with gateway(tmp_path / "first.log", redis_url, **options) as first:
            assert health(port) == 200
            assert first.leave() == 0
        with gateway(tmp_path / "second.log", redis_url, **options):
            # Connected before it has started: the socket was there all the time.
            assert health(port) == 200


@pytest.mark.parametrize("is_shared", [True, False])
def test_a_port_is_taken_over_only_if_both_gateways_share_it(
    redis_url: str, tmp_path: Path, is_shared: bool
) -> None:
    port = free_port()
    options = {"env": {**os.environ, "REMUDA_SHARE_PORT": str(is_shared)}}
    with gateway(tmp_path / "first.log", redis_url, "--port", str(port), **options) as first:
        first.wait_until_started()
        with gateway(tmp_path / "second.log", redis_url, "--port", str(port), **options) as second:
            if not is_shared:
                assert second._process.wait(DEADLINE) == 1
                assert "Address already in use" in (tmp_path / "second.log").read_text()
                return
            second.wait_until_started()

            assert first.leave() == 0

            assert [health(port) for _ in range(10)] == [200] * 10
