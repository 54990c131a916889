"""Long documents are unpacked and read for links in a helper process: those made for it take the libraries
hours, or gigabytes. See `reading.py` for what runs in there.
"""

import asyncio

import msgspec

from remuda.archive.crawler import reading
from remuda.archive.crawler.reading import MOST_FOUND, DocumentLinks, LongDocument
from remuda.archive.crawler.response import FetchedResponse
from remuda.base.helper import Helper, HelperEnded

READING = 10.0
"""Seconds of the processor to read a document."""


class DocumentReader:
    """Reads the long documents of a crawl, one at a time. There is a helper from the first one on."""

    def __init__(self) -> None:
        self._helper: Helper | None = None

    async def read(self, url: str, response: FetchedResponse) -> DocumentLinks:
        """What the document of a response leads to. HelperEnded if that takes too much; the next one gets a
        new helper."""
        if response.body.is_in_memory:
            request = _request(url, response)
        else:
            request = await asyncio.to_thread(_request, url, response)
        if self._helper is None or not self._helper.is_alive:
            try:
                self._helper = await Helper.start(reading.__name__, longest=MOST_FOUND)
            except OSError as error:
                raise HelperEnded(f"could not be started: {error.strerror}") from error
        return msgspec.msgpack.decode(await self._helper.ask(request), type=DocumentLinks)

    async def close(self) -> None:
        """Ends the helper, if there is one."""
        if self._helper is not None:
            await self._helper.stop()
            self._helper = None


def _request(url: str, response: FetchedResponse) -> bytes:
    content_type = response.fields.get("content-type", "")
    document = LongDocument(url, content_type, response.codings, response.read_payload(), READING)
    return msgspec.msgpack.encode(document)
