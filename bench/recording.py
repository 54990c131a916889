"""What a recorded session costs: `python -m bench.recording`.

One herd; sessions of a headless Chromium, unrecorded and recorded in turns, on a page that moves all the time
and on one that stands still. Counted are the CPU time and memory of the whole herd while the session runs,
and the bytes on the disk. Then one of each runs at the same time, and both get the same command in turns.
Differences within one run count.
"""

import argparse
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import psutil

from bench.herd import Remote, herd_up, processes_of
from bench.report import Samples, report

PAGES = {
    "moving": "data:text/html,<h1 id=a>x</h1><script>setInterval(()=>a.textContent=Date.now(),20)</script>",
    "still": "data:text/html,<h1>x</h1>",
}
SETTLED = 2.0
"""Seconds after which a browser has started for good."""

KINDS = ("unrecorded", "recorded")


def main() -> None:
    """Measure, print and keep."""
    options = parse()
    samples = measure(rounds=options.rounds, seconds=options.seconds, commands=options.commands)
    report("recording", samples)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="sessions of each kind")
    parser.add_argument("--seconds", type=float, default=10.0, help="for which each is watched")
    parser.add_argument("--commands", type=int, default=200, help="sent to each afterwards")
    return parser.parse_args()


def measure(*, rounds: int, seconds: float, commands: int) -> Samples:
    """Every number by page and by whether the session was recorded, the two in turns."""
    samples: Samples = {}
    with herd_up("--slots", "2") as (netloc, mark):
        for turn in range(rounds + 1):
            for page in PAGES:
                for kind in KINDS:
                    found = watch(netloc, mark, page=page, kind=kind, seconds=seconds)
                    if turn:  # The first start of a browser reads it from the disk.
                        note(samples, page, kind, found)
        for page in PAGES:
            for kind, times in command_times(netloc, page, commands).items():
                note(samples, page, kind, {"command, ms": times})
    return samples


def command_times(netloc: str, page: str, commands: int) -> dict[str, list[float]]:
    """What the same command takes at two sessions that run at the same time, in turns."""
    remotes = [opened(netloc, page=page, kind=kind) for kind in KINDS]
    times: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for turn in range(commands):
        for remote in remotes if turn % 2 else remotes[::-1]:
            times[remote.name].append(remote.command() * 1000)
    for remote in remotes:
        remote.close()
    return times


def opened(netloc: str, *, page: str, kind: str) -> Remote:
    """A session that shows the page."""
    remote = Remote(kind, netloc)
    wanted = {"browserName": "chrome", "se:recordVideo": kind == "recorded"}
    remote.open({"capabilities": {"alwaysMatch": wanted}})
    remote.go(PAGES[page])
    time.sleep(SETTLED)
    return remote


def note(samples: Samples, page: str, kind: str, found: dict[str, list[float]]) -> None:
    for what, values in found.items():
        name, _, unit = what.partition(", ")
        of = samples.setdefault(f"{name}, {page}, {unit}", {each: [] for each in KINDS})
        of[kind] += values


def watch(netloc: str, mark: str, *, page: str, kind: str, seconds: float) -> dict[str, list[float]]:
    """What a session costs to which nobody sends a command."""
    remote = opened(netloc, page=page, kind=kind)
    busy, written, began = cpu_seconds(mark), disk_bytes(mark), time.monotonic()
    time.sleep(seconds)
    passed = time.monotonic() - began
    found = {
        "cpu, % of a core": [100 * (cpu_seconds(mark) - busy) / passed],
        "memory, MB": [megabytes(mark)],
        "disk, MB a minute": [(disk_bytes(mark) - written) / 1e6 / passed * 60],
    }
    remote.close()
    return found


def everything(mark: str) -> set[psutil.Process]:
    """All processes of the herd; also a Chromium's, which write their titles over their environment."""
    found = set(processes_of(mark))
    for process in list(found):
        with suppress(psutil.NoSuchProcess):
            found.update(process.children(recursive=True))
    return found


def cpu_seconds(mark: str) -> float:
    total = 0.0
    for process in everything(mark):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system
    return total


def megabytes(mark: str) -> float:
    total = 0
    for process in everything(mark):
        with suppress(psutil.NoSuchProcess):
            total += process.memory_full_info().pss
    return total / 1e6


def disk_bytes(mark: str) -> int:
    storage = Path(tempfile.gettempdir()) / f"bench-{mark}" / "storage"
    return sum(path.stat().st_size for path in storage.glob("*/*.*"))


if __name__ == "__main__":
    main()
