"""`remuda status --watch` beside a herd that is restarted."""

from collections.abc import Iterator
from typing import Any

import pytest

from remuda.base.errors import Unavailable
from remuda.cli import status
from remuda.cli.front_door import HerdAddress

OVERVIEW = {
    "version": "0.1.0",
    "slots": {"used": 0, "total": 1},
    "queue": [],
    "orchestrators": [{"draining": True}],
    "sessions": [],
    "playwright": {"workers": [], "queue": [], "connections": 0},
    "roles": [],
}


def test_what_operators_should_know_of_a_machine_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    role = {"name": "worker", "host": "b7", "pid": 1, "version": "0.1.0", "address": "", "startedAt": None}
    roles = [{**role, "warning": "it is open"}, {**role, "host": "b8", "warning": ""}]
    monkeypatch.setattr(status, "read_overview", lambda _: {**OVERVIEW, "roles": roles})

    assert status.show_status(HerdAddress("http://127.0.0.1:1"), watch=False) == 0

    assert "worker on b7: it is open" in capsys.readouterr().out


def test_what_clients_ask_for_does_not_steer_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = {"requested": [{"name": "[red]chrome\x9b", "version": "1"}], "name": "[b]pay\x1b[2J"}
    rest = {
        "id": "3f2a",
        "state": "queued",
        "actual": None,
        "position": 1,
        "age": 1.0,
        "client": {"host": "::1"},
    }
    monkeypatch.setattr(status, "read_overview", lambda _: {**OVERVIEW, "sessions": [{**asked, **rest}]})

    status.show_status(HerdAddress("http://127.0.0.1:1"), watch=False)

    shown = capsys.readouterr().out
    assert "[red]chrome\ufffd 1" in shown
    assert "[b]pay\ufffd[2J" in shown


def test_a_herd_that_is_away_for_a_while_is_watched_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def answers() -> Iterator[Any]:
        yield from (OVERVIEW, Unavailable("No herd answers"), OVERVIEW, KeyboardInterrupt())

    coming = answers()

    def read(_herd: HerdAddress) -> Any:
        answer = next(coming)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    monkeypatch.setattr(status, "read_overview", read)
    monkeypatch.setattr(status, "REFRESH_EVERY", 0.0)

    assert status.show_status(HerdAddress("http://127.0.0.1:1"), watch=True) == 0

    assert next(coming, None) is None
