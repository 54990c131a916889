"""The commands about files: `/se/file` brings one to the browser, `/se/files` fetches what it downloaded.

W3C WebDriver knows neither; these are Selenium's, and its clients use them without being told to.
"""

import asyncio
import os
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote

import msgspec

from remuda.base.errors import InvalidArgument
from remuda.fleet.relay import Answer, Handle, Request, Stream
from remuda.grid.capabilities import Capabilities
from remuda.grid.node.downloads import Downloads
from remuda.grid.node.uploads import MAX_BODY, Uploads
from remuda.grid.wire import answer_value
from remuda.storage.ranges import Version, decide

ONE_FILE = "/se/files/"
_PIECE = 256 << 10
_CONDITIONS = ("range", "if-range", "if-none-match", "if-modified-since")
_FILE_HEADERS = (
    # Whatever a site had the browser download must not run as a page of the herd's.
    ("Content-Disposition", "attachment"),
    ("X-Content-Type-Options", "nosniff"),
    ("Cache-Control", "no-cache"),
)


class Files:
    """The files of one session, below the node's own directory, which goes when the session ends."""

    def __init__(self, directory: Path, *, downloads: bool) -> None:
        self._uploads = Uploads(directory / "uploads")
        self._uploading = asyncio.Lock()
        self._downloads = Downloads(directory / "downloads") if downloads else None

    def wishes(self, wanted: Capabilities, *, browser: str) -> Capabilities:
        """What the browser is to be asked for: as wanted, and to download to where it can be fetched from."""
        if self._downloads is None:
            return wanted
        self._downloads.directory.mkdir(exist_ok=True)
        return with_downloads(wanted, self._downloads.directory, browser=browser)

    def devtools_command(self) -> bytes | None:
        """What ChromeDriver is to tell the browser's DevTools about downloads; None when there are none."""
        if self._downloads is None:
            return None
        params = {"behavior": "allow", "downloadPath": str(self._downloads.directory)}
        return msgspec.json.encode({"cmd": "Browser.setDownloadBehavior", "params": params})

    def grants(self, actual: Capabilities) -> Capabilities:
        """What the client is told that it got: Selenium's clients look for this before they ask for files."""
        return {**actual, "se:downloadsEnabled": True} if self._downloads is not None else actual

    def plans(self) -> dict[tuple[str, str], Handle]:
        """What becomes of each command about files, by its method and path."""
        upload = Handle(self._upload, MAX_BODY)
        return {
            ("POST", "/se/file"): upload,
            ("POST", "/file"): upload,  # Selenoid's, and Selenium's of old.
            ("GET", "/se/files"): Handle(self._list),
            ("POST", "/se/files"): Handle(self._zip),
            ("DELETE", "/se/files"): Handle(self._delete),
        }

    async def fetch(self, request: Request, name: str) -> Answer:
        """The answer to `GET /se/files/<name>`: the file itself, however large, or the wanted part of it."""
        file, size = await asyncio.to_thread(self._enabled().open, unquote(name))
        try:
            found = os.fstat(file.fileno())
            version = Version(f'"{found.st_mtime_ns:x}-{size:x}"', found.st_mtime, size)
            conditions = {name: value for name in _CONDITIONS if (value := request.header(name)) is not None}
            outcome = decide(request.method, conditions, version)
            headers = [*outcome.headers(version).items(), *_FILE_HEADERS]
            file.seek(outcome.span.start)
        except BaseException:
            file.close()
            raise
        size = outcome.span.size
        stream = Stream(_read(file, size), size, file.close)
        return Answer(outcome.status, content_type="application/octet-stream", headers=headers, stream=stream)

    async def remove(self, name: str) -> Answer:
        """Deletes one file."""
        await asyncio.to_thread(self._enabled().delete_one, unquote(name))
        return answer_value(None)

    async def _upload(self, _request: Request, body: bytes) -> Answer:
        async with self._uploading:  # They share what room is left.
            return answer_value(str(await asyncio.to_thread(self._uploads.take, body)))

    async def _list(self, _request: Request, _body: bytes) -> Answer:
        return answer_value(await asyncio.to_thread(self._enabled().listing))

    async def _zip(self, _request: Request, body: bytes) -> Answer:
        return answer_value(await asyncio.to_thread(self._enabled().zipped, body))

    async def _delete(self, _request: Request, _body: bytes) -> Answer:
        return answer_value(await asyncio.to_thread(self._enabled().delete))

    def _enabled(self) -> Downloads:
        if self._downloads is None:
            raise InvalidArgument(
                "Downloads are off; turn them on with the capability 'se:downloadsEnabled': true"
            )
        return self._downloads


async def _read(file: BinaryIO, size: int) -> AsyncGenerator[bytes, None]:
    # No more than was announced, should the file grow meanwhile. Should it shrink, the relay breaks off.
    while size > 0 and (piece := await asyncio.to_thread(file.read, min(size, _PIECE))):
        size -= len(piece)
        yield piece


def with_downloads(wanted: Capabilities, directory: Path, *, browser: str) -> Capabilities:
    """The capabilities with the browser's own words for where to download to, without asking."""
    if browser == "firefox":
        capability = "moz:firefoxOptions"
        place: dict[str, Any] = {"browser.download.folderList": 2, "browser.download.dir": str(directory)}
        manner: dict[str, Any] = {"browser.download.always_ask_before_handling_new_types": False}
    else:
        capability = "goog:chromeOptions"
        place = {"download.default_directory": str(directory)}
        # One file after another, too.
        manner = {
            "download.prompt_for_download": False,
            "profile.default_content_setting_values.automatic_downloads": 1,
        }
    options = wanted.get(capability, {})
    prefs = options.get("prefs", {}) if isinstance(options, dict) else None
    if not isinstance(prefs, dict):
        raise InvalidArgument(f"{capability!r} must be an object, and so must be its 'prefs'")
    return {**wanted, capability: {**options, "prefs": {**manner, **prefs, **place}}}
