"""How `--help` looks: commands in groups, each with examples; what all that ask a herd take is told once.

Plain text: Typer's panels need rich, and with it `--help` takes almost three times as long.
"""

from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

START = "Start a herd"
LOOK = "See what it does"
ARCHIVE = "Archive sites"
ACCESS = "Let people in"
OPERATE = "Operate it"
GROUPS = (START, LOOK, ARCHIVE, ACCESS, OPERATE)
CONNECTION = "Options of every command that asks a herd"
"""What marks an option as one of those, and their title."""
CONTEXT = {"help_option_names": ["--help", "-h"], "max_content_width": 120}
_UNCUT = 1000


class _WithExamples:
    epilog: str | None

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Writes the examples as they are: a command that is wrapped cannot be copied."""
        examples = (self.epilog or "").splitlines()
        if not examples:
            return
        with formatter.section("Example" if len(examples) == 1 else "Examples"):
            for example in examples:
                formatter.write(f"  {example}\n")


class Command(_WithExamples, TyperCommand):
    """A command. Options that say which herd it asks are only mentioned."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        for title, kind in (("Arguments", "argument"), ("Options", "option")):
            own = [
                each for each in self.get_params(ctx) if each.param_type_name == kind and not _connects(each)
            ]
            if rows := [row for each in own if (row := each.get_help_record(ctx))]:
                with formatter.section(title):
                    formatter.write_dl(rows)
        if any(map(_connects, self.params)):
            formatter.write_paragraph()
            formatter.write_text(
                "It asks the herd of this machine, or that of --server: see `remuda --help`."
            )


class Group(_WithExamples, TyperGroup):
    """Commands under their titles. The outermost group tells what says which herd is asked, too."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        commands = {name: self.commands[name] for name in self.list_commands(ctx)}
        width = max(map(len, commands))
        for title in (None, *GROUPS):
            rows = [
                (name.ljust(width), command.get_short_help_str(_UNCUT))
                for name, command in commands.items()
                if getattr(command, "rich_help_panel", None) == title
            ]
            if rows:
                with formatter.section(title or "Commands"):
                    formatter.write_dl(rows)
        if ctx.parent is None:
            asking = next(each for each in commands.values() if any(map(_connects, each.params)))
            with formatter.section(CONNECTION):
                formatter.write_dl([each.get_help_record(ctx) for each in asking.params if _connects(each)])


class ListByDefault(Group):
    """A group whose command is `list` if none is named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        is_named = bool(args) and (not args[0].startswith("-") or args[0] in ctx.help_option_names)
        # A shell that completes what was typed wants the names of the commands as well.
        if not is_named and not (ctx.resilient_parsing and not args):
            args = ["list", *args]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        listing = self.commands["list"]
        with listing.make_context("list", [], parent=ctx, resilient_parsing=True) as inner:
            return [*super().shell_complete(ctx, incomplete), *listing.shell_complete(inner, incomplete)]


def command(
    app: typer.Typer, *examples: str, name: str | None = None, group: str | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Makes a function a command of the app, with examples of its use."""
    return app.command(name, cls=Command, epilog="\n".join(examples), rich_help_panel=group)


def _connects(param: Any) -> bool:
    return getattr(param, "rich_help_panel", None) == CONNECTION
