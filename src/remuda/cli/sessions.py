"""`remuda sessions`: the sessions of a running herd, and their end."""

from collections.abc import Iterable
from urllib.parse import quote

from rich.console import Console

from remuda.cli.front_door import HerdAddress, ask_herd
from remuda.cli.status import read_overview, sessions_table


def show_sessions(herd: HerdAddress) -> None:
    """Prints the sessions that have not ended."""
    Console().print(sessions_table(read_overview(herd)["sessions"]))


def kill_sessions(herd: HerdAddress, sessions: Iterable[str]) -> None:
    """Ends each of the sessions, and says so; Lost at the first that is not there."""
    for session in sessions:
        answer = ask_herd(herd, f"/api/sessions/{quote(session, safe='')}", method="DELETE")
        print(f"{answer['id']} {'ended' if answer['ended'] else 'had already ended'}")
