"""`remuda jobs`: shows the jobs of a running herd, changes and ends them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from rich.console import Console
from rich.text import Text

from remuda.base.errors import InvalidArgument, Lost
from remuda.base.log import redact_wrong_url
from remuda.cli.archive import COLOURS, bring_files, describe, size, state_of
from remuda.cli.front_door import HerdAddress, ask_herd
from remuda.cli.prefixes import complete
from remuda.cli.tables import print_json, printable, since, span, table, table_console

IDENT_LENGTH = 25
PAGE = 1000


def list_jobs(herd: HerdAddress, *, state: str, limit: int, as_json: bool = False) -> None:
    """Prints jobs, the newest first. Programs that read them get each on one line."""
    query = urlencode({"state": state, "limit": limit})
    answer = ask_herd(herd, f"/api/archive/jobs?{query}")
    if as_json:
        print_json(answer)
        return
    console, jobs = table_console(), answer["jobs"]
    if not jobs:
        console.print("no jobs", style="dim")
        return
    shown = table("job", "state", "done", "waiting", "errors", "size", "age", "URL")
    for column in shown.columns[:-1]:
        column.no_wrap = True
    for job in jobs:
        counts, word = job["counts"], state_of(job)
        shown.add_row(
            job["ident"] + (f" #{job['run']}" if job["run"] > 1 else ""),
            Text(word, style=COLOURS.get(word, "")),
            str(counts["finished"]),
            str(counts["waiting"]) if job["finishedAt"] is None else "",
            str(counts["errors"]),
            size(counts["bytes"]),
            since(job["queuedAt"]),
            Text(job["url"]),
        )
    console.print(shown)


def show_job(herd: HerdAddress, ident: str, *, run: int | None, log: int, as_json: bool = False) -> None:
    """Prints all that is known of a job."""
    job = _read(herd, ident, run)
    if as_json:
        print_json(job)
        return
    console = Console(highlight=False)
    counts, word = job["counts"], state_of(job)
    shown = table("", "")
    shown.show_header = False
    rows: list[tuple[str, str | Text]] = [
        ("job", f"{job['ident']}, run {job['run']} of {', '.join(map(str, reversed(job['runs'])))}"),
        ("URL", Text(job["url"])),
        ("password for", Text(", ".join(job["credentialsFor"]))),
        ("state", Text(word, style=COLOURS.get(word, ""))),
        ("because", Text(printable(job["reason"]))),
        ("depth", job["depth"]),
        ("asked for", f"{since(job['queuedAt'])} ago by {job['startedBy']}"),
        ("note", Text(printable(job["note"]))),
        ("ran for", span(job["seconds"]) if job["startedAt"] else ""),
        ("URLs", f"{counts['finished']} of {counts['queued']} done, {counts['errors']} errors"),
        (
            "responses",
            "  ".join(f"{field[1:]} {counts[field]}" for field in ("r1xx", "r2xx", "r3xx", "r4xx", "r5xx")),
        ),
        ("size", f"{size(counts['bytes'])} received, {size(counts['warcBytes'])} of WARC"),
        ("deaths", str(job["deaths"]) if job["deaths"] else ""),
        ("settings", _settings(job["settings"])),
        *(("too slow", Text(printable(pattern))) for pattern in job["droppedIgnores"]),
    ]
    for name, value in rows:
        if value:
            shown.add_row(Text(name, style="dim"), value)
    for url in job["current"]:
        shown.add_row(Text("fetching", style="dim"), Text(url))
    console.print(shown)
    for file in job["files"]:
        line = Text.assemble((f"{file['kind']:<9}  ", "dim"), f"{size(file['size']):>9}  {file['name']}")
        console.print(line, soft_wrap=True)
    if log and job["settings"]:
        query = urlencode({"limit": log})
        for entry in ask_herd(herd, f"{_path(job['ident'])}/log?{query}")["entries"]:
            console.print(
                Text(describe(entry), style="red" if entry.get("is_error") else "dim"), soft_wrap=True
            )


def _settings(settings: dict[str, Any] | None) -> str:
    if settings is None:
        return ""
    parts = [
        f"{settings['concurrency']} downloads at a time",
        f"delay {settings['delayMin']}-{settings['delayMax']} ms",
        f"{settings['ignores']} ignores{'' if settings['suppressIgnoreReports'] else ' (reported)'}",
        "no offsite links" if settings["noOffsiteLinks"] else "",
        settings["userAgent"],
    ]
    return ", ".join(part for part in parts if part)


def get_files(herd: HerdAddress, ident: str, *, out: Path, run: int | None) -> None:
    """Brings the files of a run to a directory."""
    job = _read(herd, ident, run)
    if not job["files"]:
        raise Lost(f"Run {job['run']} of job {job['ident']} has no files: it is {state_of(job)}")
    bring_files(Console(highlight=False), herd, job, out)


def tell_jobs(herd: HerdAddress, idents: Sequence[str], verb: str) -> None:
    """Pauses, resumes or aborts jobs."""
    for ident in [find_ident(herd, each) for each in idents]:
        job = ask_herd(herd, f"{_path(ident)}/{verb}", method="POST")
        print(f"{job['ident']} {state_of(job)}")


def set_job(herd: HerdAddress, ident: str, change: dict[str, Any]) -> None:
    """Changes settings of a job, and prints them."""
    if not change:
        raise InvalidArgument("name at least one setting to change: see `remuda jobs set --help`")
    job = ask_herd(herd, _path(find_ident(herd, ident)), method="PATCH", body=change)
    print(f"{job['ident']} {_settings(job['settings'])}")


def change_ignores(
    herd: HerdAddress, ident: str, *, add: Sequence[str], remove: Sequence[str], sets: Sequence[str]
) -> None:
    """Changes the ignore patterns of a job, or prints them if nothing is to be changed."""
    path = f"{_path(find_ident(herd, ident))}/ignores"
    if not (add or remove or sets):
        for pattern in ask_herd(herd, path)["ignores"]:
            print(pattern)
        return
    changed = ask_herd(herd, path, method="PATCH", body={"add": add, "remove": remove, "sets": sets})
    print(f"{changed['added']} added, {changed['removed']} removed")


def _read(herd: HerdAddress, ident: str, run: int | None) -> Any:
    return ask_herd(herd, _path(find_ident(herd, ident)) + (f"?run={run}" if run else ""))


def find_ident(herd: HerdAddress, typed: str) -> str:
    """The ident that was meant: its beginning is enough, and its leading zeros need not be typed."""
    if "/" in typed:  # A URL, most likely. There is no such path.
        raise InvalidArgument(f"{redact_wrong_url(typed)!r} is not the ident of a job: see `remuda jobs`")
    if len(typed) >= IDENT_LENGTH:
        return typed
    known: set[str] = set()
    before = ""
    while True:
        page = ask_herd(herd, f"/api/archive/jobs?limit={PAGE}{before}")
        known |= {job["ident"] for job in page["jobs"]}
        if page["cursor"] is None:
            break
        before = f"&{urlencode({'before': page['cursor']})}"
    if (whole := typed.rjust(IDENT_LENGTH, "0")) in known:
        return whole
    return complete(typed, known, what="jobs")


def _path(ident: str) -> str:
    return f"/api/archive/jobs/{quote(ident, safe='')}"
