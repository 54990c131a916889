"""`remuda drain`: takes orchestrators of a running herd out of service, and puts them back."""

import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from remuda.base.errors import InvalidArgument, Lost
from remuda.cli.front_door import ask_herd

LOOK_EVERY = 0.5


def drain_orchestrators(url: str, names: Sequence[str], *, undo: bool, wait: bool) -> None:
    """Takes these orchestrators out of service, or the only one, and says what they still have to do."""
    chosen = names or [_only_one(url)]
    for name in chosen:
        path = f"/api/orchestrators/{quote(name, safe='')}/drain"
        _say(ask_herd(url, path, method="DELETE" if undo else "POST"))
    if wait and not undo:
        for name in chosen:
            _await_idle(url, name)


def _only_one(url: str) -> str:
    names = [each["id"] for each in _orchestrators(url)]
    if not names:
        raise Lost("this herd has no orchestrator")
    if len(names) > 1:
        raise InvalidArgument(f"name the orchestrator: there are {', '.join(names)}")
    return str(names[0])


def _orchestrators(url: str) -> list[Any]:
    found: list[Any] = ask_herd(url, "/api/orchestrators")["orchestrators"]
    return found


def _say(answer: Any) -> None:
    state = "drains" if answer["draining"] else "is in service"
    count = answer["sessions"]
    print(f"{answer['id']} {state}, {count} session{'' if count == 1 else 's'}", flush=True)


def _await_idle(url: str, name: str) -> None:
    """Waits for the orchestrator's last session. One that is gone has none."""
    while any(each["id"] == name and each["held"] for each in _orchestrators(url)):
        time.sleep(LOOK_EVERY)
    print(f"{name} has no session any more", flush=True)
