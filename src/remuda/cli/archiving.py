"""What the commands `remuda archive` and `remuda jobs` take; `archive.py` and `jobs.py` do the work."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from remuda.cli.arguments import Json, herd_command
from remuda.cli.help import ListByDefault, command

if TYPE_CHECKING:
    from remuda.cli.front_door import HerdAddress


jobs_app = typer.Typer(
    name="jobs",
    help="Show jobs, change and end them. Without a command: list.",
    cls=ListByDefault,
    epilog="remuda jobs --state open",
)

Ident = Annotated[str, typer.Argument(help="Ident of the job, as `remuda jobs` shows it, or its beginning.")]
Idents = Annotated[
    list[str], typer.Argument(help="Idents of jobs, as `remuda jobs` shows them, or their beginnings.")
]
Concurrency = Annotated[
    int | None,
    typer.Option(
        "--concurrency", "--concurrent", help="Downloads at the same time (default 3).", min=1, max=99
    ),
]
Delay = Annotated[
    str | None,
    typer.Option(
        "--delay", help="Milliseconds between two requests of a downloader: 500 or 250-375 (default 250-375)."
    ),
]
UserAgent = Annotated[
    str | None,
    typer.Option(
        "--user-agent",
        "--user-agent-alias",
        "-U",
        help="User-Agent, or an alias such as firefox or chrome-android.",
    ),
]
Note = Annotated[
    str | None, typer.Option("--note", "--explain", "--reason", help="Why the site is archived.")
]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="Directory to bring the finished files to.")]
Run = Annotated[int | None, typer.Option("--run", help="Which run of the job (default: the newest).", min=1)]


@herd_command
def archive(
    herd: "HerdAddress",
    urls: Annotated[
        list[str] | None,
        typer.Argument(help="Where to begin: a page or a site. Several are one job.", metavar="[URL]..."),
    ] = None,
    input_file: Annotated[
        str | None,
        typer.Option(
            "--input-file",
            "-i",
            help="Text file with a URL on each line, - for standard input; or the URL of such a file.",
        ),
    ] = None,
    shallow: Annotated[
        bool, typer.Option("--shallow", help="Only this page and what it needs; as `!ao` in ArchiveBot.")
    ] = False,
    depth: Annotated[
        str | None,
        typer.Option("--depth", "--level", "-l", help="How many links to follow: a number or inf (default)."),
    ] = None,
    scope: Annotated[
        Literal["original", "host", "domain", "prefix"] | None,
        typer.Option(
            "--scope",
            help="What belongs to the site (default original: the host, below the URL's directory).",
        ),
    ] = None,
    no_offsite_links: Annotated[
        bool,
        typer.Option(
            "--no-offsite-links", "--no-offsite", help="Do not fetch pages of other sites that are linked."
        ),
    ] = False,
    ignore_sets: Annotated[
        str | None,
        typer.Option(
            "--ignore-sets",
            "--ignore-set",
            "--igsets",
            "--igset",
            help="Named sets of ignore patterns: blogs,forums.",
        ),
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option("--ignore", help="Regular expression of URLs to leave out; can be repeated."),
    ] = None,
    concurrency: Concurrency = None,
    delay: Delay = None,
    user_agent: UserAgent = None,
    robots: Annotated[bool, typer.Option("--robots", help="Obey robots.txt.")] = False,
    large: Annotated[bool, typer.Option("--large", help="Only for pipelines that take large jobs.")] = False,
    pipeline: Annotated[
        str | None, typer.Option("--pipeline", help="Only for pipelines with this in their nickname.")
    ] = None,
    note: Note = None,
    parent: Annotated[
        bool, typer.Option("--parent", help="Also fetch what is above the URL's directory.")
    ] = False,
    no_sitemaps: Annotated[bool, typer.Option("--no-sitemaps", help="Do not read sitemaps.")] = False,
    follow_duplicates: Annotated[
        bool,
        typer.Option("--follow-duplicates", help="Follow the links of duplicate pages and of loops, too."),
    ] = False,
    max_size: Annotated[
        int | None, typer.Option("--max-size", help="Megabytes after which a file is cut off.", min=1)
    ] = None,
    warc_size: Annotated[
        int | None,
        typer.Option(
            "--warc-max-size", help="Megabytes after which the next WARC file is begun (default 5368).", min=2
        ),
    ] = None,
    dedupe_jobs: Annotated[
        bool, typer.Option("--dedupe-jobs", help="Only refer to what earlier jobs of the account have.")
    ] = False,
    outlinks: Annotated[
        bool, typer.Option("--outlinks", help="Write metadata records with the links of each page.")
    ] = False,
    omit_authorization: Annotated[
        bool,
        typer.Option(
            "--omit-authorization",
            help="Leave the user and password of the URL out of the files, to share them.",
        ),
    ] = False,
    no_wacz: Annotated[bool, typer.Option("--no-wacz", help="Make no WACZ file.")] = False,
    zstd: Annotated[bool, typer.Option("--zstd", help="Compress with Zstandard instead of gzip.")] = False,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Do not wait for the end.")] = False,
    out: Out = None,
) -> None:
    """Archive a site as WARC and WACZ files."""
    from remuda.cli.archive import archive_site, read_delay, read_urls

    settings = {
        **read_delay(delay),
        "concurrency": concurrency,
        "userAgent": user_agent,
        "noOffsiteLinks": no_offsite_links or None,
    }
    options = {
        "scope": scope,
        "noParent": False if parent else None,
        "obeyRobots": robots or None,
        "sitemaps": False if no_sitemaps else None,
        "skipDuplicatePages": False if follow_duplicates else None,
        "maxBody": max_size and max_size * 1_000_000,
        "splitSize": warc_size and warc_size * 1_000_000,
        "dedupeJobs": dedupe_jobs or None,
        "metadataRecords": outlinks or None,
        "omitAuthorization": omit_authorization or None,
        "wacz": False if no_wacz else None,
        "compression": "zstd" if zstd else None,
    }
    request = {
        **read_urls(urls or [], input_file),
        "depth": "shallow" if shallow else depth,
        "note": note,
        "large": large or None,
        "pipeline": pipeline,
        "ignores": ignore,
        "ignoreSets": ignore_sets and ignore_sets.split(","),
        "settings": {name: value for name, value in settings.items() if value is not None},
        "options": {name: value for name, value in options.items() if value is not None},
    }
    wanted = {name: value for name, value in request.items() if value is not None}
    raise typer.Exit(archive_site(herd, wanted, detach=detach, out=out))


@command(jobs_app, "remuda jobs list --state open", name="list")
@herd_command
def list_jobs(
    herd: "HerdAddress",
    state: Annotated[
        str, typer.Option("--state", help="Only these: open, queued, running, completed, aborted or failed.")
    ] = "",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="How many to show.")] = 50,
    as_json: Json = False,
) -> None:
    """Show jobs, the newest first."""
    from remuda.cli import jobs

    jobs.list_jobs(herd, state=state, limit=limit, as_json=as_json)


@command(jobs_app, "remuda jobs show 3f2 --log 50", "remuda jobs show 3f2 --run 1", name="show")
@herd_command
def show_job(
    herd: "HerdAddress",
    ident: Ident,
    run: Run = None,
    log: Annotated[int, typer.Option("--log", help="Lines of its log to show.", min=0, max=1000)] = 10,
    as_json: Json = False,
) -> None:
    """Show a job: its settings, what it has done, its files, its log."""
    from remuda.cli import jobs

    jobs.show_job(herd, ident, run=run, log=log, as_json=as_json)


@command(jobs_app, "remuda jobs follow 3f2 --out .", name="follow")
@herd_command
def follow_job(herd: "HerdAddress", ident: Ident, out: Out = None) -> None:
    """Watch a job until it has ended, as `remuda archive` does."""
    from remuda.cli.archive import follow_to_end
    from remuda.cli.jobs import find_ident

    raise typer.Exit(follow_to_end(herd, find_ident(herd, ident), out=out))


@command(jobs_app, "remuda jobs get 3f2 --out warcs", name="get")
@herd_command
def get_files(
    herd: "HerdAddress",
    ident: Ident,
    out: Annotated[Path, typer.Option("--out", "-o", help="Directory to bring the files to.")] = Path(),
    run: Run = None,
) -> None:
    """Bring the files of a job here."""
    from remuda.cli import jobs

    jobs.get_files(herd, ident, out=out, run=run)


@command(jobs_app, "remuda jobs pause 3f2 9ab", name="pause")
@herd_command
def pause_jobs(herd: "HerdAddress", idents: Idents) -> None:
    """Pause jobs: they fetch nothing until they are resumed."""
    from remuda.cli import jobs

    jobs.tell_jobs(herd, idents, "pause")


@command(jobs_app, "remuda jobs resume 3f2", name="resume")
@herd_command
def resume_jobs(herd: "HerdAddress", idents: Idents) -> None:
    """Resume paused jobs."""
    from remuda.cli import jobs

    jobs.tell_jobs(herd, idents, "resume")


@command(jobs_app, "remuda jobs abort 3f2", name="abort")
@herd_command
def abort_jobs(herd: "HerdAddress", idents: Idents) -> None:
    """Abort jobs; what they have archived is kept."""
    from remuda.cli import jobs

    jobs.tell_jobs(herd, idents, "abort")


@command(jobs_app, "remuda jobs set 3f2 --concurrency 8 --delay 0", name="set")
@herd_command
def set_job(
    herd: "HerdAddress",
    ident: Ident,
    concurrency: Concurrency = None,
    delay: Delay = None,
    user_agent: UserAgent = None,
    offsite_links: Annotated[
        bool | None,
        typer.Option(
            "--offsite-links/--no-offsite-links", help="Fetch pages of other sites that are linked."
        ),
    ] = None,
    ignore_reports: Annotated[
        bool | None,
        typer.Option("--ignore-reports/--no-ignore-reports", help="Log URLs that match ignore patterns."),
    ] = None,
    note: Note = None,
) -> None:
    """Change settings of a job; they apply at once."""
    from remuda.cli import jobs
    from remuda.cli.archive import read_delay

    change = {
        **read_delay(delay),
        "concurrency": concurrency,
        "userAgent": user_agent,
        "noOffsiteLinks": None if offsite_links is None else not offsite_links,
        "suppressIgnoreReports": None if ignore_reports is None else not ignore_reports,
        "note": note,
    }
    jobs.set_job(herd, ident, {name: value for name, value in change.items() if value is not None})


@command(
    jobs_app,
    "remuda jobs ignores 3f2",
    "remuda jobs ignores 3f2 --add '/calendar/' --ignore-sets forums",
    name="ignores",
)
@herd_command
def change_ignores(
    herd: "HerdAddress",
    ident: Ident,
    add: Annotated[
        list[str] | None, typer.Option("--add", help="Regular expression to add; can be repeated.")
    ] = None,
    remove: Annotated[
        list[str] | None, typer.Option("--remove", help="Regular expression to remove; can be repeated.")
    ] = None,
    ignore_sets: Annotated[
        str | None,
        typer.Option(
            "--ignore-sets", "--ignore-set", "--igsets", "--igset", help="Named sets to add: blogs,forums."
        ),
    ] = None,
) -> None:
    """Show the ignore patterns of a job, or change them."""
    from remuda.cli import jobs

    sets = ignore_sets.split(",") if ignore_sets else []
    jobs.change_ignores(herd, ident, add=add or [], remove=remove or [], sets=sets)
