"""The files of a crawl while it runs: WARC files, and beside them index, pages and log.

What is appended has a mark only after `Frontier.commit` with the `sizes` of this moment; a recorder that goes
on after a kill first cuts off everything beyond its last marks.
"""

import asyncio
import errno
import hashlib
import os
import re
import sqlite3
import ssl
from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

import msgspec

from remuda.archive.crawler.fetching import FetchedExchange
from remuda.archive.crawler.model import CrawlOrder, FinishedFile
from remuda.archive.crawler.network import ServerCertificate
from remuda.archive.crawler.response import FetchedResponse
from remuda.archive.warc.cdxj import CdxEntry, cdx_line, sort_lines
from remuda.archive.warc.records import (
    END,
    FIELDS,
    HTTP_RESPONSE,
    digest_text,
    fields_block,
    new_id,
    outlinks_record,
    record_head,
    request_record,
    revisit_record,
    warc_date,
    whole_record,
)
from remuda.archive.warc.repair import whole_size
from remuda.archive.warc.wacz import write_wacz
from remuda.archive.warc.writer import SUFFIX, DiskFull, WarcWriter
from remuda.base.clock import now, rfc3339
from remuda.base.log import get_logger

log = get_logger(__name__)

_PIECE = 1 << 20
_AUTHORIZATION = re.compile(rb"\r\nAuthorization:[^\r\n]*")
_encode = msgspec.json.encode


class _SideFile:
    """Lines beside the WARC files. They are kept in memory until the next mark, which is when they count."""

    def __init__(self, path: Path, size: int) -> None:
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
        os.ftruncate(self._file, size)
        self._size = size
        self._lines: list[bytes] = []

    def add(self, line: bytes) -> None:
        self._lines.append(line)

    def flush(self) -> int:
        """Writes the lines; the size of the file."""
        if self._lines:
            data = memoryview(b"".join(self._lines))
            size = self._size + len(data)
            try:
                while data:
                    data = data[os.write(self._file, data) :]
            except OSError as error:
                os.ftruncate(self._file, self._size)
                raise DiskFull from error
            self._lines.clear()
            self._size = size
        return self._size

    def drop_beyond(self, file_name: str, size: int) -> None:
        """Removes the lines of an index about records of this file from this position on."""
        with self.path.open("rb") as file:
            kept = b"".join(line for line in file if not _is_beyond(line, file_name, size))
        os.ftruncate(self._file, 0)
        os.write(self._file, kept)
        self._size = len(kept)

    def close(self) -> None:
        os.close(self._file)


