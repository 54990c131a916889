"""A Playwright connection through the herd, nginx, or straight to the worker: `python -m bench.playwright`.

Rounds are interleaved and only what all did in the same round is compared, because the machine is never
quiet. The gateway is the real role with a real Redis; the worker is the WebSocket server of Playwright's own
driver, which sends every message back, so that only the way to it is measured.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

import uvloop
from playwright._impl._driver import compute_driver_executable

from bench.peers import Peer, cpu_seconds, free_port, nginx, rss, running
from bench.player import DEADLINE, Player, play
from bench.report import Target, ratio, report
from remuda.base.config import Config, HerdConfig
from remuda.base.ids import WorkerId
from remuda.fleet.line import who_waits
from remuda.keyspace.playwright import ACTIVE_CONNECTIONS
from remuda.playwright.model import ServedBrowser, Worker
from remuda.playwright.registry import Registry
from remuda.playwright.room import PlaywrightConfig
from remuda.store import Store
from remuda.store.embedded import embedded_redis

SMALL, LARGE = 200, 64 * 1024
IDLE = 1000
CONNECTS = 30
# No worker of this size exists; here one stands for a fleet.
PLACES = 5000
BEAT_EVERY = 5.0

WIDE, NARROW = ServedBrowser.CHROMIUM, ServedBrowser.FIREFOX
HANDSHAKE = (
    b"GET /playwright/%b HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: Playwright/1.64.1 (x64; debian 12)\r\n"
    b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)

_ECHO = """
const { wsServer } = require(process.argv[1]);
const server = new wsServer({ host: "127.0.0.1", port: Number(process.argv[2]), perMessageDeflate: false });
server.on("connection", (client) => client.on("message", (message) => client.send(message)));
"""

# Its buffers as wide as our large messages: with its own it gets half of this.
_NGINX = """
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://127.0.0.1:{worker};
      proxy_http_version 1.1;
      proxy_set_header Upgrade $http_upgrade;
      proxy_set_header Connection "upgrade";
      proxy_buffer_size 64k;
      proxy_buffers 8 64k;
    }}
  }}
"""

Samples = dict[str, dict[str, list[float]]]


class Field(NamedTuple):
    """What is measured: the worker alone, behind nginx, and behind the gateway."""

    direct: Peer
    nginx: Peer
    gateway: Peer
    # Lets a worker have one connection only.
    narrow: Peer
    store: Store


def main() -> None:
    """Measure, print and keep."""
    options = parse()
    samples = uvloop.run(measure(options.rounds, options.seconds))
    report("playwright", samples, judge(samples))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement in a round")
    return parser.parse_args()


# The field


@asynccontextmanager
async def field() -> AsyncIterator[Field]:
    """A Redis, a worker, and before it nginx and two gateways."""
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        async with embedded_redis(Path(directory) / "redis") as url, Store(url) as store:
            with (
                worker() as echo,
                proxy(echo) as rival,
                gateway(url, directory, places=PLACES) as door,
                gateway(url, directory, places=1) as narrow,
            ):
                beating = asyncio.create_task(beat(store, echo), name="beat of the worker")
                yield Field(echo, rival, door, narrow, store)
                beating.cancel()


@contextmanager
def worker() -> Iterator[Peer]:
    """What a Playwright worker's clients talk to, without a browser behind it."""
    port = free_port()
    node, cli = compute_driver_executable()
    bundle = Path(cli).parent / "lib" / "utilsBundle.js"
    with running([node, "-e", _ECHO, str(bundle), str(port)], port) as pid:
        yield Peer("direct", port, pid)


@contextmanager
def proxy(echo: Peer) -> Iterator[Peer]:
    """What anybody else would put before a worker."""
    port = free_port()
    with nginx("nginx", port, _NGINX.format(port=port, worker=echo.port)) as peer:
        yield peer


@contextmanager
def gateway(redis_url: str, directory: str, *, places: int) -> Iterator[Peer]:
    """A gateway's own process, as operators run it."""
    port = free_port()
    config = Config(
        HerdConfig(redis=redis_url, data=Path(directory), port=port),
        PlaywrightConfig(playwright_concurrent=places, playwright_lifetime=1_000_000_000),
    )
    command = [sys.executable, "-m", "remuda.cli.main", "run", "gateway"]
    with running(command, port, config.environ()) as pid:
        yield Peer("gateway", port, pid)


async def beat(store: Store, echo: Peer) -> None:
    """Registers the worker for ever, once for either gateway."""
    endpoint = f"ws://127.0.0.1:{echo.port}/bench"
    workers = [Worker(browser, WorkerId("bench"), endpoint) for browser in (WIDE, NARROW)]
    registries = [Registry(store, worker, key_ttl=60, lease=20) for worker in workers]
    while True:
        for registry in registries:
            await registry.beat()
        await asyncio.sleep(BEAT_EVERY)


