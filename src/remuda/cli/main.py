"""The command `remuda`. Every command imports what it needs when it runs, so that `--help` is instant."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from remuda import __version__
from remuda.base.command_line import hide_secrets
from remuda.base.errors import Lost, RemudaError
from remuda.base.interpreter import leave, without_collector
from remuda.cli.archiving import archive, jobs_app
from remuda.cli.arguments import (
    Advertise,
    AllowPrivate,
    Auth,
    Browser,
    ConfigFile,
    Data,
    Eager,
    Host,
    Insecure,
    InsecureRedis,
    InternalTlsCa,
    InternalTlsCert,
    InternalTlsKey,
    Isolation,
    Json,
    Listen,
    MaxWorkers,
    Port,
    Redis,
    Slots,
    TlsCert,
    TlsKey,
    TrustedProxy,
    Verbose,
    Warm,
    Workers,
    herd_command,
    load,
)
from remuda.cli.help import ACCESS, ARCHIVE, CONTEXT, LOOK, OPERATE, START, Group, ListByDefault, command

if TYPE_CHECKING:
    from remuda.cli.front_door import HerdAddress

app = typer.Typer(
    name="remuda",
    help="A self-hosted herd of browsers: WebDriver, Playwright and web archives behind one port.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    cls=Group,
    context_settings=CONTEXT,
    epilog="remuda up\nremuda archive https://example.org --out .\nremuda status --server https://herd.example:4444",
)

sessions_app = typer.Typer(
    name="sessions",
    help="Show sessions, and end them. Without a command: list.",
    cls=ListByDefault,
    epilog="remuda sessions\nremuda sessions --ended",
)
tokens_app = typer.Typer(
    name="token",
    help="Make, show and revoke tokens.",
    no_args_is_help=True,
    cls=Group,
    epilog="remuda token create ci --account web",
)
accounts_app = typer.Typer(
    name="account",
    help="Show accounts and set their limits.",
    no_args_is_help=True,
    cls=Group,
    epilog="remuda account list",
)
metering_app = typer.Typer(
    name="metering",
    help="Check and correct what is metered.",
    no_args_is_help=True,
    cls=Group,
    epilog="remuda metering check",
)
app.add_typer(sessions_app, rich_help_panel=LOOK)
app.add_typer(jobs_app, rich_help_panel=ARCHIVE)
app.add_typer(tokens_app, rich_help_panel=ACCESS)
app.add_typer(accounts_app, rich_help_panel=ACCESS)
app.add_typer(metering_app, rich_help_panel=OPERATE)

Account = Annotated[str, typer.Option("--account", help="The account that the token belongs to.")]
EndSessions = Annotated[
    bool, typer.Option("--end-sessions", help="End its sessions and connections too; else they continue.")
]


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        print(f"remuda {__version__}")
        raise typer.Exit


@command(app, "remuda up", "remuda up --host 0.0.0.0 --slots 8 --data /var/lib/remuda", group=START)
def up(
    ctx: typer.Context,
    host: Host = None,
    port: Port = None,
    listen: Listen = None,
    advertise: Advertise = None,
    data: Data = None,
    redis: Redis = None,
    insecure_redis: InsecureRedis = None,
    slots: Slots = None,
    warm: Warm = None,
    playwright_workers: Workers = None,
    playwright_max_workers: MaxWorkers = None,
    playwright_eager: Eager = None,
    playwright_isolation: Isolation = None,
    allow_private_addresses: AllowPrivate = None,
    auth: Auth = None,
    insecure: Insecure = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    internal_tls_cert: InternalTlsCert = None,
    internal_tls_key: InternalTlsKey = None,
    internal_tls_ca: InternalTlsCa = None,
    trusted_proxy: TrustedProxy = None,
    config: ConfigFile = None,
    verbose: Verbose = 0,
) -> None:
    """Run the whole herd on this machine."""
    with without_collector():
        from remuda.cli.up import run_herd

        herd = load(ctx)
    run_herd(herd)
    leave()


@command(
    app,
    "remuda run gateway --host 0.0.0.0 --redis redis://:PASSWORD@10.0.0.5:6379",
    "remuda run worker --browser firefox --redis redis://:PASSWORD@10.0.0.5:6379",
    group=START,
)
def run(
    ctx: typer.Context,
    roles: Annotated[
        list[str],
        typer.Argument(
            help="gateway, manager, orchestrator, api, gc, storage, metering, foreman; worker; pipeline."
        ),
    ],
    host: Host = None,
    port: Port = None,
    listen: Listen = None,
    advertise: Advertise = None,
    data: Data = None,
    redis: Redis = None,
    insecure_redis: InsecureRedis = None,
    slots: Slots = None,
    warm: Warm = None,
    browser: Browser = None,
    playwright_isolation: Isolation = None,
    allow_private_addresses: AllowPrivate = None,
    auth: Auth = None,
    insecure: Insecure = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    internal_tls_cert: InternalTlsCert = None,
    internal_tls_key: InternalTlsKey = None,
    internal_tls_ca: InternalTlsCa = None,
    trusted_proxy: TrustedProxy = None,
    config: ConfigFile = None,
    verbose: Verbose = 0,
) -> None:
    """Run one role, or several in one process."""
    with without_collector():
        from remuda.cli.run import run_roles

        loaded = load(ctx)
    run_roles(roles, loaded)
    leave()


@command(app, "remuda doctor", group=START)
def doctor(
    ctx: typer.Context,
    host: Host = None,
    port: Port = None,
    data: Data = None,
    redis: Redis = None,
    config: ConfigFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check whether a herd can run on this machine, and say what to fix."""
    from remuda.cli.doctor import show_doctor

    raise typer.Exit(show_doctor(load(ctx), as_json=as_json))