class CrawlRecorder:
    """Writes what was fetched."""

    def __init__(self, order: CrawlOrder, directory: Path, *, name: str, sizes: dict[str, int]) -> None:
        """`sizes` are those of the last marks; of a new crawl, none."""
        self._order = order
        self._directory = directory
        self._name = name
        state = directory / "state"
        self._index = _SideFile(state / "index.cdxj", sizes.get("index", 0))
        self._pages = _SideFile(state / "pages.jsonl", sizes.get("pages", 0))
        self._log = _SideFile(state / "log.jsonl", sizes.get("log", 0))
        number = sizes.get("number", 0)
        self._other_warcs = sizes.get("other_warcs", 0)
        self._warcinfo_id = ""
        self._waiting: list[Callable[[], bytes]] = []
        self._lock = asyncio.Lock()
        self.lost_from: tuple[int, int] | None = None
        """After a power cut: the first WARC file and position from which records are missing."""
        self._cut_back(number, sizes.get("warc", 0))
        self._writer = WarcWriter(
            directory,
            name,
            compression=order.compression,
            split_size=order.split_size,
            describe=self._describe,
            number=number,
        )
        self._warcinfo_id = _warcinfo_id(self._writer.path.name)
        self._known = _open_known(order.known_payloads) if order.dedupe and order.known_payloads else None

    def _cut_back(self, number: int, size: int) -> None:
        """Removes what has no mark from the WARC files."""
        # A kill may have come while the files were being named at the end of an aborted crawl.
        for path in self._directory.glob(f"{self._name}-aborted-*.warc.*"):
            path.rename(path.with_name(path.name.replace("-aborted-", "-", 1)))
        for path in self._directory.glob(f"{self._name}-*.warc.*"):
            ordinal = path.name[len(self._name) + 1 :].partition(".")[0]
            if ordinal.isdigit() and int(ordinal) > number:
                path.unlink()
        current = self._directory / f"{self._name}-{number:05d}{SUFFIX[self._order.compression]}"
        current.touch(0o640)
        if current.stat().st_size < size:
            size = whole_size(current)
            self.lost_from = number, size
            self._index.drop_beyond(current.name, size)
        os.truncate(current, size)

    @property
    def warc_bytes(self) -> int:
        return self._other_warcs + self._writer.size

    def sizes(self) -> dict[str, int]:
        """Writes the side files; the sizes of everything, for the marks."""
        return {
            "index": self._index.flush(),
            "pages": self._pages.flush(),
            "log": self._log.flush(),
            "number": self._writer.number,
            "warc": self._writer.size,
            "other_warcs": self._other_warcs,
        }

    def _describe(self, file_name: str) -> bytes:
        """The warcinfo record of a file (WARC 1.1, 6.2)."""
        order = self._order
        self._warcinfo_id = _warcinfo_id(file_name)
        block = fields_block(
            [
                ("software", "Remuda"),
                ("format", "WARC file version 1.1"),
                (
                    "conformsTo",
                    "https://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/",
                ),
                ("robots", "obey" if order.obey_robots else "ignore"),
                ("archivebot-job-ident", order.ident),
                ("start-url", order.urls[0] if order.urls else ""),
                ("start-urls", str(len(order.urls))),
                ("depth", str(order.depth)),
                ("scope", order.scope),
                ("no-parent", str(order.no_parent).lower()),
                ("page-requisites", str(order.page_requisites).lower()),
                ("sitemaps", str(order.sitemaps).lower()),
                ("max-body", str(order.max_body)),
                ("dedupe", str(order.dedupe).lower()),
                *([("omitted-request-fields", "Authorization")] if order.omit_authorization else []),
                *order.warcinfo.items(),
            ]
        )
        fields = [
            ("WARC-Record-ID", self._warcinfo_id),
            ("WARC-Date", warc_date(now())),
            ("WARC-Filename", file_name),
            ("Content-Type", FIELDS),
        ]
        return whole_record("warcinfo", fields, block)

    # What is recorded

    def note_addresses(self, host: str, addresses: tuple[str, ...]) -> None:
        """The addresses of a host, as a record of its own (RFC 4501, RFC 4027)."""
        lines = [f"{host}. IN {'AAAA' if ':' in address else 'A'} {address}" for address in addresses]
        self._add_resource(f"dns:{host}", "text/dns", "\r\n".join([*lines, ""]).encode())

    def note_certificate(self, certificate: ServerCertificate) -> None:
        """The certificate of a server."""
        origin = certificate.origin
        pem = ssl.DER_cert_to_PEM_cert(certificate.der).encode()
        uri = f"urn:X-remuda:certificate:{origin.host}:{origin.port}"
        more = [("WARC-Protocol", certificate.protocol), ("WARC-Cipher-Suite", certificate.cipher)]
        self._add_resource(uri, "application/x-pem-file", pem, more)

    def _add_resource(
        self, uri: str, kind: str, block: bytes, more: list[tuple[str, str]] | None = None
    ) -> None:
        date = warc_date(now())

        def make() -> bytes:
            fields = [
                ("WARC-Record-ID", new_id()),
                ("WARC-Date", date),
                ("WARC-Target-URI", uri),
                ("WARC-Warcinfo-ID", self._warcinfo_id),
                *(more or []),
                ("Content-Type", kind),
            ]
            return whole_record("resource", fields, block)

        self._waiting.append(make)

    def same_payload_elsewhere(self, digest: bytes) -> tuple[str, float] | None:
        """The URL and time of the same payload in another job, if those count."""
        if self._known is None:
            return None
        row = self._known.execute("SELECT url, fetched FROM payloads WHERE digest = ?", (digest,)).fetchone()
        return None if row is None else (str(row[0]), float(row[1]))

    async def record(
        self,
        exchange: FetchedExchange,
        *,
        original: tuple[str, float] | None,
        outlinks: list[str] | None,
        mark: Callable[[int, int], None],
    ) -> None:
        """Writes an exchange, and calls `mark` with its place at the moment when it is whole.

        With an `original` (the URL and time of the same payload) it becomes a revisit record."""
        async with self._lock:
            self._begin()
            writer, response = self._writer, exchange.response
            start = writer.size
            request_id, response_id = new_id(), new_id()
            common = [("WARC-Date", warc_date(exchange.started)), ("WARC-Target-URI", exchange.url)]
            if exchange.address:
                common.append(("WARC-IP-Address", exchange.address))
            common.append(("WARC-Warcinfo-ID", self._warcinfo_id))
            request = exchange.request
            if self._order.omit_authorization:
                request = _AUTHORIZATION.sub(b"", request)
            others = [request_record(common, request_id, response_id, request)]
            if outlinks is not None:
                others.append(outlinks_record(common, response_id, outlinks))
            fields = [("WARC-Record-ID", response_id), *common, ("WARC-Concurrent-To", request_id)]
            digest = digest_text(response.body.payload_digest)
            try:
                if original is not None:
                    first = revisit_record(fields, response.head, digest, original)
                    place = writer.append_all([first, *others])[0]
                elif response.body.is_in_memory:
                    head = _response_head(fields, exchange, digest)
                    first = b"".join((head, response.head, *response.body.pieces(), END))
                    place = writer.append_all([first, *others])[0]
                else:
                    place = await self._append_long(_response_head(fields, exchange, digest), response)
                    writer.append_all(others)
                self._index_line(exchange, place, digest, is_revisit=original is not None)
                mark(writer.number, start)
            except BaseException:
                writer.take_back(start)
                raise

    async def _append_long(self, head: bytes, response: FetchedResponse) -> tuple[int, int]:
        """Writes a response that lies in a file, with pauses for everything else; its place."""
        parts = chain((head, response.head), response.body.pieces(), (END,))
        steps = self._writer.append_steps(parts)
        try:
            while True:
                next(steps)
                await asyncio.sleep(0)
        except StopIteration as stop:
            place: tuple[int, int] = stop.value
            return place
        finally:
            steps.close()

    def _begin(self) -> None:
        before = self._writer.number, self._writer.size
        self._writer.begin()
        if self._writer.number != before[0]:
            self._other_warcs += before[1]
        while self._waiting:
            self._writer.append(self._waiting[0]())
            self._waiting.pop(0)

    def _index_line(
        self, exchange: FetchedExchange, place: tuple[int, int], digest: str, *, is_revisit: bool
    ) -> None:
        response = exchange.response
        mime = response.fields.get("content-type", "").partition(";")[0].strip() or "application/octet-stream"
        entry = CdxEntry(
            exchange.url,
            "warc/revisit" if is_revisit else mime,
            str(response.status),
            digest,
            str(place[1]),
            str(place[0]),
            self._writer.path.name,
            response.truncated,
        )
        self._index.add(cdx_line(entry, exchange.started))

    def add_page(self, url: str, title: str, fetched: float) -> None:
        """A page that a reader may begin with."""
        page = {"id": new_id()[10:-1], "url": url, "ts": rfc3339(fetched), "title": title}
        self._pages.add(_encode(page) + b"\n")

    def add_log(self, entry: msgspec.Struct) -> None:
        self._log.add(_encode(entry) + b"\n")

    # The end

    def close(self) -> None:
        for file in (self._index, self._pages, self._log):
            file.close()
        self._writer.close()
        if self._known is not None:
            self._known.close()

    def finish(self, *, is_aborted: bool, payloads: Iterable[tuple[bytes, str, float]]) -> list[FinishedFile]:
        """Finishes all files; to be called after the last marks, instead of `close`. Blocks."""
        self._writer.sync()
        warcs = [self._writer.path_of(number) for number in range(self._writer.number + 1)]
        if self._known is not None:
            with self._known:
                self._known.executemany("INSERT OR IGNORE INTO payloads VALUES (?, ?, ?)", payloads)
        self.close()
        name = f"{self._name}-aborted" if is_aborted else self._name
        index = self._index.path
        if is_aborted:
            renamed = [path.with_name(path.name.replace(self._name, name, 1)) for path in warcs]
            for old, new in zip(warcs, renamed, strict=True):
                old.rename(new)
            index = index.with_name("index-aborted.cdxj")
            before, after = (f'"filename":"{each}-'.encode() for each in (self._name, name))
            with self._index.path.open("rb") as lines, index.open("wb") as changed:
                changed.writelines(line.replace(before, after) for line in lines)
            warcs = renamed
        sorted_index = self._directory / f"{name}.cdxj"
        sort_lines(index, sorted_index)
        found = [("warc", path) for path in warcs]
        found.append(("meta", self._write_meta(name)))
        found.append(("cdxj", sorted_index))
        if self._order.wacz and (package := self._write_wacz(name, warcs, sorted_index)) is not None:
            found.append(("wacz", package))
        finished = []
        for kind, path in found:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            finished.append(FinishedFile(path, kind, path.stat().st_size, digest))
        return finished

    def _write_wacz(self, name: str, warcs: list[Path], index: Path) -> Path | None:
        """The package of all files; None if there is no space for it: the files themselves are there."""
        package = self._directory / f"{name}.wacz"
        try:
            write_wacz(
                package,
                warcs=warcs,
                index=index,
                pages=self._pages.path,
                title=self._order.slug,
                created=rfc3339(),
                main_url=self._order.urls[0] if self._order.urls else "",
            )
        except OSError as error:
            package.unlink(missing_ok=True)
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise
            log.warning("no space for a WACZ", ident=self._order.ident, files=len(warcs))
            return None
        return package

    def _write_meta(self, name: str) -> Path:
        """The log as a WARC file of its own, as ArchiveBot keeps it."""
        suffix = SUFFIX[self._order.compression]
        path = self._directory / f"{name}-meta{suffix}"
        path.unlink(missing_ok=True)
        path.with_name(f"{name}-meta-00000{suffix}").unlink(missing_ok=True)
        writer = WarcWriter(
            self._directory,
            f"{name}-meta",
            compression=self._order.compression,
            split_size=1 << 62,
            describe=lambda _: self._describe(path.name),
        )
        digest, size = hashlib.sha1(usedforsecurity=False), self._log.path.stat().st_size
        with self._log.path.open("rb") as file:
            while piece := file.read(_PIECE):
                digest.update(piece)
            fields = [
                ("WARC-Record-ID", new_id()),
                ("WARC-Date", warc_date(now())),
                ("WARC-Target-URI", "urn:X-remuda:log"),
                ("WARC-Warcinfo-ID", self._warcinfo_id),
                ("Content-Type", "application/x-ndjson"),
                ("WARC-Block-Digest", digest_text(digest.digest())),
            ]

            file.seek(0)
            head = record_head("resource", fields, size)
            for _ in writer.append_steps(chain((head,), iter(lambda: file.read(_PIECE), b""), (END,))):
                pass
        writer.close()
        writer.path.rename(path)
        return path