# What is done to it


async def connect(peer: Peer, size: int = SMALL, browser: ServedBrowser = WIDE) -> Player:
    """A client whose WebSocket is open."""
    return await play(peer.port, size, HANDSHAKE % browser.encode())


async def connect_ms(peer: Peer) -> float:
    """From the first packet to the open WebSocket."""
    began = time.perf_counter()
    player = await connect(peer)
    took = time.perf_counter() - began
    player.close()
    return took * 1000


async def messages_per_second(peer: Peer, size: int, seconds: float) -> float:
    """How many messages come back."""
    player = await connect(peer, size)
    player.start()
    began = time.perf_counter()
    await asyncio.sleep(seconds)
    rate = player.count / (time.perf_counter() - began)
    player.close()
    return rate


async def idle_kb(peers: Field) -> float:
    """What one open and silent connection costs the gateway's process."""
    # What the first ones leave behind for good is no cost of each.
    await leave(peers, [await connect(peers.gateway) for _ in range(50)])
    before = rss(peers.gateway)
    players = [await connect(peers.gateway) for _ in range(IDLE)]
    cost = (rss(peers.gateway) - before) / IDLE / 1000
    await leave(peers, players)
    return cost


async def leave(peers: Field, players: list[Player]) -> None:
    """Has all of them leave, and waits until the herd knows."""
    for player in players:
        player.close()
    await until(lambda: is_idle(peers.store))


async def is_idle(store: Store) -> bool:
    shown = await store.hgetall(ACTIVE_CONNECTIONS())
    return not any(int(count) for count in shown.values())


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Waits until it is so."""
    async with asyncio.timeout(DEADLINE):
        while not await condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def handover_ms(peers: Field) -> float:
    """From a client's leave to the open WebSocket of the one who waits for its place."""
    holder = await connect(peers.narrow, browser=NARROW)
    waiting = asyncio.create_task(connect(peers.narrow, browser=NARROW), name="who waits")
    await until(lambda: is_awaited(peers.store))
    began = time.perf_counter()
    holder.close()
    successor = await waiting
    took = time.perf_counter() - began
    successor.close()
    return took * 1000


async def is_awaited(store: Store) -> bool:
    return bool(await who_waits(store, "playwright:"))


async def measure(rounds: int, seconds: float) -> Samples:
    """Every number of every round."""
    async with field() as peers:
        rivals = (peers.direct, peers.nginx, peers.gateway)
        samples: Samples = {
            "connect, ms": {peer.name: [] for peer in rivals},
            f"messages/s of {SMALL} bytes": {peer.name: [] for peer in rivals},
            "processor time per message, µs": {peer.name: [] for peer in rivals},
            f"messages/s of {LARGE // 1024} KiB": {peer.name: [] for peer in rivals},
            "freed place to waiter, ms": {peers.gateway.name: []},
        }
        connects, small, cost, large, handover = samples.values()
        await connect_ms(peers.gateway)
        for turn in range(rounds):
            # Each goes first every other time.
            order = rivals if turn % 2 else rivals[::-1]
            times: dict[str, list[float]] = {peer.name: [] for peer in rivals}
            for _ in range(CONNECTS):
                for peer in order:
                    times[peer.name].append(await connect_ms(peer))
            for peer in order:
                connects[peer.name].append(median(times[peer.name]))
                before = cpu_seconds(peer)
                rate = await messages_per_second(peer, SMALL, seconds)
                small[peer.name].append(rate)
                cost[peer.name].append((cpu_seconds(peer) - before) / (rate * seconds) * 1e6)
                large[peer.name].append(await messages_per_second(peer, LARGE, seconds))
            handover[peers.gateway.name].append(await handover_ms(peers))
        samples["an idle connection, KB"] = {peers.gateway.name: [await idle_kb(peers)]}
    return samples


def judge(samples: Samples) -> list[Target]:
    """The numbers that must be reached."""
    connects, small, cost, large, handover, idle = samples.values()
    added = [ours - theirs for ours, theirs in zip(connects["gateway"], connects["direct"], strict=True)]
    return [
        Target("added to a connect", median(added), 2.0, "ms", is_ceiling=True),
        Target(f"{SMALL}-byte messages/s, of direct", ratio(small["gateway"], small["direct"]), 0.8),
        Target("processor time per message", median(cost["gateway"]), 15, "µs", is_ceiling=True),
        Target(f"{LARGE // 1024} KiB messages/s, of direct", ratio(large["gateway"], large["direct"]), 0.8),
        Target(f"{LARGE // 1024} KiB messages/s, of nginx", ratio(large["gateway"], large["nginx"]), 1.0),
        Target("an idle connection", median(idle["gateway"]), 10, "KB", is_ceiling=True),
        Target("freed place to waiter", median(handover["gateway"]), 20, "ms", is_ceiling=True),
    ]


if __name__ == "__main__":
    main()
