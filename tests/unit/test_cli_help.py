"""What `remuda --help` and the help of every command say, and what a shell completes."""

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from commands import run_command as remuda
from remuda.cli.main import app

SHARED = "--cacert"
"""An option that only those commands have that ask a herd."""


def all_commands(group: Any, *path: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, each in group.commands.items():
        yield (*path, name), each
        if hasattr(each, "commands"):
            yield from all_commands(each, *path, name)


ROOT = get_command(app)
COMMANDS = dict(all_commands(ROOT))


@pytest.mark.parametrize("path", [(), *COMMANDS], ids=" ".join)
@pytest.mark.parametrize("columns", ["80", "120"])
def test_help_has_examples_and_fits_the_terminal(path: tuple[str, ...], columns: str) -> None:
    short, long = (remuda(*path, flag, COLUMNS=columns) for flag in ("-h", "--help"))

    assert short.stdout == long.stdout
    assert "\nExample" in short.stdout
    assert max(map(len, short.stdout.splitlines())) <= int(columns)


@pytest.mark.parametrize(
    ("path", "example"),
    [
        (path, line)
        for path, each in {(): ROOT, **COMMANDS}.items()
        for line in (each.epilog or "").splitlines()
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_example_is_a_command_that_can_be_typed(path: tuple[str, ...], example: str) -> None:
    program, *words = shlex.split(example)
    assert (program, *words[: len(path)]) == ("remuda", *path)
    command: Any = ROOT
    context = command.make_context("remuda", words)

    # Each context keeps the words that are left for the next command; it raises if they do not fit.
    while hasattr(command, "commands"):
        name, command, words = command.resolve_command(context, [*context._protected_args, *context.args])
        context = command.make_context(name, words, parent=context)


def test_the_options_that_say_which_herd_is_asked_are_told_once() -> None:
    assert SHARED in remuda("--help").stdout
    for path in COMMANDS:
        assert SHARED not in remuda(*path, "--help").stdout
    assert "see `remuda --help`" in remuda("token", "list", "--help").stdout


def test_every_command_is_in_a_group() -> None:
    assert "\nCommands:" not in remuda("--help").stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("remuda sta", {"status"}),
        ("remuda token ", {"create", "list", "revoke"}),
        ("remuda status --ser", {"--server"}),
        ("remuda jobs a", {"abort"}),
        ("remuda jobs --st", {"--state"}),
    ],
)
def test_a_shell_completes_commands_and_options(shell: str, typed: str, expected: set[str]) -> None:
    asked = {
        "_REMUDA_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": typed,
        "COMP_CWORD": str(typed.count(" ")),
        "_TYPER_COMPLETE_ARGS": typed,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }

    offered = remuda(**asked).stdout

    assert expected <= set(re.findall(r"[\w-]+", offered))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_completion_is_shown(shell: str) -> None:
    shown = remuda("--show-completion", shell, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")

    assert "_REMUDA_COMPLETE" in shown.stdout
