"""What tokens, metering and TLS cost at the front door: `python -m bench.door`.

Whole gateways with a Redis of their own: one that needs a token and one that does not meter against one that
meters and needs none, and one that speaks TLS against an nginx that does. Rounds are interleaved, and only
the ratio within a round counts.
"""

import argparse
import resource
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench.load import latencies_ms, messages_per_second, requests_per_second
from bench.peers import (
    TOKEN,
    Peer,
    cpu_seconds,
    free_port,
    make_certificate,
    nginx,
    proxy,
    python,
    upstream,
)
from bench.report import Samples, Target, ratio, report


class DoorField(NamedTuple):
    """Everything that is measured."""

    open: Peer
    unmetered: Peer
    guarded: Peer
    nginx: Peer
    tls: Peer


@contextmanager
def field() -> Iterator[DoorField]:
    """Start the upstreams, four gateways and nginx; stop them all at the end."""
    with ExitStack() as stack:
        cert, key = make_certificate(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-"))))
        pages = stack.enter_context(upstream()).port
        echo = stack.enter_context(python("echo", free_port())).port

        def gateway(*options: str) -> Peer:
            arguments = (str(pages), str(echo), *options)
            return stack.enter_context(python("role", free_port(), *arguments))

        open_door = gateway("auth=off")._replace(name="no token")
        unmetered = gateway("auth=off", "metering=off")._replace(name="not metered")
        guarded = gateway("auth=on")._replace(name="token", token=TOKEN)
        port = free_port()
        rival = stack.enter_context(nginx("nginx, TLS", port, proxy(port, pages, echo, cert=cert, key=key)))
        tls = gateway("auth=off", f"tls_cert={cert}", f"tls_key={key}")
        yield DoorField(
            open_door,
            unmetered,
            guarded,
            rival._replace(scheme="https"),
            tls._replace(name="gateway, TLS", scheme="https"),
        )


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=int, default=1, help="of each measurement in a round")
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with field() as peers:
        samples = measure(peers, options.rounds, options.seconds)
    report("door", samples, judge(samples))


def measure(peers: DoorField, rounds: int, seconds: int) -> Samples:
    """Every number of every round."""
    samples: Samples = {
        "requests/s": {peer.name: [] for peer in peers},
        "processor time per request, µs": {peer.name: [] for peer in peers},
        "websocket messages/s": {peer.name: [] for peer in (peers.nginx, peers.tls)},
        "latency, ms": {peer.name: [] for peer in peers},
    }
    for peer in peers:
        requests_per_second(peer, 1)
    for turn in range(rounds):
        # Each goes first every other time.
        for peer in peers if turn % 2 else peers[::-1]:
            before = cpu_seconds(peer)
            rate = requests_per_second(peer, seconds)
            cost = (cpu_seconds(peer) - before) / (rate * seconds)
            samples["requests/s"][peer.name].append(rate)
            samples["processor time per request, µs"][peer.name].append(cost * 1e6)
        for peer in (peers.nginx, peers.tls):
            samples["websocket messages/s"][peer.name].append(messages_per_second(peer, seconds))
        for name, value in latencies_ms(list(peers), rounds=500 * seconds).items():
            samples["latency, ms"][name].append(value)
    return samples


def judge(samples: Samples) -> list[Target]:
    """The numbers that must be reached."""
    requests, messages = samples["requests/s"], samples["websocket messages/s"]
    latency = samples["latency, ms"]
    added = (median(latency["token"]) - median(latency["no token"])) * 1000
    return [
        Target(
            "requests/s with a token, of those without", ratio(requests["token"], requests["no token"]), 0.97
        ),
        Target(
            "requests/s with metering, of those without",
            ratio(requests["no token"], requests["not metered"]),
            0.97,
        ),
        Target("latency added by a token", added, 20, "µs", is_ceiling=True),
        Target("requests/s over TLS, of nginx", ratio(requests["gateway, TLS"], requests["nginx, TLS"]), 0.8),
        Target(
            "websocket messages/s over TLS, of nginx",
            ratio(messages["gateway, TLS"], messages["nginx, TLS"]),
            0.8,
        ),
    ]


if __name__ == "__main__":
    main()
