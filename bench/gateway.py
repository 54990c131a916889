"""The gateway against nginx, in front of the same upstream on this machine: `python -m bench.gateway`.

Rounds are interleaved and only the ratio within a round counts, because the machine is never quiet; the
processor time per request is printed beside it, because that hardly depends on who else is running. Both run
as one process; the gateway is the real door with a directory in which nothing moves.
"""

import argparse
import resource
from statistics import median

from bench.load import idle_websockets, latencies_ms, messages_per_second, requests_per_second
from bench.peers import Field, Peer, cpu_seconds, field, rss
from bench.report import Samples, Target, ratio, report

IDLE = 1000


def main() -> None:
    """Measure, print and keep."""
    options = parse()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with field() as peers:
        samples = measure(peers, options.rounds, options.seconds)
        samples["idle websockets, MB"] = {peer.name: [idle_mb(peer)] for peer in (peers.nginx, peers.gateway)}
    report("gateway", samples, judge(samples))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=int, default=1, help="of each measurement in a round")
    return parser.parse_args()


def measure(peers: Field, rounds: int, seconds: int) -> Samples:
    """Every number of every round."""
    rivals = (peers.nginx, peers.gateway)
    samples: Samples = {
        "requests/s": {peer.name: [] for peer in rivals},
        "processor time per request, µs": {peer.name: [] for peer in rivals},
        "websocket messages/s": {peer.name: [] for peer in rivals},
        "latency, ms": {peer.name: [] for peer in (peers.direct, *rivals)},
    }
    for peer in rivals:
        requests_per_second(peer, 1)
    for turn in range(rounds):
        # Each goes first every other time.
        for peer in rivals if turn % 2 else rivals[::-1]:
            before = cpu_seconds(peer)
            rate = requests_per_second(peer, seconds)
            cost = (cpu_seconds(peer) - before) / (rate * seconds)
            samples["requests/s"][peer.name].append(rate)
            samples["processor time per request, µs"][peer.name].append(cost * 1e6)
            samples["websocket messages/s"][peer.name].append(messages_per_second(peer, seconds))
        for name, value in latencies_ms([peers.direct, *rivals], rounds=500 * seconds).items():
            samples["latency, ms"][name].append(value)
    return samples


def idle_mb(peer: Peer) -> float:
    """What the idle WebSockets cost the peer's process."""
    before = rss(peer)
    with idle_websockets(peer, IDLE):
        return (rss(peer) - before) / 1e6


def judge(samples: Samples) -> list[Target]:
    """The numbers that must be reached."""
    requests, messages = samples["requests/s"], samples["websocket messages/s"]
    latency = samples["latency, ms"]
    added = median(latency["gateway"]) - median(latency["direct"])
    idle = samples["idle websockets, MB"]["gateway"][0]
    return [
        Target("requests/s, of nginx", ratio(requests["gateway"], requests["nginx"]), 0.8),
        Target("added median latency", added, 0.15, "ms", is_ceiling=True),
        Target("websocket messages/s, of nginx", ratio(messages["gateway"], messages["nginx"]), 0.8),
        Target(f"{IDLE:,} idle websockets", idle, 10, "MB", is_ceiling=True),
    ]


if __name__ == "__main__":
    main()
