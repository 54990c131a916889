"""The file of URLs that a job begins with, as for `!a <` and `!ao <` of the original.

It is fetched under the same rules as pages: what a job may not reach, its file may not be read from either.
"""

import asyncio
import shutil
from collections.abc import Mapping
from itertools import islice
from pathlib import Path

from remuda.archive.crawler.cookies import Cookies
from remuda.archive.crawler.discovery import REDIRECTS
from remuda.archive.crawler.fetching import Fetcher, make_spool
from remuda.archive.crawler.network import ConnectionPool, Network
from remuda.archive.crawler.response import FetchedResponse, FetchFailed
from remuda.archive.urls import Base, normalise, without_credentials
from remuda.base.errors import InvalidArgument
from remuda.base.log import redact_wrong_url

MAX_FILE = 16 << 20
MAX_LINES = 1_000_000
"""Of a file; further ones are not read. One of two letters takes three bytes of it, and sixty of memory."""
MAX_REDIRECTS = 8
TRIES = 3
RETRY_WAIT = 5.0


async def read_url_file(
    url: str, kept: Path, *, network: Network, user_agent: str, credentials: Mapping[str, str]
) -> list[str]:
    """Its lines; FetchFailed if it cannot be fetched. A run that is resumed begins with those of the first
    time, which are kept in a file."""
    if not await asyncio.to_thread(kept.exists):
        document = await _fetch_patiently(url, kept.with_suffix(".spool"), network, user_agent, credentials)
        await asyncio.to_thread(_write, kept, document)
    return await asyncio.to_thread(read_lines, kept)


def read_lines(kept: Path) -> list[str]:
    """The lines of a file of URLs that is there already. Blocks."""
    with kept.open(encoding="utf-8-sig", errors="replace") as file:
        return list(islice(filter(None, map(str.strip, file)), MAX_LINES))


def copy_for_others(kept: Path, target: Path) -> None:
    """Copies such a file without the users and passwords in it. Blocks."""
    with kept.open("rb") as lines, target.open("wb") as copy:
        for line in lines:
            if b"@" in line:
                parts = line.decode("utf-8-sig", "replace").splitlines()
                line = "".join(f"{without_credentials(part)}\n" for part in parts).encode()
            copy.write(line)


def _write(path: Path, document: bytes) -> None:
    draft = path.with_suffix(".draft")
    draft.touch(0o600)  # Its URLs may have passwords.
    draft.write_bytes(document)
    draft.rename(path)


async def _fetch_patiently(
    url: str, spool: Path, network: Network, user_agent: str, credentials: Mapping[str, str]
) -> bytes:
    connections = ConnectionPool(
        network, make_spool(spool), on_resolved=lambda *_: None, on_certificate=lambda _: None
    )
    fetcher = Fetcher(network, connections, Cookies(), credentials=credentials, max_body=MAX_FILE)
    fetcher.user_agent = user_agent
    try:
        for attempt in range(1, TRIES + 1):
            try:
                return await _fetch(fetcher, url)
            except FetchFailed as error:
                if error.is_final or attempt == TRIES:
                    raise
                await asyncio.sleep(RETRY_WAIT)
    finally:
        connections.stop()
        await asyncio.to_thread(shutil.rmtree, spool, ignore_errors=True)
    raise AssertionError("the last attempt returns or raises")


async def _fetch(fetcher: Fetcher, url: str) -> bytes:
    try:
        url = normalise(url)
    except InvalidArgument as error:
        raise FetchFailed(error.message, is_final=True) from error
    for _ in range(MAX_REDIRECTS + 1):
        response = (await fetcher.fetch(url, None)).response
        try:
            location = response.fields.get("location") if response.status in REDIRECTS else None
            if location is None:
                return _document_of(response)
        finally:
            response.body.close()
        target = Base(url).resolve(location)
        if target is None:
            raise FetchFailed(f"it is redirected to {redact_wrong_url(location)[:200]!r}", is_final=True)
        url = target
    raise FetchFailed("it is redirected too often", is_final=True)


def _document_of(response: FetchedResponse) -> bytes:
    if response.status != 200:
        is_final = 400 <= response.status < 500 and response.status != 429
        raise FetchFailed(f"it is answered with status {response.status}", is_final=is_final)
    if response.truncated:
        raise FetchFailed(f"it is cut off ({response.truncated})")
    return response.read_document(limit=MAX_FILE)
