"""A browser server's clients are counted by its sockets, whoever runs it."""

import os
import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from remuda.base.confinement import unconfined
from remuda.playwright.browsers import Launch
from remuda.playwright.server import BrowserServer


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def served_by_this_process(listener: socket.socket) -> BrowserServer:
    server = BrowserServer(Launch("chromium", {}), unconfined().protection)
    server.endpoint = f"ws://127.0.0.1:{listener.getsockname()[1]}/secret"
    server._process = SimpleNamespace(pid=os.getpid())  # type: ignore[assignment]
    return server


def deny(*_: Any) -> Any:
    raise psutil.AccessDenied


@pytest.mark.parametrize("is_denied", [False, True])
def test_clients_are_counted_also_if_the_servers_files_cannot_be_seen(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch, is_denied: bool
) -> None:
    server = served_by_this_process(listener)
    if is_denied:
        monkeypatch.setattr(psutil.Process, "net_connections", deny)
    assert server.connections() == 0

    with socket.create_connection(listener.getsockname()), listener.accept()[0]:
        assert server.connections() == 1
