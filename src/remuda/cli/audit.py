"""`remuda audit`: who created, ended or changed what in a running herd."""

import time
from typing import Any
from urllib.parse import urlencode

import msgspec
from rich.console import Console
from rich.text import Text

from remuda.cli.front_door import HerdAddress, ask_herd

LOOK_EVERY = 1.0
PAGE = 1000
_START = "0-0"


def show_audit(herd: HerdAddress, *, limit: int, follow: bool) -> None:
    """Prints the last entries, oldest first, and with `follow` those that come, until Ctrl-C."""
    console = Console(soft_wrap=True, highlight=False)
    entries = _read(herd, limit=limit)
    _print(console, entries)
    if not entries and not follow:
        console.print("no entries")
    last = entries[-1]["id"] if entries else _START
    try:
        while follow:
            time.sleep(LOOK_EVERY)
            entries = _read(herd, limit=PAGE, after=last)
            _print(console, entries)
            last = entries[-1]["id"] if entries else last
    except KeyboardInterrupt:
        return


def _read(herd: HerdAddress, **query: Any) -> list[Any]:
    entries: list[Any] = ask_herd(herd, f"/api/audit?{urlencode(query)}")["entries"]
    return entries[::-1]


def _print(console: Console, entries: list[Any]) -> None:
    for entry in entries:
        # Without a token the account says nothing: it is the same for all.
        who = f"{entry['account']}/{entry['token']}" if entry["token"] else "-"
        details = {name: value for name, value in entry["details"].items() if value not in (None, False, [])}
        console.print(
            Text.assemble(
                (f"{entry['at'].replace('T', ' ')[:19]}Z  ", "dim"),
                f"{who:<20}  {entry['address']:<15}  ",
                (f"{entry['action']:<15}  ", "bold"),
                entry["subject"],
                (f"  {msgspec.json.encode(details).decode()}" if details else "", "dim"),
            )
        )
