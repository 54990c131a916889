"""Nodes that are being born when their orchestrator leaves."""

import asyncio
import errno
import os
import socket
import subprocess

import pytest

from installed import BROWSERS, needs_browser
from remuda.base.config import Config
from remuda.base.errors import Overloaded
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


async def test_a_nursery_is_not_replaced_for_our_own_lack_of_descriptors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    births = Births(Config(), redis_url="unix:///nowhere")
    births.start()
    nursery = births._nursery
    with monkeypatch.context() as patch:
        patch.setattr(socket, "socketpair", fail)
        with pytest.raises(Overloaded):
            await births.bear(next(iter(BROWSERS.values())), with_browser=False)

    assert births._nursery is nursery
    await births.stop()