def _warcinfo_id(file_name: str) -> str:
    """The id of a file's first record. It follows from the name: a crawl that is resumed goes on with it."""
    return f"<urn:uuid:{uuid5(NAMESPACE_URL, file_name)}>"


def _response_head(fields: list[tuple[str, str]], exchange: FetchedExchange, digest: str) -> bytes:
    response = exchange.response
    fields = [
        *fields,
        ("Content-Type", HTTP_RESPONSE),
        ("WARC-Block-Digest", digest_text(response.body.block_digest)),
        ("WARC-Payload-Digest", digest),
    ]
    if response.truncated:
        fields.append(("WARC-Truncated", response.truncated))
    return record_head("response", fields, len(response.head) + response.body.size)


def _is_beyond(line: bytes, file_name: str, size: int) -> bool:
    """Whether a line of the index is of a record of this file from this position on."""
    try:
        entry = msgspec.json.decode(line.split(b" ", 2)[2], type=CdxEntry)
    except (msgspec.DecodeError, IndexError):
        return True  # The power cut took the end of the index, too.
    return entry.filename == file_name and int(entry.offset) >= size


def _open_known(path: Path) -> sqlite3.Connection:
    """The payloads of other jobs. Several jobs may use the file at once."""
    known = sqlite3.connect(path, timeout=30.0, check_same_thread=False)
    known.execute("PRAGMA journal_mode = WAL")
    known.execute(
        "CREATE TABLE IF NOT EXISTS payloads "
        "(digest BLOB PRIMARY KEY, url TEXT NOT NULL, fetched REAL NOT NULL) WITHOUT ROWID"
    )
    return known
