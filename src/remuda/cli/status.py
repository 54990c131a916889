"""`remuda status`: slots, sessions, Playwright workers and roles of a running herd."""

import time
from typing import Any

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from remuda.base.errors import InvalidArgument, Unavailable
from remuda.cli.front_door import HerdAddress, ask_herd
from remuda.cli.sessions import sessions_table
from remuda.cli.tables import STATE_COLOURS, print_json, since, span, table, table_console

REFRESH_EVERY = 1.0


def show_status(herd: HerdAddress, *, watch: bool, as_json: bool = False) -> int:
    """Prints the herd's state, once or until Ctrl-C; the exit status."""
    if as_json:
        if watch:
            raise InvalidArgument("--watch shows a picture: leave out --json")
        print_json(read_overview(herd))
        return 0
    console = table_console()
    shown: Group | Text = _picture(read_overview(herd), herd.url)
    if not watch:
        console.print(shown)
        return 0
    with Live(shown, console=console, screen=True, auto_refresh=False) as live:
        try:
            while True:
                time.sleep(REFRESH_EVERY)
                try:
                    shown = _picture(read_overview(herd), herd.url)
                except Unavailable as error:  # It may just be restarted.
                    shown = Text(error.message, style="red")
                live.update(shown, refresh=True)
        except KeyboardInterrupt:
            return 0


def read_overview(herd: HerdAddress) -> Any:
    """The herd's own overview."""
    return ask_herd(herd, "/api/overview")


def _picture(overview: Any, url: str) -> Group:
    slots, queue, orchestrators = overview["slots"], overview["queue"], overview["orchestrators"]
    draining = sum(each["draining"] for each in orchestrators)
    title = Text.assemble(
        ("Remuda ", "bold"),
        f"{overview['version']} at {url}   ",
        (
            f"{slots['used']} of {slots['total']} slots in use",
            "green" if slots["used"] < slots["total"] else "yellow",
        ),
        f"   {len(queue)} waiting",
        (f"   {draining} of {len(orchestrators)} orchestrators draining" if draining else "", "yellow"),
    )
    return Group(
        title,
        Text(),
        sessions_table(overview["sessions"]),
        Text(),
        *_playwright(overview["playwright"]),
        _roles(overview["roles"]),
        *(
            Text(f"{each['name']} on {each['host']}: {each['warning']}", style="yellow")
            for each in overview["roles"]
            if each["warning"]
        ),
    )


def _playwright(playwright: Any) -> list[Table | Text]:
    workers, queue = playwright["workers"], playwright["queue"]
    if not workers and not queue:
        return []
    longest = f", the first for {span(max(each['waited'] for each in queue))}" if queue else ""
    title = Text(
        f"Playwright   {playwright['connections']} connected   {len(queue)} waiting{longest}", style="dim"
    )
    shown = table("worker", "browser", "version", "status", "connections", "served", "up", "beat")
    for worker in workers:
        shown.add_row(
            worker["id"][:8],
            worker["browser"],
            worker["version"] or "any",
            Text(worker["status"], style=STATE_COLOURS.get(worker["status"], "")),
            str(worker["active"]),
            str(worker["lifetime"]),
            since(worker["startedAt"]),
            f"{since(worker['beatAt'])} ago" if worker["beatAt"] else "",
        )
    return [title, shown, Text()]


def _roles(roles: list[Any]) -> Table:
    shown = table("role", "host", "pid", "version", "address", "up")
    for role in roles:
        up_for = since(role["startedAt"])
        shown.add_row(role["name"], role["host"], str(role["pid"]), role["version"], role["address"], up_for)
    return shown
