"""Structured logs: one event a line, readable in a terminal and JSON elsewhere, never with a secret.

Libraries that log through `logging` come out in the same form.
"""

import logging
import re
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any

import structlog

_SECRET_NAMES = re.compile(r"token|password|secret|authorization|cookie|api_?key", re.IGNORECASE)
# Up to the last @: a password may hold one that nobody has escaped.
_URL_CREDENTIALS = re.compile(r"(\w+://)[^/\s]+@")
_QUERY_SECRET = re.compile(r"([?&](?:token|password|secret|api_?key)=)[^&\s\"']+", re.IGNORECASE)
_HEADER_SECRET = re.compile(r"((?:authorization|cookie)[\"']?\s*:\s*)[^\r\n]+", re.IGNORECASE)

Event = MutableMapping[str, Any]


def redact(text: str) -> str:
    """The text without the credentials of URLs and headers in it."""
    text = _URL_CREDENTIALS.sub(r"\1***@", text)
    return _HEADER_SECRET.sub(r"\1***", _QUERY_SECRET.sub(r"\1***", text))


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


def _hide_secrets(_logger: Any, _method: str, event: Event) -> Event:
    for name, value in event.items():
        event[name] = "***" if _names_secret(name) else _hide(value)
    return event


def configure_logs(*, level: str = "warning", form: str = "auto", **fields: Any) -> None:
    """Sends all logs of this process to standard error, each event with these fields."""
    as_text = form == "text" or (form == "auto" and sys.stderr.isatty())
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="%H:%M:%S" if as_text else "iso", utc=not as_text),
    ]
    # Tracebacks become text first, so that what is hidden is hidden in them too.
    last: list[Any] = [structlog.processors.format_exc_info, _hide_secrets]
    renderer: Any = (
        structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=24)
        if as_text
        else structlog.processors.JSONRenderer(default=str)
    )
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(**fields)


def get_logger(name: str) -> Any:
    """The logger of a module: `log.info("session placed", session=sid)`."""
    return structlog.get_logger(name)
