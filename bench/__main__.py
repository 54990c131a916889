"""Runs every measurement, one after the other: `make bench`."""

import subprocess
import sys

MEASUREMENTS = (
    "bench.access",
    "bench.archive",
    "bench.archive_parts",
    "bench.fairness",
    "bench.gateway",
    "bench.door",
    "bench.herd",
    "bench.metering",
    "bench.own_browsers",
    "bench.picks",
    "bench.playwright",
    "bench.sessions",
    "bench.slots",
    "bench.sweeps",
    "bench.recording",
)


def main() -> None:
    """Each in a process of its own, so that none inherits the other's memory."""
    for name in MEASUREMENTS:
        print(f"\n== {name}\n", flush=True)
        subprocess.run([sys.executable, "-m", name], check=True)


if __name__ == "__main__":
    main()
