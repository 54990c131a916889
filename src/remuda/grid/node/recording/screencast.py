"""Pictures of a Chromium without a screen: it sends one whenever the page looks different.

The picture is that of the window to which the client's commands go. The browser waits to be told that a
picture was taken before it makes more, so it makes no more than the video has room for.
"""

import asyncio
import base64
import math

import msgspec
from msgspec import Struct

from remuda.base import clock
from remuda.grid.node.devtools import DevTools
from remuda.grid.node.recording.encoder import Encoder
from remuda.grid.node.recording.matroska import stream_head, stream_picture
from remuda.grid.video import Video

JPEG_QUALITY = 70
PATIENCE = 1.0
"""Seconds after which a browser that has shown nothing is asked again, then twice as many."""
REPEAT_EVERY = 1.0
"""A still page's picture goes to the encoder this often: a live video must go on."""


class Frame(Struct):
    """A picture, as `Page.screencastFrame` brings it."""

    data: str
    number: int = msgspec.field(name="sessionId")


class Attached(Struct):
    """The answer to `Target.attachToTarget`."""

    session: str = msgspec.field(name="sessionId", default="")


class Screencast:
    """Brings the pictures of one browser to an encoder."""

    def __init__(self, tools: DevTools, encoder: Encoder, video: Video) -> None:
        self._tools = tools
        self._encoder = encoder
        self._video = video
        self._window = ""
        self._attaching = 0
        self._ask_again_at = 0.0
        self._patience = PATIENCE
        self._shown = ""
        self._picture = b""
        self._waiting: int | None = None
        self._written_at = 0.0
        self.began: float | None = None
        """When the first picture was taken, by the monotonic clock."""
        self.dropped = 0

    def show(self, window: str) -> None:
        """Shows this window from now on; ChromeDriver's handles are the browser's own ids."""
        self._window, self._patience = window, PATIENCE
        self._ask()

    def _ask(self) -> None:
        if self._shown:
            self._tools.send("Target.detachFromTarget", {"sessionId": self._shown})
        self._shown, self._waiting = "", None
        target = {"targetId": self._window, "flatten": True}
        self._attaching = self._tools.send("Target.attachToTarget", target)
        self._ask_again_at = clock.monotonic() + self._patience
        self._patience *= 2

    async def run(self) -> None:
        """Takes pictures until it is cancelled."""
        self._encoder.write(stream_head())
        async with asyncio.TaskGroup() as group:
            group.create_task(self._hear(), name="hear pictures")
            group.create_task(self._pass_on(), name="pass pictures on")

    def finish(self) -> None:
        """Shows the last picture until now."""
        if self.began is not None and not self._encoder.is_busy:
            self._write()

    # What comes in

    async def _hear(self) -> None:
        async for said in self._tools.listen():
            if said.id and said.id == self._attaching:
                self._start(msgspec.json.decode(said.result, type=Attached).session)
            elif said.method == "Page.screencastFrame" and said.session == self._shown:
                self._take(msgspec.json.decode(said.params, type=Frame))

    def _start(self, session: str) -> None:
        self._shown = session  # Empty when the window is gone already: then the last picture stays.
        if session:
            width, height = self._video.size
            form = {"format": "jpeg", "quality": JPEG_QUALITY, "maxWidth": width, "maxHeight": height}
            self._tools.send("Page.startScreencast", form, session=session)

    def _take(self, frame: Frame) -> None:
        self._picture = base64.b64decode(frame.data)
        self._waiting = frame.number
        self._ask_again_at = math.inf

    # What goes out

    async def _pass_on(self) -> None:
        while True:
            await asyncio.sleep(1 / self._video.rate)
            # Asked while it leaves one page for another, a browser may forget it.
            if clock.monotonic() > self._ask_again_at:
                self._ask()
            if self._waiting is None and clock.monotonic() - self._written_at < REPEAT_EVERY:
                continue
            if not self._picture:
                continue
            if self._encoder.is_busy:
                self.dropped += 1
                continue
            self._write()
            if self._waiting is not None:
                acknowledged = {"sessionId": self._waiting}
                self._tools.send("Page.screencastFrameAck", acknowledged, session=self._shown)
                self._waiting = None

    def _write(self) -> None:
        now = clock.monotonic()
        if self.began is None:
            self.began = now
        self._written_at = now
        self._encoder.write(stream_picture(self._picture, at=now - self.began))
