"""A role as a real process: signals, the lifeline, and what is left of it in Redis."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from processes import are_gone
from remuda.fleet.lifeline import Tether
from remuda.fleet.role import running_roles
from remuda.keyspace.fleet import ROLE, ROLES
from remuda.store import Store
from waiting import eventually

PROCESS = """
import asyncio, sys
from remuda.fleet.lifeline import Lifeline
from remuda.fleet.role import Life, Role, install_signals
from remuda.store import Store

class Talker(Role):
    name = "talker"

    async def start(self):
        print("start", flush=True)

    async def drain(self):
        print("drain", flush=True)
        if "slow" in sys.argv:
            await asyncio.Event().wait()

    async def stop(self):
        print("stop", flush=True)

    async def reload(self):
        print("reload", flush=True)

async def main():
    async with Store(sys.argv[1]) as store:
        life = Life(store, [Talker()], drain_timeout=60)
        install_signals(life)
        lifeline = Lifeline.from_environ()
        if lifeline is not None:
            lifeline.watch(life.ask_stop)
        await life.run(lifeline)

asyncio.run(main())
"""


class Talker:
    """The process, and the end of its lifeline that we hold."""

    def __init__(self, *arguments: str) -> None:
        self.tether = Tether()
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROCESS, *arguments],
            # In a terminal, a hang-up would be the end of that.
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **self.tether.environ},
            pass_fds=(self.tether.descriptor,),
        )
        self.tether.handed_over()

    async def says(self) -> str:
        """Its next line; nothing when it has ended."""
        assert self.process.stdout is not None
        async with asyncio.timeout(20):
            return (await asyncio.to_thread(self.process.stdout.readline)).strip()

    async def is_ready(self) -> bool:
        async with asyncio.timeout(20):
            return await self.tether.wait_ready() and await self.says() == "start"

    async def ends(self) -> int:
        """Its exit code."""
        return await asyncio.to_thread(self.process.wait, 20)


@contextmanager
def talker(*arguments: str) -> Iterator[Talker]:
    running = Talker(*arguments)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.wait()
        if running.process.stdout is not None:
            running.process.stdout.close()


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_drains_and_stops_the_role(
    store: Store, redis_url: str, signum: signal.Signals
) -> None:
    with talker(redis_url) as role:
        assert await role.is_ready()
        (record,) = await running_roles(store)
        assert record["pid"] == str(role.process.pid)

        role.process.send_signal(signum)

        assert [await role.says(), await role.says()] == ["drain", "stop"]
        assert await role.ends() == 0
    assert await store.send("DBSIZE") == 0


async def test_a_second_signal_ends_the_drain(store: Store, redis_url: str) -> None:
    with talker(redis_url, "slow") as role:
        assert await role.is_ready()

        role.process.send_signal(signal.SIGTERM)
        assert await role.says() == "drain"
        role.process.send_signal(signal.SIGINT)

        assert await role.says() == "stop"
        assert await role.ends() == 0


async def test_a_role_leaves_when_its_lifeline_is_cut(store: Store, redis_url: str) -> None:
    with talker(redis_url) as role:
        assert await role.is_ready()

        async with asyncio.timeout(20):
            await role.tether.release()

        assert [await role.says(), await role.says()] == ["drain", "stop"]
        assert await role.ends() == 0


async def test_a_role_leaves_when_the_herd_that_started_it_is_killed(store: Store, redis_url: str) -> None:
    herd = (
        "import os, subprocess, sys, time\n"
        "from remuda.fleet.lifeline import Tether\n"
        "tether = Tether()\n"
        "command = [sys.executable, '-c', *sys.argv[1:]]\n"
        "child = subprocess.Popen(command, stdout=subprocess.DEVNULL,\n"
        "    env={**os.environ, **tether.environ}, pass_fds=(tether.descriptor,))\n"
        "tether.handed_over()\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", herd, PROCESS, redis_url]) as parent:
        (record,) = await eventually(lambda: running_roles(store), 20)
        child = psutil.Process(int(record["pid"]))

        parent.kill()

    await eventually(lambda: are_gone([child]))
    assert await running_roles(store) == []


async def test_the_record_of_a_killed_role_runs_out(store: Store, redis_url: str) -> None:
    with talker(redis_url) as role:
        assert await role.is_ready()
        (record,) = await running_roles(store)

        role.process.kill()
        await role.ends()

    key = ROLE(record["id"])
    assert 0 < await store.ttl_ms(key) <= 15_000
    await store.send("PEXPIRE", key, 1)
    await eventually(lambda: _is_forgotten(store))
    assert await store.zrange(ROLES()) == []  # Who looks for roles takes it off the list.


async def _is_forgotten(store: Store) -> bool:
    return await running_roles(store) == []


async def test_a_role_that_cannot_reach_redis_ends_before_it_is_ready() -> None:
    with talker("unix:///nowhere/redis.sock") as role:
        async with asyncio.timeout(20):
            assert not await role.tether.wait_ready()
        assert await role.ends() == 1


async def test_a_hang_up_has_a_role_reload_and_go_on(store: Store, redis_url: str) -> None:
    with talker(redis_url) as role:
        assert await role.is_ready()

        role.process.send_signal(signal.SIGHUP)

        assert await role.says() == "reload"
        assert role.process.poll() is None
        role.process.terminate()
        assert await role.says() == "drain"
