"""What a measurement found: a table for people, JSON for comparing runs."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import NamedTuple

RESULTS = Path(__file__).parent / "results"

Samples = dict[str, dict[str, list[float]]]
"""Every number, by what was measured and at whom."""


class Target(NamedTuple):
    """One number that must be reached."""

    name: str
    value: float
    limit: float
    unit: str = ""
    is_ceiling: bool = False

    @property
    def is_reached(self) -> bool:
        """Whether the number is on the right side of its limit."""
        return self.value <= self.limit if self.is_ceiling else self.value >= self.limit


def report(name: str, samples: Samples, targets: Sequence[Target] = ()) -> None:
    """Print what was measured and which targets were reached, and keep both."""
    whom = list(dict.fromkeys(each for of in samples.values() for each in of))
    rows = [
        [what, *(spread(of[each]) if each in of else "" for each in whom)] for what, of in samples.items()
    ]
    print_table(["median [range]", *whom], rows)
    if targets:
        print()
        print_targets(targets)
    print(f"\nkept in {keep(name, samples, targets)}")


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median of each round's ratio: what disturbs a round on a busy machine disturbs both in it."""
    return median(our / their for our, their in zip(ours, theirs, strict=True))


def spread(values: Sequence[float]) -> str:
    """Median and range, for a table."""
    return f"{median(values):,.4g} [{min(values):,.4g} to {max(values):,.4g}]"


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print the rows in columns as wide as they need."""
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    for row in [header, *rows]:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def print_targets(targets: Sequence[Target]) -> None:
    """Print which numbers were reached."""
    rows = [
        [
            target.name,
            f"{target.value:.3g} {target.unit}".strip(),
            f"{'at most' if target.is_ceiling else 'at least'} {target.limit:g} {target.unit}".strip(),
            "reached" if target.is_reached else "MISSED",
        ]
        for target in targets
    ]
    print_table(["target", "measured", "wanted", ""], rows)


def keep(name: str, samples: Samples, targets: Sequence[Target]) -> Path:
    """Write the numbers down; returns the file."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    found = [{**target._asdict(), "is_reached": target.is_reached} for target in targets]
    taken_at = datetime.now(UTC).isoformat(timespec="seconds")
    path.write_text(json.dumps({"taken_at": taken_at, "targets": found, "samples": samples}, indent=2) + "\n")
    return path
