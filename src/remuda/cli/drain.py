"""`remuda drain`: takes orchestrators of a running herd out of service, and puts them back."""

import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from remuda.base.errors import InvalidArgument, Lost
from remuda.cli.front_door import HerdAddress, ask_herd
from remuda.cli.prefixes import complete

LOOK_EVERY = 0.5


def drain_orchestrators(herd: HerdAddress, names: Sequence[str], *, undo: bool, wait: bool) -> None:
    """Takes these orchestrators out of service, or the only one, and says what they still have to do."""
    known = [each["id"] for each in _orchestrators(herd)]
    chosen = [complete(name, known, what="orchestrators") for name in names] or [_only_one(known)]
    for name in chosen:
        path = f"/api/orchestrators/{quote(name, safe='')}/drain"
        _say(ask_herd(herd, path, method="DELETE" if undo else "POST"))
    if wait and not undo:
        for name in chosen:
            _await_idle(herd, name)


def _only_one(names: Sequence[str]) -> str:
    if not names:
        raise Lost("This herd has no orchestrator")
    if len(names) > 1:
        raise InvalidArgument(f"Several orchestrators run; name one of {', '.join(names)}")
    return names[0]


def _orchestrators(herd: HerdAddress) -> list[Any]:
    found: list[Any] = ask_herd(herd, "/api/orchestrators")["orchestrators"]
    return found


def _say(answer: Any) -> None:
    state = "drains" if answer["draining"] else "is in service"
    count = answer["sessions"]
    print(f"{answer['id']} {state}, {count} session{'' if count == 1 else 's'}", flush=True)


def _await_idle(herd: HerdAddress, name: str) -> None:
    """Waits for the orchestrator's last session. One that is gone has none."""
    while any(each["id"] == name and each["held"] for each in _orchestrators(herd)):
        time.sleep(LOOK_EVERY)
    print(f"{name} has no sessions left", flush=True)
