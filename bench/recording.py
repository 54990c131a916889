"""What a recorded session costs: `python -m bench.recording`.

One herd; sessions of a headless Chromium, unrecorded and recorded in turns, on a page that moves all the time
and on one that stands still. Counted are the CPU time and memory of the whole herd while the session runs,
the bytes on the disk, and how long a small command takes. Differences within one run count.
"""

import argparse
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from statistics import median

import psutil

from bench.herd import Remote, herd_up, processes_of
from bench.report import Target, keep, print_table, print_targets, spread

PAGES = {
    "moving": "data:text/html,<h1 id=a>x</h1><script>setInterval(()=>a.textContent=Date.now(),20)</script>",
    "still": "data:text/html,<h1>x</h1>",
}
SETTLED = 2.0
"""Seconds after which a browser has started for good."""

Samples = dict[str, dict[str, list[float]]]


def main() -> None:
    """Measure, print and keep."""
    options = parse()
    samples = measure(rounds=options.rounds, seconds=options.seconds, commands=options.commands)
    added = {page: compare(samples[f"command, {page}, ms"]) for page in PAGES}
    targets = [
        Target(f"added to a command, {page} page", ms, 1.0, "ms", is_ceiling=True)
        for page, ms in added.items()
    ]
    rows = [
        [what, *(f"{name}: {spread(values)}" for name, values in of.items())] for what, of in samples.items()
    ]
    print_table(["median [range]", "", ""], rows)
    print()
    print_targets(targets)
    print(f"\nkept in {keep('recording', samples, targets)}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="sessions of each kind")
    parser.add_argument("--seconds", type=float, default=10.0, help="for which each is watched")
    parser.add_argument("--commands", type=int, default=200, help="sent to each afterwards")
    return parser.parse_args()


def compare(of: dict[str, list[float]]) -> float:
    """By how much the recorded differ from the others."""
    return median(of["recorded"]) - median(of["unrecorded"])


def measure(*, rounds: int, seconds: float, commands: int) -> Samples:
    """Every number by page and by whether the session was recorded, the two in turns."""
    samples: Samples = {}
    with herd_up("--slots", "1") as (netloc, mark):
        for turn in range(rounds + 1):
            for page in PAGES:
                for kind in ("unrecorded", "recorded"):
                    found = watch(netloc, mark, page=page, kind=kind, seconds=seconds, commands=commands)
                    if turn:  # The first start of a browser reads it from the disk.
                        note(samples, page, kind, found)
    return samples


def note(samples: Samples, page: str, kind: str, found: dict[str, list[float]]) -> None:
    for what, values in found.items():
        name, _, unit = what.partition(", ")
        of = samples.setdefault(f"{name}, {page}, {unit}", {"unrecorded": [], "recorded": []})
        of[kind] += values


def watch(
    netloc: str, mark: str, *, page: str, kind: str, seconds: float, commands: int
) -> dict[str, list[float]]:
    """What one session costs while nobody sends a command, and how long commands take then."""
    herd = Remote(kind, netloc)
    herd.open(
        {"capabilities": {"alwaysMatch": {"browserName": "chrome", "se:recordVideo": kind == "recorded"}}}
    )
    herd.go(PAGES[page])
    time.sleep(SETTLED)
    busy, began = cpu_seconds(mark), time.monotonic()
    written = disk_bytes(mark)
    time.sleep(seconds)
    passed = time.monotonic() - began
    found = {
        "cpu, % of a core": [100 * (cpu_seconds(mark) - busy) / passed],
        "memory, MB": [megabytes(mark)],
        "disk, MB a minute": [(disk_bytes(mark) - written) / 1e6 / passed * 60],
        "command, ms": [herd.command() * 1000 for _ in range(commands)],
    }
    herd.close()
    return found


def cpu_seconds(mark: str) -> float:
    total = 0.0
    for process in processes_of(mark):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system
    return total


def megabytes(mark: str) -> float:
    total = 0
    for process in processes_of(mark):
        with suppress(psutil.NoSuchProcess):
            total += process.memory_full_info().pss
    return total / 1e6


def disk_bytes(mark: str) -> int:
    storage = Path(tempfile.gettempdir()) / f"bench-{mark}" / "storage"
    return sum(path.stat().st_size for path in storage.glob("*/*.*"))


if __name__ == "__main__":
    main()
