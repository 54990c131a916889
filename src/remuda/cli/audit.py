"""`remuda audit`: who created, ended or changed what in a running herd."""

import time
from typing import Any
from urllib.parse import urlencode

import msgspec
from rich.console import Console
from rich.text import Text

from remuda.base.errors import InvalidArgument
from remuda.cli.front_door import HerdAddress, ask_herd
from remuda.cli.tables import print_json

LOOK_EVERY = 1.0
PAGE = 1000
_START = "0-0"


def show_audit(herd: HerdAddress, *, limit: int, follow: bool, as_json: bool = False) -> None:
    """Prints the last entries, oldest first, and with `follow` those that come, until Ctrl-C."""
    console = Console(soft_wrap=True, highlight=False)
    answer = _read(herd, limit=limit)
    if as_json:
        if follow:
            raise InvalidArgument("--follow shows entries as lines: leave out --json")
        print_json(answer)
        return
    entries = answer["entries"][::-1]
    _print(console, entries)
    if not entries and not follow:
        console.print("no entries")
    last = entries[-1]["id"] if entries else _START
    try:
        while follow:
            time.sleep(LOOK_EVERY)
            entries = _read(herd, limit=PAGE, after=last)["entries"][::-1]
            _print(console, entries)
            last = entries[-1]["id"] if entries else last
    except KeyboardInterrupt:
        return


def _read(herd: HerdAddress, **query: Any) -> Any:
    """The newest entry is the first."""
    return ask_herd(herd, f"/api/audit?{urlencode(query)}")


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
