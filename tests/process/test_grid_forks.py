"""Nodes that are being forked when their orchestrator leaves."""

import asyncio
import errno
import os
import signal
import socket
import subprocess
from collections.abc import Sequence

import pytest

from configs import make_config
from installed import BROWSERS, needs_browser
from remuda.base.errors import DriverUnavailable, Overloaded
from remuda.base.ids import SessionId
from remuda.grid.browsers import Browser
from remuda.grid.orchestrator.local import LocalProvisioner
from remuda.grid.orchestrator.nodes import END_GRACE, ForkServer, NodeProcess, OwnNode
from waiting import eventually

pytestmark = needs_browser


async def test_a_node_that_is_forked_while_its_orchestrator_leaves_is_taken_along(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, forked = asyncio.Event(), asyncio.Event()
    control, _theirs = socket.socketpair()
    with subprocess.Popen(["sleep", "600"]) as process:

        async def fork_in_time(
            self: ForkServer, browsers: Sequence[Browser], *, with_browser: bool
        ) -> OwnNode:
            asked.set()
            await forked.wait()
            return OwnNode(
                browsers, process.pid, os.pidfd_open(process.pid), control, with_browser=with_browser
            )

        monkeypatch.setattr(ForkServer, "_ask", fork_in_time)
        provisioner = LocalProvisioner(make_config(), redis_url="unix:///nowhere")
        provisioner._browsers = list(BROWSERS.values())
        provisioner._refill()
        await asked.wait()

        leaving = asyncio.create_task(provisioner.stop())
        await eventually(lambda: provisioner._is_stopping)
        forked.set()
        await leaving

        has_ended = process.poll() is not None
        process.kill()
    assert has_ended


async def test_no_node_is_forked_any_more_when_the_orchestrator_leaves_while_a_browser_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forked = []

    async def fork(self: ForkServer, browsers: Sequence[Browser], *, with_browser: bool) -> OwnNode:
        forked.append(browsers)
        raise DriverUnavailable("None is wanted")

    monkeypatch.setattr(ForkServer, "_ask", fork)
    provisioner = LocalProvisioner(make_config(), redis_url="unix:///nowhere")
    provisioner._browsers = list(BROWSERS.values())
    control, _theirs = socket.socketpair()
    with subprocess.Popen(["sleep", "600"]) as process:
        pidfd = os.pidfd_open(process.pid)
        node = OwnNode(provisioner._browsers, process.pid, pidfd, control, with_browser=False)
        node.session = SessionId("s")
        provisioner._look_after(node)
        provisioner._refill()
        await asyncio.sleep(0)  # The next warm node waits until this one has its browser.

        await provisioner.stop()

    assert forked == []


async def test_a_fork_server_is_not_replaced_for_our_own_lack_of_descriptors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    server = ForkServer(make_config(), redis_url="unix:///nowhere")
    server.start()
    process = server._process
    with monkeypatch.context() as patch:
        patch.setattr(socket, "socketpair", fail)
        with pytest.raises(Overloaded):
            await server.fork_node(list(BROWSERS.values())[:1], with_browser=False)

    assert server._process is process
    await server.stop()


def test_a_node_that_has_ended_is_not_found_though_nothing_has_noticed() -> None:
    with subprocess.Popen(["sleep", "600"]) as process:
        node = NodeProcess(process.pid, os.pidfd_open(process.pid))
        noted, session = node.noted, SessionId("s")
        assert NodeProcess.find(session, noted) is not None

        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # It stays a zombie.

        assert NodeProcess.find(session, noted) is None


async def test_a_node_that_is_stopped_is_found_and_killed_without_delay() -> None:
    provisioner = LocalProvisioner(make_config(), redis_url="unix:///nowhere")
    with subprocess.Popen(["sleep", "600"]) as process:
        node = NodeProcess(process.pid, os.pidfd_open(process.pid), SessionId("s"))
        provisioner._look_after(node)
        assert provisioner.find_stopped() == []

        process.send_signal(signal.SIGSTOP)
        await eventually(lambda: provisioner.find_stopped() == ["s"])
        async with asyncio.timeout(END_GRACE / 2):
            await provisioner.end(SessionId("s"))

    assert process.returncode == -signal.SIGKILL
