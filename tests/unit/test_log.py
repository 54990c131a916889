"""Logs: one event a line, JSON where nobody watches, and never a secret."""

import io
import json
import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest

from remuda.base.log import configure_logs, get_logger, redact

SECRET = "s3cr3t"


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers = handlers
    root.setLevel(level)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def only_event(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    (line,) = capsys.readouterr().err.splitlines()
    event: dict[str, Any] = json.loads(line)
    return event


def test_events_are_json_where_nobody_watches(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(level="info")

    get_logger("test").info("session placed", session="s1", waited=1.5)

    event = only_event(capsys)
    assert event["event"] == "session placed"
    assert event["level"] == "info"
    assert (event["session"], event["waited"]) == ("s1", 1.5)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z", event["timestamp"])


def test_events_are_readable_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    configure_logs(level="info")

    get_logger("test").info("session placed", session="s1")

    text = re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue())
    assert re.fullmatch(r"\d\d:\d\d:\d\d info +session placed +session=s1\n", text)


@pytest.mark.parametrize(("form", "is_json"), [("json", True), ("text", False)])
def test_the_form_can_be_chosen(capsys: pytest.CaptureFixture[str], form: str, is_json: bool) -> None:
    configure_logs(level="info", form=form)

    get_logger("test").info("session placed")

    assert capsys.readouterr().err.startswith("{") is is_json


def test_by_default_only_warnings_are_worth_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs()

    get_logger("test").info("session placed")
    logging.getLogger("library").info("library chatter")
    get_logger("test").warning("redis away")

    assert only_event(capsys)["event"] == "redis away"


def test_every_event_carries_the_fields_of_its_process(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(role="manager")

    get_logger("test").warning("redis away")

    assert only_event(capsys)["role"] == "manager"


def test_what_libraries_log_comes_out_in_the_same_form(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(role="manager")

    logging.getLogger("library").warning("cannot reach %s", f"redis://user:{SECRET}@db:6379")

    event = only_event(capsys)
    assert event["event"] == "cannot reach redis://***@db:6379"
    assert (event["role"], event["level"]) == ("manager", "warning")


@pytest.mark.parametrize("form", ["json", "text"])
@pytest.mark.parametrize(
    "fields",
    [
        {"token": SECRET},
        {"redis_password": SECRET},
        {"Authorization": f"Bearer {SECRET}"},
        {"cookie": SECRET, "api_key": SECRET, "apikey": SECRET, "client_secret": SECRET},
        {"token": [SECRET]},
        {"headers": {"authorization": SECRET, "Set-Cookie": SECRET}},
        {"headers": {b"authorization": SECRET.encode()}},
        {"headers": [("Authorization", SECRET)]},
        {"requests": [{"url": f"http://user:{SECRET}@node/"}]},
        {"url": f"redis://:{SECRET}@db/0"},
        {"url": f"redis://user:p@{SECRET}@db/0"},
        {"url": f"redis+sentinel://user:{SECRET}@a:1,b:2/main"},
        {"url": f"redis+sentinel://a:1,b:2/main?sentinel_password={SECRET}"},
        {"url": f"ws://127.0.0.1:4444/playwright?browser=chromium&token={SECRET}"},
        {"url": f"http://a/?TOKEN={SECRET}&b=1"},
        {"raw": f"GET /?token={SECRET} HTTP/1.1".encode()},
        {"reason": OSError(f"cannot dial redis://:{SECRET}@db")},
        {"arguments": ("--redis", f"redis://:{SECRET}@db")},
        {"line": f"Authorization: Basic {SECRET}"},
        {"line": f"X-Remuda-Secret: {SECRET}"},
        {"headers": [(b"x-remuda-secret", SECRET.encode())]},
    ],
)
def test_no_field_gives_a_secret_away(
    capsys: pytest.CaptureFixture[str], fields: dict[str, Any], form: str
) -> None:
    configure_logs(form=form)

    get_logger("test").warning("request refused", **fields)

    written = capsys.readouterr().err
    assert "request refused" in written
    assert SECRET not in written


@pytest.mark.parametrize("form", ["json", "text"])
def test_no_traceback_gives_a_secret_away(capsys: pytest.CaptureFixture[str], form: str) -> None:
    configure_logs(form=form)

    for logger in (get_logger("test"), logging.getLogger("library")):
        try:
            raise OSError(f"cannot dial redis://:{SECRET}@db?token={SECRET}")
        except OSError:
            logger.exception("connection lost")

    written = capsys.readouterr().err
    assert written.count("OSError: cannot dial redis://***@db?token=***") == 2
    assert SECRET not in written


def test_what_is_no_secret_stays_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs()
    fields: dict[str, Any] = {
        "url": "http://node:1/a@b?browser=firefox",
        "pids": [1, 2],
        "ratio": 0.5,
        "gone": None,
    }

    get_logger("test").warning("node lost", **fields)

    event = only_event(capsys)
    assert {name: event[name] for name in fields} == fields


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("redis://db:6379/0", "redis://db:6379/0"),
        ("redis://:pw@db:6379/0", "redis://***@db:6379/0"),
        ("redis://user:p@w@db", "redis://***@db"),
        ("http://a/x@y", "http://a/x@y"),
        ("from http://u:p@a to http://u:p@b", "from http://***@a to http://***@b"),
        ("/?token=abc&x=1", "/?token=***&x=1"),
        ("/?x=1&password=abc", "/?x=1&password=***"),
        ("mail to a@b", "mail to a@b"),
        (f"got rmd_{'a-_9' * 10}abc, sorry", "got rmd_***, sorry"),
        (f"rmdc_{'x' * 43}", "rmdc_***"),
        ("rmd_short", "rmd_short"),
    ],
)
def test_only_credentials_are_taken_out_of_a_text(text: str, redacted: str) -> None:
    assert redact(text) == redacted
