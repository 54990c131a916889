"""Processes that run out of file descriptors: they say so, and are well again as soon as there are some."""

import asyncio
import errno
import http.client
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from grids import codes_of, new_session
from herds import DEADLINE, REMUDA
from relaying import GET, Upstream, relaying
from remuda.base.processes import die_with_parent
from remuda.fleet.relay import Address, Forward, Plan, Request, Router
from remuda.fleet.role import running_roles
from remuda.grid.model import State
from remuda.grid.sessions import Sessions
from remuda.store import Store
from servers import Server, server
from waiting import eventually

FEW = 128
SOFT = 64


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[tuple[Store, Address, psutil.Process]]:
    """A gateway that may open few files, its Redis and its address."""
    with server() as redis:
        process = start_gateway(redis, tmp_path)
        try:
            async with Store(redis.url) as store:
                await eventually(lambda: has_roles(store), DEADLINE)
                (role,) = await running_roles(store)
                host, _, port = role["address"].rpartition(":")
                yield store, Address(host, int(port)), psutil.Process(process.pid)
        finally:
            process.kill()
            process.wait()


def start_gateway(redis: Server, home: Path) -> subprocess.Popen[bytes]:
    die_too = die_with_parent(signal.SIGKILL)

    def begin() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (SOFT, FEW))
        die_too()

    return subprocess.Popen(
        [*REMUDA, "run", "gateway", "--redis", redis.url, "--port", "0"],
        cwd=home,
        stderr=(home / "log").open("ab"),
        preexec_fn=begin,
    )


async def has_roles(store: Store) -> bool:
    return bool(await running_roles(store))


def ask(address: Address, path: str) -> int | None:
    """The status of an answer; None when there was none."""
    connection = http.client.HTTPConnection(address.host, address.port, timeout=DEADLINE)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        if response.status == 503:
            assert response.headers["Retry-After"]
        return response.status
    except (ConnectionError, http.client.BadStatusLine):
        return None
    finally:
        connection.close()


async def test_a_gateway_without_descriptors_loses_no_session(
    gateway: tuple[Store, Address, psutil.Process], tmp_path: Path
) -> None:
    store, address, process = gateway
    upstream = Upstream()
    async with upstream.listening() as node:
        session = await new_session(store)
        sessions = Sessions(store)
        await sessions.open(session, upstream={"host": node.host, "port": node.port}, actual={})
        await sessions.move(session, State.PENDING, code="SCHED")
        await sessions.move(session, State.ALIVE, code="NALIVE")
        path = f"/session/{session}/url"

        async def answer() -> int | None:
            return await asyncio.to_thread(ask, address, path)

        assert await answer() == 200
        assert process.rlimit(psutil.RLIMIT_NOFILE) == (FEW, FEW)

        # A crowd comes all at once, and again and again; some of it asks for the session, too.
        crowd: list[socket.socket] = []
        statuses: set[int | None] = set()
        for _ in range(5):
            for number in range(FEW):
                knocker = socket.create_connection(address[:2], timeout=DEADLINE)
                if number % 4 == 0:
                    knocker.sendall(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
                crowd.append(knocker)
            statuses |= {await answer() for _ in range(5)}
        assert 503 in statuses
        assert statuses <= {200, 503, None}

        for knocker in crowd:
            knocker.close()
        async with asyncio.timeout(DEADLINE):
            while (status := await answer()) != 200:
                assert status in (503, None)
                await asyncio.sleep(0.02)
        assert await answer() == 200
        assert "NLOST" not in await codes_of(store, session)


@pytest.mark.parametrize(
    "code", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL]
)
async def test_a_lack_of_our_own_is_not_the_upstreams_fault(
    code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Request] = []

    def route(address: Address) -> Router:
        def note(request: Request) -> Plan:
            asked.append(request)
            return Forward(address)

        return note

    async def fail(*_: Any, **__: Any) -> None:
        raise OSError(code, os.strerror(code))

    async with relaying(route) as kit:
        client = await kit.connect()
        loop = asyncio.get_running_loop()
        with monkeypatch.context() as patch:
            patch.setattr(loop, "create_connection", fail)
            client.send(GET)
            answer = await client.receive(b"Overloaded")

        assert answer.startswith(b"HTTP/1.1 503")
        # Asked once: a router that is asked again is told that the upstream refused.
        assert [request.refused for request in asked] == [None]
        client.send(GET)
        assert b"200 OK" in await client.receive(b"ok")


RAISED = """
import resource, subprocess
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 128))
from remuda.base import descriptors
descriptors.raise_limit()
child = subprocess.Popen(["sleep", "60"])
descriptors.restore_limit(child.pid)
print(descriptors.limit(), *resource.prlimit(child.pid, resource.RLIMIT_NOFILE))
child.kill()
"""


def test_a_raised_limit_is_not_handed_on_to_other_programs() -> None:
    told = subprocess.run([sys.executable, "-c", RAISED], capture_output=True, text=True, check=True)

    assert told.stdout.split() == ["128", "64", "128"]
