"""The end of a crawl: its files become artifacts, with the log and a description beside them."""

import asyncio
import gzip
import hashlib
import os
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from remuda import __version__
from remuda.archive.crawler.model import CrawlCounts, CrawlEnd, EndReason
from remuda.archive.pipeline.url_file import copy_for_others
from remuda.archive.records import Record
from remuda.archive.settings import LiveSettings
from remuda.base.errors import Unavailable
from remuda.storage.writer import ArtifactWriter

LOG = "log.jsonl"
"""The names in a run's directory."""
CRAWL = "crawl"
URL_FILE = "urls.txt"
"""Beside the log of a run: the file of URLs that it began with, if it had one."""
_SERIAL = re.compile(r"-\d{5}\.warc(\.gz|\.zst)?$")
_HASH_PIECE = 1 << 20


class ArchiveFile(Struct):
    """A finished file of a run."""

    name: str
    kind: str
    """`warc`, `meta`, `cdxj`, `wacz`, `urls`, `log` or `json`."""
    size: int
    sha256: str


class RunEnding(Struct):
    """How a crawl ended, as it is kept on disk until its files have been delivered."""

    reason: EndReason
    message: str
    counts: CrawlCounts
    files: list[ArchiveFile]


def keep_ending(path: Path, end: CrawlEnd) -> RunEnding:
    """Notes how the crawl ended: if the pipeline is killed now, the next one need not crawl again. Blocks."""
    files = [ArchiveFile(each.path.name, each.kind, each.size, each.sha256) for each in end.files]
    ending = RunEnding(end.reason, end.message, end.counts, files)
    draft = path.with_suffix(".draft")
    with draft.open("wb") as stream:
        stream.write(msgspec.json.encode(ending))
        stream.flush()
        os.fsync(stream.fileno())
    draft.rename(path)
    return ending


def read_ending(path: Path) -> RunEnding | None:
    """What was noted; None if the crawl has not ended."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=RunEnding)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


async def deliver(
    writer: ArtifactWriter,
    record: Record,
    ending: RunEnding,
    *,
    crawl: Path,
    journal: Path,
    job: Mapping[str, str],
    live: LiveSettings,
) -> list[ArchiveFile]:
    """Moves the files of a run to the storage. It can be done again when it was cut short; Unavailable when
    there is no room for them now."""
    target = await writer.open(record.run)
    try:
        files = await asyncio.to_thread(_deliver, target, record, ending, crawl, journal, job, live)
    except OSError as error:
        raise Unavailable(f"The files of {record.run} cannot be moved to {target}: {error}") from error
    await writer.announce(record.run, *(each.name for each in files))
    return files


def _deliver(
    target: Path,
    record: Record,
    ending: RunEnding,
    crawl: Path,
    journal: Path,
    job: Mapping[str, str],
    live: LiveSettings,
) -> list[ArchiveFile]:
    base = _base_name(record, ending, job)
    for each in ending.files:
        if (crawl / each.name).exists():  # Else an earlier attempt has moved it.
            _move(crawl / each.name, target / each.name)
    log_path = target / f"{base}-log.jsonl.gz"
    _compress(journal, log_path)
    files = [*ending.files, describe(log_path, "log")]
    if (listed := journal.with_name(URL_FILE)).exists():
        copy_for_others(listed, target / f"{base}-{URL_FILE}")
        files.append(describe(target / f"{base}-{URL_FILE}", "urls"))
    description = target / f"{base}.json"
    description.write_bytes(
        msgspec.json.format(msgspec.json.encode(_description(record, ending, files, job, live)), indent=2)
    )
    return [*files, describe(description, "json")]


def _base_name(record: Record, ending: RunEnding, job: Mapping[str, str]) -> str:
    """What the names of all files begin with: that of the first WARC file, without its number."""
    for each in ending.files:
        if each.kind == "warc" and _SERIAL.search(each.name):
            return _SERIAL.sub("", each.name)
    started = time.strftime("%Y%m%d-%H%M%S", time.gmtime(record.started_at or record.queued_at))
    suffix = "-aborted" if ending.reason is EndReason.ABORTED else ""
    return f"{job.get('slug', 'site')}-{started}-{record.ident[:5]}{suffix}"


def _move(source: Path, target: Path) -> None:
    """Moves a file, also to another file system; under its name it is always whole."""
    try:
        source.rename(target)
    except OSError:
        # Hidden until it is whole: the storage does not take it for an artifact.
        draft = target.with_name(f".{target.name}")
        shutil.copyfile(source, draft)
        draft.rename(target)
        source.unlink()


def _compress(source: Path, target: Path) -> None:
    with source.open("rb") as plain, gzip.open(target, "wb", compresslevel=6) as packed:
        shutil.copyfileobj(plain, packed, _HASH_PIECE)


def describe(path: Path, kind: str) -> ArchiveFile:
    """A file of a run. Blocks."""
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return ArchiveFile(path.name, kind, path.stat().st_size, digest)


def _description(
    record: Record,
    ending: RunEnding,
    files: Sequence[ArchiveFile],
    job: Mapping[str, str],
    live: LiveSettings,
) -> dict[str, Any]:
    """The job in JSON: the original's eight fields, and more."""
    return {
        "aborted": ending.reason is EndReason.ABORTED,
        "fetch_depth": record.depth,
        "pipeline_id": record.pipeline,
        "queued_at": record.queued_at,
        "started_by": job.get("started_by", ""),
        "started_in": job.get("started_in", ""),
        "url": record.url,
        "url_file": job.get("url_file"),
        "urls": record.start_urls,
        "ident": record.ident,
        "run": record.number,
        "started_at": record.started_at,
        "note": record.note,
        "end": {"reason": ending.reason, "message": ending.message},
        "deaths": record.deaths,
        "counts": ending.counts,
        "options": asdict(record.options),
        "settings": asdict(live.settings),
        "ignores": live.ignores,
        "files": files,
        "software": f"Remuda {__version__}",
    }
