"""All URLs of a crawl on disk: found, waiting, done. With it the marks that make a kill harmless.

SQLite in WAL mode, on the loop's own thread. Each call takes microseconds and commits do not sync, so a
thread would cost more than it saves; only a checkpoint of the log, every few ten thousand URLs, takes
milliseconds.

The law of resuming: what a fetch has led to (its mark, the links found, its payload's digest) is committed
together with the sizes of all files that were written until then. What lies beyond those sizes after a kill
has no mark, and is cut off; its URLs are fetched again.
"""

import sqlite3
from collections import deque
from collections.abc import Iterable, Iterator
from enum import IntEnum
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import msgspec

from remuda.archive.crawler.model import CrawlCounts
from remuda.archive.urls import host_of

_CACHE_KIB = 16 << 10
_CHECKPOINT_PAGES = 4000
_REMEMBERED = 50_000
"""URLs in memory that are known to be in the table: most links of a site are to the same pages."""
_MAX_REMEMBERED = 500
"""Characters of such a URL: with the longest that are followed, they would take a gigabyte."""
_FIRST_TAKE, _MOST_TAKEN = 16, 256

_SCHEMA = """
CREATE TABLE IF NOT EXISTS hosts (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS urls (
  id INTEGER PRIMARY KEY,
  hash INTEGER NOT NULL UNIQUE,
  url TEXT NOT NULL,
  host INTEGER NOT NULL,
  parent INTEGER NOT NULL,
  root INTEGER NOT NULL,
  depth INTEGER NOT NULL,
  inline INTEGER NOT NULL,
  redirects INTEGER NOT NULL,
  state INTEGER NOT NULL DEFAULT 0,
  tries INTEGER NOT NULL DEFAULT 0,
  due REAL,
  status INTEGER,
  fetched REAL,
  file INTEGER,
  position INTEGER
);
CREATE INDEX IF NOT EXISTS waiting ON urls (host, id) WHERE state = 0;
CREATE INDEX IF NOT EXISTS retrying ON urls (state, due) WHERE state IN (1, 2);
CREATE TABLE IF NOT EXISTS payloads (digest BLOB PRIMARY KEY, url INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS pages (hash INTEGER PRIMARY KEY, url INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS notes (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
"""
_ADD = """
INSERT OR IGNORE INTO urls (hash, url, host, parent, root, depth, inline, redirects)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""
_COLUMNS = "u.id, u.url, p.url, u.root, u.depth, u.inline, u.redirects, u.tries, u.host"
_TAKE = f"""
SELECT {_COLUMNS} FROM urls u LEFT JOIN urls p ON p.id = u.parent
WHERE u.state = 0 AND u.host = ? AND u.id > ? ORDER BY u.id LIMIT ?
"""
_DUE = f"""
SELECT {_COLUMNS} FROM urls u LEFT JOIN urls p ON p.id = u.parent
WHERE u.state = 1 AND u.due <= ? ORDER BY u.due LIMIT {_MOST_TAKEN}
"""
_FINISH = "UPDATE urls SET state = ?, status = ?, fetched = ?, file = ?, position = ? WHERE id = ?"
_RETRY = "UPDATE urls SET state = 1, tries = ?, due = ? WHERE id = ?"
_NOTE = "INSERT INTO notes VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value"


class UrlState(IntEnum):
    """Where a URL is on its way."""

    WAITING = 0
    RETRYING = 1
    """Waits for the time of its next try."""
    TRYING_AGAIN = 2
    """Taken for its next try: after a kill it is RETRYING again."""
    DONE = 3
    FAILED = 4
    SKIPPED = 5
    """Ignored, offsite or forbidden by robots.txt when it was its turn."""


class Found(NamedTuple):
    """A URL to add."""

    url: str
    host: str
    parent: int
    root: int
    depth: int
    inline: int
    """How many requisites it is away from a page; 0 for a page."""
    redirects: int


class ClaimedUrl(NamedTuple):
    """A URL whose turn it is."""

    id: int
    url: str
    referrer: str | None
    root: int
    depth: int
    inline: int
    redirects: int
    tries: int
    host: int


class HostQueue:
    """The URLs of one host that wait; the first few of them in memory."""

    __slots__ = ("_mark", "_may_have_more", "_size", "_taken", "id", "name")

    def __init__(self, number: int, name: str) -> None:
        self.id = number
        self.name = name
        self._taken: deque[ClaimedUrl] = deque()
        self._mark = 0
        self._size = _FIRST_TAKE
        self._may_have_more = True


class Frontier:
    """Blocks, for microseconds. To be used from one thread."""

    def __init__(self, path: Path, *, patience: float = 5.0) -> None:
        """`patience` is how long to wait for another process that has it: one that was just killed."""
        self._db = sqlite3.connect(path, timeout=patience, isolation_level=None, cached_statements=64)
        # Not locked exclusively, which would save no time: a backup reads it meanwhile, and in WAL mode
        # neither waits for the other. The transaction below keeps a second writer out. Between two of them
        # the lock does that the pipeline has on the directory of the run.
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = NORMAL")
        self._db.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        self._db.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        self._db.executescript(_SCHEMA)
        self._db.execute("BEGIN IMMEDIATE")
        self._db.execute("UPDATE urls SET state = 1 WHERE state = 2")
        self._hosts = {name: HostQueue(n, name) for n, name in self._db.execute("SELECT id, name FROM hosts")}
        self._by_id = {host.id: host for host in self._hosts.values()}
        self._new: list[tuple[int, str, int, int, int, int, int, int]] = []
        self._done: list[tuple[int, int, float, int, int, int]] = []
        self._known: set[str] = set()
        self._known_before: set[str] = set()
        self.retrying: int = self._db.execute("SELECT count(*) FROM urls WHERE state = 1").fetchone()[0]
        """URLs that wait for another try."""

    # URLs

    def is_known(self, url: str) -> bool:
        """Whether this URL is certainly in the table; a no may be wrong, and `add` then finds out."""
        return url in self._known or url in self._known_before

    def add(self, found: Iterable[Found]) -> list[HostQueue]:
        """Adds URLs, except those that are in the table. The hosts that may have more work by it."""
        hosts = {}
        for each in found:
            if self.is_known(each.url):
                continue
            if len(self._known) >= _REMEMBERED:
                self._known_before, self._known = self._known, set()
            if len(each.url) <= _MAX_REMEMBERED:
                self._known.add(each.url)
            host = self._hosts.get(each.host) or self._make_host(each.host)
            host._may_have_more = True
            hosts[host.id] = host
            self._new.append((_hash(each.url), each.url, host.id, *each[2:]))
        return list(hosts.values())

    def _make_host(self, name: str) -> HostQueue:
        number = self._db.execute("INSERT INTO hosts (name) VALUES (?)", (name,)).lastrowid
        assert number is not None
        host = self._hosts[name] = self._by_id[number] = HostQueue(number, name)
        return host

    def hosts(self) -> list[HostQueue]:
        """All hosts that may have work."""
        return [host for host in self._hosts.values() if host._may_have_more or host._taken]

    def host(self, number: int) -> HostQueue:
        return self._by_id[number]

    def take(self, host: HostQueue) -> ClaimedUrl | None:
        """The next URL of a host. It counts as waiting until it is finished: a kill loses nothing."""
        if not host._taken and host._may_have_more:
            self._flush_new()
            rows = self._db.execute(_TAKE, (host.id, host._mark, host._size)).fetchall()
            host._may_have_more = len(rows) == host._size
            host._size = min(2 * host._size, _MOST_TAKEN)
            if rows:
                host._mark = rows[-1][0]
                host._taken.extend(map(ClaimedUrl._make, rows))
        return host._taken.popleft() if host._taken else None

    def take_due(self, moment: float) -> list[HostQueue]:
        """Hands out URLs whose next try is due to their hosts; those hosts."""
        if not self.retrying:
            return []
        claims = [ClaimedUrl._make(row) for row in self._db.execute(_DUE, (moment,))]
        self._db.executemany("UPDATE urls SET state = 2 WHERE id = ?", [(claim.id,) for claim in claims])
        self.retrying -= len(claims)
        hosts = {}
        for claim in claims:
            host = hosts[claim.host] = self._by_id[claim.host]
            host._taken.append(claim)
        return list(hosts.values())

    def next_due(self) -> float | None:
        """When the next URL is to be tried again."""
        if not self.retrying:
            return None
        found = self._db.execute("SELECT min(due) FROM urls WHERE state = 1").fetchone()[0]
        return None if found is None else float(found)

    def give_back(self, claim: ClaimedUrl) -> None:
        """This URL was not fetched after all; it is the next of its host."""
        self._by_id[claim.host]._taken.appendleft(claim)

    def finish(
        self,
        claim: ClaimedUrl,
        state: UrlState,
        *,
        status: int = 0,
        fetched: float = 0.0,
        file: int = -1,
        position: int = -1,
    ) -> None:
        """This URL is done with; its record is at this position of the WARC file of this number."""
        self._done.append((state, status, fetched, file, position, claim.id))

    def retry(self, claim: ClaimedUrl, *, tries: int, due: float) -> None:
        """This URL is to be tried again at that time."""
        self._db.execute(_RETRY, (tries, due, claim.id))
        self.retrying += 1

    def count_urls(self) -> int:
        """URLs ever added."""
        self._flush_new()
        return int(self._db.execute("SELECT coalesce(max(id), 0) FROM urls").fetchone()[0])

    def url_of(self, number: int) -> str:
        return str(self._db.execute("SELECT url FROM urls WHERE id = ?", (number,)).fetchone()[0])

    def start_urls(self) -> list[str]:
        """The URLs that are the root of others: the start URLs, and where they were redirected to."""
        query = "SELECT url FROM urls WHERE root = 0 AND depth = 0 AND inline = 0"
        return [url for (url,) in self._db.execute(query)]

    def id_of(self, url: str) -> int | None:
        """The number of a URL, if it is in the table."""
        self._flush_new()
        row = self._db.execute("SELECT id FROM urls WHERE hash = ?", (_hash(url),)).fetchone()
        return None if row is None else int(row[0])

    def claim_of(self, url: str) -> ClaimedUrl | None:
        """A URL that is waiting, out of its turn. `take` still finds it; see `is_waiting`."""
        self._flush_new()
        row = self._db.execute(
            f"SELECT {_COLUMNS} FROM urls u LEFT JOIN urls p ON p.id = u.parent "
            "WHERE u.hash = ? AND u.state = 0",
            (_hash(url),),
        ).fetchone()
        return None if row is None else ClaimedUrl._make(row)

    def results(self) -> Iterator[tuple[str, UrlState, int]]:
        """Every URL with its state and status."""
        self._flush()
        query = "SELECT url, state, coalesce(status, 0) FROM urls ORDER BY id"
        for url, state, status in self._db.execute(query):
            yield url, UrlState(state), status

    # Duplicates

    def same_payload(self, digest: bytes) -> tuple[str, float] | None:
        """The URL that this job holds the same payload of, and when it was fetched."""
        query = "SELECT u.id, u.url, u.fetched FROM payloads d JOIN urls u ON u.id = d.url WHERE d.digest = ?"
        row = self._db.execute(query, (digest,)).fetchone()
        if row is None:
            return None
        number, url, fetched = row
        if fetched is None:  # Its mark is not written yet.
            fetched = next((mark[2] for mark in self._done if mark[5] == number), None)
        return None if fetched is None else (url, fetched)

    def add_payload(self, digest: bytes, claim: ClaimedUrl) -> None:
        self._db.execute("INSERT OR IGNORE INTO payloads VALUES (?, ?)", (digest, claim.id))

    def payloads(self) -> Iterator[tuple[bytes, str, float]]:
        """Every payload that the job holds: digest, URL, time."""
        self._flush()
        query = "SELECT d.digest, u.url, u.fetched FROM payloads d JOIN urls u ON u.id = d.url"
        yield from self._db.execute(f"{query} WHERE u.fetched > 0")

    def same_page(self, fingerprint: int, claim: ClaimedUrl) -> str | None:
        """The URL of a page with this fingerprint. If there is none, this one is from now on."""
        row = self._db.execute(
            "SELECT u.id, u.url FROM pages p JOIN urls u ON u.id = p.url WHERE p.hash = ?", (fingerprint,)
        ).fetchone()
        if row is None:
            self._db.execute("INSERT INTO pages VALUES (?, ?)", (fingerprint, claim.id))
        return None if row is None or row[0] == claim.id else str(row[1])

    # Marks

    def read_note(self, name: str) -> bytes | None:
        row = self._db.execute("SELECT value FROM notes WHERE name = ?", (name,)).fetchone()
        return None if row is None else bytes(row[0])

    def write_note(self, name: str, value: bytes) -> None:
        self._db.execute(_NOTE, (name, value))

    def commit(self, counts: CrawlCounts, files: dict[str, int]) -> None:
        """Everything until now survives a kill, and agrees with these sizes of the files."""
        self._flush()
        self.write_note("counts", msgspec.json.encode(counts))
        self.write_note("files", msgspec.json.encode(files))
        self._db.execute("COMMIT")
        self._db.execute("BEGIN IMMEDIATE")

    def reset_beyond(self, file: int, position: int) -> int:
        """The records of a WARC file from this position on are lost: their URLs wait again. How many."""
        which = "file > ? OR (file = ? AND position >= ?)"
        place = (file, file, position)
        self._db.execute(f"DELETE FROM payloads WHERE url IN (SELECT id FROM urls WHERE {which})", place)
        self._db.execute(f"DELETE FROM pages WHERE url IN (SELECT id FROM urls WHERE {which})", place)
        return self._db.execute(
            f"UPDATE urls SET state = 0, fetched = NULL, file = NULL, position = NULL WHERE {which}", place
        ).rowcount

    def close(self) -> None:
        """Closes the file; what was not committed is lost, as in a kill."""
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")
        self._db.close()

    def _flush_new(self) -> None:
        if self._new:
            self._db.executemany(_ADD, self._new)
            self._new.clear()

    def _flush(self) -> None:
        self._flush_new()
        if self._done:
            self._db.executemany(_FINISH, self._done)
            self._done.clear()


def _hash(url: str) -> int:
    return int.from_bytes(blake2b(url.encode(), digest_size=8).digest(), "big", signed=True)


def host_name(url: str) -> str:
    """The queue that a URL belongs to: politeness is due to a host, whatever its ports."""
    return host_of(url)
