"""`remuda archive`: starts a job, shows how far it has come, and brings its files here."""

import re
import sys
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.text import Text

from remuda.base import clock
from remuda.base.errors import InvalidArgument, Unavailable
from remuda.base.log import redact_wrong_url
from remuda.cli.downloads import download
from remuda.cli.front_door import HerdAddress, ask_herd
from remuda.cli.tables import printable, span

LOOK_EVERY = 0.5
TELL_EVERY = 5.0
"""Seconds between two lines of progress without a terminal."""
PATIENCE = 120.0
"""Seconds for which a herd may be away, for instance because it is restarted."""
SAVING = 30.0
"""Seconds for which the files of a run that was not ended by its pipeline are waited for."""
RATE_WINDOW = 5.0
SHOWN_LINES = 6
ENDED = ("completed", "aborted", "failed")
INTERRUPTED = 130
_CODES = {"2xx": "r2xx", "3xx": "r3xx", "4xx": "r4xx", "5xx": "r5xx", "none": "runk"}
COLOURS = {
    "queued": "yellow",
    "running": "cyan",
    "paused": "yellow",
    "aborting": "yellow",
    "completed": "green",
    "aborted": "yellow",
    "failed": "red",
}


def read_delay(text: str | None) -> dict[str, int]:
    """The settings that a delay such as `500` or `250-375` stands for."""
    if text is None:
        return {}
    match = re.fullmatch(r"(\d{1,7})(?:-(\d{1,7}))?", text.strip())
    if match is None:
        raise InvalidArgument(f"The delay {text!r} is not a number of milliseconds, or two such as 250-375")
    return {"delayMin": int(match[1]), "delayMax": int(match[2] or match[1])}


