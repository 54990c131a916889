"""The load balancers of `deploy/`, run as they are but for their ports, in front of two gateways."""

import asyncio
import shutil
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from remuda.base.processes import die_with_parent
from remuda.store import Store
from scripted_workers import DEADLINE, OWN_PROTOCOL, USER_AGENT, Door, ScriptedWorker, front_door, workers
from servers import free_port
from waiting import eventually

DEPLOY = Path(__file__).parents[2] / "deploy"


def haproxy(text: str, place: Path) -> list[str]:
    (place / "haproxy.cfg").write_text(text)
    return ["haproxy", "-db", "-f", str(place / "haproxy.cfg")]


def nginx(text: str, place: Path) -> list[str]:
    logs = f"error_log {place}/error.log; pid {place}/pid; daemon off; events {{}}"
    temporary = "".join(
        f"{each}_temp_path {place}/{each};" for each in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (place / "nginx.conf").write_text(f"{logs}\nhttp {{ access_log off; {temporary}\n{text}}}\n")
    return ["nginx", "-e", f"{place}/error.log", "-c", str(place / "nginx.conf")]


Command = Callable[[str, Path], list[str]]
BALANCERS = [("haproxy/haproxy.cfg", haproxy), ("nginx/remuda.conf", nginx)]


@asynccontextmanager
async def balancing(file: str, command: Command, place: Path, *doors: Door) -> AsyncIterator[int]:
    """The balancer in front of these gateways; its port."""
    port = free_port()
    text = (DEPLOY / file).read_text().replace("4400", str(port))
    for example, door in zip(("127.0.0.1:4444", "127.0.0.1:4445"), doors, strict=True):
        text = text.replace(example, f"127.0.0.1:{door.port}")
    words = command(text, place)
    if shutil.which(words[0]) is None:
        pytest.skip(f"no {words[0]} here: apt-get install {words[0]}")
    process = subprocess.Popen(
        words, stderr=(place / "stderr").open("wb"), preexec_fn=die_with_parent(signal.SIGKILL)
    )
    try:
        await eventually(lambda: _is_served(port), DEADLINE)
        yield port
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait, DEADLINE)


async def _is_served(port: int) -> bool:
    try:
        return await _health(port) == 200
    except aiohttp.ClientError:
        return False


async def _health(port: int) -> int:
    async with aiohttp.ClientSession() as http, http.get(f"http://127.0.0.1:{port}/healthz") as response:
        return response.status


@pytest.mark.parametrize(("file", "command"), BALANCERS, ids=["haproxy", "nginx"])
async def test_clients_reach_the_herd_through_a_balancer_also_when_a_gateway_leaves(
    store: Store, tmp_path: Path, file: str, command: Command
) -> None:
    worker = ScriptedWorker("w")
    options: dict[str, Any] = {"trusted_proxy": "127.0.0.1", "gateway_drain": 1}
    async with (
        workers(store, worker),
        front_door(store, **options) as first,
        front_door(store, **options) as second,
        balancing(file, command, tmp_path, first, second) as port,
        aiohttp.ClientSession() as http,
    ):
        url = f"ws://127.0.0.1:{port}/playwright"
        async with http.ws_connect(url, headers={"User-Agent": USER_AGENT, **OWN_PROTOCOL}) as socket:
            await socket.send_str("hello")
            assert await socket.receive_str() == "hello"

        began = time.monotonic()
        await first.gateway.drain()
        assert [await _health(port) for _ in range(20)] == [200] * 20
        assert time.monotonic() - began < DEADLINE
