"""How commands show what they found: tables without lines, and times as people say them."""

import json
import sys
from typing import Any

from rich.console import Console
from rich.table import Table

from remuda.base.clock import now, parse_rfc3339

WIDE = 1000
STATE_COLOURS = {
    "queued": "yellow",
    "pending": "cyan",
    "alive": "green",
    "available": "green",
    "draining": "yellow",
    "hindered": "red",
    "suspected": "red",
    "silent": "red",
}


def table(*columns: str) -> Table:
    """An empty table with these columns. The first one is never folded: ids are copied from it."""
    made = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for column in columns:
        made.add_column(column, overflow="fold", no_wrap=column == columns[0])
    return made


def table_console() -> Console:
    """Where tables are printed. Elsewhere than in a terminal no row is folded: it is searched, and ids and
    paths are copied from it."""
    return Console(width=None if sys.stdout.isatty() else WIDE)


def print_json(answer: Any) -> None:
    """Prints what the API has answered, for programs. In ASCII: what comes from a web site must not steer the
    terminal."""
    print(json.dumps(answer, indent=2))


def printable(text: str) -> str:
    """The text without control characters: what comes from a web site must not steer the terminal."""
    return "".join(each if each.isprintable() else "\ufffd" for each in text)


def since(moment: str | None) -> str:
    """How long ago that was; empty if it is not known."""
    return span(now() - parse_rfc3339(moment)) if moment else ""


def span(seconds: float) -> str:
    """A duration as a person says it: `42 s`, `7 min`, `3 h`, `2 d`."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"
