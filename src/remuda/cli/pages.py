"""Reference pages that are generated from declarations: the commands, the options and the errors."""

import dataclasses
from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

from typer.main import get_command

from remuda.base import errors
from remuda.base.config import env_names, options_of
from remuda.base.errors import RemudaError
from remuda.cli.main import app
from remuda.cli.rooms import SECTIONS

_COMMANDS = """\
# Commands

*Generated from their declarations by `make docs`: do not edit.*

What `remuda --help` prints, and `--help` of each command.
"""
_WIDTH = 100

_OPTIONS = """\
# Options

*Generated from its declarations by `make docs`: do not edit.*

An option's value comes from its flag, else from its environment variable, else from `remuda.toml` in the
working directory (or the file given by `--config`), else it is the default. Further variables are names of
the same option in other systems; the first one that is set is used. Settings that can be changed while the
herd runs are in Redis: see `timeouts` in [the keys](keys.md).

| in `remuda.toml` | environment | kind | default | meaning |
|---|---|---|---|---|
"""

_KINDS = {
    "str": "text",
    "int": "number",
    "float": "number",
    "bool": "true or false",
    "Path": "path",
}

_ERRORS = """\
# Errors

*Generated from its declarations by `make docs`: do not edit.*

The family tells what to do: *Refused*, change the request; *Unavailable*, try again later (the answer
has a `Retry-After`); *Lost*, the object is gone; *Broken*, a bug in Remuda. On WebDriver paths the body
is `{"value": {"error", "message", "stacktrace"}}`, elsewhere `{"error": {"code", "message"}}`.

| error | HTTP status | WebDriver error | default message |
|---|---|---|---|
"""


def render_commands() -> str:
    """docs/reference/cli.md."""
    root = get_command(app)
    # While a shell completes them, commands take no words and do nothing.
    context = root.make_context("remuda", [], resilient_parsing=True, terminal_width=_WIDTH)
    return _COMMANDS + "".join(_helps(context))


def _helps(context: Any) -> Iterator[str]:
    yield f"\n## {context.command_path}\n\n```text\n{context.get_help()}\n```\n"
    for name, command in getattr(context.command, "commands", {}).items():
        yield from _helps(command.make_context(name, [], parent=context, resilient_parsing=True))


def render_options() -> str:
    """docs/reference/config.md."""
    rows = [
        f"| `{option.name}` | {_variables(option)} | {_kind(get_type_hints(section)[option.name])} "
        f"| {_default(option.default)} | {option.metadata['meaning']} |\n"
        for section in SECTIONS
        for option in options_of([section])
    ]
    return _OPTIONS + "".join(rows)


def _variables(option: dataclasses.Field[Any]) -> str:
    return ", ".join(f"`{variable}`" for variable in env_names(option))


def _kind(hint: Any) -> str:
    choices = get_args(hint)
    if choices:
        return ", ".join(f"`{choice}`" for choice in choices)
    return _KINDS[hint.__name__]


def _default(value: Any) -> str:
    return f"`{str(value).lower() if isinstance(value, bool) else value}`" if str(value) else ""


def render_errors() -> str:
    """docs/reference/errors.md."""
    rows = [
        f"| {'&emsp;' * depth}`{kind.__name__}` | {kind.status} | `{kind.webdriver}` | {kind.__doc__} |\n"
        for depth, kind in _tree(RemudaError, 0)
        if kind.__module__ == errors.__name__
    ]
    return _ERRORS + "".join(rows)


def _tree(kind: type[RemudaError], depth: int) -> Iterator[tuple[int, type[RemudaError]]]:
    yield depth, kind
    for child in kind.__subclasses__():
        yield from _tree(child, depth + 1)
