"""The command `remuda`. Every command imports what it needs when it runs, so that `--help` is instant."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from remuda import __version__
from remuda.base.errors import RemudaError

if TYPE_CHECKING:
    from remuda.base.config import Config

app = typer.Typer(
    name="remuda",
    help="A self-hosted herd of browsers: WebDriver, Playwright and web archives behind one port.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Host = Annotated[str | None, typer.Option("--host", help="Address to listen on (default 127.0.0.1).")]
Port = Annotated[
    int | None, typer.Option("--port", help="Port to listen on (default 4444; 0 takes a free one).")
]
Data = Annotated[Path | None, typer.Option("--data", help="Directory for all state (default ./.remuda).")]
Redis = Annotated[str | None, typer.Option("--redis", help="Redis to use instead of the embedded one.")]
Slots = Annotated[int | None, typer.Option("--slots", help="Sessions at the same time (default: CPU cores).")]
Warm = Annotated[int | None, typer.Option("--warm", help="Browsers kept waiting, started.")]
Browser = Annotated[
    str | None, typer.Option("--browser", help="Browser of a worker: chromium (default), firefox or webkit.")
]
Isolation = Annotated[
    str | None,
    typer.Option("--isolation", help="Playwright clients share a browser (shared) or have one each (own)."),
]
Workers = Annotated[
    int | None, typer.Option("--workers", help="Playwright workers per browser, once wanted (default 1).")
]
Eager = Annotated[
    str | None, typer.Option("--eager", help="Browsers whose workers start at once: chromium,firefox,webkit.")
]
Url = Annotated[str, typer.Option("--url", help="The herd's front door.")]
HerdPort = Annotated[int | None, typer.Option("--port", help="Its port, on this machine (default 4444).")]
Insecure = Annotated[bool | None, typer.Option("--insecure", help="Listen beyond loopback without a token.")]
ConfigFile = Annotated[Path | None, typer.Option("--config", help="Config file (default ./remuda.toml).")]
Verbose = Annotated[int, typer.Option("--verbose", "-v", count=True, help="Log more; twice for everything.")]


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        print(f"remuda {__version__}")
        raise typer.Exit


@app.command()
def up(
    ctx: typer.Context,
    host: Host = None,
    port: Port = None,
    data: Data = None,
    redis: Redis = None,
    slots: Slots = None,
    warm: Warm = None,
    playwright_workers: Workers = None,
    playwright_eager: Eager = None,
    playwright_isolation: Isolation = None,
    insecure: Insecure = None,
    config: ConfigFile = None,
    verbose: Verbose = 0,
) -> None:
    """Run the whole herd on this machine."""
    from remuda.cli.up import run_herd

    run_herd(_config(ctx))


@app.command()
def run(
    ctx: typer.Context,
    roles: Annotated[
        list[str],
        typer.Argument(help="gateway, manager, orchestrator, api, gc, storage; or worker."),
    ],
    host: Host = None,
    port: Port = None,
    data: Data = None,
    redis: Redis = None,
    slots: Slots = None,
    warm: Warm = None,
    browser: Browser = None,
    playwright_isolation: Isolation = None,
    insecure: Insecure = None,
    config: ConfigFile = None,
    verbose: Verbose = 0,
) -> None:
    """Run one role, or several in one process."""
    from remuda.cli.run import run_roles

    run_roles(roles, _config(ctx))


@app.command()
def doctor(
    ctx: typer.Context,
    host: Host = None,
    port: Port = None,
    data: Data = None,
    redis: Redis = None,
    config: ConfigFile = None,
) -> None:
    """Look at this machine and say what a herd would miss."""
    from remuda.cli.doctor import show_doctor

    raise typer.Exit(show_doctor(_config(ctx)))


@app.command()
def status(
    ctx: typer.Context,
    url: Url = "",
    port: HerdPort = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Keep showing it.")] = False,
    config: ConfigFile = None,
) -> None:
    """Show slots, sessions and roles of a running herd."""
    from remuda.cli.status import show_status

    raise typer.Exit(show_status(url or _front_door(ctx), watch=watch))


@app.command()
def sessions(
    ctx: typer.Context,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[kill ID...]", help="Sessions to end.")
    ] = None,
    url: Url = "",
    port: HerdPort = None,
    config: ConfigFile = None,
) -> None:
    """Show the sessions of a running herd, or end some of them."""
    from remuda.base.errors import InvalidArgument
    from remuda.cli.sessions import kill_sessions, show_sessions

    match words or []:
        case []:
            show_sessions(url or _front_door(ctx))
        case ["kill", *doomed] if doomed:
            kill_sessions(url or _front_door(ctx), doomed)
        case _:
            raise InvalidArgument("it is `remuda sessions` or `remuda sessions kill ID...`")


@app.command()
def drain(
    ctx: typer.Context,
    orchestrators: Annotated[
        list[str] | None, typer.Argument(help="Which; the only one need not be named.")
    ] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Put them back in service.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Until their last session has ended.")] = False,
    url: Url = "",
    port: HerdPort = None,
    config: ConfigFile = None,
) -> None:
    """Give orchestrators no new sessions; those they have go on."""
    from remuda.cli.drain import drain_orchestrators

    drain_orchestrators(url or _front_door(ctx), orchestrators or [], undo=undo, wait=wait)


@app.command()
def keys(
    pattern: Annotated[str | None, typer.Argument(help="A key's name, or a piece of its pattern.")] = None,
    room: Annotated[str | None, typer.Option("--room", help="Only the keys of this room.")] = None,
) -> None:
    """Show every Redis key that Remuda uses, and what it means."""
    from remuda.keyspace.page import render_lines

    for line in render_lines(room, pattern):
        print(line)


def _front_door(ctx: typer.Context) -> str:
    """Where the herd of this config listens."""
    from remuda.base.hosts import host_port

    loaded = _config(ctx)
    return f"http://{host_port(loaded.host, loaded.port)}"


def _config(ctx: typer.Context) -> "Config":
    """The config of a command: its flags that are options, else environment, file and defaults."""
    from remuda.base.config import Config, load_config

    flags = {name: value for name, value in ctx.params.items() if name in Config.__dataclass_fields__}
    if verbose := ctx.params.get("verbose"):
        flags["log_level"] = "info" if verbose == 1 else "debug"
    return load_config(flags, file=ctx.params["config"])


def main() -> None:
    """The entry point: an expected error is one line on standard error and status 1."""
    try:
        app()
    except RemudaError as error:
        sys.exit(f"remuda: {error.message}")
    except BrokenPipeError:  # As in `remuda keys | head`.
        sys.exit(0)


if __name__ == "__main__":
    main()
