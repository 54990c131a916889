"""`remuda sessions`: the sessions of a running herd, those that have ended too, and the end of them."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from remuda.base.ids import is_uuid
from remuda.cli.front_door import HerdAddress, ask_herd
from remuda.cli.prefixes import complete
from remuda.cli.tables import STATE_COLOURS, print_json, printable, since, span, table, table_console

PAGE = 500
MOST_ENDED = 50
_LEVELS = {"warn": "yellow", "fail": "red"}


def list_sessions(herd: HerdAddress, *, ended: bool, limit: int | None, as_json: bool = False) -> None:
    """Prints the sessions that have not ended, oldest first; or those that have, the last one first."""
    found = _read_all(herd, "terminated" if ended else "active")
    if ended:
        # A page has no order that would hold for all of them.
        found.sort(key=lambda session: session["terminatedAt"] or "", reverse=True)
        limit = limit or MOST_ENDED
    shown = found[:limit]
    if as_json:
        print_json({"sessions": shown, "cursor": None})
        return
    console = table_console()
    console.print(_ended_table(shown) if ended else sessions_table(shown))
    if len(shown) < len(found):
        console.print(Text(f"{len(shown)} of {len(found)}: see --limit", style="dim"))


def sessions_table(sessions: Sequence[Any]) -> Table | Text:
    """Sessions that have not ended."""
    if not sessions:
        return Text("no sessions", style="dim")
    shown = table("session", "state", "browser", "name", "client", "age")
    for session in sessions:
        shown.add_row(
            session["id"],
            _state(session),
            _browser(session),
            Text(printable(session["name"])),
            session["client"]["host"],
            span(session["age"]),
        )
    return shown


def _ended_table(sessions: Sequence[Any]) -> Table | Text:
    if not sessions:
        return Text("no session has ended", style="dim")
    shown = table("session", "browser", "name", "client", "lasted", "ended")
    for session in sessions:
        shown.add_row(
            session["id"],
            _browser(session),
            Text(printable(session["name"])),
            session["client"]["host"],
            span(session["age"]),
            f"{since(session['terminatedAt'])} ago",
        )
    return shown


def show_session(herd: HerdAddress, typed: str, *, log: int, as_json: bool = False) -> None:
    """Prints what is known of a session, and the end of its log."""
    session = ask_herd(herd, _path(_find(herd, [typed], states=("active", "terminated"))[0]))
    if as_json:
        print_json(session)
        return
    shown = table("", "")
    shown.show_header = False
    times = ("queuedAt", "pendingAt", "aliveAt", "terminatedAt")
    queued, pending, alive, terminated = (
        f"{since(session[moment])} ago" if session[moment] else "" for moment in times
    )
    rows: list[tuple[str, str | Text]] = [
        ("session", session["id"]),
        ("state", _state(session)),
        ("account", session["account"]),
        ("browser", _browser(session)),
        ("client", f"{session['client']['host']} {session['client']['userAgent']}"),
        ("orchestrator", session["orchestrator"] or ""),
        ("asked for", queued),
        ("got a slot", pending),
        ("ready", alive),
        ("ended", terminated),
        ("lasted" if session["terminatedAt"] else "age", span(session["age"])),
        ("video", f"{herd.url}{session['videoUrl']}" if session["videoUrl"] else ""),
        *session["labels"].items(),
    ]
    for name, value in rows:
        if value:
            text = value if isinstance(value, Text) else Text(printable(value))
            shown.add_row(Text(printable(name), style="dim"), text)
    console = Console(highlight=False)
    console.print(shown)
    for entry in session["log"][-log:] if log else ():
        meta = f"  {msgspec.json.encode(entry['meta']).decode()}" if entry["meta"] else ""
        line = f"{entry['time'][11:23]}  {entry['component']}  {entry['code']}  {entry['meaning']}{meta}"
        console.print(Text(printable(line), style=_LEVELS.get(entry["level"], "dim")), soft_wrap=True)


def kill_sessions(herd: HerdAddress, typed: Sequence[str]) -> None:
    """Ends each of the sessions, and says so; Lost at the first that is not there."""
    for session in _find(herd, typed, states=("active",)):
        answer = ask_herd(herd, _path(session), method="DELETE")
        print(f"{answer['id']} {'ended' if answer['ended'] else 'had already ended'}")


def _find(herd: HerdAddress, typed: Sequence[str], *, states: Sequence[str]) -> list[str]:
    """The ids that were meant. Whole ones need not be looked up."""
    if all(map(is_uuid, typed)):
        return list(typed)
    known = {session["id"] for state in states for session in _read_all(herd, state)}
    return [complete(each, known, what="sessions") for each in typed]


def _read_all(herd: HerdAddress, state: str) -> list[Any]:
    found: dict[str, Any] = {}
    cursor: str | None = "0"
    while cursor is not None:
        query = urlencode({"state": state, "limit": PAGE, "cursor": cursor})
        page = ask_herd(herd, f"/api/sessions?{query}")
        # While sessions come and go, two pages may both have one.
        found |= {session["id"]: session for session in page["sessions"]}
        cursor = page["cursor"]
    return list(found.values())


def _path(session: str) -> str:
    return f"/api/sessions/{quote(session, safe='')}"


def _state(session: Any) -> Text:
    position = "" if session["position"] is None else f" #{session['position']}"
    return Text(f"{session['state']}{position}", style=STATE_COLOURS.get(session["state"], ""))


def _browser(session: Any) -> Text:
    browser = session["actual"] or next(iter(session["requested"]), None) or {"name": "any", "version": ""}
    return Text(printable(f"{browser['name']} {browser['version']}".strip()))