@command(app, "remuda status --watch", group=LOOK)
@herd_command
def status(
    herd: "HerdAddress",
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh until interrupted.")] = False,
    as_json: Json = False,
) -> None:
    """Show slots, sessions and roles of a running herd."""
    from remuda.cli.status import show_status

    raise typer.Exit(show_status(herd, watch=watch, as_json=as_json))


@command(
    sessions_app,
    "remuda sessions list",
    "remuda sessions list --ended --limit 20",
    name="list",
)
@herd_command
def list_sessions(
    herd: "HerdAddress",
    ended: Annotated[
        bool, typer.Option("--ended", help="Those that have ended, the last one first.")
    ] = False,
    limit: Annotated[
        int | None,
        typer.Option("--limit", "-n", min=1, help="How many to show (default: all, 50 with --ended)."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the sessions that run or wait, or those that have ended."""
    from remuda.cli import sessions

    sessions.list_sessions(herd, ended=ended, limit=limit, as_json=as_json)


@command(sessions_app, "remuda sessions show 3f2a", "remuda sessions show 3f2a --log 100", name="show")
@herd_command
def show_session(
    herd: "HerdAddress",
    ident: Annotated[str, typer.Argument(help="Id of the session, or a beginning that no other has.")],
    log: Annotated[int, typer.Option("--log", help="Lines of its log to show.", min=0)] = 20,
    as_json: Json = False,
) -> None:
    """Show a session: what was asked for, what it got, when it ended, its log."""
    from remuda.cli import sessions

    sessions.show_session(herd, ident, log=log, as_json=as_json)


@command(sessions_app, "remuda sessions kill 3f2a 77c0", name="kill")
@herd_command
def kill_sessions(
    herd: "HerdAddress",
    idents: Annotated[list[str], typer.Argument(help="Ids of sessions, or beginnings that no other has.")],
) -> None:
    """End sessions."""
    from remuda.cli import sessions

    sessions.kill_sessions(herd, idents)


@command(app, "remuda settings", "remuda settings queue=300", group=OPERATE)
@herd_command
def settings(
    herd: "HerdAddress",
    changes: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME=SECONDS...]", help="Settings to change.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the live settings of a running herd, or change some of them."""
    from remuda.cli.settings import change_settings, show_settings

    if changes:
        change_settings(herd, changes, as_json=as_json)
    else:
        show_settings(herd, as_json=as_json)


@command(app, "remuda drain --wait", "remuda drain --undo", group=OPERATE)
@herd_command
def drain(
    herd: "HerdAddress",
    orchestrators: Annotated[
        list[str] | None,
        typer.Argument(help="Ids of orchestrators, or beginnings of them; not needed if there is only one."),
    ] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Put them back in service.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until their last session has ended.")] = False,
) -> None:
    """Stop giving orchestrators new sessions; running sessions continue."""
    from remuda.cli.drain import drain_orchestrators

    drain_orchestrators(herd, orchestrators or [], undo=undo, wait=wait)


@command(tokens_app, "remuda token create ci --account web --scope use --expires 90d", name="create")
@herd_command
def create_token(
    herd: "HerdAddress",
    name: Annotated[str, typer.Argument(help="Name of the token, such as ci or ann@laptop.")],
    account: Account,
    scope: Annotated[
        list[str] | None,
        typer.Option("--scope", help="use (default), archive, usage or admin; can be repeated."),
    ] = None,
    expires: Annotated[
        str | None, typer.Option("--expires", help="When it expires: 90d, 12h (default: never).")
    ] = None,
    access_key: Annotated[
        bool,
        typer.Option("--access-key", help="Also print an access key id and a secret, for AWS signatures."),
    ] = False,
) -> None:
    """Make a token and print it; it is not shown again."""
    from remuda.cli import tokens

    tokens.create_token(
        herd, name, account=account, scopes=scope or [], expires=expires, access_key=access_key
    )


@command(tokens_app, "remuda token list --account web", name="list")
@herd_command
def list_tokens(
    herd: "HerdAddress",
    account: Annotated[str | None, typer.Option("--account", help="Only those of this account.")] = None,
    as_json: Json = False,
) -> None:
    """Show tokens: their names and what they are good for, not the tokens themselves."""
    from remuda.cli import tokens

    tokens.list_tokens(herd, account, as_json=as_json)


@command(tokens_app, "remuda token revoke ci --account web --end-sessions", name="revoke")
@herd_command
def revoke_token(
    herd: "HerdAddress",
    name: Annotated[str, typer.Argument(help="Name of the token.")],
    account: Account,
    end_sessions: EndSessions = False,
) -> None:
    """Revoke a token: within a second it is refused everywhere."""
    from remuda.cli import tokens

    tokens.revoke_token(herd, name, account=account, end_sessions=end_sessions)


@command(accounts_app, "remuda account list", name="list")
@herd_command
def list_accounts(herd: "HerdAddress", as_json: Json = False) -> None:
    """Show accounts, their limits and what they use now."""
    from remuda.cli import accounts

    accounts.list_accounts(herd, as_json=as_json)


@command(
    accounts_app,
    "remuda account set web --sessions 10 --rate 60/m",
    "remuda account set web --quota grid.browserSeconds=36000/day",
    name="set",
)
@herd_command
def set_limits(
    herd: "HerdAddress",
    account: Annotated[str, typer.Argument(help="Name of the account; it is made if there is none.")],
    sessions: Annotated[
        str | None,
        typer.Option("--sessions", help="Sessions and connections at a time, or `none` for any number."),
    ] = None,
    rate: Annotated[
        str | None, typer.Option("--rate", help="How many it may start: 60/m, 1/s, or `none` for any number.")
    ] = None,
    quota: Annotated[
        list[str] | None,
        typer.Option(
            "--quota",
            help="What it may use: grid.browserSeconds=36000/day, artifacts.storageUtilized=10GB, or `none`. "
            "May be given several times.",
        ),
    ] = None,
    soft_quota: Annotated[
        list[str] | None, typer.Option("--soft-quota", help="The same, but only the webhook is told.")
    ] = None,
) -> None:
    """Set limits and quotas of an account; those that are not named stay."""
    from remuda.cli import accounts

    accounts.set_limits(herd, account, sessions=sessions, rate=rate, hard=quota or (), soft=soft_quota or ())


@command(accounts_app, "remuda account delete web --end-sessions", name="delete")
@herd_command
def delete_account(
    herd: "HerdAddress",
    account: Annotated[str, typer.Argument(help="Name of the account.")],
    end_sessions: EndSessions = False,
) -> None:
    """Delete an account and its tokens; one that has sessions only with --end-sessions."""
    from remuda.cli import accounts

    accounts.delete_account(herd, account, end_sessions=end_sessions)


command(
    app,
    "remuda archive https://example.org --out .",
    "remuda archive https://example.org/page --shallow --note 'for the talk'",
    "remuda archive -i urls.txt --ignore-sets blogs,forums --detach",
    group=ARCHIVE,
)(archive)


@command(app, "remuda audit --limit 20", "remuda audit --follow", group=LOOK)
@herd_command
def audit(
    herd: "HerdAddress",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="Entries to show.")] = 50,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Show new entries too, until interrupted.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show who created, ended or changed what."""
    from remuda.cli.audit import show_audit

    show_audit(herd, limit=limit, follow=follow, as_json=as_json)


@command(
    app,
    "remuda usage --since 30d --step day",
    "remuda usage web --service grid --measure browserSeconds --csv",
    group=LOOK,
)
@herd_command
def usage(
    herd: "HerdAddress",
    resources: Annotated[
        list[str] | None,
        typer.Argument(help="Accounts, or other resources of the level; all that may be seen if none."),
    ] = None,
    service: Annotated[
        str, typer.Option("--service", help="grid, playwright, artifacts, s3; all if none is named.")
    ] = "",
    level: Annotated[
        str, typer.Option("--level", help="accounts, buckets, users, service or location.")
    ] = "accounts",
    measure: Annotated[
        str, typer.Option("--measure", help="Only these, such as browserSeconds,commands.")
    ] = "",
    since: Annotated[str, typer.Option("--since", help="How far back: 24h, 30d.")] = "24h",
    step: Annotated[
        Literal["slot", "hour", "day", "total"] | None,
        typer.Option("--step", help="By default as fine as is readable."),
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, one number a line.")] = False,
    as_json: Json = False,
) -> None:
    """Show what accounts used."""
    from remuda.cli.usage import show_usage

    show_usage(
        herd,
        resources=resources or (),
        service=service,
        level=level,
        measure=measure,
        since=since,
        step=step or "",
        form="json" if as_json else "csv" if as_csv else "table",
    )


@command(metering_app, "remuda metering check", name="check")
@herd_command
def check_metering(herd: "HerdAddress", as_json: Json = False) -> None:
    """Show counters that disagree with their states; exit status 1 if there are any."""
    from remuda.cli import metering

    raise typer.Exit(metering.check_counters(herd, as_json=as_json))


@command(
    metering_app,
    "remuda metering reconcile",
    "remuda metering reconcile s3/buckets/photos/storageUtilized --value 0",
    name="reconcile",
)
@herd_command
def reconcile_metering(
    herd: "HerdAddress",
    place: Annotated[
        str | None,
        typer.Argument(help="One state: s3/buckets/NAME/storageUtilized (default: all that disagree)."),
    ] = None,
    value: Annotated[
        int | None, typer.Option("--value", help="What it is in truth (default: what its counter says).")
    ] = None,
) -> None:
    """Correct states that disagree with their counters, or set one; each correction is written down."""
    from remuda.cli import metering

    metering.reconcile(herd, place, value)


@command(metering_app, "remuda metering corrections", name="corrections")
@herd_command
def show_corrections(herd: "HerdAddress", as_json: Json = False) -> None:
    """Show what was corrected."""
    from remuda.cli import metering

    metering.show_corrections(herd, as_json=as_json)


@command(metering_app, "remuda metering owners s3/buckets/photos", name="owners")
@herd_command
def show_owners(
    herd: "HerdAddress",
    place: Annotated[
        str | None,
        typer.Argument(help="A bucket or user: s3/buckets/NAME (default: all that are assigned)."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the account that a bucket or user belongs to."""
    from remuda.cli import metering

    metering.show_owners(herd, place, as_json=as_json)


@command(metering_app, "remuda metering assign s3/buckets/photos web", name="assign")
@herd_command
def assign_owner(
    herd: "HerdAddress",
    place: Annotated[str, typer.Argument(help="A bucket or user: s3/buckets/NAME.")],
    account: Annotated[str, typer.Argument(help="The account that it is to belong to.")],
) -> None:
    """Reserve a bucket or user for an account, or give it to another one."""
    from remuda.cli import metering

    metering.assign_owner(herd, place, account)


@command(metering_app, "remuda metering release s3/buckets/photos", name="release")
@herd_command
def release_owner(
    herd: "HerdAddress",
    place: Annotated[str, typer.Argument(help="A bucket or user: s3/buckets/NAME.")],
) -> None:
    """Have a bucket or user belong to the account that uses it next."""
    from remuda.cli import metering

    metering.release_owner(herd, place)


@command(metering_app, "remuda metering poison", name="poison")
@herd_command
def show_poison(
    herd: "HerdAddress",
    drop: Annotated[bool, typer.Option("--drop", help="Drop them.")] = False,
    as_json: Json = False,
) -> None:
    """Show events that cannot be counted."""
    from remuda.cli import metering

    metering.show_poison(herd, drop=drop, as_json=as_json)


@command(app, "remuda backup remuda.tar.gz --data /var/lib/remuda", group=OPERATE)
def backup(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(help="File to write, such as remuda.tar.gz.")],
    data: Data = None,
    config: ConfigFile = None,
) -> None:
    """Write a data directory to a file, also while its herd runs."""
    from remuda.cli.backup import make_backup, tidying

    with tidying():
        make_backup(load(ctx), file)


@command(app, "remuda restore remuda.tar.gz --data /var/lib/remuda", group=OPERATE)
def restore(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(help="File that `remuda backup` has written.")],
    data: Annotated[Path, typer.Option("--data", help="Directory to make of it.")],
    config: ConfigFile = None,
) -> None:
    """Make a data directory of a backup."""
    from remuda.cli.backup import restore_backup, tidying

    with tidying():
        restore_backup(load(ctx), file)


@command(app, "remuda keys", "remuda keys 'session:{session}:status'", group=OPERATE)
def keys(
    pattern: Annotated[str | None, typer.Argument(help="A key, or part of its pattern.")] = None,
    room: Annotated[str | None, typer.Option("--room", help="Only the keys of this room.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show every Redis key that Remuda uses, and what it means."""
    from remuda.keyspace.page import find_keys, list_keys, render_lines

    found = find_keys(room, pattern)
    if not any(found.values()):
        raise Lost(f"No key of Remuda matches {pattern!r}; `remuda keys` shows all")
    if as_json:
        from remuda.cli.tables import print_json

        print_json({"keys": list_keys(found)})
        return
    for line in render_lines(found, with_fields=pattern is not None):
        print(line)


def main() -> None:
    """The entry point: an expected error is one line on standard error and status 1."""
    hide_secrets()
    try:
        app()
    except RemudaError as error:
        sys.exit(f"remuda: {error.message}")
    except BrokenPipeError:  # As in `remuda keys | head`.
        sys.exit(0)


if __name__ == "__main__":
    main()
