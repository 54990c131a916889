"""Structured logs: one event a line, readable in a terminal and JSON elsewhere, never with a secret.

On the standard library, so that what other libraries log comes out in the same form. structlog does the
same and more, but takes 9 MB and 80 ms in each of the herd's processes.
"""

import json
import logging
import re
import sys
from collections.abc import Mapping
from typing import Any, ClassVar

from remuda.base.clock import rfc3339

_SECRET_NAMES = re.compile(r"token|password|secret|authorization|cookie|api_?key", re.IGNORECASE)
# Up to the last @: a password may contain one that is not escaped. From the beginning of a word: to search
# from each letter of a long one would take seconds.
_URL_CREDENTIALS = re.compile(r"(\b\w+://)[^/\s]+@")
_BEFORE_AT = re.compile(r"^([\w+.-]*://)?.*@", re.DOTALL)
_QUERY_SECRET = re.compile(r"([?&]\w*(?:token|password|secret|api_?key)=)[^&\s\"']+", re.IGNORECASE)
_HEADER_SECRET = re.compile(r"((?:authorization|cookie|x-remuda-secret)[\"']?\s*:\s*)[^\r\n]+", re.IGNORECASE)

# Tokens of the herd and the dashboard's cookies, wherever they stand: their prefix is there to be recognised.
_TOKEN = re.compile(r"\b(rmdc?_)[A-Za-z0-9_-]{43}")

_FIELDS = "remuda_fields"
"""The attribute of a log record that carries an event's fields."""


def redact(text: str) -> str:
    """The text without tokens, and without the credentials of URLs and headers in it."""
    text = _TOKEN.sub(r"\1***", _URL_CREDENTIALS.sub(r"\1***@", text))
    return _HEADER_SECRET.sub(r"\1***", _QUERY_SECRET.sub(r"\1***", text))


def redact_wrong_url(text: str) -> str:
    """A URL that cannot be understood without what may be credentials: all before the last @."""
    return redact(_BEFORE_AT.sub(r"\1***@", text))


def _names_secret(name: Any) -> bool:
    return isinstance(name, str | bytes) and _SECRET_NAMES.search(_text(name)) is not None


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _hide(value: Any) -> Any:
    """The value without secrets, however deep they lie in it."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {_text(name): "***" if _names_secret(name) else _hide(item) for name, item in value.items()}
    if isinstance(value, tuple | list) and len(value) == 2 and _names_secret(value[0]):
        return [_text(value[0]), "***"]  # A header, as most libraries hand them around.
    if isinstance(value, tuple | list | set | frozenset):
        return [_hide(item) for item in value]
    return redact(_text(value))


class Logger:
    """Writes events with fields: `log.info("session placed", session=sid, waited=1.2)`."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, event: str, **fields: Any) -> None:
        self._write(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: Any) -> None:
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, *, exc_info: bool = False, **fields: Any) -> None:
        self._write(logging.WARNING, event, fields, exc_info=exc_info)

    def error(self, event: str, *, exc_info: bool = False, **fields: Any) -> None:
        self._write(logging.ERROR, event, fields, exc_info=exc_info)

    def exception(self, event: str, **fields: Any) -> None:
        """An error with the traceback of what is being handled."""
        self._write(logging.ERROR, event, fields, exc_info=True)

    def _write(self, level: int, event: str, fields: dict[str, Any], *, exc_info: bool = False) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, event, exc_info=exc_info, extra={_FIELDS: fields})


class _Formatter(logging.Formatter):
    """Gathers what is known of an event, hides its secrets, and leaves the form to subclasses."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        super().__init__()
        self._common = dict(fields)

    def format(self, record: logging.LogRecord) -> str:
        fields = {**self._common, **getattr(record, _FIELDS, {})}
        # Tracebacks become text first, so that what is hidden is hidden in them too.
        trace = redact(self.formatException(record.exc_info)) if record.exc_info else ""
        return self.render(record, redact(record.getMessage()), _hide(fields), trace)

    def render(self, record: logging.LogRecord, event: str, fields: dict[str, Any], trace: str) -> str:
        raise NotImplementedError


class _JsonFormatter(_Formatter):
    def render(self, record: logging.LogRecord, event: str, fields: dict[str, Any], trace: str) -> str:
        line = {
            "timestamp": rfc3339(record.created),
            "level": record.levelname.lower(),
            "event": event,
            **fields,
        }
        return json.dumps({**line, "exception": trace} if trace else line, default=str)


class _TextFormatter(_Formatter):
    COLOURS: ClassVar[Mapping[str, str]] = {"WARNING": "33", "ERROR": "31", "DEBUG": "2"}

    def __init__(self, fields: Mapping[str, Any], *, coloured: bool) -> None:
        super().__init__(fields)
        self._coloured = coloured

    def render(self, record: logging.LogRecord, event: str, fields: dict[str, Any], trace: str) -> str:
        time = self.formatTime(record, "%H:%M:%S")
        level = self._colour(f"{record.levelname.lower():<8}", self.COLOURS.get(record.levelname, "32"))
        pairs = " ".join(f"{self._colour(name, '36')}={_shown(value)}" for name, value in fields.items())
        return f"{self._colour(time, '2')} {level}{event:<24} {pairs}".rstrip() + (
            f"\n{trace}" if trace else ""
        )

    def _colour(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._coloured else text


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return json.dumps(text) if not text or any(letter in text for letter in ' \n"=') else text


def configure_logs(*, level: str = "warning", form: str = "auto", **fields: Any) -> None:
    """Sends all logs of this process to standard error, each event with these fields."""
    in_terminal = sys.stderr.isatty()
    as_text = form == "text" or (form == "auto" and in_terminal)
    handler = logging.StreamHandler()
    handler.setFormatter(_TextFormatter(fields, coloured=in_terminal) if as_text else _JsonFormatter(fields))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())


def get_logger(name: str) -> Logger:
    """The logger of a module."""
    return Logger(name)
