"""What is said to a service manager, and heard from it."""

import asyncio
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from configs import make_config
from remuda.base import systemd
from remuda.base.errors import Misconfigured
from remuda.base.systemd import inherited_socket, keep_watchdog, notify
from remuda.gateway.listener import listen


@pytest.fixture
def manager() -> Iterator[socket.socket]:
    with tempfile.TemporaryDirectory() as directory, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as own:
        own.bind(str(Path(directory) / "notify"))
        own.settimeout(10)
        yield own


def test_a_state_reaches_the_service_manager(manager: socket.socket) -> None:
    notify("READY=1", environ={"NOTIFY_SOCKET": manager.getsockname()})

    assert manager.recv(100) == b"READY=1"


def test_without_a_service_manager_nothing_is_said() -> None:
    notify("READY=1", environ={})
    notify("READY=1", environ={"NOTIFY_SOCKET": "/nowhere/notify"})


async def test_signs_of_life_come_twice_as_often_as_they_are_asked_for(manager: socket.socket) -> None:
    environ = {"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "20000"}
    keeping = asyncio.create_task(keep_watchdog(environ=environ))

    signs = [await asyncio.to_thread(manager.recv, 100) for _ in range(3)]

    assert signs == [b"WATCHDOG=1"] * 3
    keeping.cancel()


@pytest.mark.parametrize("environ", [{}, {"WATCHDOG_USEC": "20000", "WATCHDOG_PID": "1"}])
async def test_no_watchdog_wants_no_signs(environ: dict[str, str]) -> None:
    await asyncio.wait_for(keep_watchdog(environ=environ), 10)


@pytest.mark.parametrize(
    "environ",
    [{}, {"LISTEN_FDS": "1", "LISTEN_PID": "1"}, {"LISTEN_FDS": "0", "LISTEN_PID": str(os.getpid())}],
)
def test_a_socket_that_is_not_meant_for_this_process_is_left_alone(environ: dict[str, str]) -> None:
    assert inherited_socket(environ=environ) is None


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_socket_for_all_is_not_taken_for_one_of_this_machine_only(
    monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    with socket.create_server((host, 0)) as held:
        monkeypatch.setattr(systemd, "FIRST_SOCKET", os.dup(held.fileno()))
        monkeypatch.setenv("LISTEN_PID", str(os.getpid()))
        monkeypatch.setenv("LISTEN_FDS", "1")
        with listen(make_config(host=host)) as listener:
            assert listener.getsockname() == held.getsockname()
        if host == "127.0.0.1":
            return
        monkeypatch.setattr(systemd, "FIRST_SOCKET", os.dup(held.fileno()))
        with pytest.raises(Misconfigured, match=r"listens on 0\.0\.0\.0: set host"):
            listen(make_config())
