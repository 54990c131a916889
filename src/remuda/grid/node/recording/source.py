"""Where a recording's pictures come from: the screen that the browser has for itself, or the browser."""

import asyncio
import re
from typing import Protocol
from urllib.parse import urlsplit

import msgspec

from remuda.base import clock
from remuda.base.errors import Unavailable
from remuda.fleet.relay import Address
from remuda.grid.node.devtools import DevTools
from remuda.grid.node.driver import Driver
from remuda.grid.node.recording.encoder import Encoder
from remuda.grid.node.recording.screencast import Screencast
from remuda.grid.video import Video

CALL_TIMEOUT = 10.0
LOOK_EVERY = 0.05

# ffmpeg stamps what it grabs with the time of day, and says with which it began.
_BEGAN = re.compile(r"start: (\d+\.\d+)")


class Source(Protocol):
    """What pictures come from, once it runs."""

    @property
    def began(self) -> float | None:
        """When the video began, by the monotonic clock; None before that."""

    async def run(self) -> None:
        """Brings pictures until it is cancelled."""

    def show(self, window: str) -> None:
        """Shows this window of the browser's from now on."""

    def finish(self) -> None:
        """Brings what is still to be brought."""


class Grab:
    """The source is a screen, which ffmpeg reads by itself."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self.began: float | None = None

    async def run(self) -> None:
        while self.began is None:
            await asyncio.sleep(LOOK_EVERY)
            if match := _BEGAN.search(self._encoder.log()):
                self.began = clock.monotonic() - (clock.now() - float(match[1]))
        await asyncio.Event().wait()

    def show(self, window: str) -> None: ...

    def finish(self) -> None: ...


async def open_screencast(
    driver: Driver, encoder: Encoder, video: Video, *, devtools: Address, driver_session: str
) -> Screencast:
    """A screencast of the browser's current window."""
    version = driver.call("GET", "/json/version", to=devtools, timeout=CALL_TIMEOUT)
    window = driver.call("GET", f"/session/{driver_session}/window", timeout=CALL_TIMEOUT)
    (_, told), (_, current) = await asyncio.gather(version, window)
    try:
        path = urlsplit(msgspec.json.decode(told)["webSocketDebuggerUrl"]).path
        handle = msgspec.json.decode(current)["value"]
    except (msgspec.DecodeError, KeyError, TypeError) as error:
        raise Unavailable("The browser did not report the address of its DevTools") from error
    cast = Screencast(
        await DevTools.connect(devtools, path, timeout=CALL_TIMEOUT),
        encoder=encoder,
        video=video,
    )
    cast.show(str(handle))
    return cast
