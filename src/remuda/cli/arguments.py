"""The options that several commands share, and how a command gets its config or the herd that it asks."""

import inspect
import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from remuda.cli.help import CONNECTION

if TYPE_CHECKING:
    from remuda.base.config import Config

Host = Annotated[str | None, typer.Option("--host", help="Address to listen on (default 127.0.0.1).")]
Port = Annotated[
    int | None, typer.Option("--port", help="Port to listen on (default 4444; 0 takes a free one).")
]
Listen = Annotated[
    str | None,
    typer.Option("--listen", help="Address for internal ports (default: the one towards Redis)."),
]
Advertise = Annotated[
    str | None, typer.Option("--advertise", help="Host under which other machines reach internal ports.")
]
Data = Annotated[Path | None, typer.Option("--data", help="Directory for all state (default ./.remuda).")]
Redis = Annotated[str | None, typer.Option("--redis", help="Redis to use instead of the embedded one.")]
InsecureRedis = Annotated[
    bool | None,
    typer.Option("--insecure-redis", help="Start browsers although Redis answers without a password."),
]
Slots = Annotated[
    int | None, typer.Option("--slots", help="Concurrent sessions (default: number of CPU cores).")
]
Warm = Annotated[int | None, typer.Option("--warm", help="Browsers to start in advance.")]
Browser = Annotated[
    str | None, typer.Option("--browser", help="Browser of a worker: chromium (default), firefox or webkit.")
]
Isolation = Annotated[
    str | None,
    typer.Option("--isolation", help="Playwright clients share a browser (shared) or get one each (own)."),
]
Workers = Annotated[
    int | None,
    typer.Option("--workers", help="Playwright workers per browser, started on demand (default 1)."),
]
MaxWorkers = Annotated[
    int | None,
    typer.Option("--max-workers", help="Playwright workers per browser at most (default one per processor)."),
]
Eager = Annotated[
    str | None,
    typer.Option("--eager", help="Browsers whose workers start at once, such as chromium,firefox."),
]
AllowPrivate = Annotated[
    bool | None,
    typer.Option("--allow-private-addresses", help="Let crawls reach private addresses: your own network."),
]
Auth = Annotated[
    str | None,
    typer.Option(
        "--auth", help="Whether clients need a token: on, off, or auto (default): not on loopback, else yes."
    ),
]
Insecure = Annotated[bool | None, typer.Option("--insecure", help="The same as --auth off.")]
TlsCert = Annotated[
    str | None, typer.Option("--tls-cert", help="Certificate for https and wss, in PEM, with its chain.")
]
TlsKey = Annotated[str | None, typer.Option("--tls-key", help="Key of the certificate, in PEM.")]
InternalTlsCert = Annotated[
    str | None, typer.Option("--internal-tls-cert", help="Certificate of this machine for internal ports.")
]
InternalTlsKey = Annotated[
    str | None, typer.Option("--internal-tls-key", help="Key of the certificate for internal ports.")
]
InternalTlsCa = Annotated[
    str | None,
    typer.Option("--internal-tls-ca", help="Authority that vouches for the internal ports of the herd."),
]
TrustedProxy = Annotated[
    str | None,
    typer.Option("--trusted-proxy", help="Networks whose X-Forwarded-* headers are believed: 10.0.0.0/8."),
]
ConfigFile = Annotated[Path | None, typer.Option("--config", help="Config file (default ./remuda.toml).")]
Verbose = Annotated[int, typer.Option("--verbose", "-v", count=True, help="Log more; twice for everything.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON: what the API answers.")]

_Server = Annotated[
    str,
    typer.Option(
        "--server",
        "--url",
        help="URL of the herd (default: REMUDA_SERVER, else the herd of this machine).",
        rich_help_panel=CONNECTION,
    ),
]
_Token = Annotated[
    str,
    typer.Option("--token", help="Token to show (default: REMUDA_TOKEN).", rich_help_panel=CONNECTION),
]
_HerdData = Annotated[
    Path | None,
    typer.Option(
        "--data",
        help="Data directory of a herd on this machine, where its admin token is.",
        rich_help_panel=CONNECTION,
    ),
]
_CaCert = Annotated[
    Path | None,
    typer.Option(
        "--cacert",
        help="Certificate to trust, for a herd whose own is self-signed.",
        rich_help_panel=CONNECTION,
    ),
]
_HerdPort = Annotated[
    int | None,
    typer.Option(
        "--port", help="Port of the herd on this machine (default 4444).", rich_help_panel=CONNECTION
    ),
]
_HerdConfigFile = Annotated[
    Path | None,
    typer.Option("--config", help="Config file (default ./remuda.toml).", rich_help_panel=CONNECTION),
]


def _ask_herd_with(
    ctx: typer.Context,
    server: _Server = "",
    token: _Token = "",
    data: _HerdData = None,
    cacert: _CaCert = None,
    port: _HerdPort = None,
    config: _HerdConfigFile = None,
) -> None:
    """What every command takes that asks a herd."""


def herd_command(command: Callable[..., None]) -> Callable[..., None]:
    """A command that asks a running herd: it takes the options that say which, and how to be let in, and gets
    a `HerdAddress` as its first argument in their place."""
    shared = inspect.signature(_ask_herd_with, eval_str=True).parameters
    # The first is the herd, whose class is not imported yet.
    _, *own = inspect.signature(command).parameters.values()

    @wraps(command)
    def run(**given: Any) -> None:
        from remuda.cli.front_door import HerdAddress

        ctx, server, token, cacert = (given[name] for name in ("ctx", "server", "token", "cacert"))
        herd = HerdAddress.find(load(ctx), server=server, token=token, cacert=cacert)
        command(herd, **{each.name: given[each.name] for each in own})

    parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in (*own, *shared.values())]
    # Typer reads the options of a command from its signature.
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def load(ctx: typer.Context) -> "Config":
    """The config of a command: its flags that are options, else environment, file and defaults."""
    from remuda.base.config import check_variables, load_config, options_of
    from remuda.cli.rooms import SECTIONS, VARIABLES

    check_variables(SECTIONS, os.environ, others=VARIABLES)
    options = {option.name for option in options_of(SECTIONS)}
    flags = {name: value for name, value in ctx.params.items() if name in options}
    if verbose := ctx.params.get("verbose"):
        flags["log_level"] = "info" if verbose == 1 else "debug"
    # Parameters are as they were typed: Typer converts only what it hands to the command.
    named = ctx.params["config"]
    typed = {each.name: each.opts[0] for each in ctx.command.params if each.name in options}
    return load_config(SECTIONS, flags, typed=typed, file=None if named is None else Path(named))
