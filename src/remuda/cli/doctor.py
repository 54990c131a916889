"""`remuda doctor`: what this machine has, what it lacks, and what to do about it."""

import asyncio
from dataclasses import asdict

from rich.table import Table
from rich.text import Text

from remuda.base.config import Config
from remuda.cli.rooms import ROOMS
from remuda.cli.tables import print_json, table_console
from remuda.fleet.room import CheckState
from remuda.ops.doctor import examine

_LOOK = {CheckState.OK: ("✓", "green"), CheckState.WARN: ("!", "yellow"), CheckState.FAIL: ("✗", "red")}


def show_doctor(config: Config, *, as_json: bool = False) -> int:
    """Prints every check; the exit status is 1 if a herd could not run here."""
    checks = asyncio.run(examine(config, ROOMS))
    status = 1 if any(check.state is CheckState.FAIL for check in checks) else 0
    if as_json:
        print_json({"checks": [asdict(check) for check in checks]})
        return status
    table = Table.grid(padding=(0, 2))
    for _ in range(3):
        table.add_column(overflow="fold")
    for check in checks:
        mark, colour = _LOOK[check.state]
        found = Text(check.found)
        if check.advice:
            found.append(f"\n→ {check.advice}", style=colour)
        table.add_row(Text(mark, style=colour), Text(check.name, style="bold"), found)
    table_console().print(table)
    return status
