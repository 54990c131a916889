"""`remuda status`: slots, sessions, Playwright workers and roles of a running herd, in a terminal."""

import time
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from remuda.base.clock import now, parse_rfc3339
from remuda.cli.front_door import ask_herd

REFRESH_EVERY = 1.0
_COLOURS = {
    "queued": "yellow",
    "pending": "cyan",
    "alive": "green",
    "available": "green",
    "draining": "yellow",
    "suspected": "red",
    "silent": "red",
}


def show_status(url: str, *, watch: bool) -> int:
    """Prints the herd's state, once or until Ctrl-C; the exit status."""
    console = Console()
    if not watch:
        console.print(_picture(read_overview(url), url))
        return 0
    with Live(console=console, screen=True, auto_refresh=False) as live:
        try:
            while True:
                live.update(_picture(read_overview(url), url), refresh=True)
                time.sleep(REFRESH_EVERY)
        except KeyboardInterrupt:
            return 0


def read_overview(url: str) -> Any:
    """The herd's own overview."""
    return ask_herd(url, "/api/overview")


def _picture(overview: Any, url: str) -> Group:
    slots, queue = overview["slots"], overview["queue"]
    title = Text.assemble(
        ("Remuda ", "bold"),
        f"{overview['version']} at {url}   ",
        (
            f"{slots['used']} of {slots['total']} slots in use",
            "green" if slots["used"] < slots["total"] else "yellow",
        ),
        f"   {len(queue)} waiting",
        (_draining(overview["orchestrators"]), _COLOURS["draining"]),
    )
    return Group(
        title,
        Text(),
        sessions_table(overview["sessions"]),
        Text(),
        *_playwright(overview["playwright"]),
        _roles(overview["roles"]),
    )


def _draining(orchestrators: list[Any]) -> str:
    count = sum(each["draining"] for each in orchestrators)
    return f"   {count} of {len(orchestrators)} orchestrators draining" if count else ""


def sessions_table(sessions: list[Any]) -> Table | Text:
    """Sessions, as a person wants to see them."""
    if not sessions:
        return Text("no sessions", style="dim")
    table = _table("session", "state", "browser", "name", "client", "age")
    for session in sessions:
        browser = (
            session["actual"] or next(iter(session["requested"]), None) or {"name": "any", "version": ""}
        )
        table.add_row(
            session["id"],
            Text(_state(session), style=_COLOURS.get(session["state"], "")),
            f"{browser['name']} {browser['version']}".strip(),
            session["name"],
            session["client"]["host"],
            _span(session["age"]),
        )
    return table


def _state(session: Any) -> str:
    """The session's state, and in the queue its position."""
    return session["state"] if session["position"] is None else f"{session['state']} #{session['position']}"


def _playwright(playwright: Any) -> list[Table | Text]:
    workers, queue = playwright["workers"], playwright["queue"]
    if not workers and not queue:
        return []
    longest = f", the first for {_span(max(each['waited'] for each in queue))}" if queue else ""
    title = Text(
        f"Playwright   {playwright['connections']} connected   {len(queue)} waiting{longest}", style="dim"
    )
    table = _table("worker", "browser", "version", "status", "connections", "served", "up", "beat")
    for worker in workers:
        table.add_row(
            worker["id"][:8],
            worker["browser"],
            worker["version"] or "any",
            Text(worker["status"], style=_COLOURS.get(worker["status"], "")),
            str(worker["active"]),
            str(worker["lifetime"]),
            _since(worker["startedAt"]),
            f"{_since(worker['beatAt'])} ago" if worker["beatAt"] else "",
        )
    return [title, table, Text()]


def _roles(roles: list[Any]) -> Table:
    table = _table("role", "host", "pid", "version", "address", "up")
    for role in roles:
        up_for = _since(role["startedAt"])
        table.add_row(role["name"], role["host"], str(role["pid"]), role["version"], role["address"], up_for)
    return table


def _table(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _since(moment: str | None) -> str:
    """How long ago that was; empty if nobody knows."""
    return _span(now() - parse_rfc3339(moment)) if moment else ""


def _span(seconds: float) -> str:
    """A duration as a person says it: `42 s`, `7 min`, `3 h`, `2 d`."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"