def read_urls(urls: list[str], input_file: str | None) -> dict[str, Any]:
    """The part of a request that says where a job begins."""
    if input_file is None:
        listed = urls
    elif input_file.startswith(("http://", "https://")):
        if urls:
            raise InvalidArgument("A job has either a file of URLs on the web or other URLs")
        return {"url": input_file, "urlFile": True}
    else:
        try:
            text = sys.stdin.read() if input_file == "-" else Path(input_file).read_text("utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise InvalidArgument(f"{redact_wrong_url(input_file)} cannot be read: {reason}") from error
        listed = [*urls, *(line.strip() for line in text.splitlines() if line.strip())]
    if not listed:
        raise InvalidArgument("Name a URL to archive, or a file of them with --input-file")
    return {"url": listed[0], "urls": listed[1:]}


def archive_site(herd: HerdAddress, request: dict[str, Any], *, detach: bool, out: Path | None) -> int:
    """Starts a job and follows it to its end; the exit status."""
    if out is not None:
        if detach:
            raise InvalidArgument("--detach does not wait for files: bring them later with `remuda jobs get`")
        make_directory(out)
    job = ask_herd(herd, "/api/archive/jobs", method="POST", body=request)
    if detach:
        print(job["ident"])
        return 0
    return follow_to_end(herd, job["ident"], out=out)


def follow_to_end(herd: HerdAddress, ident: str, *, out: Path | None) -> int:
    """Shows a job until it has ended, and brings its files to a directory; 0 if it completed."""
    if out is not None:
        make_directory(out)
    console = Console(highlight=False)
    follower = Follower(herd, ident)
    while True:
        try:
            job = _watch(console, follower)
            break
        except KeyboardInterrupt:
            status = _ask_what_to_do(console, herd, ident)
            if status is not None:
                return status
    summarise(console, job)
    if not job["files"] and job["startedAt"]:
        console.print("Waiting for what was captured until then.")
        job = _wait_for_files(follower)
    if not job["files"] and job["startedAt"]:
        line = f"Nothing has been saved yet. Once it is, `remuda jobs get {ident}` brings it."
        console.print(line, soft_wrap=True)
    if out is not None:
        bring_files(console, herd, job, out)
    else:
        for file in job["files"]:
            line = f"{file['kind']:<5} {size(file['size']):>9}  {herd.url}{file['path']}"
            console.print(escape(line), soft_wrap=True)
    return 0 if job["state"] == "completed" else 1


class Follower:
    """What is known of a job that is followed."""

    def __init__(self, herd: HerdAddress, ident: str) -> None:
        self._herd = herd
        self._path = f"/api/archive/jobs/{ident}"
        self.job: dict[str, Any] = {}
        self._after = 0
        self._history: deque[tuple[float, int]] = deque()
        self._heard_at = clock.monotonic()
        self.lines: deque[dict[str, Any]] = deque(maxlen=SHOWN_LINES)

    def look(self) -> list[dict[str, Any]]:
        """Looks at the job once; the new entries of its log. A herd that is away is waited for."""
        try:
            job = ask_herd(self._herd, self._path)
            query = urlencode({"after": self._after, "limit": 1000})
            entries: list[dict[str, Any]] = ask_herd(self._herd, f"{self._path}/log?{query}")["entries"]
        except Unavailable:
            if clock.monotonic() - self._heard_at > PATIENCE:
                raise
            return []
        self._heard_at = clock.monotonic()
        self.job = job
        if entries:
            self._after = entries[-1]["seq"]
            self.lines.extend(entries)
        now, done = clock.monotonic(), job["counts"]["finished"]
        self._history.append((now, done))
        while self._history[0][0] < now - RATE_WINDOW and len(self._history) > 1:
            self._history.popleft()
        return entries

    @property
    def is_over(self) -> bool:
        return self.job.get("state") in ENDED

    @property
    def rate(self) -> float:
        """URLs a second, of late."""
        (began, before), (now, done) = self._history[0], self._history[-1]
        return (done - before) / (now - began) if now > began else 0.0


def _watch(console: Console, follower: Follower) -> dict[str, Any]:
    """Shows the job until it has ended: as a picture in a terminal, else as lines."""
    if not console.is_terminal:
        return _tell_lines(console, follower)
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while True:
            follower.look()
            if follower.is_over:
                return follower.job
            if follower.job:
                live.update(_picture(follower), refresh=True)
            time.sleep(LOOK_EVERY)


def _wait_for_files(follower: Follower) -> dict[str, Any]:
    """A run that ended without its pipeline has files once another pipeline has saved them."""
    until = clock.monotonic() + SAVING
    while not follower.job["files"] and clock.monotonic() < until:
        time.sleep(LOOK_EVERY)
        follower.look()
    return follower.job


def _tell_lines(console: Console, follower: Follower) -> dict[str, Any]:
    told_at, told = 0.0, ""
    while True:
        for entry in follower.look():
            if entry.get("type") == "stdout" or entry.get("is_error"):
                console.print(escape(describe(entry)), soft_wrap=True)
        job = follower.job
        if follower.is_over:
            return job
        if job and clock.monotonic() - told_at > TELL_EVERY:
            line = f"{state_of(job)}  {_figures(job)}"
            if line != told:
                console.print(escape(line), soft_wrap=True)
            told, told_at = line, clock.monotonic()
        time.sleep(LOOK_EVERY)


def _picture(follower: Follower) -> Group:
    job = follower.job
    state = state_of(job)
    title = Text.assemble(
        (job["url"], "bold"), "  ", (state, COLOURS.get(state, "")), "  ", (span(job["seconds"]), "dim")
    )
    title.truncate(200)
    parts = [title, Text(f"{_figures(job)}   {follower.rate:.1f} URLs/s")]
    parts += [Text(f"  {url}", style="cyan", no_wrap=True, overflow="ellipsis") for url in job["current"][:4]]
    for entry in follower.lines:
        style = "red" if entry.get("is_error") else "yellow" if entry.get("is_warning") else "dim"
        parts.append(Text(f"  {describe(entry)}", style=style, no_wrap=True, overflow="ellipsis"))
    parts.append(Text(f"job {job['ident']}   Ctrl-C to abort or leave it", style="dim"))
    return Group(*parts)


def state_of(job: dict[str, Any]) -> str:
    """The state of a job, in one word for people."""
    if job["state"] in ENDED:
        return str(job["state"])
    if job["aborting"]:
        return "aborting"
    settings = job["settings"]
    return "paused" if settings and settings["paused"] else str(job["state"])


def _figures(job: dict[str, Any]) -> str:
    counts = job["counts"]
    codes = "  ".join(
        f"{name} {counts[field]}"
        for name, field in (
            ("2xx", "r2xx"),
            ("3xx", "r3xx"),
            ("4xx", "r4xx"),
            ("5xx", "r5xx"),
            ("none", "runk"),
        )
        if counts[field]
    )
    done = f"{counts['finished']} of {counts['queued']} URLs  {size(counts['bytes'])}"
    return f"{done}  {codes}".rstrip()


def describe(entry: dict[str, Any]) -> str:
    """A log entry as one line."""
    match entry.get("type"):
        case "download":
            status = entry["response_code"] or entry["wget_code"]
            return printable(f"{status} {entry['url']}")
        case "ignore":
            return printable(f"ignored {entry['url']} ({entry['pattern']})")
        case _:
            return printable(str(entry.get("message", entry)))


def size(count: float) -> str:
    """A number of bytes as a person says it."""
    for unit, length in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= length:
            return f"{count / length:.1f} {unit}"
    return f"{count:.0f} B"


def summarise(console: Console, job: dict[str, Any]) -> None:
    """Says how a job has ended."""
    state = job["state"]
    reason = printable(f": {job['reason']}") if job["reason"] else ""
    console.print(
        f"[{COLOURS[state]}]{state}[/]{escape(reason)}  {escape(job['url'])}  after {span(job['seconds'])}",
        soft_wrap=True,
    )
    console.print(escape(_figures(job)), soft_wrap=True)
    console.print(f"job {job['ident']}, run {job['run']}", style="dim")


def make_directory(path: Path) -> None:
    """Makes the directory for files; InvalidArgument if it cannot be written to."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise InvalidArgument(f"No files can be written to {path}: {error.strerror}") from error


def bring_files(console: Console, herd: HerdAddress, job: dict[str, Any], out: Path) -> None:
    """Brings all files of a job to a directory; each is checked when it is there."""
    make_directory(out)
    for file in job["files"]:
        path = download(herd, file["path"], out / Path(file["name"]).name, sha256=file["sha256"])
        console.print(escape(f"{file['kind']:<5} {size(file['size']):>9}  {path}"), soft_wrap=True)


def _ask_what_to_do(console: Console, herd: HerdAddress, ident: str) -> int | None:
    """What a person wants after Ctrl-C: None to go on, else the exit status."""
    how_to = f"The job goes on: see `remuda jobs follow {ident}`; abort it with `remuda jobs abort {ident}`."
    if not (console.is_terminal and sys.stdin.isatty()):
        console.print(how_to, soft_wrap=True)
        return INTERRUPTED
    try:
        answer = input("\nAbort the job (a), leave it running (l), or go on watching (w)? ").strip().lower()
    except (KeyboardInterrupt, EOFError):
        answer = "l"
    if answer.startswith("a"):
        ask_herd(herd, f"/api/archive/jobs/{ident}/abort", method="POST")
        console.print("The job is being aborted; waiting for its files.")
        return None
    if answer.startswith("w"):
        return None
    console.print(how_to, soft_wrap=True)
    return 0
