"""`remuda sessions`: the sessions of a running herd, and their end."""

from collections.abc import Iterable
from urllib.parse import quote

from rich.console import Console

from remuda.cli.front_door import ask_herd
from remuda.cli.status import read_overview, sessions_table


def show_sessions(url: str) -> None:
    """Prints the sessions that have not ended."""
    Console().print(sessions_table(read_overview(url)["sessions"]))


def kill_sessions(url: str, sessions: Iterable[str]) -> None:
    """Ends each of the sessions, and says so; Lost at the first that is not there."""
    for session in sessions:
        answer = ask_herd(url, f"/api/sessions/{quote(session, safe='')}", method="DELETE")
        print(f"{answer['id']} {'ended' if answer['ended'] else 'had ended before'}")
