"""Nodes that are being born when their orchestrator leaves."""

import asyncio
import os
import socket
import subprocess

import pytest

from installed import BROWSERS, needs_browser
from remuda.base.config import Config
from remuda.grid.browsers import Browser
from remuda.grid.orchestrator.births import Births, OwnNode
from remuda.grid.orchestrator.local import LocalProvisioner
from waiting import eventually

pytestmark = needs_browser


async def test_a_node_that_is_born_while_its_orchestrator_leaves_is_taken_along(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, born = asyncio.Event(), asyncio.Event()
    control, _theirs = socket.socketpair()
    with subprocess.Popen(["sleep", "600"]) as process:

        async def bear_in_time(self: Births, browser: Browser, *, with_browser: bool) -> OwnNode:
            asked.set()
            await born.wait()
            return OwnNode(
                browser, process.pid, os.pidfd_open(process.pid), control, with_browser=with_browser
            )

        monkeypatch.setattr(Births, "_ask", bear_in_time)
        provisioner = LocalProvisioner(Config(), redis_url="unix:///nowhere")
        provisioner._browsers = list(BROWSERS.values())
        provisioner._refill()
        await asked.wait()

        leaving = asyncio.create_task(provisioner.stop())
        await eventually(lambda: provisioner._is_stopping)
        born.set()
        await leaving

        has_ended = process.poll() is not None
        process.kill()
    assert has_ended
