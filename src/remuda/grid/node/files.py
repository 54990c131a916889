"""The commands about files: `/se/file` brings one to the browser, `/se/files` fetches what it downloaded.

W3C WebDriver knows neither; these are Selenium's, and its clients use them without being told to.
"""

import asyncio
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec

from remuda.base.errors import InvalidArgument
from remuda.fleet.relay import Answer, Handle, Plan, Request
from remuda.grid.capabilities import Capabilities
from remuda.grid.node.downloads import Downloads
from remuda.grid.node.outlet import Outlet
from remuda.grid.node.uploads import MAX_BODY, Uploads
from remuda.grid.wire import answer_value

ONE_FILE = "/se/files/"


class Files:
    """The files of one session, below the node's own directory, which goes when the session ends."""

    def __init__(self, directory: Path, *, downloads: bool) -> None:
        self._uploads = Uploads(directory / "uploads")
        self._uploading = asyncio.Lock()
        self._downloads = Downloads(directory / "downloads") if downloads else None
        self._outlet = Outlet(self._downloads) if self._downloads else None

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

    def close(self) -> None:
        """Serves no more files."""
        if self._outlet is not None:
            self._outlet.close()

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

    async def fetch(self, name: str) -> Plan:
        """What becomes of `GET /se/files/<name>`: the file itself, as long as it may be."""
        self._enabled()
        assert self._outlet is not None
        return await self._outlet.way_to(unquote(name))

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
                "This session keeps no downloads; ask for it with the capability 'se:downloadsEnabled': true"
            )
        return self._downloads


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
